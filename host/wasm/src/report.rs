//! Reports failed attempts, from what is known of their guests. Decides no verdict.

use crate::attempt;
use crate::failure_reason;
use crate::guest::Guest;
use crate::output::Printed;
use crate::scene::{Frame, TrapScene};
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{FailureReason, Verdict};
use std::num::NonZeroUsize;
use wasmtime::{FrameInfo, WasmBacktrace};

/// The most functions of a scene.
const FRAMES: usize = 20;
/// This many of a guest's functions are looked at when it traps: some only carry a panic, and one that
/// calls itself counts once.
pub(crate) const CAPTURED: NonZeroUsize = NonZeroUsize::new(64).expect("it is not zero");

/// Tells of an attempt that `error` ended.
pub(crate) fn broke(
    error: &wasmtime::Error,
    guest: &Guest,
    attempt: &Attempt,
    why: &FailureReason,
) {
    let (queue, id) = attempt::place(attempt);
    of_instance(error, guest, queue, id, why);
}

/// Reports a failure of an instance that runs many attempts, under the name of one of them.
pub(crate) fn of_instance(
    error: &wasmtime::Error,
    guest: &Guest,
    queue: String,
    message_id: String,
    why: &FailureReason,
) {
    let (trace, outer) = match error.downcast_ref::<WasmBacktrace>() {
        Some(trace) => frames(trace.frames()),
        None => (Vec::new(), 0),
    };
    report_trap(guest, |scene| {
        scene.queue = queue;
        scene.message_id = message_id;
        scene.why = why.to_string();
        scene.trace = trace;
        scene.outer = outer;
    });
}

/// Tells of an attempt that was stopped at its deadline while its guest waited.
pub(crate) fn waited(guest: &Guest, attempt: &Attempt, why: &FailureReason) {
    let (queue, message_id) = attempt::place(attempt);
    report_trap(guest, |scene| {
        scene.queue = queue;
        scene.message_id = message_id;
        scene.why = why.to_string();
        scene.waited = true;
    });
}

/// Tells of an attempt whose guest has ended: what led to a failure may be in what it printed.
pub(crate) fn ended(guest: &Guest, attempt: &Attempt, verdicts: &[Verdict]) {
    if let Some(witness) = &guest.settings().witness {
        witness.ended(guest.limits.memory());
    }
    let failed = verdicts.iter().find_map(|verdict| match verdict {
        Verdict::Retry {
            why:
                why @ (FailureReason::Failed(_)
                | FailureReason::Trapped(_)
                | FailureReason::OutOfMemory(_)),
            ..
        } => Some(why),
        _ => None,
    });
    let Some(why) = failed else { return };
    let (queue, message_id) = attempt::place(attempt);
    report_trap(guest, |scene| {
        scene.queue = queue;
        scene.message_id = message_id;
        scene.why = why.to_string();
    });
}

/// Adds to the reason of an attempt at one message what its guest printed last. Of several nobody
/// knows which of them a line is about.
pub(crate) fn explain(guest: &Guest, verdicts: &mut [Verdict]) {
    if let [Verdict::Retry { why, .. }] = verdicts {
        *why = with_last_line(std::mem::replace(why, FailureReason::Requested), guest);
    }
}

/// Adds the guest's last output if that may say more than is known. The observer of its attempts
/// has seen it.
pub(crate) fn with_last_line(why: FailureReason, guest: &Guest) -> FailureReason {
    let says_little = matches!(
        why,
        FailureReason::Requested | FailureReason::Failed(_) | FailureReason::Trapped(_)
    );
    if !says_little || guest.settings().witness.is_some() {
        return why;
    }
    let printed = guest.printed();
    let Some(line) = last_line(&printed) else {
        return why;
    };
    let line = format!("it printed last: {line}");
    match why {
        FailureReason::Requested => FailureReason::RequestedWith(line),
        FailureReason::Failed(what) => FailureReason::Failed(format!("{what}; {line}")),
        FailureReason::Trapped(what) => FailureReason::Trapped(format!("{what}; {line}")),
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

fn report_trap(guest: &Guest, fill: impl FnOnce(&mut TrapScene)) {
    let settings = guest.settings();
    let mut scene = TrapScene {
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

fn frames(all: &[FrameInfo]) -> (Vec<Frame>, usize) {
    let all = all.iter().flat_map(of_frame);
    let own = all.filter(|frame| !failure_reason::carries_panic(&frame.name));
    let grouped = failure_reason::grouped(own).into_iter();
    let mut frames: Vec<Frame> = grouped
        .map(|(frame, times)| Frame { times, ..frame })
        .collect();
    let outer = frames.len().saturating_sub(FRAMES);
    frames.truncate(FRAMES);
    (frames, outer)
}

/// A function, and before it those that were compiled into it.
fn of_frame(frame: &FrameInfo) -> Vec<Frame> {
    let own = failure_reason::name(frame.func_name(), frame.func_index());
    let symbols = frame.symbols().iter().map(|symbol| Frame {
        name: symbol
            .name()
            .map_or_else(|| own.clone(), |name| failure_reason::name(Some(name), 0)),
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
