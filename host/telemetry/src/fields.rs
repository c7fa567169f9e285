//! Formats a log line and its fields: always one line for one record, even if a value contains line
//! breaks. In text, a value is quoted if it could not be read back as one word, and control
//! characters are escaped. In JSON, a list field is an array and a map field is an object. A line
//! that is written within a span has its ids.

use dispatcher_core::telemetry::escape::steers;
use dispatcher_core::telemetry::trace::{self, SpanContext};
use serde::ser::{SerializeMap, Serializer as _};
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::registry::LookupSpan;

/// The fields with a list, which are recorded as a JSON array of texts.
const LISTS: &[&str] = &["message_ids"];
/// The fields with a map, which are recorded as a JSON object of texts.
const MAPS: &[&str] = &["fields"];

/// A formatter that writes fields as `key=value` after the message.
pub(super) struct TextFields;

impl<'writer> FormatFields<'writer> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = Text {
            writer,
            is_first: true,
            result: Ok(()),
        };
        fields.record(&mut text);
        text.result?;
        let Some(context) = trace::active_context() else {
            return Ok(());
        };
        let SpanContext {
            trace_id, span_id, ..
        } = context;
        write!(text.writer, " trace_id={trace_id} span_id={span_id}")
    }
}

struct Text<'writer> {
    writer: Writer<'writer>,
    is_first: bool,
    result: fmt::Result,
}

impl Text<'_> {
    fn write(&mut self, field: &Field, value: &str, is_text: bool) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        if field.name() == "message" {
            return write_escaped(&mut self.writer, value, false);
        }
        self.write_pair(field.name(), value, is_text)
    }

    /// Writes one entry of a map, whose name may contain any characters.
    fn write_named(&mut self, name: &str, value: &str, is_text: bool) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        let word = name.replace(
            |letter: char| !letter.is_alphanumeric() && !"_-.".contains(letter),
            "_",
        );
        self.write_pair(&word, value, is_text)
    }

    fn write_pair(&mut self, name: &str, value: &str, is_text: bool) -> fmt::Result {
        if self.writer.has_ansi_escapes() {
            write!(self.writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m")?
        } else {
            write!(self.writer, "{name}=")?
        }
        if is_text || needs_quotes(value) {
            self.writer.write_char('"')?;
            write_escaped(&mut self.writer, value, true)?;
            self.writer.write_char('"')
        } else {
            self.writer.write_str(value)
        }
    }
}

impl Visit for Text<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.result.is_ok() {
            self.result = self.write(field, value, true);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.result.is_ok() {
            let value = format!("{value:?}");
            self.result = if let Some(list) = list(field, &value) {
                self.write(field, &list.join(","), true)
            } else if let Some(map) = map(field, &value) {
                let mut entries = map.iter();
                entries.try_for_each(|(name, value)| self.write_named(name, value, true))
            } else {
                self.write(field, &value, false)
            };
        }
    }
}

/// Whether a value could not be read back as one word.
fn needs_quotes(value: &str) -> bool {
    let breaks =
        |letter: char| letter.is_whitespace() || steers(letter) || "\"=\\".contains(letter);
    value.is_empty() || value.contains(breaks)
}

/// Writes a text with control characters escaped; with `in_quotes`, also quotes.
fn write_escaped(out: &mut impl Write, text: &str, in_quotes: bool) -> fmt::Result {
    for letter in text.chars() {
        match letter {
            '"' | '\\' if in_quotes => write!(out, "\\{letter}")?,
            '\t' if !in_quotes => out.write_char(letter)?,
            _ if steers(letter) => write!(out, "{}", letter.escape_default())?,
            _ => out.write_char(letter)?,
        }
    }
    Ok(())
}

/// Returns the content of a list field.
pub(super) fn list(field: &Field, value: &str) -> Option<Vec<String>> {
    let is_list = LISTS.contains(&field.name());
    is_list.then(|| serde_json::from_str(value).ok()).flatten()
}

/// Returns the content of a map field.
pub(super) fn map(field: &Field, value: &str) -> Option<BTreeMap<String, String>> {
    let is_map = MAPS.contains(&field.name());
    is_map.then(|| serde_json::from_str(value).ok()).flatten()
}

/// A formatter that writes a record as one JSON object on a line: `timestamp`, `level`, the message
/// and the fields at the top level, and `target`.
pub(super) struct JsonLines<T>(pub T);

impl<S, N, T> FormatEvent<S, N> for JsonLines<T>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
    T: FormatTime,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        self.0.format_time(&mut Writer::new(&mut timestamp))?;
        let mut bytes = Vec::new();
        object(&mut bytes, &timestamp, event).map_err(|_| fmt::Error)?;
        let line = String::from_utf8(bytes).map_err(|_| fmt::Error)?;
        writeln!(writer, "{line}")
    }
}

