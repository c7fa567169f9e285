//! The standard variables of OpenTelemetry, which the SDKs of other programs use as well. Variables
//! for a setting are a lower layer of it; `check` reads the others. The environment is an argument.

use super::declared;
use super::flags::Flags;
use super::section::WrittenValue;
use dispatcher_core::telemetry::trace::TraceTerms;
use dispatcher_telemetry::otlp::{Batches, OtlpSignal, Resource};
use std::time::Duration;

/// The variables for a setting, and the setting.
const SETTINGS: &[(&str, &str)] = &[
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp-endpoint"),
    ("OTEL_TRACES_SAMPLER", "trace-sampler"),
    ("OTEL_TRACES_SAMPLER_ARG", "trace-share"),
];
/// The settings of the OTLP export.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Otlp {
    /// The attributes of this process.
    pub resource: Resource,
    /// The export of traces; `None`: not exported.
    pub traces: Option<Traces>,
    /// The export of metrics; `None`: not exported.
    pub metrics: Option<OtlpMetrics>,
    /// The export of the log; `None`: not exported.
    pub logs: Option<OtlpLogs>,
}

/// The settings of the log's export.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpLogs {
    /// The destination and its request settings.
    pub signal: OtlpSignal,
    /// The batch settings.
    pub batches: Batches,
}

/// The settings of the metrics' export.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpMetrics {
    /// The destination and its request settings.
    pub signal: OtlpSignal,
    /// The export interval.
    pub interval: Duration,
}

/// The settings of the traces' export.
#[derive(Debug, Clone, PartialEq)]
pub struct Traces {
    /// The destination and its request settings.
    pub signal: OtlpSignal,
    /// The sampling settings.
    pub terms: TraceTerms,
    /// The batch settings.
    pub batches: Batches,
}

/// Takes the variables whose names begin with `OTEL_`. An empty variable counts as not set.
pub fn take(flags: &mut Flags, variables: impl IntoIterator<Item = (String, String)>) {
    for (name, text) in variables {
        if name.starts_with("OTEL_") && !text.trim().is_empty() {
            let given = WrittenValue::new(&name, text);
            flags.otel.push(name, given);
        }
    }
    for (name, flag) in SETTINGS {
        let given = if !flags.is_set(flag) {
            flags.otel.one(name)
        } else {
            None
        };
        if let (Some(given), Some(setting)) = (given.cloned(), declared::of_flag(flag)) {
            flags.program.push(setting.key, given);
        }
    }
}
