//! All metrics of a process, from which every exporter is written. `host/docs/metrics.md` lists them.

use super::depths::{DepthTerms, DepthsOf, QueueDepths};
use super::messaging;
use super::pace::Paces;
use super::plugins::Plugins;
use super::process;
use super::routes::Routes;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::tasks;
use dispatcher_core::telemetry::counters::Counters;
use dispatcher_core::telemetry::metrics::durations::SentMessages;
use dispatcher_core::telemetry::metrics::of_plugins::PluginMetric;
use dispatcher_core::telemetry::metrics::registry::{Metric, MetricFamily, MetricValue, Unit};
use dispatcher_core::telemetry::metrics::{Meters, queue};
use dispatcher_core::telemetry::trace::SystemOfQueue;
use std::sync::Arc;

const TASKS: Metric = Metric::gauge("tasks", Unit::Tasks, "Live tasks on the control runtime.");

/// What a million calls for a queue cost in US dollars, by its name; nothing where they are not billed.
#[derive(Clone, Default)]
pub(crate) struct PriceList(Option<Arc<PriceOfQueue>>);

type PriceOfQueue = dyn Fn(&str) -> Option<f64> + Send + Sync;

impl PriceList {
    /// As this says.
    pub(crate) fn by(price: impl Fn(&str) -> Option<f64> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(price)))
    }

    fn dollars_per_million_calls(&self, queue: &str) -> Option<f64> {
        self.0.as_ref().and_then(|price| price(queue))
    }
}

impl std::fmt::Debug for PriceList {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("PriceList")
    }
}

/// Everything that counts. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry {
    /// The counts of the process.
    pub counters: Arc<Counters>,
    /// What is measured by queue.
    pub meters: Arc<Meters>,
    /// What was sent to queues.
    pub sent: Arc<SentMessages>,
    /// What the messaging systems of queues are called, where that is known.
    pub(crate) systems: Option<SystemOfQueue>,
    /// How the control of each route stands.
    pub routes: Arc<Routes>,
    /// How the versions of each plugin stand.
    pub plugins: Arc<Plugins>,
    /// Whether the depth of a queue is asked for unless that is turned off, by its name.
    pub(crate) has_cheap_depth: Option<fn(&str) -> bool>,
    /// What calls for a queue cost.
    pub(crate) prices: PriceList,
    /// How much queues hold.
    pub(crate) depths: Arc<QueueDepths>,
    /// What is asked for that.
    pub(crate) depth_terms: DepthTerms,
    /// What was counted in the last minute.
    pub(crate) paces: Arc<Paces>,
}

