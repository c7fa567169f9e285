//! The durations of steps; failed steps are separate by the reason, which OpenTelemetry's messaging
//! conventions call `error.type`. Also the messages that were sent, by queue. Knows no metric and
//! no sink.

use super::exemplar::{Exemplar, ExemplarTrace, Exemplars};
use super::histogram::{Histogram, Samples};
use crate::clock;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::time::Duration;

/// The maximum number of queues whose sends are counted separately.
const MOST_QUEUES: usize = 1_000;

/// The durations of one kind of step. There are few reasons for failures; each has its own
/// histogram. A successful step is recorded without a lock.
#[derive(Debug, Default)]
pub struct DurationsByError {
    succeeded: TracedDurations,
    failed: Mutex<BTreeMap<&'static str, Box<TracedDurations>>>,
}

#[derive(Debug, Default)]
struct TracedDurations {
    histogram: Histogram,
    exemplars: Exemplars,
}

/// The durations of the steps that ended in the same way.
#[derive(Debug, Clone, PartialEq)]
pub struct DurationSeries {
    /// The reason for the failure; empty for steps that succeeded.
    pub error: &'static str,
    /// The durations.
    pub samples: Samples,
    /// The last traced duration of each bucket of a chart.
    pub exemplars: Vec<Exemplar>,
}

impl DurationsByError {
    /// Records the duration of a step; `error` is the reason if it failed.
    pub fn record(&self, took: Duration, error: Option<&'static str>) {
        self.of(error, |durations| durations.histogram.record(took));
    }

    /// Records the trace of a step that was recorded.
    pub fn trace(&self, took: Duration, error: Option<&'static str>, trace: ExemplarTrace) {
        let at = clock::wall_clock_now();
        self.of(error, |durations| {
            durations.exemplars.keep(took, trace, at);
        });
    }

    /// Adds all durations since the start to `sum`.
    pub fn add_to(&self, sum: &mut Samples) {
        self.succeeded.histogram.add_to(sum);
        for failed in self.failed().values() {
            failed.histogram.add_to(sum);
        }
    }

    /// Returns all durations since the start: first of the steps that succeeded, then of the failed
    /// ones, by reason.
    pub fn series(&self) -> Vec<DurationSeries> {
        let failed = self.failed();
        let by_reason = failed.iter().map(|(error, failed)| failed.series(error));
        [self.succeeded.series("")]
            .into_iter()
            .chain(by_reason)
            .collect()
    }

    fn of(&self, error: Option<&'static str>, record: impl FnOnce(&TracedDurations)) {
        match error {
            None => record(&self.succeeded),
            Some(error) => record(self.failed().entry(error).or_default()),
        }
    }

    fn failed(&self) -> MutexGuard<'_, BTreeMap<&'static str, Box<TracedDurations>>> {
        self.failed.lock()
    }
}

impl TracedDurations {
    fn series(&self, error: &'static str) -> DurationSeries {
        DurationSeries {
            error,
            samples: self.histogram.samples(),
            exemplars: self.exemplars.all(),
        }
    }
}

/// The messages that a process sends for handlers, schedules and redrives. Shared by `Arc`.
#[derive(Debug, Default)]
pub struct SentMessages(Mutex<BTreeMap<String, SentToQueue>>);

#[derive(Debug, Default)]
struct SentToQueue {
    calls: DurationsByError,
    calls_to_backend: u64,
    messages: BTreeMap<&'static str, u64>,
}

/// The messages sent to one queue.
#[derive(Debug, Clone, PartialEq)]
pub struct SentSeries {
    /// The queue's name; empty for the queues beyond the first thousand.
    pub queue: String,
    /// The durations of the sends.
    pub calls: Vec<DurationSeries>,
    /// The number of calls to the backend for these sends.
    pub calls_to_backend: u64,
    /// The number of messages by the reason why they were not sent; the reason is empty for sent
    /// ones.
    pub messages: Vec<(&'static str, u64)>,
}

impl SentMessages {
    /// Records messages sent to a queue with `calls` calls to its backend. `errors` has the reason
    /// for each message that was not sent.
    pub fn record(
        &self,
        queue: &str,
        calls: usize,
        took: Duration,
        errors: &[Option<&'static str>],
    ) {
        let mut queues = self.lock();
        let sent = entry(&mut queues, queue);
        sent.calls
            .record(took, errors.iter().copied().flatten().next());
        sent.calls_to_backend += calls as u64;
        for error in errors {
            *sent.messages.entry(error.unwrap_or_default()).or_default() += 1;
        }
    }

    /// Counts calls to a queue's backend that sent nothing: those with which a redrive takes
    /// messages from the queue.
    pub fn add_calls(&self, queue: &str, calls: usize) {
        entry(&mut self.lock(), queue).calls_to_backend += calls as u64;
    }

    /// Returns everything since the start, by queue.
    pub fn all(&self) -> Vec<SentSeries> {
        let queues = self.lock();
        let series = queues.iter().map(|(queue, sent)| SentSeries {
            queue: queue.clone(),
            calls: sent.calls.series(),
            calls_to_backend: sent.calls_to_backend,
            messages: sent
                .messages
                .iter()
                .map(|(why, count)| (*why, *count))
                .collect(),
        });
        series.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SentToQueue>> {
        self.0.lock()
    }
}

/// Returns the entry of this queue, or the common entry of the queues beyond the limit.
fn entry<'a>(queues: &'a mut BTreeMap<String, SentToQueue>, queue: &str) -> &'a mut SentToQueue {
    let is_known = queues.contains_key(queue) || queues.len() < MOST_QUEUES;
    let queue = if is_known { queue } else { "" };
    queues.entry(queue.to_owned()).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn failures_are_apart_and_part_of_the_sum() {
        let durations = DurationsByError::default();
        durations.record(MS, None);
        durations.record(2 * MS, Some("timeout"));
        durations.record(3 * MS, Some("timeout"));
        let series = durations.series();
        let counts: Vec<_> = series
            .iter()
            .map(|one| (one.error, one.samples.count(), one.samples.sum()))
            .collect();
        assert_eq!(counts, [("", 1, MS), ("timeout", 2, 5 * MS)]);
        let mut sum = Samples::default();
        durations.add_to(&mut sum);
        assert_eq!((sum.count(), sum.sum()), (3, 6 * MS));
    }

    #[test]
    fn sent_messages_are_counted_by_queue_and_by_why_they_were_not_sent() {
        let sent = SentMessages::default();
        sent.record("local:b", 2, MS, &[None, Some("refused"), None]);
        sent.record("local:a", 1, MS, &[None]);
        let all = sent.all();
        assert_eq!(all[0].queue, "local:a");
        assert_eq!(all[1].messages, [("", 2), ("refused", 1)]);
        assert_eq!(all[1].calls_to_backend, 2);
        let calls: Vec<_> = all[1]
            .calls
            .iter()
            .map(|one| (one.error, one.samples.count()))
            .collect();
        assert_eq!(calls, [("", 0), ("refused", 1)]);
    }

    #[test]
    fn queues_beyond_the_limit_are_counted_together() {
        let sent = SentMessages::default();
        for number in 0..MOST_QUEUES + 2 {
            sent.record(&number.to_string(), 1, MS, &[None]);
        }
        let all = sent.all();
        assert_eq!(all.len(), MOST_QUEUES + 1);
        assert_eq!((&*all[0].queue, &all[0].messages[..]), ("", &[("", 2)][..]));
    }
}
