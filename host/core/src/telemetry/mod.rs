//! The reports of the program to its operator: log lines, a progress line, counters, metrics,
//! readiness. Knows nothing of queues, plugins or stages; they write here.

pub mod counters;
pub mod error_text;
pub mod escape;
pub mod events;
pub mod log_throttle;
pub mod metrics;
pub mod readiness;
pub mod trace;
