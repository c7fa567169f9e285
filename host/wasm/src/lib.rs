//! Runs WebAssembly components as handlers: engine, instances, capabilities, entry points.

mod admission;
pub mod capability;
mod diagnosis;
mod epoch;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod guest;
mod handle;
mod idle;
pub mod inspect;
mod instance;
mod invocations;
mod io;
mod layout;
mod limits;
pub mod load;
mod mishap;
mod output;
mod room;
pub mod runtime;
pub mod scene;
mod shared;
pub mod tally;
pub mod warm;
mod world;
pub mod wrap;

#[cfg(test)]
mod tests;

pub use capability::http::HttpHost;
pub use capability::network::Peer;
use dispatcher_core::handler::{Attempt, Handler, Usage};
use std::time::Duration;

/// When an instance that has answered may be given another attempt. One that trapped, ran out of
/// time or was cancelled never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reuse {
    /// At most so many attempts.
    pub count: u64,
    /// Only while less than this has passed since its first attempt ended.
    pub age: Duration,
    /// Only while it holds at most so many bytes of memory.
    pub memory: usize,
}
