//! What the program tells its operator: log lines, a progress line, counters, metrics, readiness.
//! Knows nothing of queues, plugins or stages; they write here.

mod calls;
pub mod counters;
pub mod events;
mod fields;
pub mod harmless;
pub mod log;
pub mod metrics;
pub mod plugins;
pub mod progress;
pub mod prometheus;
pub mod readiness;
pub mod routes;
pub mod said;
