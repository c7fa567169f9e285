//! What is known of a failed attempt: its stack and its last output, for the log and for `plugin
//! invoke`. Knows no guest.

pub use crate::output::Printed;
use std::sync::Arc;

/// What is known of an attempt that broke off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrapScene {
    /// The plugin's name.
    pub plugin: String,
    /// The queue of its messages.
    pub queue: String,
    /// The message; of several the first ones, and how many more.
    pub message_id: String,
    /// What happened to it, with the limit and the option that sets it, where one was hit.
    pub why: String,
    /// Whether it was stopped while it waited for a call to the host.
    pub waited: bool,
    /// The functions that it was in, the innermost first; without those that only carry a panic.
    pub trace: Vec<Frame>,
    /// How many more of them there were.
    pub outer: usize,
    /// The last lines that it printed, the oldest first.
    pub printed: Vec<Printed>,
}

/// A function that was running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Demangled; `function 12` where the component has no names.
    pub name: String,
    /// `file:line`, where the component has debugging information and the engine reads it.
    pub at: Option<String>,
    /// How often it calls itself in a row, this once included.
    pub times: usize,
}

/// Observes a plugin's attempts, instead of the log.
pub trait Witness: std::fmt::Debug + Send + Sync {
    /// One has broken off.
    fn broke(&self, scene: &TrapScene);

    /// An attempt has ended, failed or not; its instance has this many bytes of memory.
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
    /// On one line, the innermost first: `inner ← outer`.
    fn trace_line(&self) -> Option<String> {
        let mut line = joined(&self.trace, " ← ")?;
        if self.outer > 0 {
            line += &format!(" ← and {} more", self.outer);
        }
        Some(line)
    }

    /// On one line: `stdout: first | stderr: last`.
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

/// Kept beside a plugin: none is the log.
pub(crate) type SharedWitness = Option<Arc<dyn Witness>>;

/// ` × 3`, and nothing for once.
pub(crate) struct Times(pub(crate) usize);

impl std::fmt::Display for Times {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 | 1 => Ok(()),
            times => write!(out, " × {times}"),
        }
    }
}
