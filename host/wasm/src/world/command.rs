//! Runs WASI programs, which do not know about messages: each message is one run, with the body on
//! stdin, the rest in the environment and the verdict in the exit code. Does not depend on a
//! language.

use super::typecheck::check;
use crate::guest::Guest;
use dispatcher_core::message::{FailureReason, Verdict};
use wasmtime::component::InstancePre;
use wasmtime::{Engine, Store};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::{p2, p3};

/// The export of a program of WASI 0.2.
pub(crate) const RUN: &str = "wasi:cli/run@0.2.0";
/// The export of a program of WASI 0.3.
pub(crate) const ASYNC_RUN: &str = "wasi:cli/run@0.3.0";

/// `EX_TEMPFAIL` of sysexits.h: the sender should retry later.
const TRY_AGAIN: i32 = 75;

/// A program whose imports are resolved and whose export is found.
pub(crate) enum CommandPre {
    Blocking(p2::bindings::CommandPre<Guest>),
    Async(InstancePre<Guest>),
}

/// The program in one instance.
pub(crate) enum Command {
    Blocking(p2::bindings::Command),
    Async(p3::bindings::Command),
}

impl CommandPre {
    /// Creates it from a component that exports `RUN`.
    pub(super) fn new(pre: InstancePre<Guest>) -> wasmtime::Result<Self> {
        check::<(), (Result<(), ()>,)>(&pre, RUN, "run")?;
        Ok(Self::Blocking(p2::bindings::CommandPre::new(pre)?))
    }

    /// Creates it from a component that exports `ASYNC_RUN`.
    pub(super) fn new_async(pre: InstancePre<Guest>) -> wasmtime::Result<Self> {
        check::<(), (Result<(), ()>,)>(&pre, ASYNC_RUN, "run")?;
        Ok(Self::Async(pre))
    }

    pub(super) fn engine(&self) -> &Engine {
        match self {
            Self::Blocking(pre) => pre.engine(),
            Self::Async(pre) => pre.engine(),
        }
    }

    pub(super) async fn instantiate(&self, store: &mut Store<Guest>) -> wasmtime::Result<Command> {
        Ok(match self {
            Self::Blocking(pre) => Command::Blocking(pre.instantiate_async(store).await?),
            Self::Async(pre) => {
                let instance = pre.instantiate_async(&mut *store).await?;
                Command::Async(p3::bindings::Command::new(store, &instance)?)
            }
        })
    }
}

impl Command {
    /// Runs the program to its end. The guest passes it the message through WASI. An error is a
    /// trap.
    pub(super) async fn call(&self, store: &mut Store<Guest>) -> wasmtime::Result<Verdict> {
        let ended = match self {
            Self::Blocking(command) => command.wasi_cli_run().call_run(&mut *store).await,
            Self::Async(command) => {
                let run = command.wasi_cli_run();
                let ended = store.run_concurrent(async |accessor| run.call_run(accessor).await);
                ended.await.and_then(|ended| ended)
            }
        };
        let code = match ended {
            Ok(Ok(())) => 0,
            Ok(Err(())) => 1,
            Err(error) => error.downcast::<I32Exit>()?.0,
        };
        Ok(verdict(code, store.data().limits.struck()))
    }
}

/// Converts an exit code into a verdict. `struck` is the memory limit if the program was refused
/// memory, because most programs then exit by themselves.
fn verdict(code: i32, struck: Option<usize>) -> Verdict {
    match (code, struck) {
        (0, _) => Verdict::Done,
        (TRY_AGAIN, _) => retry(FailureReason::Requested),
        (_, Some(limit)) => retry(FailureReason::OutOfMemory(limit)),
        (code, None) => retry(FailureReason::Failed(format!("it exited with {code}"))),
    }
}

fn retry(why: FailureReason) -> Verdict {
    Verdict::Retry { after: None, why }
}
