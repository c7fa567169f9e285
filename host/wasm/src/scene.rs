//! Describes a failed attempt by its stack and its last output, for the log and for `plugin
//! invoke`. Does not depend on guests.

pub use crate::output::PrintedLine;
use std::sync::Arc;

/// The details of an attempt that broke off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrapScene {
    /// The plugin's name.
    pub plugin: String,
    /// The queue of its messages.
    pub queue: String,
    /// The message ID; for several messages, the first one and the number of the others.
    pub message_id: String,
    /// The reason. If a limit was hit, it includes the limit and the option that sets it.
    pub why: String,
    /// Whether it was stopped while it waited for a call to the host.
    pub waited: bool,
    /// The functions that were running, the innermost first, without those that only propagate a
    /// panic.
    pub trace: Vec<Frame>,
    /// The number of further functions that are not in `trace`.
    pub outer: usize,
    /// The last lines that it printed, the oldest first.
    pub printed: Vec<PrintedLine>,
}

/// A function that was running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The demangled name; `function 12` if the component has no names.
    pub name: String,
    /// `file:line`, if the component has debugging information and the engine reads it.
    pub at: Option<String>,
    /// The number of consecutive calls of this function to itself, including this one.
    pub times: usize,
}

/// Observes a plugin's attempts, instead of the log.
pub trait Witness: std::fmt::Debug + Send + Sync {
    /// Called when an attempt has broken off.
    fn broke(&self, scene: &TrapScene);

    /// Called when an attempt has ended, failed or not. Its instance has `memory` bytes of memory.
    fn ended(&self, memory: usize);
}

impl std::fmt::Display for Frame {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.name)?;
        if let Some(at) = &self.at {
            write!(out, " ({at})")?;
        }
        write!(out, "{}", Times(self.times))
    }
}

impl TrapScene {
    /// Returns the trace on one line, the innermost first: `inner ← outer`.
    fn trace_line(&self) -> Option<String> {
        let mut line = joined(&self.trace, " ← ")?;
        if self.outer > 0 {
            line += &format!(" ← and {} more", self.outer);
        }
        Some(line)
    }

    /// Returns the output on one line: `stdout: first | stderr: last`.
    fn printed_line(&self) -> Option<String> {
        joined(&self.printed, " | ")
    }

    pub(crate) fn log(&self) {
        let Self {
            plugin,
            queue,
            message_id,
            why,
            ..
        } = self;
        let (trace, printed) = (self.trace_line(), self.printed_line());
        let (trace, printed) = (trace.as_deref(), printed.as_deref());
        let waited = self.waited.then_some(true);
        tracing::warn!(
            plugin,
            queue,
            message_id,
            why,
            waited,
            trace,
            printed,
            "attempt failed"
        );
    }
}

fn joined<T: ToString>(parts: &[T], between: &str) -> Option<String> {
    let parts: Vec<String> = parts.iter().map(T::to_string).collect();
    (!parts.is_empty()).then(|| parts.join(between))
}

/// The witness of a plugin; `None` is the log.
pub(crate) type SharedWitness = Option<Arc<dyn Witness>>;

/// Writes ` × 3`, and nothing for a single call.
pub(crate) struct Times(pub(crate) usize);

impl std::fmt::Display for Times {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 | 1 => Ok(()),
            times => write!(out, " × {times}"),
        }
    }
}
