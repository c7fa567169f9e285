//! All metrics of a process, which every exporter uses. `host/docs/metrics.md` lists them.

use super::accounts;
use super::accounts::UsedAccounts;
use super::depths::{DepthTerms, DepthsOf, QueueDepths};
use super::limits::Limits;
use super::messaging;
use super::pace::Paces;
use super::plugins::Plugins;
use super::process;
use super::routes::Routes;
use dispatcher_core::backend::DepthCost;
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

/// The prices of a million calls in US dollars, by the queue's name; `None` if calls are not
/// billed.
#[derive(Clone, Default)]
pub struct PriceList(Option<Arc<PriceOfQueue>>);

type PriceOfQueue = dyn Fn(&str) -> Option<f64> + Send + Sync;

impl PriceList {
    /// Creates a price list from a function.
    pub fn by(price: impl Fn(&str) -> Option<f64> + Send + Sync + 'static) -> Self {
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

/// All sources of metrics. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    /// The counts of the process.
    pub counters: Arc<Counters>,
    /// The meters of the queues.
    pub meters: Arc<Meters>,
    /// The messages that were sent to queues.
    pub sent: Arc<SentMessages>,
    /// The names of the messaging systems of queues, if known.
    pub systems: Option<SystemOfQueue>,
    /// The state of each route's control loop.
    pub routes: Arc<Routes>,
    /// The state of the limits of the fleet.
    pub limits: Limits,
    /// The state of each plugin's versions.
    pub plugins: Arc<Plugins>,
    /// The cost of reading a queue's depth, by its name; `None` if the name is unknown.
    pub depth_cost: Option<fn(&str) -> Option<DepthCost>>,
    /// The prices of calls.
    pub prices: PriceList,
    /// The last known depths of queues.
    pub depths: Arc<QueueDepths>,
    /// The settings for reading depths.
    pub depth_terms: DepthTerms,
    /// The counts of the last minute.
    pub paces: Arc<Paces>,
    /// The accounts of AWS.
    pub accounts: Option<UsedAccounts>,
}

impl Registry {
    /// Returns every metric with its current values.
    pub fn families(&self) -> Vec<MetricFamily> {
        let tasks = MetricValue::Level(tasks::alive() as f64);
        let (now, every) = (clock::now(), self.depth_terms.every);
        let sent = self.sent.all();
        // Sends and redrives are billed as well.
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
            self.paces.families(
                now,
                &self.meters,
                |queue: &str| self.prices.dollars_per_million_calls(queue),
                |queue: &str| self.depths.waiting(queue, now, every),
                &calls,
            ),
            self.routes.families(),
            self.limits.families(),
            self.plugins.families(),
            accounts::families(self.accounts),
            process::families(),
        ];
        families.into_iter().flatten().collect()
    }

    /// Writes every metric with its current values, and those of plugins, on a separate thread:
    /// with thousands of queues this takes a second, in which leases must be extended.
    pub async fn written<T: Send + 'static>(
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

    /// Returns the queues whose depth is due to be read before metrics are shown.
    pub fn due_depths(&self, now: BootInstant) -> Vec<String> {
        let DepthTerms { of, every } = self.depth_terms;
        let meters = self.meters.all();
        let names = meters.iter().map(|(name, _)| &**name);
        let wanted = names.filter(|name| match of {
            DepthsOf::All => true,
            DepthsOf::Cheap => {
                let cost = self.cost_of_depth(name);
                cost.is_some_and(|cost| cost != DepthCost::WholeQueue)
            }
            DepthsOf::Free => self.cost_of_depth(name) == Some(DepthCost::Free),
            DepthsOf::None => false,
        });
        let due = wanted.filter(|name| self.depths.is_due(name, now, every));
        due.map(str::to_owned).collect()
    }

