//! Writes log lines to stderr: as text or JSON, without disturbing the progress line. Lines of
//! guests have the target `guest`.

use super::calls::Calls;
use super::fields::{JsonLines, TextFields};
use super::otlp::LogRecords;
use dispatcher_core::clock;
use indicatif::{MultiProgress, ProgressDrawTarget};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Verbose libraries: their errors are returned as values and logged once, at the boundary that
/// handles them; their own lines are logged only on request.
const QUIET: &[&str] = &[
    "aws",
    "hyper",
    "reqwest",
    "h2",
    "rustls",
    "tower",
    "wasmtime",
    "cranelift",
    "regalloc",
    "notify",
    "mio",
];

/// How long a line waits for a reader that has not read the ones before.
const READER: Duration = Duration::from_millis(200);

/// What a pipe that polls as writable takes without blocking: `PIPE_BUF` of Linux.
const WRITABLE: usize = 4_096;

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// Where log lines and the progress line share one stderr.
#[derive(Debug, Clone)]
pub(crate) struct Screen {
    pub(super) bars: MultiProgress,
    pub(super) shows_progress: bool,
    /// Lines that were dropped since the last that was written.
    dropped: Arc<AtomicU64>,
}

/// Sets the program's log up: the given format and filter, once per process; a second call keeps
/// the first set-up. A filter that does not parse counts as `info`.
pub(crate) fn start(format: LogFormat, level: &str) -> Screen {
    set_up(format, level, false, None)
}

/// Starts the log and keeps what is logged for export as well.
pub(crate) fn start_with_export(
    format: LogFormat,
    level: &str,
    records: Option<LogRecords>,
) -> Screen {
    set_up(format, level, false, records)
}

/// Starts the log and shows every call of a guest to the host, whatever the filter says.
pub(crate) fn start_with_calls(format: LogFormat, level: &str) -> Screen {
    set_up(format, level, true, None)
}

fn set_up(format: LogFormat, level: &str, calls: bool, records: Option<LogRecords>) -> Screen {
    let terminal = io::stderr().is_terminal();
    let shows_progress = terminal && format == LogFormat::Text;
    let target = match shows_progress {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let screen = Screen {
        bars: MultiProgress::with_draw_target(target),
        shows_progress,
        dropped: Arc::default(),
    };
    let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(screen.clone())
        // It would print to the very stream that failed, and panic.
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines
            .with_ansi(colours)
            .fmt_fields(TextFields)
            .with_timer(TimeOfDay)
            .boxed(),
        LogFormat::Json => lines.event_format(JsonLines(Date)).boxed(),
    };
    let filter = || filter(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let calls = calls.then(|| Calls {
        screen: screen.clone(),
        json: format == LogFormat::Json,
    });
    let lines = lines.with_filter(filter());
    let records = records.map(|records| records.with_filter(filter()));
    let already_set_up = tracing_subscriber::registry()
        .with(lines)
        .with(records)
        .with(calls)
        .try_init();
    drop(already_set_up);
    screen
}

/// The filter for a level such as `info`, or for directives such as `info,guest=debug`.
///
/// # Errors
/// What does not parse, in a clause.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, String> {
    // The parser slices between bytes and panics inside other characters; targets have none.
    if !text.is_ascii() {
        return Err("targets are written in ASCII".to_owned());
    }
    let parts: Vec<_> = text.split(',').map(str::trim).collect();
    for part in &parts {
        // The parser takes any word for a target to trace: a misspelt level would pass.
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

/// Writes one log line at a time, the progress line out of its way.
#[derive(Debug)]
pub(crate) struct LogLine<'a> {
    screen: &'a Screen,
}

impl Screen {
    /// Writes a line, or drops it where nobody reads: a log that blocks would stop the leases.
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
            // A stream that fails has no reader to tell.
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

/// Whether stderr takes `WRITABLE` bytes now, or within `patience`.
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
        match self.screen.shows_progress {
            true => self.screen.bars.suspend(|| self.screen.write(bytes)),
            false => self.screen.write(bytes),
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// `12:34:56.789Z`, for people.
struct TimeOfDay;

impl FormatTime for TimeOfDay {
    fn format_time(&self, out: &mut Writer<'_>) -> fmt::Result {
        let ms = clock::wall_clock_now().0;
        let (seconds, ms) = (ms / 1_000, ms % 1_000);
        let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
        write!(out, "{hours:02}:{minutes:02}:{:02}.{ms:03}Z", seconds % 60)
    }
}

/// `2026-01-31T12:34:56.789Z`, for machines.
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
