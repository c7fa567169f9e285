//! What is noted of a run: events in their order, and the rules that did not hold.

use super::NONE;
use dispatcher_core::clock::BootInstant;

/// Something that happened, for the trace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub at: BootInstant,
    pub what: &'static str,
    pub life: usize,
    pub queue: usize,
    /// Messages, or the one delivery, or a number.
    pub of: Vec<usize>,
    pub note: String,
}

/// Calls, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub receive: u64,
    pub extend: u64,
    pub settle: u64,
}

/// A rule that did not hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Broken {
    pub rule: &'static str,
    pub at: BootInstant,
    pub why: String,
}

impl std::fmt::Display for Event {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = self.at.since(BootInstant::default());
        write!(out, "{:>12.6}", at.as_secs_f64())?;
        if self.life != NONE {
            write!(out, " p{}", self.life)?;
        }
        if self.queue != NONE {
            write!(out, " q{}", self.queue)?;
        }
        write!(out, " {}", self.what)?;
        if !self.of.is_empty() {
            write!(out, " {:?}", self.of)?;
        }
        if !self.note.is_empty() {
            write!(out, " {}", self.note)?;
        }
        Ok(())
    }
}
