//! The state of each route's control loop, as metrics. Knows only the routes' names; the owner
//! supplies the values.

use dispatcher_core::scheduler::figures::Figures;
use dispatcher_core::scheduler::tenants::TenantFigures;
use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};
use parking_lot::Mutex;

/// CloudWatch's name for `route_circuit_open`.
pub const CIRCUIT_OPEN: &str = "CircuitOpen";

/// The name of a queue, and the figures of its busiest tenants.
pub type QueueTenants = (String, Vec<TenantFigures>);

type Ask = Box<dyn Fn() -> Figures + Send + Sync>;
type AskTenants = Box<dyn Fn() -> Vec<QueueTenants> + Send + Sync>;

/// The routes of a process.
#[derive(Default)]
pub struct Routes(Mutex<Vec<AskedRoute>>);

/// A route whose figures can be read.
struct AskedRoute {
    name: String,
    figures: Ask,
    tenants: Option<AskTenants>,
}

/// A gauge of a route, and the function that reads it.
type RouteGauge = (Metric, fn(&Figures) -> Option<f64>);

const GAUGES: [RouteGauge; 9] = [
    (
        Metric::gauge(
            "route_attempt_median_seconds",
            Unit::Seconds,
            "How long an attempt occupies a worker: the median of the last 63.",
        ),
        |of| of.hand_over.map(|took| took.as_secs_f64()),
    ),
    (
        Metric::gauge(
            "route_in_flight",
            Unit::Messages,
            "Messages held now, started or not.",
        ),
        |of| count(of.in_flight),
    ),
    (
        Metric::gauge(
            "route_in_flight_limit",
            Unit::Messages,
            "Maximum messages that may be held.",
        ),
        |of| count(of.in_flight_limit),
    ),
    (
        Metric::gauge("route_attempts", Unit::Attempts, "Running attempts."),
        |of| count(of.attempts),
    ),
    (
        Metric::gauge(
            "route_attempts_limit",
            Unit::Attempts,
            "Maximum running attempts.",
        ),
        |of| count(of.attempts_limit),
    ),
    (
        Metric::gauge(
            "route_utilization_ratio",
            Unit::Ratio,
            "Running attempts by their maximum: 1 where every one that may run does.",
        ),
        |of| Some(count(of.attempts)? / count(of.attempts_limit).filter(|limit| *limit > 0.0)?),
    ),
    (
        Metric::gauge(
            "route_circuit_open",
            Unit::Switch,
            "Whether the circuit is open: the handler answered that what it needs is unavailable, and only probes are started.",
        ),
        |of| Some(f64::from(u8::from(of.circuit_open))),
    ),
    (
        Metric::gauge(
            "route_call_wait_seconds",
            Unit::Seconds,
            "How long a receive waits for more free permits, so that it can ask for more messages.",
        ),
        |of| Some(of.wait.as_secs_f64()),
    ),
    (
        Metric::gauge("route_polls", Unit::Polls, "Outstanding receives."),
        |of| count(of.polls),
    ),
];

fn count(count: usize) -> Option<f64> {
    u32::try_from(count).ok().map(f64::from)
}

/// A gauge of a tenant, and the function that reads it.
type TenantGauge = (Metric, fn(&TenantFigures) -> f64);

const TENANT_GAUGES: [TenantGauge; 4] = [
    (
        Metric::gauge(
            "queue_tenant_running",
            Unit::Messages,
            "Messages of a tenant in running attempts of this process.",
        ),
        |of| count(of.running).unwrap_or_default(),
    ),
    (
        Metric::gauge(
            "queue_tenant_waiting",
            Unit::Messages,
            "Messages of a tenant that this process holds and that have not started.",
        ),
        |of| count(of.held + of.limited).unwrap_or_default(),
    ),
    (
        Metric::gauge(
            "queue_tenant_starts_per_second",
            Unit::Messages,
            "Messages of a tenant that this process started in the last second.",
        ),
        |of| f64::from(of.per_second),
    ),
    (
        Metric::gauge(
            "queue_tenant_parked",
            Unit::Switch,
            "Whether so many messages of a tenant wait for a limit that no more are received.",
        ),
        |of| f64::from(u8::from(of.is_parked)),
    ),
];

