//! Writes log lines to stderr: as text or JSON, without disturbing the progress line. Lines of
//! guests have the target `guest`.

use super::calls::Calls;
use super::fields::{JsonLines, TextFields};
use super::otlp::LogRecords;
use dispatcher_core::clock;
use indicatif::{MultiProgress, ProgressDrawTarget};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Libraries whose own lines are logged only on request. Their errors are returned as values and
/// logged once, at the boundary that handles them.
const QUIET: &[&str] = &[
    "aws",
    "hyper",
    "reqwest",
    "h2",
    "rustls",
    "tower",
    "wasmtime",
    "cranelift",
    "deadpool",
    "regalloc",
    "notify",
    "mio",
];

/// The time that a line waits for a reader that has not read the earlier lines.
const READER: Duration = Duration::from_millis(200);

/// The number of bytes that a writable pipe accepts without blocking: `PIPE_BUF` of Linux.
const WRITABLE: usize = 4_096;

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// The stderr that log lines and the progress line share.
#[derive(Debug, Clone)]
pub struct Screen {
    pub(super) bars: MultiProgress,
    pub(super) shows_progress: bool,
    /// The number of lines that were dropped since the last written one.
    dropped: Arc<AtomicU64>,
}

/// Sets up the program's log with this format and filter, once per process; a second call has no
/// effect. An invalid filter counts as `info`.
pub fn start(format: LogFormat, level: &str) -> Screen {
    set_up(format, level, false, None)
}

/// Starts the log and also keeps its lines for export.
pub fn start_with_export(format: LogFormat, level: &str, records: Option<LogRecords>) -> Screen {
    set_up(format, level, false, records)
}

/// Starts the log and shows every call of a guest to the host, independent of the filter.
pub fn start_with_calls(format: LogFormat, level: &str) -> Screen {
    set_up(format, level, true, None)
}

fn set_up(format: LogFormat, level: &str, calls: bool, records: Option<LogRecords>) -> Screen {
    let terminal = io::stderr().is_terminal();
    let shows_progress = terminal && format == LogFormat::Text;
    let target = if shows_progress {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let screen = Screen {
        bars: MultiProgress::with_draw_target(target),
        shows_progress,
        dropped: Arc::default(),
    };
    let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(screen.clone())
        // It would print to the stream that failed and panic.
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => layer
            .with_ansi(colours)
            .fmt_fields(TextFields)
            .with_timer(TimeOfDay)
            .boxed(),
        LogFormat::Json => layer.event_format(JsonLines(Date)).boxed(),
    };
    let calls = calls.then(|| Calls {
        screen: screen.clone(),
        json: format == LogFormat::Json,
    });
    let (of_lines, lines_filter) = reload::Layer::new(filter_or_info(level));
    let (of_records, records_filter) = reload::Layer::new(filter_or_info(level));
    let is_first = tracing_subscriber::registry()
        .with(lines.with_filter(of_lines))
        .with(records.map(|records| records.with_filter(of_records)))
        .with(calls)
        .try_init()
        .is_ok();
    if is_first {
        let log = StartedLog {
            format,
            set_level: Box::new(move |level: &str| {
                // Without an export there is no second filter.
                let _ = records_filter.reload(filter_or_info(level));
                lines_filter.reload(filter_or_info(level)).is_ok()
            }),
        };
        let _ = STARTED.set(log);
    }
    screen
}

/// The program's log, after it is set up.
static STARTED: OnceLock<StartedLog> = OnceLock::new();

