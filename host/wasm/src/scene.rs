//! Where a guest was when an attempt broke off, and what it printed last: for the log and for
//! whoever runs a plugin by hand. Decides no verdict.

use super::guest::{self, Guest};
use super::mishap::Times;
use super::{Attempt, mishap};
use dispatcher_core::message::{Mishap, Verdict};
use std::num::NonZeroUsize;
use std::sync::Arc;
use wasmtime::{FrameInfo, WasmBacktrace};

/// The most functions of a scene.
const FRAMES: usize = 20;
/// So many of a guest's functions are looked at when it traps: some only carry a panic, and one that
/// calls itself counts once.
pub(super) const CAPTURED: NonZeroUsize = NonZeroUsize::new(64).expect("it is not zero");

/// What is known of an attempt that broke off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scene {
    /// The plugin's name.
    pub plugin: String,
    /// The queue of its messages.
    pub queue: String,
    /// The message; of several the first ones, and how many more.
    pub message_id: String,
    /// What befell it, with the limit and the option that sets it, where one was hit.
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

/// A function that was under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Demangled; `function 12` where the component has no names.
    pub name: String,
    /// `file:line`, where the component has debugging information and the engine reads it.
    pub at: Option<String>,
    /// How often it calls itself in a row, this once included.
    pub times: usize,
}

/// A line that a guest printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// `stdout` or `stderr`.
    pub stream: &'static str,
    /// Without control characters, and cut where it is long.
    pub line: String,
}

/// Whoever is told of a plugin's attempts, in place of the log.
pub trait Witness: std::fmt::Debug + Send + Sync {
    /// One has broken off.
    fn broke(&self, scene: &Scene);

    /// One has ended, broken off or not; its instance has so many bytes of memory.
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

impl std::fmt::Display for Printed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.stream, self.line)
    }
}

impl Scene {
    /// On one line, the innermost first: `inner ← outer`.
    pub fn trace_line(&self) -> Option<String> {
        let mut line = joined(&self.trace, " ← ")?;
        if self.outer > 0 {
            line += &format!(" ← and {} more", self.outer);
        }
        Some(line)
    }

    /// On one line: `stdout: first | stderr: last`.
    pub fn printed_line(&self) -> Option<String> {
        joined(&self.printed, " | ")
    }

    fn log(&self) {
        let Self {
            plugin,
            queue,
            message_id,
            why,
            ..
        } = self;
        let (trace, printed) = (self.trace_line(), self.printed_line());
        let (trace, printed) = (trace.as_deref(), printed.as_deref());
        let what = match self.waited {
            true => "an attempt broke off while it waited for a call to the host",
            false if trace.is_some() => "an attempt broke off: its trace, the innermost first",
            false => "an attempt failed: what it printed last",
        };
        tracing::warn!(plugin, queue, message_id, why, trace, printed, "{what}");
    }
}

fn joined<T: ToString>(parts: &[T], between: &str) -> Option<String> {
    let parts: Vec<String> = parts.iter().map(T::to_string).collect();
    (!parts.is_empty()).then(|| parts.join(between))
}

/// Tells of an attempt that `error` ended.
pub(super) fn broke(error: &wasmtime::Error, guest: &Guest, attempt: &Attempt, why: &Mishap) {
    let (queue, id) = guest::place(attempt);
    of_instance(error, guest, queue, id, why);
}

/// The same of an instance that works on many, under the name that stands for them.
pub(super) fn of_instance(
    error: &wasmtime::Error,
    guest: &Guest,
    queue: String,
    message_id: String,
    why: &Mishap,
) {
    let (trace, outer) = match error.downcast_ref::<WasmBacktrace>() {
        Some(trace) => frames(trace.frames()),
        None => (Vec::new(), 0),
    };
    tell(guest, |scene| {
        scene.queue = queue;
        scene.message_id = message_id;
        scene.why = why.to_string();
        scene.trace = trace;
        scene.outer = outer;
    });
}

/// Tells of an attempt that was stopped at its deadline while its guest waited.
pub(super) fn waited(guest: &Guest, attempt: &Attempt, why: &Mishap) {
    let (queue, message_id) = guest::place(attempt);
    tell(guest, |scene| {
        scene.queue = queue;
        scene.message_id = message_id;
        scene.why = why.to_string();
        scene.waited = true;
    });
}

