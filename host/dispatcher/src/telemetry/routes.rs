//! How the control of each route stands, for whoever asks: as Prometheus reads it. Knows no route
//! but its name; whoever runs one says how it is asked.

use dispatcher_core::scheduler::figures::Figures;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

type Ask = Box<dyn Fn() -> Figures + Send + Sync>;

/// The routes of a process.
#[derive(Default)]
pub struct Routes(Mutex<Vec<(String, Ask)>>);

/// A gauge by route: its name, what it is, and how it is read.
type Gauge = (&'static str, &'static str, fn(&Figures) -> Option<f64>);

const GAUGES: [Gauge; 7] = [
    (
        "hand_over_seconds",
        "How long an attempt takes a worker: the median of the last 63.",
        |of| of.hand_over.map(|took| took.as_secs_f64()),
    ),
    ("in_flight", "Messages held now, started or not.", |of| {
        count(of.in_flight)
    }),
    ("in_flight_limit", "Messages that may be held.", |of| {
        count(of.in_flight_limit)
    }),
    ("attempts", "Attempts under way.", |of| count(of.attempts)),
    ("attempts_limit", "Attempts that may be under way.", |of| {
        count(of.attempts_limit)
    }),
    (
        "call_wait_seconds",
        "How long room is left to gather before it is asked for.",
        |of| Some(of.wait.as_secs_f64()),
    ),
    ("polls", "Receives under way.", |of| count(of.polls)),
];

fn count(count: usize) -> Option<f64> {
    u32::try_from(count).ok().map(f64::from)
}

impl Routes {
    /// One more route, and how it is asked: quickly, and by any thread.
    pub fn add(&self, name: &str, ask: impl Fn() -> Figures + Send + Sync + 'static) {
        let mut routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        routes.push((name.to_owned(), Box::new(ask)));
    }

    /// All gauges of all routes in the text format of Prometheus; names begin with
    /// `dispatcher_route_`, times are in seconds. What is not known has no line.
    pub fn text(&self) -> String {
        let routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked: Vec<(String, Figures)> = routes
            .iter()
            .map(|(name, ask)| (super::prometheus::escaped(name), ask()))
            .collect();
        let mut out = String::new();
        for (name, help, gauge) in GAUGES {
            // Writing into a string cannot fail.
            let _ = write!(
                out,
                "# HELP dispatcher_route_{name} {help}\n# TYPE dispatcher_route_{name} gauge\n"
            );
            for (route, figures) in &asked {
                if let Some(value) = gauge(figures) {
                    let _ = writeln!(out, "dispatcher_route_{name}{{route=\"{route}\"}} {value}");
                }
            }
        }
        out
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Routes").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_gauge_has_a_line_by_route_and_the_unknown_has_none() {
        let routes = Routes::default();
        routes.add("a\"b", || Figures {
            hand_over: Some(Duration::from_millis(1_500)),
            in_flight: 12,
            in_flight_limit: 22,
            ..Figures::default()
        });
        routes.add("new", Figures::default);
        let text = routes.text();
        for line in [
            "# TYPE dispatcher_route_hand_over_seconds gauge",
            "dispatcher_route_hand_over_seconds{route=\"a\\\"b\"} 1.5",
            "dispatcher_route_in_flight{route=\"a\\\"b\"} 12",
            "dispatcher_route_in_flight_limit{route=\"a\\\"b\"} 22",
            "dispatcher_route_polls{route=\"new\"} 0",
        ] {
            assert!(
                text.lines().any(|other| other == line),
                "{line} not in\n{text}"
            );
        }
        assert!(!text.contains("hand_over_seconds{route=\"new\"}"), "{text}");
    }
}
