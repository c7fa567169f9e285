//! Outputs of what the stages report: log lines, a progress line, Prometheus text, CloudWatch, the
//! Embedded Metric Format, and traces by OTLP.

mod calls;
pub mod depths;
pub mod embedded;
mod fields;
pub mod log;
pub(crate) mod messaging;
pub mod otlp;
pub(crate) mod pace;
pub mod plugins;
pub(crate) mod process;
pub mod progress;
pub(crate) mod prometheus;
pub mod publish;
pub mod registry;
pub mod routes;