impl Routes {
    /// Adds the tenants of a route's queues. `ask` returns the busiest of each queue; it must be
    /// fast and callable on any thread.
    pub fn add_tenants(
        &self,
        route: &str,
        ask: impl Fn() -> Vec<QueueTenants> + Send + Sync + 'static,
    ) {
        let mut routes = self.0.lock();
        if let Some(found) = routes.iter_mut().find(|one| one.name == route) {
            found.tenants = Some(Box::new(ask));
        }
    }

    /// Adds a route, or replaces it. `ask` returns its figures; it must be fast and callable on any
    /// thread.
    pub fn add(&self, name: &str, ask: impl Fn() -> Figures + Send + Sync + 'static) {
        let added = AskedRoute {
            name: name.to_owned(),
            figures: Box::new(ask),
            tenants: None,
        };
        let mut routes = self.0.lock();
        match routes.iter_mut().find(|one| one.name == name) {
            Some(replaced) => *replaced = added,
            None => routes.push(added),
        }
    }

    /// Removes a route.
    pub fn remove(&self, name: &str) {
        self.0.lock().retain(|one| one.name != name);
    }

    /// Returns the name of each route and whether its circuit is open.
    pub fn circuits(&self) -> Vec<(String, bool)> {
        let routes = self.0.lock();
        routes
            .iter()
            .map(|route: &AskedRoute| (route.name.clone(), (route.figures)().circuit_open))
            .collect()
    }

    /// Returns all gauges of all routes. An unknown value has no sample.
    pub fn families(&self) -> Vec<MetricFamily> {
        let routes = self.0.lock();
        let asked: Vec<(&String, Figures)> = routes
            .iter()
            .map(|route: &AskedRoute| (&route.name, (route.figures)()))
            .collect();
        let asks = routes.iter().filter_map(|route| route.tenants.as_ref());
        let tenants: Vec<QueueTenants> = asks.flat_map(|ask| ask()).collect();
        GAUGES
            .iter()
            .map(|(metric, read): &RouteGauge| {
                metric.family(
                    &["route"],
                    asked
                        .iter()
                        .filter_map(|(route, figures): &(&String, Figures)| {
                            let value = MetricValue::Level(read(figures)?);
                            Some(MetricSample::new([route.as_str()], value))
                        }),
                )
            })
            .chain(tenant_families(&tenants))
            .collect()
    }
}

fn tenant_families(all: &[QueueTenants]) -> Vec<MetricFamily> {
    let families = TENANT_GAUGES.iter().map(|(metric, read)| {
        let samples = all.iter().flat_map(|(queue, tenants)| {
            tenants.iter().map(|figures| {
                let names = [queue.as_str(), &*figures.tenant];
                MetricSample::new(names, MetricValue::Level(read(figures)))
            })
        });
        metric.family(&["queue", "tenant"], samples)
    });
    families.collect()
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Routes").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::TextFormat;
    use std::time::Duration;

    #[test]
    fn every_gauge_has_a_line_per_route_and_unknown_values_have_none() {
        let routes = Routes::default();
        routes.add("a\"b", || Figures {
            hand_over: Some(Duration::from_millis(1_500)),
            in_flight: 12,
            in_flight_limit: 22,
            circuit_open: true,
            ..Figures::default()
        });
        routes.add("new", Figures::default);
        let text = TextFormat::OpenMetrics.text(&routes.families(), &[]);
        for line in [
            "# TYPE dispatcher_route_attempt_median_seconds gauge",
            "dispatcher_route_attempt_median_seconds{route=\"a\\\"b\"} 1.5",
            "dispatcher_route_in_flight{route=\"a\\\"b\"} 12",
            "dispatcher_route_in_flight_limit{route=\"a\\\"b\"} 22",
            "dispatcher_route_circuit_open{route=\"a\\\"b\"} 1",
            "dispatcher_route_circuit_open{route=\"new\"} 0",
            "dispatcher_route_polls{route=\"new\"} 0",
        ] {
            assert!(
                text.lines().any(|other| other == line),
                "{line} not in\n{text}"
            );
        }
        assert!(!text.contains("hand_over_seconds{route=\"new\"}"), "{text}");
        routes.add("new", || Figures {
            circuit_open: true,
            ..Figures::default()
        });
        routes.remove("a\"b");
        assert_eq!(routes.circuits(), [("new".to_owned(), true)]);
    }
}
