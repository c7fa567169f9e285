//! The types, ports and stages of a message's life. Does not depend on a queue system, WebAssembly,
//! a database or HTTP: the crates for those depend on this one. `host/README.md` is the map.

pub mod account;
pub mod backend;
pub mod backoff;
pub mod clock;
pub mod control;
pub mod envelope;
pub mod error_kind;
pub mod executor;
pub mod files;
pub mod filter;
pub mod fleet;
#[cfg(any(test, fuzzing, feature = "samples"))]
pub mod fuzz;
pub mod handler;
pub mod idempotency;
pub mod intake;
pub mod job;
pub mod json;
pub mod keyvalue;
pub mod lambda;
pub mod lease;
pub mod memory;
pub mod message;
pub mod process;
pub mod queue;
pub mod schedule;
pub mod scheduler;
pub mod settlement;
pub mod spans;
pub mod tasks;
pub mod telemetry;
pub mod throttle;