/// Tells of an attempt whose guest has ended: what led to a failure may be in what it printed.
pub(super) fn ended(guest: &Guest, attempt: &Attempt, verdicts: &[Verdict]) {
    if let Some(witness) = &guest.settings().witness {
        witness.ended(guest.limits.memory());
    }
    let failed = verdicts.iter().find_map(|verdict| match verdict {
        Verdict::Retry {
            why: why @ (Mishap::Failed(_) | Mishap::Trapped(_) | Mishap::OutOfMemory(_)),
            ..
        } => Some(why),
        _ => None,
    });
    let Some(why) = failed else { return };
    let (queue, message_id) = guest::place(attempt);
    tell(guest, |scene| {
        scene.queue = queue;
        scene.message_id = message_id;
        scene.why = why.to_string();
    });
}

/// Adds to the reason of an attempt at one message what its guest printed last. Of several nobody
/// knows which of them a line is about.
pub(super) fn explain(guest: &Guest, verdicts: &mut [Verdict]) {
    if let [Verdict::Retry { why, .. }] = verdicts {
        *why = with_last_line(std::mem::replace(why, Mishap::Asked), guest);
    }
}

/// With what the guest printed last, where that may say more than is known. Whoever is told of its
/// attempts has seen it.
pub(super) fn with_last_line(why: Mishap, guest: &Guest) -> Mishap {
    let says_little = matches!(why, Mishap::Asked | Mishap::Failed(_) | Mishap::Trapped(_));
    if !says_little || guest.settings().witness.is_some() {
        return why;
    }
    let printed = guest.printed();
    let Some(line) = last_line(&printed) else {
        return why;
    };
    let line = format!("it printed last: {line}");
    match why {
        Mishap::Asked => Mishap::AskedFor(line),
        Mishap::Failed(what) => Mishap::Failed(format!("{what}; {line}")),
        Mishap::Trapped(what) => Mishap::Trapped(format!("{what}; {line}")),
        other => other,
    }
}

/// The last line that names an error: what is indented belongs to a trace, and Rust's `note:` says
/// how to get one.
fn last_line(printed: &[Printed]) -> Option<&str> {
    let mut lines = printed.iter().rev().map(|printed| printed.line.as_str());
    let names_it = |line: &&str| !line.starts_with([' ', '\t']) && !line.starts_with("note: ");
    let last = lines.clone().next();
    lines.find(names_it).or(last)
}

fn tell(guest: &Guest, fill: impl FnOnce(&mut Scene)) {
    let settings = guest.settings();
    let mut scene = Scene {
        plugin: settings.name.clone(),
        queue: String::new(),
        message_id: String::new(),
        why: String::new(),
        waited: false,
        trace: Vec::new(),
        outer: 0,
        printed: guest.printed(),
    };
    fill(&mut scene);
    match &settings.witness {
        Some(witness) => {
            witness.ended(guest.limits.memory());
            witness.broke(&scene);
        }
        // The verdict is told in any case.
        None if scene.trace.is_empty() && scene.printed.is_empty() && !scene.waited => {}
        None => scene.log(),
    }
}

/// Kept beside a plugin: none is the log.
pub(super) type Told = Option<Arc<dyn Witness>>;

fn frames(all: &[FrameInfo]) -> (Vec<Frame>, usize) {
    let all = all.iter().flat_map(of_frame);
    let own = all.filter(|frame| !mishap::carries_panic(&frame.name));
    let grouped = mishap::grouped(own).into_iter();
    let mut frames: Vec<Frame> = grouped
        .map(|(frame, times)| Frame { times, ..frame })
        .collect();
    let outer = frames.len().saturating_sub(FRAMES);
    frames.truncate(FRAMES);
    (frames, outer)
}

/// A function, and before it those that were compiled into it.
fn of_frame(frame: &FrameInfo) -> Vec<Frame> {
    let own = mishap::name(frame.func_name(), frame.func_index());
    let symbols = frame.symbols().iter().map(|symbol| Frame {
        name: symbol
            .name()
            .map_or_else(|| own.clone(), |name| mishap::name(Some(name), 0)),
        at: symbol.file().map(|file| match symbol.line() {
            Some(line) => format!("{file}:{line}"),
            None => file.to_owned(),
        }),
        times: 1,
    });
    let symbols: Vec<_> = symbols.collect();
    match symbols.is_empty() {
        true => vec![Frame {
            name: own,
            at: None,
            times: 1,
        }],
        false => symbols,
    }
}
