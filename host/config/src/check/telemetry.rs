//! Checks the settings for publishing metrics. Opens nothing.

use super::Check;
use crate::problem::Problem;
use crate::section::{Layers, WrittenValue};
use crate::value;
use crate::value::BareUnit;
use crate::{Metrics, MetricsSink};
use std::time::Duration;

/// The default of the classic tool.
const INTERVAL: Duration = Duration::from_secs(60);
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3_600);

impl Check {
    /// Reads the settings of the program's metrics. The default is CloudWatch if the program has a
    /// name.
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
            Some(_) => self
                .read(chosen, |given: &WrittenValue| value::choice(given, &sinks))
                .flatten(),
            None => is_named.then_some(MetricsSink::CloudWatch),
        };
        if let (Some(given), Some(_), None) = (chosen, sink, program.one("name")) {
            let found = format!("`{}` without a name for the metrics", given.text.trim());
            let problem = Problem::new(&given.at, found, "a name as well");
            self.problems
                .push(problem.hint("written like --name my-app, or name = \"my-app\""));
        }
        let interval = interval.unwrap_or(INTERVAL);
        sink.map(|sink| Metrics { sink, interval })
    }
}
