//! Describes why a guest did not answer: turns the engine's error into an actionable text.

use crate::attempt::AttemptStop;
use crate::guest::Guest;
use crate::output::escape_control_characters;
use crate::scene::Times;
use dispatcher_core::message::FailureReason;
use std::fmt::Write;
use std::time::Duration;
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};

/// The maximum number of functions in a backtrace.
const FRAMES: usize = 5;
/// The maximum length of a function's name, in characters.
const NAME: usize = 80;
/// The size of the engine's stack for a guest's calls, in bytes.
pub(super) const STACK: usize = 512 << 10;

/// Returns why an attempt failed in which Python's interpreter dropped a coroutine.
pub(super) fn of_lost_coroutine() -> FailureReason {
    let why = "a coroutine was never awaited, so its work is not done: export \
        dispatcher:plugin/handler-async and make the handler async, or await it";
    FailureReason::Trapped(why.to_owned())
}

/// Returns why the attempt failed. `limit` is the time that it was allowed to run.
pub(super) fn of(error: &wasmtime::Error, guest: &Guest, limit: Duration) -> FailureReason {
    match error.downcast_ref::<AttemptStop>() {
        Some(AttemptStop::Deadline) => return timed_out(guest, limit),
        Some(stopped) => return FailureReason::Trapped(stopped.to_string()),
        None => {}
    }
    if let Some(limit) = guest.limits.struck() {
        return FailureReason::OutOfMemory(limit);
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return FailureReason::Host(format!("no slot for another instance: {error}"));
    }
    FailureReason::Trapped(trap(error))
}

/// Returns the reason of a timeout: the whole time limit if it is known, otherwise `rest`, the time
/// that was left when the attempt arrived here.
pub(super) fn timed_out(guest: &Guest, rest: Duration) -> FailureReason {
    FailureReason::TimedOut(guest.settings().timeout.unwrap_or(rest))
}

/// Returns why an attempt has no instance. If no guest code ran, the host is the cause.
pub(super) fn of_birth(error: &wasmtime::Error, guest: &Guest, limit: Duration) -> FailureReason {
    let of_guest = error.is::<AttemptStop>()
        || error.is::<wasmtime::Trap>()
        || error.is::<WasmBacktrace>()
        || guest.limits.struck().is_some();
    if of_guest || error.is::<PoolConcurrencyLimitError>() {
        return of(error, guest, limit);
    }
    FailureReason::Host(format!("no instance: {error:#}"))
}

fn trap(error: &wasmtime::Error) -> String {
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        return format!("the handler called exit({}) instead of returning", exit.0);
    }
    let cause = error.root_cause().to_string();
    let mut text = cause
        .strip_prefix("wasm trap: ")
        .unwrap_or(&cause)
        .to_owned();
    if let Some(trace) = error.downcast_ref::<WasmBacktrace>() {
        let mut before = " in ";
        for (name, times) in grouped(names(trace)).into_iter().take(FRAMES) {
            let _ = write!(text, "{before}{name}{}", Times(times));
            before = " ← ";
        }
    }
    if error.downcast_ref() == Some(&Trap::StackOverflow) {
        let _ = write!(text, " ({} KiB, which no option changes)", STACK >> 10);
    }
    text
}

/// Returns the functions of a backtrace, innermost first, without those that only propagate a
/// panic.
fn names(trace: &WasmBacktrace) -> impl Iterator<Item = String> {
    let frames = trace.frames().iter();
    let names = frames.map(|frame| name(frame.func_name(), frame.func_index()));
    names.filter(|name| !carries_panic(name))
}

/// Groups equal neighbours, and counts them.
pub(super) fn grouped<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<(T, usize)> {
    let mut groups: Vec<(T, usize)> = Vec::new();
    for one in all {
        match groups.last_mut() {
            Some((last, times)) if *last == one => *times += 1,
            _ => groups.push((one, 1)),
        }
    }
    groups
}

/// Returns the readable name of a function, without characters that could control a terminal.
pub(super) fn name(mangled: Option<&str>, index: u32) -> String {
    let name = match mangled {
        Some(name) => format!("{:#}", rustc_demangle::demangle(name)),
        None => return format!("function {index}"),
    };
    escape_control_characters(&name.chars().take(NAME).collect::<String>())
}

/// Whether a function only propagates a panic to its trap.
pub(super) fn carries_panic(name: &str) -> bool {
    const PREFIXES: [&str; 8] = [
        "core::panicking::",
        "std::panicking::",
        "std::panic::",
        "std::sys::",
        "std::process::abort",
        "__rustc",
        "rust_panic",
        "abort",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmtime::{Engine, Instance, Module, Store};

    /// Runs the export `run` of a core module written as text.
    fn error(text: &str) -> wasmtime::Error {
        let engine = Engine::default();
        let module = Module::new(&engine, wat::parse_str(text).unwrap()).unwrap();
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let run = instance
            .get_typed_func::<(), ()>(&mut store, "run")
            .unwrap();
        run.call(&mut store, ()).unwrap_err()
    }

    #[test]
    fn trap_lists_its_functions_innermost_first() {
        let error = error(
            r#"(module
                (func $_ZN4core9panicking5panic17h0123456789abcdefE unreachable)
                (func $_ZN4mine6handle17h0123456789abcdefE
                    call $_ZN4core9panicking5panic17h0123456789abcdefE)
                (func (export "run") call $_ZN4mine6handle17h0123456789abcdefE))"#,
        );
        assert_eq!(
            trap(&error),
            "wasm `unreachable` instruction executed in mine::handle ← function 2"
        );
    }

    #[test]
    fn deep_stack_is_abbreviated() {
        let why = trap(&error(r#"(module (func $dig (export "run") call $dig))"#));
        assert!(why.starts_with("call stack exhausted in dig × "), "{why}");
        assert!(
            why.ends_with(" (512 KiB, which no option changes)"),
            "{why}"
        );
        assert_eq!(why.matches("dig").count(), 1);
    }
}
