//! Outputs of what the stages report: log lines, a progress line, Prometheus text, CloudWatch and
//! the Embedded Metric Format.

mod calls;
pub mod embedded;
mod fields;
pub mod log;
pub mod plugins;
pub mod progress;
pub mod prometheus;
pub mod publish;
pub mod registry;
pub mod routes;
