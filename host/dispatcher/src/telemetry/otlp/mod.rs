//! Sends telemetry by OTLP over HTTP. `transport.rs` is the only place that knows the collector, for
//! every signal; `proto` has the messages, `spans.rs`, `metrics.rs` and `logs.rs` have what
//! is sent, `batches.rs` sends it.

mod batches;
mod logs;
mod metrics;
mod proto;
mod spans;
mod transport;

pub(crate) use batches::Batches;
pub(crate) use batches::LAST;
pub(crate) use logs::LogRecords;
pub(crate) use metrics::MetricsExport;
pub(crate) use spans::export_spans;
pub(crate) use transport::OtlpTransport;

use std::path::PathBuf;
use std::time::Duration;

/// Where one signal goes.
#[derive(Clone, PartialEq, Eq)]
pub struct OtlpSignal {
    /// With the path of the signal.
    pub url: String,
    /// Sent with every request; their values may be secret.
    pub headers: Vec<(String, String)>,
    /// How long one request may take, its answer included.
    pub timeout: Duration,
    /// Whether requests are compressed by gzip.
    pub is_compressed: bool,
    /// Certificate authorities in PEM that are trusted besides those of the machine.
    pub ca_file: Option<PathBuf>,
    /// The files of the certificate and of the key in PEM by which the collector knows this process.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl std::fmt::Debug for OtlpSignal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        write!(out, "OtlpSignal({}, headers {names:?})", self.url)
    }
}

/// What all signals say about this process: names of the conventions, and their values.
pub(crate) type Resource = Vec<(String, String)>;
