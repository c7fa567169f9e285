//! What befell a guest that did not answer: the engine's error in words that a person can act on.

use super::guest::Guest;
use crate::message::Mishap;
use std::fmt::Write;
use std::time::Duration;
use wasmtime::{PoolConcurrencyLimitError, WasmBacktrace};

/// The most functions named in a backtrace.
const FRAMES: usize = 5;
/// The longest name of a function, in characters.
const NAME: usize = 80;

/// Why the host itself stopped a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stopped {
    /// Its deadline has passed.
    #[error("the deadline of the attempt has passed")]
    Deadline,
    /// All its messages are cancelled.
    #[error("what it answers no longer counts")]
    Cancelled,
}

/// What befell the attempt. `limit` is how long it was allowed to run.
pub(super) fn of(error: &wasmtime::Error, guest: &Guest, limit: Duration) -> Mishap {
    match error.downcast_ref::<Stopped>() {
        Some(Stopped::Deadline) => return Mishap::TimedOut(limit),
        Some(Stopped::Cancelled) => return Mishap::Trapped(Stopped::Cancelled.to_string()),
        None => {}
    }
    if let Some(limit) = guest.limits.struck() {
        return Mishap::OutOfMemory(limit);
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Mishap::Host(format!("no room for another instance: {error}"));
    }
    Mishap::Trapped(trap(error))
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
        for name in names(trace).take(FRAMES) {
            let _ = write!(text, "{before}{name}");
            before = " ← ";
        }
    }
    text
}

/// The innermost functions first, without those that only carry a panic along.
fn names(trace: &WasmBacktrace) -> impl Iterator<Item = String> {
    let known = trace.frames().iter().filter_map(|frame| frame.func_name());
    known
        .map(|name| format!("{:#}", rustc_demangle::demangle(name)))
        .filter(|name| !carries_panic(name))
        .map(|name| name.chars().take(NAME).collect())
}

fn carries_panic(name: &str) -> bool {
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
