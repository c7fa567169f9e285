//! Sends telemetry by OTLP over HTTP. `transport.rs` is the only place that knows the collector,
//! for every signal. `proto` has the messages; `spans.rs`, `metrics.rs` and `logs.rs` collect the
//! items, and `batches.rs` sends them.

mod batches;
mod logs;
mod metrics;
mod proto;
mod resource;
mod spans;
mod transport;

pub use batches::Batches;
pub use batches::LAST;
pub use logs::LogRecords;
pub use metrics::MetricsExport;
pub use resource::{Resource, of_this_process};
pub use spans::export_spans;
pub use transport::{OtlpTransport, UnusableFile, headers};

use http::{HeaderMap, HeaderName};
use std::path::PathBuf;
use std::time::Duration;

/// The destination of one signal.
#[derive(Clone, PartialEq, Eq)]
pub struct OtlpSignal {
    /// The URL, including the path of the signal.
    pub url: String,
    /// The headers of every request; their values may be secret.
    pub headers: HeaderMap,
    /// The time limit of one request, including its response.
    pub timeout: Duration,
    /// Whether requests are compressed with gzip.
    pub is_compressed: bool,
    /// The file with certificate authorities in PEM that are trusted in addition to those of the
    /// machine.
    pub ca_file: Option<OtlpFile>,
    /// The files of the client certificate and its key in PEM.
    pub identity: Option<(OtlpFile, OtlpFile)>,
}

/// A file and the variable that names it.
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
