//! The settings of traces. Standard variables of OpenTelemetry set them, too; see `config::otel`.

use super::macros::settings;
use super::{Group, Setting, SettingPart, Table};

settings! {
    /// Settings of `[dispatcher]` that are read together, with the variables of OpenTelemetry.
    TRACES of SettingPart::Program, in &[Table::Dispatcher];

    /// Export traces and metrics by OTLP over HTTP to this collector, as in http://127.0.0.1:4318;
    /// the same as OTEL_EXPORTER_OTLP_ENDPOINT; the other OTEL_ variables apply too
    "otlp-endpoint" => Setting::new("URL").default("none").flag(Group::Traces);

    /// Which traces are exported: always_on, always_off, traceidratio, or parentbased_ and one of
    /// them, which follows the decision of the parent; the same as OTEL_TRACES_SAMPLER
    "trace-sampler" => Setting::new("SAMPLER").default("parentbased_always_on").flag(Group::Traces);

    /// The share of traces that a sampler with traceidratio exports, from 0 to 1; the same as
    /// OTEL_TRACES_SAMPLER_ARG
    "trace-share" => Setting::new("SHARE").default("1").flag(Group::Traces);

    /// Which failed attempts to export: those of sampled traces, or always all; outside a sampled
    /// trace only the attempt itself is exported
    "trace-errors" => Setting::new("sampled|always").default("sampled").flag(Group::Traces);

    /// How the span of an attempt refers to the span that sent its message: by a link, or as its
    /// parent, so that both are in one trace; a batch has links
    "trace-parent" => Setting::new("link|message").default("link").flag(Group::Traces);
}
