//! Starts the monitoring of a run: metrics to CloudWatch or stdout, and the admin page.

use super::replace::{ReloadRequests, RollBack};
use super::{ProcessContext, traces};
use crate::admin;
use crate::admin::access::Access;
use crate::admin::operations::Operations;
use crate::admin::problem::{CallProblem, StatusCode};
use crate::admin::{DepthAsker, Reload, ReloadAnswer};
use crate::config::otel::OtlpMetrics;
use crate::config::problem::Problem;
use crate::config::{MetricTerms, MetricsSink, Settings};
use crate::name::QueueName;
use crate::telemetry::embedded::Embedded;
use crate::telemetry::otlp::{LAST, MetricsExport, of_this_process};
use crate::telemetry::publish::{ExportEnd, ToCloudWatch, publish, resolution_s};
use crate::telemetry::registry::{PriceList, Registry};
use dispatcher_aws::cloudwatch::CloudWatch;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::readiness::Readiness;
use dispatcher_sqlite as sqlite;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What watches; ends with `finish`.
pub(crate) struct Watching {
    over: CancellationToken,
    end: ExportEnd,
    publishing: Option<Task<()>>,
    exporting: Option<Task<()>>,
    serving: Option<Task<()>>,
    files: Task<()>,
}

/// How often databases are asked for that cannot be used.
const LOOK: Duration = Duration::from_secs(1);

/// What is watched.
#[derive(Clone, Copy)]
pub(crate) struct Watched<'a> {
    settings: &'a Settings,
    shared: &'a ProcessContext,
}

/// Starts what the settings ask for.
pub(crate) async fn start(
    watched: Watched<'_>,
    wishes: ReloadRequests,
    access: &Arc<Access>,
    operations: &Arc<OnceLock<Arc<dyn Operations>>>,
) -> Result<Watching, Problem> {
    let Watched {
        settings, shared, ..
    } = watched;
    let over = CancellationToken::new();
    let files = tasks::spawn(watch_files(shared.readiness.clone(), over.clone()));
    let serving = match &settings.admin {
        None => None,
        Some(served) => {
            let listener = admin::listen(served.address, served.or_any_port)
                .await
                .map_err(|why| Problem::new("--admin", why, "an address that is free"))?;
            let state = admin::AdminState {
                metrics: watched.metrics(),
                prices: settings.metric_terms.prices.clone(),
                readiness: shared.readiness.clone(),
                reload: Some(reload(wishes.clone())),
                roll_back: Some(roll_back(wishes)),
                access: Arc::clone(access),
                operations: Arc::clone(operations),
                ledger: shared.ledger.clone(),
                pages: admin::PageSettings::of(served),
            };
            Some(tasks::spawn(admin::serve(listener, state, over.clone())))
        }
    };
    let end = ExportEnd::default();
    let publishing = publishing(settings, shared, end.clone()).await;
    let exporting = watched.export_metrics(operations, end.clone())?;
    Ok(Watching {
        over,
        end,
        publishing,
        exporting,
        serving,
        files,
    })
}

impl<'a> Watched<'a> {
    /// A run.
    pub(crate) fn new(settings: &'a Settings, shared: &'a ProcessContext) -> Self {
        Self { settings, shared }
    }

    /// Exports metrics by OTLP, where the settings ask for that.
    fn export_metrics(
        self,
        operations: &Arc<OnceLock<Arc<dyn Operations>>>,
        end: ExportEnd,
    ) -> Result<Option<Task<()>>, Problem> {
        let otlp = &self.settings.otlp;
        let Some(OtlpMetrics { signal, interval }) = &otlp.metrics else {
            return Ok(None);
        };
        let export = MetricsExport::new(signal, of_this_process(&otlp.resource));
        let export = export.map_err(traces::unusable)?;
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
            plugins: shared.plugins.clone(),
            has_cheap_depth: Some(has_cheap_depth),
            prices: PriceList::by(move |queue| prices.dollars_per_million_calls(queue)),
            depths: shared.depths.clone(),
            depth_terms: depths,
            paces: Arc::default(),
        }
    }
}

/// Whether the depth of a queue of this name costs nothing.
fn has_cheap_depth(queue: &str) -> bool {
    let name = queue.parse::<QueueName>();
    name.is_ok_and(|name| name.backend.has_cheap_depth())
}

/// Keeps the databases that cannot be used among the reasons for not being ready.
async fn watch_files(readiness: Arc<Readiness>, over: CancellationToken) {
    let mut named = BTreeSet::<String>::new();
    while !over.is_cancelled() {
        let unusable = sqlite::unusable().into_iter();
        let unusable: BTreeMap<_, _> = unusable
            .map(|(path, why)| (format!("file {}", path.display()), why))
            .collect();
        for name in named
            .iter()
            .filter(|name: &&String| !unusable.contains_key(*name))
        {
            readiness.clear(name);
        }
        named = unusable.keys().cloned().collect();
        for (name, why) in unusable {
            readiness.set(name, why);
        }
        tokio::select! {
            () = over.cancelled() => {}
            () = clock::sleep_until(Some(clock::now() + LOOK)) => {}
        }
    }
}

/// Has the plugins looked at again, and says what came of it.
fn reload(wishes: ReloadRequests) -> Reload {
    Arc::new(move || {
        let wishes = wishes.clone();
        Box::pin(async move {
            let reports = wishes.look().await;
            let replaced = reports.iter().filter(|one| !one.replaced.is_empty());
            ReloadAnswer {
                is_good: reports.iter().all(|report| report.refused.is_empty()),
                replaced: replaced.count() as u64,
                came: serde_json::json!({ "plugins": reports }),
            }
        })
    })
}

/// Rolls the canary of a route back.
fn roll_back(wishes: ReloadRequests) -> admin::RollBack {
    Arc::new(move |route| {
        let wishes = wishes.clone();
        Box::pin(async move {
            match wishes.roll_back(&route) {
                RollBack::Done(version) => Ok(version.to_string()),
                RollBack::NoRoute => Err(CallProblem::not_found(format!(
                    "This process has no route `{route}` with a plugin."
                ))),
                RollBack::NoCanary => Err(CallProblem::new(
                    StatusCode::CONFLICT,
                    format!(
                        "No canary of route `{route}` takes messages. To go back from a current \
                         version, put the file of the earlier one in its place."
                    ),
                )),
            }
        })
    })
}

/// Exports metrics every `interval`, and once more at the end, for which there are 3 s.
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
    let meters = shared.meters.clone();
    Some(match metrics.sink {
        MetricsSink::CloudWatch => {
            let config =
                dispatcher_aws::shared_configuration(settings.stores.endpoint_url.as_deref()).await;
            let sink = ToCloudWatch {
                client: CloudWatch::connect(&config, namespace),
                resolution_s,
            };
            tasks::spawn(publish(sink, meters, metrics.interval, end))
        }
        MetricsSink::EmbeddedFormat => {
            let sink = Embedded::new(namespace, resolution_s, std::io::stdout());
            tasks::spawn(publish(sink, meters, metrics.interval, end))
        }
    })
}

impl Watching {
    /// The run is over: publishes what was measured last, for at most 3 s and not after `latest`, and
    /// answers no more.
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
            Some(self.files),
        ];
        for task in tasks.into_iter().flatten() {
            task.finished().await;
        }
    }
}
