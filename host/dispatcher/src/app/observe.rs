//! Starts the monitoring of a run: metrics to CloudWatch or stdout, and the admin address.

use super::replace::ReloadRequests;
use super::{ProcessContext, traces};
use dispatcher_aws::cloudwatch::CloudWatch;
use dispatcher_config::name::QueueName;
use dispatcher_config::otel::OtlpMetrics;
use dispatcher_config::problem::Problem;
use dispatcher_config::{MetricTerms, MetricsSink, Settings};
use dispatcher_console as admin;
use dispatcher_console::DepthAsker;
use dispatcher_console::access::Access;
use dispatcher_core::backend::DepthCost;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::readiness::Readiness;
use dispatcher_operate::operations::Operations;
use dispatcher_sqlite as sqlite;
use dispatcher_telemetry::embedded::EmbeddedMetrics;
use dispatcher_telemetry::limits::Limits;
use dispatcher_telemetry::otlp::{LAST, MetricsExport, of_this_process};
use dispatcher_telemetry::publish::{
    ExportEnd, ReportSources, ToCloudWatch, publish, resolution_s,
};
use dispatcher_telemetry::registry::{PriceList, Registry};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The running monitoring tasks; `finish` ends them.
pub(crate) struct MonitoringTasks {
    over: CancellationToken,
    end: ExportEnd,
    publishing: Option<Task<()>>,
    exporting: Option<Task<()>>,
    serving: Option<Task<()>>,
    parts: Task<()>,
}

/// The interval of checks for unusable databases and accounts.
const LOOK: Duration = Duration::from_secs(1);

/// The run that is monitored.
#[derive(Clone, Copy)]
pub(crate) struct WatchedRun<'a> {
    settings: &'a Settings,
    shared: &'a ProcessContext,
}

/// Starts the monitoring that the settings request.
pub(crate) async fn start(
    watched: WatchedRun<'_>,
    wishes: ReloadRequests,
    access: &Arc<Access>,
    operations: &Arc<OnceLock<Arc<dyn Operations>>>,
) -> Result<MonitoringTasks, Problem> {
    let WatchedRun {
        settings, shared, ..
    } = watched;
    let over = CancellationToken::new();
    let parts = tasks::spawn(watch_parts(shared.readiness.clone(), over.clone()));
    let serving = match &settings.admin {
        None => None,
        Some(served) => {
            let listener = admin::listen(served.address, served.or_any_port)
                .await
                .map_err(|why| Problem::new("--admin", why, "an address that is free"))?;
            if served.prints_sign_in {
                admin::print_sign_in(&listener, served.token_file.as_deref());
            }
            let state = admin::AdminState {
                metrics: watched.metrics(),
                prices: settings.metric_terms.prices.clone(),
                readiness: shared.readiness.clone(),
                reload: Some(Arc::new(move || {
                    let wishes = wishes.clone();
                    Box::pin(async move { wishes.reload().await })
                })),
                access: Arc::clone(access),
                operations: Arc::clone(operations),
                held: shared.held.clone(),
                pages: admin::PageSettings::of(served),
            };
            Some(tasks::spawn(admin::serve(listener, state, over.clone())))
        }
    };
    let end = ExportEnd::default();
    let publishing = publishing(settings, shared, end.clone()).await;
    let exporting = watched.export_metrics(operations, end.clone())?;
    Ok(MonitoringTasks {
        over,
        end,
        publishing,
        exporting,
        serving,
        parts,
    })
}

impl<'a> WatchedRun<'a> {
    /// Creates a reference to a run.
    pub(crate) fn new(settings: &'a Settings, shared: &'a ProcessContext) -> Self {
        Self { settings, shared }
    }

    /// Exports metrics with OTLP, if the settings request that.
    fn export_metrics(
        self,
        operations: &Arc<OnceLock<Arc<dyn Operations>>>,
        end: ExportEnd,
    ) -> Result<Option<Task<()>>, Problem> {
        let otlp = &self.settings.otlp;
        let Some(OtlpMetrics { signal, interval }) = &otlp.metrics else {
            return Ok(None);
        };
        let export = MetricsExport::new(signal, of_this_process(&otlp.resource))
            .map_err(traces::unusable)?;
        tracing::info!(endpoint = signal.url, "metrics are exported");
        let metrics = self.metrics();
        let asker = DepthAsker::new(metrics.clone(), Arc::clone(operations));
        let exporting = export_metrics(export, metrics, asker, *interval, end);
        Ok(Some(tasks::spawn(exporting)))
    }

