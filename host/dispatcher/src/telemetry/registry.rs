//! All metrics of a process, from which every exporter is written. `host/docs/metrics.md` lists them.

use super::plugins::Plugins;
use super::routes::Routes;
use dispatcher_core::tasks;
use dispatcher_core::telemetry::counters::Counters;
use dispatcher_core::telemetry::metrics::registry::{Metric, MetricFamily, MetricValue, Unit};
use dispatcher_core::telemetry::metrics::{Meters, queue};
use std::sync::Arc;

const TASKS: Metric = Metric::gauge("tasks", Unit::Tasks, "Live tasks on the control runtime.");

/// Everything that counts. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    /// The counts of the process.
    pub counters: Arc<Counters>,
    /// What is measured by queue.
    pub meters: Arc<Meters>,
    /// How the control of each route stands.
    pub routes: Arc<Routes>,
    /// How the versions of each plugin stand.
    pub plugins: Arc<Plugins>,
}

impl Registry {
    /// Every metric with its values now.
    pub fn families(&self) -> Vec<MetricFamily> {
        let tasks = MetricValue::Level(tasks::alive() as f64);
        [
            self.counters.families(),
            vec![TASKS.of_process(tasks)],
            queue::families(&self.meters),
            self.routes.families(),
            self.plugins.families(),
        ]
        .concat()
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
        let mut out = String::from("| metric | kind | unit | labels | CloudWatch | meaning |\n");
        out += "| --- | --- | --- | --- | --- | --- |\n";
        let mut row = |metric: &Metric, name: String, labels: &[&str], cloudwatch: String| {
            let (kind, unit) = (metric.kind.label(), metric.unit.label());
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = labels.join(", ");
            let help = metric.help;
            let _ = writeln!(
                out,
                "| {name} | {kind} | {unit} | {labels} | {cloudwatch} | {help} |"
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
        let names: BTreeSet<String> = families.iter().map(|of| of.metric.full_name()).collect();
        assert_eq!(names.len(), families.len());
        for MetricFamily { metric, .. } in families {
            assert!(metric.help.ends_with('.'), "{metric:?}");
        }
    }
}
