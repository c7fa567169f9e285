//! Exports traces and logs, and sends the last of them before the end.

use dispatcher_config::name::QueueName;
use dispatcher_config::otel::Otlp;
use dispatcher_config::problem::Problem;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::trace::Tracer;
use dispatcher_telemetry::otlp::{
    LogRecords, OtlpTransport, UnusableFile, export_spans, of_this_process,
};
use dispatcher_telemetry::publish::ExportEnd;

/// A running export; `finish` ends it.
pub(crate) struct RunningExport {
    end: ExportEnd,
    task: Option<Task<()>>,
}

/// Creates the tracer and starts the export that the settings request.
///
/// # Errors
/// Fails if the certificates for the collector cannot be used.
pub(crate) fn start(otlp: &Otlp) -> Result<(Tracer, RunningExport), Problem> {
    let end = ExportEnd::default();
    let Some(traces) = &otlp.traces else {
        return Ok((Tracer::default(), RunningExport { end, task: None }));
    };
    let transport = OtlpTransport::new(&traces.signal).map_err(unusable)?;
    let (tracer, receiver) =
        Tracer::naming(traces.terms, traces.batches.capacity, messaging_system);
    let (resource, batches) = (of_this_process(&otlp.resource), traces.batches);
    let exporting = export_spans(receiver, transport, resource, batches, end.clone());
    tracing::info!(endpoint = traces.signal.url, "traces are exported");
    let task = Some(tasks::spawn(exporting));
    Ok((tracer, RunningExport { end, task }))
}

/// Returns the name of a queue's messaging system in the conventions of OpenTelemetry.
pub(super) fn messaging_system(queue: &str) -> &'static str {
    let name = queue.parse::<QueueName>();
    name.map_or("", |name| name.backend.facts().messaging_system)
}

/// Returns the problem of certificates or a key for the collector that cannot be used.
pub(super) fn unusable(file: UnusableFile) -> Problem {
    let wanted = if file.variable.ends_with("_KEY") {
        "a file with a key in PEM"
    } else {
        "a file with certificates in PEM"
    };
    Problem::new(file.variable, file.found, wanted)
}

/// Starts the export of log records, if the settings request it. It must end last.
///
/// # Errors
/// Fails if the certificates for the collector cannot be used.
pub(crate) fn export_logs(
    otlp: &Otlp,
    records: Option<LogRecords>,
) -> Result<RunningExport, Vec<Problem>> {
    let end = ExportEnd::default();
    let Some((logs, records)) = otlp.logs.as_ref().zip(records) else {
        return Ok(RunningExport { end, task: None });
    };
    let (resource, batches) = (of_this_process(&otlp.resource), logs.batches);
    let exporting = records
        .export(&logs.signal, resource, batches, end.clone())
        .map_err(|file| vec![unusable(file)])?;
    tracing::info!(endpoint = logs.signal.url, "logs are exported");
    let task = Some(tasks::spawn(exporting));
    Ok(RunningExport { end, task })
}

impl RunningExport {
    /// Sends the remaining items at the end of the run, for at most 3 s and not after `latest`, if
    /// given.
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
