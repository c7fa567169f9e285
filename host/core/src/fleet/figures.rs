//! The state of limits in one process, for metrics and pages. Pure.

use super::limit::{Limit, LimitNumbers};
use std::collections::HashMap;
use std::time::Duration;

/// The state of one limit in one process.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitFigures {
    /// The name of the limit.
    pub name: String,
    /// Its numbers, for each key.
    pub numbers: LimitNumbers,
    /// Whether it only counts.
    pub shadow: bool,
    /// The permits and tokens that messages of this process took since its start.
    pub taken: u64,
    /// The permits of all processes, as the store last answered; of the fullest key, if there are
    /// keys.
    pub used: u32,
    /// The processes that have permits or wait, as the store last answered; of the key with the
    /// most.
    pub processes: u32,
    /// The keys for which most messages wait or run, the busiest first; one without a name for a limit without keys.
    pub keys: Vec<KeyFigures>,
    /// All other keys together.
    pub others: KeyFigures,
}

/// The state of one key of a limit in one process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyFigures {
    /// The key; empty for a limit without keys.
    pub key: String,
    /// The permits of running attempts.
    pub in_use: u32,
    /// The number of messages that wait.
    pub waiting: u32,
    /// How long the first of them has waited.
    pub longest_wait: Duration,
}

impl KeyFigures {
    fn add(&mut self, in_use: u32, waiting: u32, wait: Duration) {
        self.in_use = self.in_use.saturating_add(in_use);
        self.waiting = self.waiting.saturating_add(waiting);
        self.longest_wait = self.longest_wait.max(wait);
    }
}

/// The state of a limit while it is read.
pub(super) struct FiguresBuilder<'a> {
    limit: &'a Limit,
    used: u32,
    processes: u32,
    keys: HashMap<&'a str, KeyFigures>,
}

impl<'a> FiguresBuilder<'a> {
    pub(super) fn new(limit: &'a Limit) -> Self {
        Self {
            limit,
            used: 0,
            processes: 0,
            keys: HashMap::new(),
        }
    }

    /// Adds what the store last answered about a key, and the permits of running attempts.
    pub(super) fn add_account(
        &mut self,
        key: Option<&'a str>,
        in_use: u32,
        used: u32,
        processes: u32,
    ) {
        self.used = self.used.max(used);
        self.processes = self.processes.max(processes);
        if in_use > 0 {
            let key = self.keys.entry(key.unwrap_or_default()).or_default();
            key.add(in_use, 0, Duration::ZERO);
        }
    }

    /// Adds messages that wait, the first of them for this time.
    pub(super) fn add_waiting(&mut self, key: Option<&'a str>, count: u32, time: Duration) {
        let key = self.keys.entry(key.unwrap_or_default()).or_default();
        key.add(0, count, time);
    }

    /// Returns the figures with at most `most` keys.
    pub(super) fn build(self, taken: u64, most: usize) -> LimitFigures {
        let keys = self.keys.into_iter().map(|(key, figures)| KeyFigures {
            key: key.to_owned(),
            ..figures
        });
        let mut keys: Vec<KeyFigures> = keys.collect();
        keys.sort_by(|one, other| {
            let [busy, less_busy] = [other, one].map(|of| (of.waiting, of.in_use));
            busy.cmp(&less_busy).then_with(|| one.key.cmp(&other.key))
        });
        let rest = keys.split_off(keys.len().min(most));
        let mut others = KeyFigures::default();
        for key in rest {
            others.add(key.in_use, key.waiting, key.longest_wait);
        }
        LimitFigures {
            name: self.limit.name.clone(),
            numbers: self.limit.numbers,
            shadow: self.limit.shadow,
            taken,
            used: self.used,
            processes: self.processes,
            keys,
            others,
        }
    }
}
