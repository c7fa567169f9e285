//! Checks the limits of a route's queues, and the rules between them. Opens nothing.

use super::Check;
use crate::WeightedQueue;
use crate::declared::{MOST_CONCURRENCY, RouteSettings};
use crate::discovery::QueuePattern;
use crate::name::QueueName;
use crate::problem::Problem;
use crate::section::{Layers, WrittenValue};
use crate::value;

impl Check {
    /// Refuses a batch window if each attempt has only one message.
    pub(super) fn batches(&mut self, layers: Layers<'_>, settings: &RouteSettings) {
        let size = layers.one("batch-size");
        let alone = size.map_or(settings.batch_size == 1, |given| {
            given.text.trim().parse() == Ok(1)
        });
        if let (Some(given), true) = (layers.one("batch-window"), alone)
            && !settings.batch_window.is_zero()
        {
            let found = "it waits for other messages, but each message has its own attempt";
            let wanted = "a batch-size above 1 as well";
            self.problems.push(Problem::new(&given.at, found, wanted));
        }
    }

    /// Assigns the limits of single queues.
    pub(super) fn limits(
        &mut self,
        layers: Layers<'_>,
        queues: &mut [WeightedQueue],
        patterns: &[QueuePattern],
    ) {
        for (name, given) in layers.entries("rate") {
            let rate = self.read(Some(given), value::rate);
            for queue in self.named(name, given, queues, patterns) {
                queue.rate = rate;
            }
        }
        for (name, given) in layers.entries("queue-concurrency") {
            let most = self.read(Some(given), |given| {
                value::number(given, &(1..=MOST_CONCURRENCY))
            });
            for queue in self.named(name, given, queues, patterns) {
                queue.concurrency = most;
            }
        }
    }

    /// Returns the queue of the route with this name, or those that the pattern of this text found.
    fn named<'q>(
        &mut self,
        name: &str,
        given: &WrittenValue,
        queues: &'q mut [WeightedQueue],
        patterns: &[QueuePattern],
    ) -> Vec<&'q mut WeightedQueue> {
        let as_pattern = QueuePattern::parse(name, &given.at).ok();
        let pattern = as_pattern.map(|pattern| pattern.to_string());
        let parsed = name.parse::<QueueName>().ok();
        let mut of_patterns = patterns.iter();
        let may_come = of_patterns.any(|other| {
            let matches = parsed.as_ref().is_some_and(|name| other.has(name));
            matches || pattern.as_ref() == Some(&other.to_string())
        });
        let is_here = queues
            .iter()
            .any(|queue| Some(&queue.name) == parsed.as_ref());
        if !is_here && !may_come && !queues.is_empty() {
            let names: Vec<String> = queues.iter().map(|queue| queue.name.to_string()).collect();
            let found = format!("`{name}` is not a queue of the route");
            let problem = Problem::new(&given.at, found, names.join(" or "));
            let names = names.iter().map(String::as_str);
            self.problems.push(problem.nearest(name, names));
        }
        let named = queues.iter_mut().filter(|queue| {
            let is_found = pattern.is_some() && queue.found_by == pattern;
            is_found || Some(&queue.name) == parsed.as_ref()
        });
        named.collect()
    }
}
