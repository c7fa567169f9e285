//! Logs a guest's output line by line, and the lines that it logs itself. Limits the amount, and
//! escapes control characters.

pub(crate) use dispatcher_core::telemetry::escape::escape_control_characters;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use tracing::field::display;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// The maximum length of one line in bytes; the rest of it is dropped.
pub(crate) const MAX_LINE: usize = 8 * 1024;
/// The maximum number of lines of one attempt, both streams together; further lines are only
/// counted.
pub(crate) const MAX_LINES: u64 = 1_000;
/// The stream name of a line that the guest logs itself.
const LOGGED: &str = "log";
/// The number of last lines that are kept, and the maximum number of characters of each. Guests
/// often print the cause of a failure before it.
const LAST: (usize, usize) = (5, 400);
/// The maximum number of details of a line that a guest logs itself, and the maximum number of
/// bytes of each.
const DETAILS: (usize, usize) = (32, 1024);
/// The maximum number of bytes that a guest may write in one call.
const WRITE: usize = 64 * 1024;

/// A line that a guest printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedLine {
    /// The stream: `stdout`, `stderr` or `log`.
    pub stream: &'static str,
    /// The text, without control characters, and cut if it is long.
    pub line: String,
}

impl std::fmt::Display for PrintedLine {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.stream, self.line)
    }
}

/// A line that a guest logs itself.
#[derive(Debug)]
pub(super) struct LogEntry {
    pub(super) level: LogLevel,
    pub(super) text: String,
    pub(super) fields: Vec<(String, String)>,
    pub(super) message_id: Option<String>,
}

/// The level of such a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// The stream of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The two streams of one instance.
#[derive(Debug, Clone)]
pub(super) struct Output(Arc<Mutex<OutputLines>>);

#[derive(Debug)]
struct OutputLines {
    plugin: String,
    /// Whether all of it is logged at level debug.
    is_quiet: bool,
    /// `None` if many attempts print at once.
    message_id: Option<String>,
    count: u64,
    last: VecDeque<PrintedLine>,
    /// The lines of a panic that are not logged yet: the record of the failed attempt has them, too.
    panic: Vec<String>,
    /// Whether Python's interpreter has printed that a coroutine was never awaited.
    has_lost_coroutine: bool,
    stdout: Partial,
    stderr: Partial,
}

/// A line that has not ended yet.
#[derive(Debug, Default)]
struct Partial {
    bytes: Vec<u8>,
    cut: bool,
}

impl Output {
    /// Creates the output of an instance of this plugin that works on this message, or on many at
    /// once. If `is_quiet` is set, it is logged at level debug.
    pub(super) fn new(plugin: &str, message_id: Option<String>, is_quiet: bool) -> Self {
        Self(Arc::new(Mutex::new(OutputLines {
            plugin: plugin.to_owned(),
            is_quiet,
            message_id,
            count: 0,
            last: VecDeque::new(),
            panic: Vec::new(),
            has_lost_coroutine: false,
            stdout: Partial::default(),
            stderr: Partial::default(),
        })))
    }

    /// Returns the stream that the guest writes to.
    pub(super) fn pipe(&self, stream: Stream) -> Pipe {
        Pipe {
            output: self.clone(),
            stream,
        }
    }

    /// Logs a line that the guest logs itself.
    pub(super) fn log(&self, entry: &LogEntry) {
        self.lines().log_entry(entry);
    }

    /// Assigns further lines to this message.
    pub(super) fn begin(&self, message_id: String) {
        let mut lines = self.lines();
        lines.end();
        lines.message_id = Some(message_id);
        lines.last.clear();
        lines.has_lost_coroutine = false;
    }

    /// Allows the full number of lines again, because one of the attempts that print has ended.
    pub(super) fn more(&self) {
        self.lines().more();
    }

    /// Logs lines that have not ended, and the number of lines dropped.
    pub(super) fn end(&self) {
        self.lines().end();
    }

    /// Whether Python's interpreter has printed that a coroutine was never awaited.
    pub(super) fn has_lost_coroutine(&self) -> bool {
        self.lines().has_lost_coroutine
    }

    /// Returns the last lines, the oldest first, with those that have not ended.
    pub(super) fn last(&self) -> Vec<PrintedLine> {
        let mut lines = self.lines();
        lines.end_lines();
        lines.last.iter().cloned().collect()
    }

    /// Drops the lines of a panic that the record of the failed attempt has whole.
    pub(super) fn reported(&self) {
        let mut lines = self.lines();
        let OutputLines { panic, last, .. } = &mut *lines;
        panic.retain(|line| last.iter().all(|kept| kept.line != *line));
    }

