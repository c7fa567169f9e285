//! The standard variables of OpenTelemetry, which other programs' SDKs obey as well. Those that name
//! a setting are a lower layer of it; `check` reads the rest. Knows no environment.

use super::declared;
use super::flags::Flags;
use super::section::Given;
use crate::telemetry::otlp::{Batches, OtlpSignal, Resource};
use dispatcher_core::telemetry::trace::TraceTerms;
use std::time::Duration;

/// Variables that name a setting, and the setting.
const SETTINGS: &[(&str, &str)] = &[
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp-endpoint"),
    ("OTEL_TRACES_SAMPLER", "trace-sampler"),
    ("OTEL_TRACES_SAMPLER_ARG", "trace-share"),
];
/// What is exported by OTLP, and where to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Otlp {
    /// What is said of this process.
    pub resource: Resource,
    /// Traces; none without.
    pub traces: Option<Traces>,
    /// Metrics; none without.
    pub metrics: Option<OtlpMetrics>,
    /// The log; not exported without.
    pub logs: Option<OtlpLogs>,
}

/// Where the log is exported to.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpLogs {
    /// Where to.
    pub signal: OtlpSignal,
    /// How lines are batched.
    pub batches: Batches,
}

/// Where metrics are exported to.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpMetrics {
    /// Where to.
    pub signal: OtlpSignal,
    /// How often.
    pub interval: Duration,
}

/// Which traces are exported, and where to.
#[derive(Debug, Clone, PartialEq)]
pub struct Traces {
    /// Where to.
    pub signal: OtlpSignal,
    /// Which.
    pub terms: TraceTerms,
    /// How they are batched.
    pub batches: Batches,
}

/// Takes the variables whose names begin with `OTEL_`. An empty one counts as none.
pub fn take(flags: &mut Flags, variables: impl IntoIterator<Item = (String, String)>) {
    for (name, text) in variables {
        if name.starts_with("OTEL_") && !text.trim().is_empty() {
            let given = Given::new(&name, text);
            flags.otel.push(name, given);
        }
    }
    for (name, flag) in SETTINGS {
        let given = flags.otel.one(name).filter(|_| !flags.is_set(flag));
        if let (Some(given), Some(setting)) = (given.cloned(), declared::of_flag(flag)) {
            flags.program.push(setting.key, given);
        }
    }
}
