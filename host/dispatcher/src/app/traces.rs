//! Starts the export of traces and logs, and ends it once the last of them are sent.

use crate::config::otel::Otlp;
use crate::config::problem::Problem;
use crate::name::QueueName;
use crate::telemetry::otlp::{
    LogRecords, OtlpTransport, UnusableFile, export_spans, of_this_process,
};
use crate::telemetry::publish::ExportEnd;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::trace::Tracer;

/// What exports; ends with `finish`.
pub(crate) struct Exporting {
    end: ExportEnd,
    task: Option<Task<()>>,
}

/// Starts what the settings ask for: what makes spans, and what exports them.
///
/// # Errors
/// The certificates for the collector cannot be used.
pub(crate) fn start(otlp: &Otlp) -> Result<(Tracer, Exporting), Problem> {
    let end = ExportEnd::default();
    let Some(traces) = &otlp.traces else {
        return Ok((Tracer::default(), Exporting { end, task: None }));
    };
    let transport = OtlpTransport::new(&traces.signal).map_err(unusable)?;
    let (tracer, receiver) =
        Tracer::naming(traces.terms, traces.batches.capacity, messaging_system);
    let (resource, batches) = (of_this_process(&otlp.resource), traces.batches);
    let exporting = export_spans(receiver, transport, resource, batches, end.clone());
    tracing::info!(endpoint = traces.signal.url, "traces are exported");
    let task = Some(tasks::spawn(exporting));
    Ok((tracer, Exporting { end, task }))
}

/// What the conventions call the system of a queue of this name.
pub(super) fn messaging_system(queue: &str) -> &'static str {
    let name = queue.parse::<QueueName>();
    name.map_or("", |name| name.backend.messaging_system())
}

/// The certificates or the key for the collector cannot be used.
pub(super) fn unusable(file: UnusableFile) -> Problem {
    let wanted = if file.variable.ends_with("_KEY") {
        "a file with a key in PEM"
    } else {
        "a file with certificates in PEM"
    };
    Problem::new(file.variable, file.found, wanted)
}

/// Starts the export of log records, where the settings ask for that. It is to end last.
///
/// # Errors
/// The certificates for the collector cannot be used.
pub(crate) fn export_logs(
    otlp: &Otlp,
    records: Option<LogRecords>,
) -> Result<Exporting, Vec<Problem>> {
    let end = ExportEnd::default();
    let Some((logs, records)) = otlp.logs.as_ref().zip(records) else {
        return Ok(Exporting { end, task: None });
    };
    let (resource, batches) = (of_this_process(&otlp.resource), logs.batches);
    let exporting = records.export(&logs.signal, resource, batches, end.clone());
    let exporting = exporting.map_err(|file| vec![unusable(file)])?;
    tracing::info!(endpoint = logs.signal.url, "logs are exported");
    let task = Some(tasks::spawn(exporting));
    Ok(Exporting { end, task })
}

impl Exporting {
    /// The run is over: sends what is left, for at most 3 s, and not after `latest` where there is such
    /// a moment.
    pub(crate) async fn finish(self, latest: Option<BootInstant>) {
        self.end.over.cancel();
        let cut = self.end.cut.clone();
        let _clock = tasks::spawn(async move {
            clock::sleep_until(latest).await;
            cut.cancel();
        });
        if let Some(task) = self.task {
            task.finished().await;
        }
    }
}
