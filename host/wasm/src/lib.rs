//! Runs WebAssembly components as handlers: engine, instances, capabilities, entry points.

#![warn(unreachable_pub)]

mod admission;
mod ahead;
mod attempt;
pub mod capability;
mod causes;
mod compiled;
mod diagnosis;
mod engines;
mod epoch;
mod failure_reason;
mod functions;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod guest;
mod handle;
mod idle;
pub mod inspect;
mod instance;
mod invocation_limit;
mod io;
mod layout;
mod limits;
pub mod load;
mod output;
mod plugin;
mod problem;
mod report;
mod reuse;
pub mod runtime;
pub mod scene;
mod shared;
mod skeleton;
pub mod tally;
mod unawaited;
mod underway;
pub mod warm;
mod world;
pub mod wrap;

#[cfg(test)]
mod tests;

pub use capability::http::HttpHost;
pub use capability::network::Peer;
pub use reuse::Reuse;
