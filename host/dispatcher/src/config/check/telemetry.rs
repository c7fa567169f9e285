//! Checks where metrics are published. Opens nothing.

use super::Check;
use crate::config::problem::Problem;
use crate::config::section::{Given, Layers};
use crate::config::value;
use crate::config::value::BareUnit;
use crate::config::{Metrics, MetricsSink};
use std::time::Duration;

/// The default of the classic tool.
const INTERVAL: Duration = Duration::from_secs(60);
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3_600);

impl Check {
    /// The program's metrics: to CloudWatch if it has a name and nothing else is chosen.
    pub(super) fn metrics(&mut self, program: Layers<'_>, is_named: bool) -> Option<Metrics> {
        let sinks = [
            ("cloudwatch", Some(MetricsSink::CloudWatch)),
            ("emf", Some(MetricsSink::EmbeddedFormat)),
            ("none", None),
        ];
        let range = SHORTEST..=LONGEST;
        let interval = self.read(program.one("metrics-interval"), |given| {
            value::duration(given, BareUnit::Seconds, &range)
        });
        let chosen = program.one("metrics");
        let sink = match chosen {
            Some(_) => {
                let choose = |given: &Given| value::choice(given, &sinks);
                self.read(chosen, choose).flatten()
            }
            None => is_named.then_some(MetricsSink::CloudWatch),
        };
        if let (Some(given), Some(_), None) = (chosen, sink, program.one("name")) {
            let found = format!(
                "`{}` without a name to file metrics under",
                given.text.trim()
            );
            let problem = Problem::new(&given.at, found, "a name as well");
            self.problems
                .push(problem.hint("written like --name my-app, or name = \"my-app\""));
        }
        let interval = interval.unwrap_or(INTERVAL);
        sink.map(|sink| Metrics { sink, interval })
    }
}
