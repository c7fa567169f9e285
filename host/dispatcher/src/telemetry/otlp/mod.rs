//! Sends telemetry by OTLP over HTTP. `transport.rs` is the only place that knows the collector, for
//! every signal; `proto` has the messages, `spans.rs`, `metrics.rs` and `logs.rs` have what
//! is sent, `batches.rs` sends it.

mod batches;
mod logs;
mod metrics;
mod proto;
mod resource;
mod spans;
mod transport;

pub(crate) use batches::Batches;
pub(crate) use batches::LAST;
pub(crate) use logs::LogRecords;
pub(crate) use metrics::MetricsExport;
pub(crate) use resource::{Resource, of_this_process};
pub(crate) use spans::export_spans;
pub(crate) use transport::{OtlpTransport, UnusableFile, headers};

use http::{HeaderMap, HeaderName};
use std::path::PathBuf;
use std::time::Duration;

/// Where one signal goes.
#[derive(Clone, PartialEq, Eq)]
pub struct OtlpSignal {
    /// With the path of the signal.
    pub url: String,
    /// Sent with every request; their values may be secret.
    pub headers: HeaderMap,
    /// How long one request may take, its answer included.
    pub timeout: Duration,
    /// Whether requests are compressed by gzip.
    pub is_compressed: bool,
    /// Certificate authorities in PEM that are trusted besides those of the machine.
    pub ca_file: Option<OtlpFile>,
    /// The files of the certificate and of the key in PEM by which the collector knows this process.
    pub identity: Option<(OtlpFile, OtlpFile)>,
}

/// A file, and the variable that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpFile {
    /// The file.
    pub path: PathBuf,
    /// The variable.
    pub variable: String,
}

impl std::fmt::Debug for OtlpSignal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&HeaderName> = self.headers.keys().collect();
        write!(out, "OtlpSignal({}, headers {names:?})", self.url)
    }
}
