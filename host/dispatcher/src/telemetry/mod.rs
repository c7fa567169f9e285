//! Outputs of what the stages report: log lines, a progress line, Prometheus text, CloudWatch, the
//! Embedded Metric Format, and traces by OTLP.

mod calls;
pub(crate) mod depths;
pub(crate) mod embedded;
mod fields;
pub(crate) mod log;
pub(crate) mod messaging;
pub(crate) mod otlp;
pub(crate) mod pace;
pub(crate) mod plugins;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod prometheus;
pub(crate) mod publish;
pub(crate) mod registry;
pub(crate) mod routes;