struct StartedLog {
    format: LogFormat,
    set_level: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

/// Returns the formatter of the error that ends a command, if log lines are JSON.
pub fn error_line() -> Option<fn(&str, u8) -> String> {
    let started = STARTED.get();
    let is_json = started.is_some_and(|log| log.format == LogFormat::Json);
    is_json.then_some(json_error)
}

/// Sets the filter of logged and exported lines. Returns false if the log is not set up.
pub fn set_level(level: &str) -> bool {
    STARTED.get().is_some_and(|log| (log.set_level)(level))
}

/// Formats the error that ends the program as a JSON log line, which no filter drops.
pub fn json_error(problem: &str, exit_code: u8) -> String {
    let mut timestamp = String::new();
    // Writing to a string does not fail.
    let _ = Date.format_time(&mut Writer::new(&mut timestamp));
    let line = serde_json::json!({
        "timestamp": timestamp,
        "level": "ERROR",
        "message": "ended with an error",
        "problem": problem,
        "exit_code": exit_code,
        "target": "dispatcher",
    });
    line.to_string()
}

/// Parses a filter; an invalid one counts as `info`.
fn filter_or_info(level: &str) -> EnvFilter {
    filter(level).unwrap_or_else(|_| EnvFilter::new("info"))
}

/// Parses a level such as `info`, or directives such as `info,guest=debug`.
///
/// # Errors
/// Returns a clause about the invalid part.
pub fn filter(text: &str) -> Result<EnvFilter, String> {
    // The parser slices at byte positions and panics inside multi-byte characters; targets have
    // none.
    if !text.is_ascii() {
        return Err("targets are written in ASCII".to_owned());
    }
    let parts: Vec<_> = text.split(',').map(str::trim).collect();
    for part in &parts {
        // The parser accepts any word as a target, so it would accept a misspelled level.
        let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(part));
        if !part.contains('=') && !is_level {
            return Err(format!("`{part}` is not a level"));
        }
    }
    let quiet = QUIET.iter().map(|target| format!("{target}=error,"));
    EnvFilter::builder()
        .parse(quiet.collect::<String>() + &parts.join(","))
        .map_err(|error| error.to_string())
}

impl<'a> MakeWriter<'a> for Screen {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> LogLine<'a> {
        LogLine { screen: self }
    }
}

/// A writer of one log line at a time, which hides the progress line meanwhile.
#[derive(Debug)]
pub struct LogLine<'a> {
    screen: &'a Screen,
}

impl Screen {
    /// Writes a line, or drops it if the reader is too slow: a blocked log would stop the extension
    /// of leases.
    fn write(&self, line: &[u8]) {
        let mut stderr = io::stderr().lock();
        let dropped = self.dropped.load(Relaxed);
        let patience = if dropped == 0 { READER } else { Duration::ZERO };
        if !writable(patience) {
            self.dropped.fetch_add(1, Relaxed);
            return;
        }
        if dropped > 0 {
            self.dropped.store(0, Relaxed);
            // If the stream fails, there is no way to report it.
            let _ = writeln!(
                stderr,
                "({dropped} log lines were dropped: the reader was too slow)"
            );
        }
        for part in line.chunks(WRITABLE) {
            if !writable(READER) || stderr.write_all(part).is_err() {
                return;
            }
        }
    }
}

/// Whether stderr accepts `WRITABLE` bytes now or within `patience`.
fn writable(patience: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stderr = io::stderr();
    let mut streams = [PollFd::new(&stderr, PollFlags::OUT)];
    let patience = Timespec::try_from(patience).ok();
    poll(&mut streams, patience.as_ref()).is_ok_and(|ready| ready > 0)
}

impl Write for LogLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.screen.shows_progress {
            self.screen.bars.suspend(|| self.screen.write(bytes))
        } else {
            self.screen.write(bytes)
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The time of day for people, as `12:34:56.789Z`.
struct TimeOfDay;

impl FormatTime for TimeOfDay {
    fn format_time(&self, out: &mut Writer<'_>) -> fmt::Result {
        let ms = clock::wall_clock_now().0;
        let (seconds, ms) = (ms / 1_000, ms % 1_000);
        let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
        write!(out, "{hours:02}:{minutes:02}:{:02}.{ms:03}Z", seconds % 60)
    }
}

/// The date and time for machines, as `2026-01-31T12:34:56.789Z`.
struct Date;

impl FormatTime for Date {
    fn format_time(&self, out: &mut Writer<'_>) -> fmt::Result {
        let since = Duration::from_millis(clock::wall_clock_now().0);
        let date = humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + since);
        write!(out, "{date}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_levels_or_directives() {
        for good in [
            "info",
            "WARN",
            "off",
            "info,guest=debug",
            "hyper=trace",
            "warn, x=info",
        ] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["infoo", "", "guest=loud", "info,verbose"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn noisy_libraries_are_quiet_unless_requested() {
        let text = filter("debug,hyper=trace").expect("parses").to_string();
        assert!(text.contains("aws=error"), "{text}");
        assert!(text.contains("hyper=trace"), "{text}");
        assert!(!text.contains("hyper=error"), "{text}");
    }
}