fn object(line: &mut Vec<u8>, timestamp: &str, event: &Event<'_>) -> serde_json::Result<()> {
    let metadata = event.metadata();
    let mut json = serde_json::Serializer::new(line);
    let mut map = json.serialize_map(None)?;
    map.serialize_entry("timestamp", timestamp)?;
    map.serialize_entry("level", metadata.level().as_str())?;
    let mut members = Members {
        map,
        result: Ok(()),
    };
    event.record(&mut members);
    let Members { mut map, result } = members;
    result?;
    if let Some(context) = trace::active_context() {
        map.serialize_entry("trace_id", &context.trace_id.to_string())?;
        map.serialize_entry("span_id", &context.span_id.to_string())?;
    }
    map.serialize_entry("target", metadata.target())?;
    map.end()
}

struct Members<M: SerializeMap> {
    map: M,
    result: Result<(), M::Error>,
}

impl<M: SerializeMap> Members<M> {
    fn add(&mut self, field: &Field, value: &(impl serde::Serialize + ?Sized)) {
        if self.result.is_ok() {
            self.result = self.map.serialize_entry(field.name(), value);
        }
    }
}

impl<M: SerializeMap> Visit for Members<M> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, &value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, &value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        if let Some(list) = list(field, &value) {
            self.add(field, &list);
        } else if let Some(map) = map(field, &value) {
            self.add(field, &map);
        } else {
            self.add(field, &value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::fmt::MakeWriter;
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct WrittenLog(Arc<Mutex<Vec<u8>>>);

    impl WrittenLog {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no panic").clone()).expect("UTF-8")
        }
    }

    impl io::Write for WrittenLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for WrittenLog {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    struct NoTime;

    impl FormatTime for NoTime {
        fn format_time(&self, out: &mut Writer<'_>) -> fmt::Result {
            out.write_str("now")
        }
    }

    /// The same records as text and as JSON.
    fn written(log: impl Fn()) -> (String, String) {
        let (text, json) = (WrittenLog::default(), WrittenLog::default());
        let as_text = tracing_subscriber::fmt::layer()
            .with_writer(text.clone())
            .with_ansi(false)
            .fmt_fields(TextFields)
            .with_timer(NoTime);
        let as_json = tracing_subscriber::fmt::layer()
            .with_writer(json.clone())
            .event_format(JsonLines(NoTime));
        let both = tracing_subscriber::registry().with(as_text).with(as_json);
        tracing::subscriber::with_default(both, log);
        (text.text(), json.text())
    }

    #[test]
    fn finding_28_field_values_are_quoted_where_they_would_break_a_line() {
        let (text, json) = written(|| {
            tracing::warn!(
                target: "t",
                plain = %"word",
                spaced = %"two words",
                assigned = %"a=b",
                empty = %"",
                quoted = %"say \"no\"",
                text = "word",
                lines = "Traceback:\n  File \"x\"\u{1b}[2J\u{202e}",
                number = 7,
                after = ?Some(std::time::Duration::from_millis(1_500)),
                "what happened\nforged"
            );
        });
        assert_eq!(
            text,
            "now  WARN t: what happened\\nforged plain=word spaced=\"two words\" assigned=\"a=b\" \
             empty=\"\" quoted=\"say \\\"no\\\"\" text=\"word\" \
             lines=\"Traceback:\\n  File \\\"x\\\"\\u{1b}[2J\\u{202e}\" number=7 after=Some(1.5s)\n"
        );
        assert_eq!(json.lines().count(), 1, "{json}");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["message"], "what happened\nforged");
        assert_eq!(json["lines"], "Traceback:\n  File \"x\"\u{1b}[2J\u{202e}");
        assert_eq!(
            (&json["number"], &json["level"]),
            (&7.into(), &"WARN".into())
        );
        assert_eq!(
            (&json["timestamp"], &json["target"]),
            (&"now".into(), &"t".into())
        );
    }

    #[test]
    fn finding_28_list_field_is_a_list() {
        let (text, json) = written(|| {
            tracing::warn!(target: "t", message_ids = %r#"["a","b c"]"#, "it failed");
        });
        assert_eq!(text, "now  WARN t: it failed message_ids=\"a,b c\"\n");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["message_ids"], serde_json::json!(["a", "b c"]));
    }

    #[test]
    fn line_that_is_written_for_a_span_has_its_ids() {
        let (tracer, _receiver) = trace::Tracer::new(trace::TraceTerms::default(), 1);
        let context = tracer
            .begin(None, dispatcher_core::clock::now())
            .expect("it is on");
        let (text, json) = written(|| {
            trace::within(&mut Some(trace::ActiveSpan::of(context)), || {
                tracing::info!(target: "t", number = 7, "it happened");
            });
        });
        let (trace_id, span_id) = (context.trace_id, context.span_id);
        assert_eq!(
            text,
            format!("now  INFO t: it happened number=7 trace_id={trace_id} span_id={span_id}\n")
        );
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["trace_id"], trace_id.to_string());
        assert_eq!(json["span_id"], span_id.to_string());
    }

    #[test]
    fn map_field_is_an_object_in_json_and_fields_of_their_own_in_text() {
        let (text, json) = written(|| {
            let fields = r#"{"order":"o 1","a b\n":"x"}"#;
            tracing::info!(target: "t", fields = %fields, "priced");
        });
        assert_eq!(text, "now  INFO t: priced a_b_=\"x\" order=\"o 1\"\n");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let wanted = serde_json::json!({ "order": "o 1", "a b\n": "x" });
        assert_eq!(json["fields"], wanted);
    }
}