impl Registry {
    /// Every metric with its values now.
    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        let tasks = MetricValue::Level(tasks::alive() as f64);
        let (now, every) = (clock::now(), self.depth_terms.every);
        let waiting = |queue: &str| self.depths.waiting(queue, now, every);
        let price = |queue: &str| self.prices.dollars_per_million_calls(queue);
        let sent = self.sent.all();
        // What sends and redrives is billed as well.
        let mut calls = self.depths.calls();
        for one in &sent {
            *calls.entry(one.queue.clone()).or_default() += one.calls_to_backend;
        }
        let families = [
            self.counters.families(),
            vec![TASKS.of_process(tasks)],
            messaging::families(&self.meters, &sent, |queue| {
                self.systems.map_or("", |systems| systems(queue))
            }),
            queue::families(&self.meters),
            self.depths.families(now, every),
            self.paces
                .families(now, &self.meters, price, waiting, &calls),
            self.routes.families(),
            self.plugins.families(),
            process::families(),
        ];
        families.into_iter().flatten().collect()
    }

    /// Writes every metric with its values now, and what plugins measure themselves, on a thread of its
    /// own: of thousands of queues it takes a second, in which leases must be extended.
    pub(crate) async fn written<T: Send + 'static>(
        &self,
        write: impl FnOnce(Vec<MetricFamily>, Vec<PluginMetric>) -> T + Send + 'static,
    ) -> T {
        let registry = self.clone();
        let written = tasks::blocking(move || {
            let of_plugins = registry.counters.of_plugins.all();
            write(registry.families(), of_plugins)
        });
        written.finished().await
    }

    /// The queues whose depth is to be asked for before metrics are shown.
    pub(crate) fn due_depths(&self, now: BootInstant) -> Vec<String> {
        let DepthTerms { of, every } = self.depth_terms;
        let names = self.meters.iter().map(|(name, _)| &**name);
        let wanted = names.filter(|name| match of {
            DepthsOf::All => true,
            DepthsOf::Free => {
                let is_cheap = self.has_cheap_depth;
                is_cheap.is_some_and(|is_cheap| is_cheap(name))
            }
            DepthsOf::None => false,
        });
        let due = wanted.filter(|name| self.depths.is_due(name, now, every));
        due.map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::telemetry::metrics::queue::QUEUE_METRICS;
    use std::collections::BTreeSet;
    use std::fmt::Write;

    /// The table of `host/docs/metrics.md`.
    fn table() -> String {
        let mut out =
            String::from("| metric | before | kind | unit | labels | CloudWatch | meaning |\n");
        out += "| --- | --- | --- | --- | --- | --- | --- |\n";
        let mut row = |metric: &Metric, name: String, labels: &[&str], cloudwatch: String| {
            let (kind, unit) = (metric.kind.label(), metric.unit.label());
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = labels.join(", ");
            let help = metric.help;
            let before = metric.deprecated().map(|before| before.full_name());
            let before = before.map(|name| format!("`{name}`")).unwrap_or_default();
            let _ = writeln!(
                out,
                "| {name} | {before} | {kind} | {unit} | {labels} | {cloudwatch} | {help} |"
            );
        };
        let of_queue = |name: &str| QUEUE_METRICS.iter().find(|one| one.metric.name == name);
        for MetricFamily { metric, labels, .. } in Registry::default().families() {
            let cloudwatch = of_queue(metric.name).and_then(|one| {
                let unit = one.cloudwatch_unit().name();
                Some(format!("`{}` ({unit})", one.cloudwatch?))
            });
            let name = format!("`{}`", metric.full_name());
            row(&metric, name, labels, cloudwatch.unwrap_or_default());
        }
        for one in QUEUE_METRICS.iter().filter(|one| !one.is_exposed()) {
            let name = one.cloudwatch.unwrap_or_default();
            let cloudwatch = format!("`{name}` ({})", one.cloudwatch_unit().name());
            row(&one.metric, "–".to_owned(), &["queue"], cloudwatch);
        }
        out
    }

    #[tokio::test]
    async fn only_queues_that_cost_nothing_are_asked_unless_all_are_wanted() {
        let mut registry = Registry {
            meters: Arc::new(Meters::new(["orders", "local:a"])),
            has_cheap_depth: Some(|name| name.starts_with("local:")),
            ..Registry::default()
        };
        let now = clock::now();
        for (of, due) in [
            (DepthsOf::Free, &["local:a"][..]),
            (DepthsOf::All, &["orders", "local:a"]),
            (DepthsOf::None, &[]),
        ] {
            registry.depth_terms.of = of;
            assert_eq!(registry.due_depths(now), due, "{of:?}");
        }
        registry.depth_terms.of = DepthsOf::All;
        registry.depths.record("orders", now, None, None);
        assert_eq!(registry.due_depths(now), ["local:a"], "once an interval");
    }

    #[tokio::test]
    async fn calls_for_a_queue_that_is_only_sent_to_or_redriven_are_priced() {
        let registry = Registry {
            meters: Arc::new(Meters::new(["local:a"])),
            prices: PriceList::by(|queue| (!queue.starts_with("local:")).then_some(0.5)),
            ..Registry::default()
        };
        let ms = std::time::Duration::from_millis(1);
        registry.sent.record("invoices", 3, ms, &[None]);
        registry.sent.add_calls("letters", 2);
        let families = registry.families();
        let family = |name: &str| {
            let mut all = families.iter().filter(|family| family.metric.name == name);
            all.next().expect("it is declared")
        };
        let cost = family("queue_cost_dollars").samples.iter();
        let cost: Vec<_> = cost.map(|one| (&*one.labels[0], &one.value)).collect();
        let dollars = |calls: f64| MetricValue::Sum(calls * 0.5 / 1e6);
        assert_eq!(
            cost,
            [("invoices", &dollars(3.0)), ("letters", &dollars(2.0))]
        );
        let sends = family("messaging_client_operation_duration_seconds");
        let mut sends = sends.samples.iter();
        assert!(
            sends.all(|one| &*one.labels[0] != "letters"),
            "nothing was sent there"
        );
    }

    #[tokio::test]
    async fn metrics_page_lists_every_metric() {
        let page = include_str!("../../../docs/metrics.md");
        let table = table();
        assert!(
            page.contains(&table),
            "host/docs/metrics.md wants this table:\n{table}"
        );
    }

    #[tokio::test]
    async fn every_metric_is_declared_once_with_help() {
        let families = Registry::default().families();
        let metrics = || families.iter().map(|family| family.metric);
        let former = || metrics().filter_map(|metric| metric.deprecated());
        let all = metrics().chain(former()).map(|metric| metric.full_name());
        let names: BTreeSet<String> = all.collect();
        assert_eq!(names.len(), families.len() + former().count());
        for MetricFamily { metric, .. } in families {
            assert!(metric.help.ends_with('.'), "{metric:?}");
        }
    }
}
