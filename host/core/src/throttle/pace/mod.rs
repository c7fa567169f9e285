//! Derives from the duration of attempts how many messages may be in flight, and how long to wait
//! between calls. Pure: `now` is an argument; does not depend on queues or jobs.

use super::median::Median;
use crate::clock::BootInstant;
use std::time::Duration;

/// The time without attempts after which earlier measurements say nothing about the next ones.
const PAUSE: Duration = Duration::from_secs(60);
/// The number of messages from which on a call counts as full: SQS delivers no more, and where a
/// call may bring more, it costs less.
pub(crate) const FULL_CALL: usize = 10;
/// The minimum and the maximum wait between calls. A slow handler does not notice the minimum, and
/// a quick one frees a whole call's worth within it; the maximum bounds what may be lost.
const WAIT: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// The divisor of an attempt's duration that gives the wait if no held message could start
/// meanwhile: no more than a tenth of the capacity idles. Permits for a full call end any wait.
const IDLE_PART: u32 = 10;
/// The factor: attempts count as quick if calls take at least this many times as long.
const QUICK_PART: u32 = 4;
/// The number of medians within which nearly all attempts end that began together.
const ALL_END: u32 = 3;
/// The maximum wait for the answer to an outstanding receive.
const LONGEST_JOIN: Duration = Duration::from_millis(250);

/// The durations of attempts, from the start until their verdicts are handed over.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    times: Median,
    /// The median that was forgotten after a pause.
    before_pause: Option<Duration>,
    under_way: usize,
    /// When an attempt last began or ended.
    stirred: BootInstant,
}

impl Pace {
    /// Records the start of an attempt. Returns whether the hand-over time was forgotten because of
    /// a pause.
    pub fn begins(&mut self, now: BootInstant) -> bool {
        let paused = self.under_way == 0 && now.since(self.stirred) >= PAUSE;
        let forgotten = if paused { self.hand_over() } else { None };
        if forgotten.is_some() {
            self.times = Median::default();
            self.before_pause = forgotten;
        }
        self.under_way += 1;
        self.stirred = now;
        forgotten.is_some()
    }

    /// Records an attempt that ended with verdicts after this time.
    pub fn ended(&mut self, took: Duration, now: BootInstant) {
        self.broken_off(now);
        self.times.note(took);
    }

    /// Records an attempt that was cut short or not made. It would have taken longer, so its time
    /// counts only if it is at least the median.
    pub(crate) fn cut_short(&mut self, took: Duration, now: BootInstant) {
        self.broken_off(now);
        if self.hand_over().is_none_or(|median| took >= median) {
            self.times.note(took);
        }
    }

    /// Records an attempt that ended without verdicts. Its time does not count.
    pub(crate) fn broken_off(&mut self, now: BootInstant) {
        self.under_way = self.under_way.saturating_sub(1);
        self.stirred = now;
    }

    /// Returns the median hand-over time of the last attempts; `None` before the first and after a
    /// pause.
    pub fn hand_over(&self) -> Option<Duration> {
        self.times.get()
    }

    /// Returns the hand-over time or, after a pause, the last one before it, which serves an
    /// autoscaler better than nothing. `None` before the first attempt has ended.
    pub fn last_known(&self) -> Option<Duration> {
        self.hand_over().or(self.before_pause)
    }
}

/// The limits of the pace, and the values that it relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum number of concurrent attempts, as lowered by the downstream; at least 1.
    pub attempts: usize,
    /// The maximum number of messages of one attempt, at least 1.
    pub batch: usize,
    /// The maximum number of messages of one call, at least 1.
    pub call: usize,
    /// The maximum number of messages held in addition to those that run.
    pub prefetch: usize,
    /// The time after its arrival within which a message should start.
    pub horizon: Duration,
}

impl Bounds {
    /// Returns how many messages may be under way.
    pub fn running(&self) -> usize {
        self.attempts.saturating_mul(self.batch)
    }

    /// Returns how many messages may be in flight, started or not: those that run, and as many more
    /// as start within the horizon, `running × horizon / median`. These are at least as many as a
    /// full call brings and at most `prefetch`, and are `prefetch` while the median is not known.
    pub fn in_flight(&self, median: Option<Duration>) -> usize {
        self.running().saturating_add(self.ahead(median))
    }

    fn ahead(&self, median: Option<Duration>) -> usize {
        let Some(median) = median.filter(|median| !median.is_zero()) else {
            return self.prefetch;
        };
        let worked_ns = self.horizon.as_nanos().saturating_mul(wide(self.running()));
        let started = usize::try_from(worked_ns / median.as_nanos()).unwrap_or(usize::MAX);
        started.max(self.call.min(FULL_CALL)).min(self.prefetch)
    }

    /// Returns how long a few free permits are collected before they are used: until a full call's
    /// worth has come free, `median × call / running`, and half as long again, because attempts do
    /// not end evenly. `covered`: the messages that are here keep the workers busy meanwhile;
    /// otherwise the workers' time counts more than the call.
    ///
    /// A permit is in use, from one message to the next, for the attempt and for the receive, which
    /// takes `call_time`. If the receive takes much longer, nearly all running attempts end within
    /// three times the median, and the wait lasts until then.
    pub fn wait(
        &self,
        median: Option<Duration>,
        call_time: Option<Duration>,
        covered: bool,
    ) -> Duration {
        let quick = quick(median, call_time);
        let median = median.unwrap_or_default();
        if !covered {
            let slow = quick.map_or(median, |call_time| median.saturating_add(call_time));
            let all = quick.map_or(Duration::ZERO, |call_time| {
                median.saturating_mul(ALL_END).min(call_time / QUICK_PART)
            });
            return (slow / IDLE_PART).max(all).clamp(WAIT.0, WAIT.1);
        }
        let full_ns = median.as_nanos().saturating_mul(wide(self.call)) / wide(self.running());
        let full = u64::try_from(full_ns).map_or(Duration::MAX, Duration::from_nanos);
        full.saturating_add(full / 2).clamp(WAIT.0, WAIT.1)
    }

    /// Returns how long a few free permits wait for the answer to an outstanding receive that also
    /// requested few messages: twice as long as such a receive and an attempt take. Zero if
    /// attempts are not quick compared with receives: then permits come free one by one in any
    /// case.
    pub fn join(&self, median: Option<Duration>, call_time: Option<Duration>) -> Duration {
        let cycle = quick(median, call_time).zip(median);
        cycle.map_or(Duration::ZERO, |(call_time, median)| {
            let cycle = call_time.saturating_add(median);
            cycle.saturating_mul(2).min(LONGEST_JOIN)
        })
    }
}

/// Returns the duration of a receive, if attempts are quick compared with it.
fn quick(median: Option<Duration>, call_time: Option<Duration>) -> Option<Duration> {
    call_time.filter(|call_time| {
        median.is_some_and(|median| median.saturating_mul(QUICK_PART) <= *call_time)
    })
}

fn wide(count: usize) -> u128 {
    count.max(1) as u128
}

#[cfg(test)]
mod tests;
