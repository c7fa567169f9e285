//! How much of a route runs at once, and of each of its queues: batches, concurrencies, rates.
//! Opens nothing.

use super::{Check, MOST_CONCURRENCY};
use crate::config::WeightedQueue;
use crate::config::problem::Problem;
use crate::config::section::{Given, Layers};
use crate::config::value;
use crate::config::value::Bare;
use crate::name::QueueName;
use std::time::Duration;

/// As many as Lambda's own event source mapping gathers.
const MOST_BATCH: usize = 10_000;
const LONGEST_WINDOW: Duration = Duration::from_secs(300);

impl Check {
    /// How many messages share an attempt, and how long the first of them waits for others.
    pub(super) fn batches(&mut self, layers: Layers<'_>) -> (usize, Duration) {
        let window = Duration::ZERO..=LONGEST_WINDOW;
        let size = self.read(layers.one("batch-size"), |given| {
            value::number(given, &(1..=MOST_BATCH))
        });
        let window = self.read(layers.one("batch-window"), |given| {
            value::duration(given, Bare::Seconds, &window)
        });
        let alone = size == Some(1) || layers.one("batch-size").is_none();
        if let (Some(given), true) = (layers.one("batch-window"), alone)
            && window.is_some_and(|window| !window.is_zero())
        {
            let found = "waiting for other messages where each has an attempt of its own";
            self.problems.push(Problem::new(
                &given.at,
                found,
                "a batch-size above 1 as well",
            ));
        }
        (size.unwrap_or(1), window.unwrap_or_default())
    }

    /// Puts what is said of single queues where it belongs.
    pub(super) fn limits(&mut self, layers: Layers<'_>, queues: &mut [WeightedQueue]) {
        for (name, given) in layers.entries("rate") {
            let rate = self.read(Some(given), value::rate);
            if let Some(queue) = self.named(name, given, queues) {
                queue.rate = rate;
            }
        }
        for (name, given) in layers.entries("queue-concurrency") {
            let most = self.read(Some(given), |given| {
                value::number(given, &(1..=MOST_CONCURRENCY))
            });
            if let Some(queue) = self.named(name, given, queues) {
                queue.concurrency = most;
            }
        }
    }

    /// The queue of the route that goes by this name, as the list of queues has it.
    fn named<'q>(
        &mut self,
        name: &str,
        given: &Given,
        queues: &'q mut [WeightedQueue],
    ) -> Option<&'q mut WeightedQueue> {
        let parsed = name.parse::<QueueName>().ok();
        let at = queues
            .iter()
            .position(|queue| Some(&queue.name) == parsed.as_ref());
        if at.is_none() && !queues.is_empty() {
            let names: Vec<String> = queues.iter().map(|queue| queue.name.to_string()).collect();
            let found = format!("`{name}` is no queue of the route");
            let problem = Problem::new(&given.at, found, names.join(" or "));
            let names = names.iter().map(String::as_str);
            self.problems.push(problem.nearest(name, names));
        }
        queues.get_mut(at?)
    }
}