    fn lines(&self) -> MutexGuard<'_, OutputLines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputLines {
    fn write(&mut self, stream: Stream, mut bytes: &[u8]) {
        while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
            self.partial(stream).push(&bytes[..at]);
            self.line(stream);
            bytes = &bytes[at + 1..];
        }
        self.partial(stream).push(bytes);
    }

    fn partial(&mut self, stream: Stream) -> &mut Partial {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// Logs the line that has just ended, unless it is empty.
    fn line(&mut self, stream: Stream) {
        self.count += 1;
        let line = self.partial(stream).take();
        self.has_lost_coroutine |= stream == Stream::Stderr && is_lost_coroutine(&line);
        if line.trim().is_empty() {
            return;
        }
        self.remember(stream.name(), &line);
        if self.count > MAX_LINES {
            return;
        }
        if stream == Stream::Stderr && (!self.panic.is_empty() || begins_panic(&line)) {
            self.panic.push(line);
            // The record of the failed attempt has no room for all of them.
            if self.panic.len() > LAST.0 {
                self.log_panic();
            }
        } else {
            self.log(stream, &line);
        }
    }

    fn log_panic(&mut self) {
        for line in std::mem::take(&mut self.panic) {
            self.log(Stream::Stderr, &line);
        }
    }

    /// Keeps a line among the last ones.
    fn remember(&mut self, stream: &'static str, line: &str) {
        if self.last.len() == LAST.0 {
            self.last.pop_front();
        }
        self.last.push_back(PrintedLine {
            stream,
            line: line.chars().take(LAST.1).collect(),
        });
    }

    fn log(&self, stream: Stream, line: &str) {
        let (plugin, message_id) = (self.plugin.as_str(), self.message_id.as_deref());
        match stream {
            _ if self.is_quiet => {
                let stream = stream.name();
                tracing::debug!(target: "guest", plugin, message_id, stream, "{line}");
            }
            Stream::Stdout => {
                tracing::info!(target: "guest", plugin, message_id, stream = "stdout", "{line}");
            }
            Stream::Stderr => {
                tracing::warn!(target: "guest", plugin, message_id, stream = "stderr", "{line}");
            }
        }
    }

    fn log_entry(&mut self, entry: &LogEntry) {
        self.count += 1;
        let text = escape_control_characters(cut(&entry.text, MAX_LINE));
        if !text.trim().is_empty() {
            self.remember(LOGGED, &text);
        }
        if self.count > MAX_LINES {
            return;
        }
        let plugin = self.plugin.as_str();
        let named = entry.message_id.as_deref().map(|id| cut(id, DETAILS.1));
        let message_id = named.or(self.message_id.as_deref());
        let fields: BTreeMap<_, _> = entry
            .fields
            .iter()
            .take(DETAILS.0)
            .map(|(name, value)| (cut(name, DETAILS.1), cut(value, DETAILS.1)))
            .collect();
        let details = serde_json::to_string(&fields).unwrap_or_default();
        let fields = (!entry.fields.is_empty()).then(|| display(&details));
        match entry.level {
            LogLevel::Trace => {
                tracing::trace!(target: "guest", plugin, message_id, fields, "{text}");
            }
            LogLevel::Debug => {
                tracing::debug!(target: "guest", plugin, message_id, fields, "{text}");
            }
            _ if self.is_quiet => {
                tracing::debug!(target: "guest", plugin, message_id, fields, "{text}");
            }
            LogLevel::Info => tracing::info!(target: "guest", plugin, message_id, fields, "{text}"),
            LogLevel::Warn => tracing::warn!(target: "guest", plugin, message_id, fields, "{text}"),
            LogLevel::Error => {
                tracing::error!(target: "guest", plugin, message_id, fields, "{text}");
            }
        }
    }

    fn end(&mut self) {
        self.end_lines();
        self.log_panic();
        self.more();
    }

    fn end_lines(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if !self.partial(stream).is_empty() {
                self.line(stream);
            }
        }
    }

    fn more(&mut self) {
        let dropped = self.count.saturating_sub(MAX_LINES);
        if dropped > 0 {
            self.log(
                Stream::Stderr,
                &format!("dropped {dropped} more lines; the limit is {MAX_LINES} per attempt"),
            );
        }
        self.count = 0;
    }
}

impl Drop for OutputLines {
    fn drop(&mut self) {
        self.end();
    }
}

impl Partial {
    fn push(&mut self, bytes: &[u8]) {
        let room = MAX_LINE - self.bytes.len();
        self.cut |= bytes.len() > room;
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn take(&mut self) -> String {
        let line = self.bytes.strip_suffix(b"\r").unwrap_or(&self.bytes);
        let mut text = escape_control_characters(&String::from_utf8_lossy(line));
        if std::mem::take(&mut self.cut) {
            text.push_str(" (cut)");
        }
        self.bytes.clear();
        text
    }
}

/// Whether a line is the warning of Python's interpreter about a coroutine that nothing awaited.
fn is_lost_coroutine(line: &str) -> bool {
    line.contains("RuntimeWarning: coroutine ") && line.ends_with(" was never awaited")
}

/// Whether a line is the first that Rust prints of a panic.
fn begins_panic(line: &str) -> bool {
    line.starts_with("thread '") && line.contains(" panicked at ")
}

/// Returns the beginning of a text, of at most this many bytes.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// One stream, as the guest holds it.
#[derive(Debug, Clone)]
pub(super) struct Pipe {
    output: Output,
    stream: Stream,
}

impl IsTerminal for Pipe {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Pipe {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

/// The output of WASI 0.3.
impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.output.lines().write(self.stream, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[async_trait::async_trait]
impl Pollable for Pipe {
    async fn ready(&mut self) {}
}

impl OutputStream for Pipe {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.output.lines().write(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn printed_lines_are_escaped_and_truncated(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
            let mut partial = Partial::default();
            for part in bytes.chunks(777) {
                partial.push(part);
            }
            let line = partial.take();
            prop_assert!(line.chars().all(|letter| letter == '\t' || !letter.is_control()));
            prop_assert!(line.len() <= MAX_LINE * 8 + " (cut)".len());
            prop_assert!(partial.is_empty());
        }
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        assert_eq!(
            escape_control_characters("a\tbé\u{1b}[2J\u{202e}x"),
            "a\tbé\\u{1b}[2J\\u{202e}x"
        );
    }
}