    fn metrics(self) -> Registry {
        let Self { settings, shared } = self;
        let MetricTerms { depths, prices } = settings.metric_terms.clone();
        shared.meters.keep_exemplars();
        Registry {
            counters: shared.counters.clone(),
            meters: shared.meters.clone(),
            sent: shared.sent.clone(),
            systems: Some(traces::messaging_system),
            routes: shared.routes.clone(),
            limits: Limits(shared.fleet.clone()),
            plugins: shared.plugins.clone(),
            depth_cost: Some(depth_cost),
            prices: PriceList::by(move |queue| prices.dollars_per_million_calls(queue)),
            depths: shared.depths.clone(),
            depth_terms: depths,
            paces: Arc::default(),
            accounts: Some(dispatcher_aws::accounts::used),
        }
    }
}

/// Returns the cost of requesting the depth of a queue of this name.
fn depth_cost(queue: &str) -> Option<DepthCost> {
    let name = queue.parse::<QueueName>().ok()?;
    Some(name.backend.facts().depth_cost)
}

/// Shows in the readiness which databases and accounts cannot be used, until cancelled.
async fn watch_parts(readiness: Arc<Readiness>, over: CancellationToken) {
    while !over.is_cancelled() {
        let files = sqlite::unusable().into_iter();
        readiness.replace(
            "file",
            files.map(|(path, why)| (path.display().to_string(), why)),
        );
        let accounts = dispatcher_aws::accounts::used().into_iter();
        let failing = accounts.filter_map(|(account, used)| Some((account, used.failure?)));
        readiness.replace_named("account", failing);
        tokio::select! {
            () = over.cancelled() => {}
            () = clock::sleep_until(Some(clock::now() + LOOK)) => {}
        }
    }
}

/// Exports metrics every `interval`, and once more at the end, within 3 s.
async fn export_metrics(
    mut export: MetricsExport,
    metrics: Registry,
    asker: Arc<DepthAsker>,
    interval: Duration,
    end: ExportEnd,
) {
    let asking = Arc::clone(&asker).run(CancellationToken::new());
    let exporting = async {
        loop {
            tokio::select! {
                () = end.over.cancelled() => {}
                () = clock::sleep_until(Some(clock::now() + interval)) => asker.refresh().await,
            }
            if end.over.is_cancelled() {
                return export.send_last(&metrics).await;
            }
            export.send(&metrics).await;
        }
    };
    tokio::select! {
        biased;
        () = exporting => {}
        () = asking => {}
        () = end.is_late(LAST) => {}
    }
}

async fn publishing(
    settings: &Settings,
    shared: &ProcessContext,
    end: ExportEnd,
) -> Option<Task<()>> {
    let metrics = settings.metrics?;
    let namespace = format!("Dispatcher-{}", settings.program.name.as_deref()?);
    let resolution_s = resolution_s(metrics.interval);
    let measured = ReportSources {
        meters: shared.meters.clone(),
        routes: shared.routes.clone(),
    };
    Some(match metrics.sink {
        MetricsSink::CloudWatch => {
            let config =
                dispatcher_aws::shared_configuration(settings.stores.endpoint_url.as_deref()).await;
            let sink = ToCloudWatch {
                client: CloudWatch::connect(&config, namespace),
                resolution_s,
            };
            tasks::spawn(publish(sink, measured, metrics.interval, end))
        }
        MetricsSink::EmbeddedFormat => {
            let sink = EmbeddedMetrics::new(namespace, resolution_s, std::io::stdout());
            tasks::spawn(publish(sink, measured, metrics.interval, end))
        }
    })
}

impl MonitoringTasks {
    /// Publishes the last measurements at the end of the run, for at most 3 s and not after
    /// `latest`, and stops serving.
    pub(crate) async fn finish(self, latest: BootInstant) {
        self.over.cancel();
        self.end.over.cancel();
        let cut = self.end.cut.clone();
        let _clock = tasks::spawn(async move {
            clock::sleep_until(Some(latest)).await;
            cut.cancel();
        });
        let tasks = [
            self.publishing,
            self.exporting,
            self.serving,
            Some(self.parts),
        ];
        for task in tasks.into_iter().flatten() {
            task.finished().await;
        }
    }
}
