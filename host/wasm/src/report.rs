//! Reports failed attempts, with what is known of their guests. Does not decide verdicts.

use crate::attempt;
use crate::failure_reason;
use crate::guest::Guest;
use crate::output::PrintedLine;
use crate::scene::{Frame, TrapScene};
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{FailureReason, Verdict};
use std::num::NonZeroUsize;
use wasmtime::{FrameInfo, WasmBacktrace};

/// The maximum number of functions in a scene.
const FRAMES: usize = 20;
/// The maximum number of a guest's functions that are inspected when it traps. Some only propagate
/// a panic, and a function that calls itself counts once.
pub(crate) const CAPTURED: NonZeroUsize = NonZeroUsize::new(64).expect("it is not zero");

/// Reports an attempt that `error` ended.
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

/// Reports an attempt that was stopped at its deadline while its guest waited.
pub(crate) fn waited(guest: &Guest, attempt: &Attempt, why: &FailureReason) {
    let (queue, message_id) = attempt::place(attempt);
    report_trap(guest, |scene| {
        scene.queue = queue;
        scene.message_id = message_id;
        scene.why = why.to_string();
        scene.waited = true;
    });
}

/// Reports an attempt whose guest has ended, because its output may show the cause of a failure.
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

/// Adds the last output of the guest to the reason of an attempt with one message. With several
/// messages it is unknown which of them a line is about.
pub(crate) fn explain(guest: &Guest, verdicts: &mut [Verdict]) {
    if let [Verdict::Retry { why, .. }] = verdicts {
        *why = with_last_line(std::mem::replace(why, FailureReason::Requested), guest);
    }
}

/// Adds the guest's last output if it may say more than is known. Omits it if a witness observes
/// the attempts, because the witness has seen it.
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
    match why {
        FailureReason::Requested => {
            FailureReason::RequestedWith(format!("it printed last: {line}"))
        }
        FailureReason::Failed(what) => FailureReason::Failed(format!("{line} ({what})")),
        FailureReason::Trapped(what) => FailureReason::Trapped(format!("{line} ({what})")),
        other => other,
    }
}

/// Returns the last line that names an error. An indented line belongs to a stack trace, a line
/// without a letter closes a value, and Rust's `note:` explains how to get a stack trace.
fn last_line(printed: &[PrintedLine]) -> Option<&str> {
    let mut lines = printed.iter().rev().map(|printed| printed.line.as_str());
    let last = lines.clone().next();
    lines
        .find(|line: &&str| {
            let is_of_another = line.starts_with([' ', '\t']) || line.starts_with("note: ");
            !is_of_another && line.contains(char::is_alphabetic)
        })
        .or(last)
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
        // The verdict is reported in any case.
        None if scene.trace.is_empty() && scene.printed.is_empty() && !scene.waited => {}
        None => scene.log(),
    }
    guest.reported();
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

/// Returns a function, preceded by those that were compiled into it.
fn of_frame(frame: &FrameInfo) -> Vec<Frame> {
    let own = failure_reason::name(frame.func_name(), frame.func_index());
    let named = frame.symbols().iter().map(|symbol| Frame {
        name: symbol
            .name()
            .map_or_else(|| own.clone(), |name| failure_reason::name(Some(name), 0)),
        at: symbol.file().map(|file| match symbol.line() {
            Some(line) => format!("{file}:{line}"),
            None => file.to_owned(),
        }),
        times: 1,
    });
    let symbols: Vec<_> = named.collect();
    if symbols.is_empty() {
        vec![Frame {
            name: own,
            at: None,
            times: 1,
        }]
    } else {
        symbols
    }
}