    fn cost_of_depth(&self, queue: &str) -> Option<DepthCost> {
        self.depth_cost?(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::CIRCUIT_OPEN;
    use dispatcher_core::telemetry::metrics::queue::QUEUE_METRICS;
    use std::collections::BTreeSet;
    use std::fmt::Write;

    /// The table of `host/docs/metrics.md`.
    fn table() -> String {
        let mut out = String::from("| metric | kind | unit | labels | CloudWatch | meaning |\n");
        out += "| --- | --- | --- | --- | --- | --- |\n";
        let mut row = |metric: &Metric, name: String, labels: &[&str], cloudwatch: String| {
            let (kind, unit) = (metric.kind.label(), metric.unit.label());
            let quoted: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = quoted.join(", ");
            let help = metric.help;
            let _ = writeln!(
                out,
                "| {name} | {kind} | {unit} | {labels} | {cloudwatch} | {help} |"
            );
        };
        for MetricFamily { metric, labels, .. } in Registry::default().families() {
            let of_queue = QUEUE_METRICS
                .iter()
                .find(|one| one.metric.name == metric.name);
            let cloudwatch = of_queue.and_then(|one| {
                let unit = one.cloudwatch_unit().name();
                Some(format!("`{}` ({unit})", one.cloudwatch?))
            });
            let circuit =
                (metric.name == "route_circuit_open").then(|| format!("`{CIRCUIT_OPEN}` (Count)"));
            let name = format!("`{}`", metric.full_name());
            row(
                &metric,
                name,
                labels,
                cloudwatch.or(circuit).unwrap_or_default(),
            );
        }
        for one in QUEUE_METRICS.iter().filter(|one| !one.is_exposed()) {
            let name = one.cloudwatch.unwrap_or_default();
            let cloudwatch = format!("`{name}` ({})", one.cloudwatch_unit().name());
            row(&one.metric, "–".to_owned(), &["queue"], cloudwatch);
        }
        out
    }

    #[tokio::test]
    async fn queues_are_asked_for_their_depth_by_what_that_costs() {
        let mut registry = Registry {
            meters: Arc::new(Meters::new(["orders", "local:a", "dynamodb:t", "?"])),
            depth_cost: Some(|name| match name {
                "local:a" => Some(DepthCost::Free),
                "orders" => Some(DepthCost::OneCall),
                "dynamodb:t" => Some(DepthCost::WholeQueue),
                _ => None,
            }),
            ..Registry::default()
        };
        let now = clock::now();
        for (of, due) in [
            (DepthsOf::default(), &["orders", "local:a"][..]),
            (DepthsOf::Free, &["local:a"]),
            (DepthsOf::All, &["orders", "local:a", "dynamodb:t", "?"]),
            (DepthsOf::None, &[]),
        ] {
            registry.depth_terms.of = of;
            assert_eq!(registry.due_depths(now), due, "{of:?}");
        }
        registry.depth_terms.of = DepthsOf::Cheap;
        registry.depths.record("orders", now, None, None);
        assert_eq!(registry.due_depths(now), ["local:a"], "once an interval");
    }

    fn family<'a>(families: &'a [MetricFamily], name: &str) -> &'a MetricFamily {
        let found = families.iter().find(|family| family.metric.name == name);
        found.expect("it is declared")
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
        let samples = family(&families, "queue_cost_dollars").samples.iter();
        let cost: Vec<_> = samples.map(|one| (&*one.labels[0], &one.value)).collect();
        let [three, two] = [3.0, 2.0].map(|calls| MetricValue::Sum(calls * 0.5 / 1e6));
        assert_eq!(cost, [("invoices", &three), ("letters", &two)]);
        let sends = family(&families, "messaging_client_operation_duration_seconds");
        assert!(
            sends.samples.iter().all(|one| &*one.labels[0] != "letters"),
            "nothing was sent there"
        );
    }

    #[tokio::test]
    async fn metrics_page_lists_every_metric() {
        let page = include_str!("../../docs/metrics.md");
        let table = table();
        assert!(
            page.contains(&table),
            "host/docs/metrics.md wants this table:\n{table}"
        );
    }

    #[tokio::test]
    async fn every_metric_is_declared_once_with_help() {
        let families = Registry::default().families();
        let each = families.iter().map(|family| family.metric.full_name());
        let names: BTreeSet<String> = each.collect();
        assert_eq!(names.len(), families.len());
        for MetricFamily { metric, .. } in families {
            assert!(metric.help.ends_with('.'), "{metric:?}");
        }
    }
}
