//! The outputs of the stages' reports: log lines, a progress line, Prometheus text, CloudWatch, the
//! Embedded Metric Format, and traces by OTLP.

pub mod accounts;
mod calls;
pub mod depths;
pub mod embedded;
mod fields;
pub mod limits;
pub mod log;
pub mod messaging;
pub mod otlp;
pub mod pace;
pub mod plugins;
pub mod process;
pub mod progress;
pub mod prometheus;
pub mod publish;
pub mod registry;
pub mod routes;
