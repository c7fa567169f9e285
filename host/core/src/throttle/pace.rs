//! Derives from the duration of attempts how many messages may be in flight, and how long to wait
//! between calls. Pure: `now` is an argument; knows no queue and no job.

use super::median::Median;
use crate::clock::BootInstant;
use std::time::Duration;

/// After this long without attempts, earlier measurements say nothing about the next ones.
const PAUSE: Duration = Duration::from_secs(60);
/// Messages of a full call worth the name: SQS gives no more, and where a call may bring more it
/// costs less.
pub(crate) const FULL_CALL: usize = 10;
/// The wait between calls, at least and at most. The least is not noticed by a slow handler and
/// lets a quick one free a whole call's worth; the most bounds what may be lost.
const WAIT: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// If no held message could start meanwhile, the wait is this part of an attempt, so that no more
/// than a tenth of the capacity idles. Permits for a full call end any wait.
const IDLE_PART: u32 = 10;
/// Attempts are quick beside calls that take this many times as long.
const QUICK_PART: u32 = 4;
/// Within this many medians nearly all attempts end that began together.
const ALL_END: u32 = 3;
/// The longest wait for the answer to an outstanding receive.
const LONGEST_JOIN: Duration = Duration::from_millis(250);

/// How long attempts take, from the start until their verdicts are handed over.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    times: Median,
    /// The median that a pause made the control forget.
    before_pause: Option<Duration>,
    under_way: usize,
    /// When an attempt began or ended last.
    stirred: BootInstant,
}

impl Pace {
    /// An attempt begins. Whether the hand-over time was forgotten for it.
    pub fn begins(&mut self, now: BootInstant) -> bool {
        let paused = self.under_way == 0 && now.since(self.stirred) >= PAUSE;
        let forgotten = self.hand_over().filter(|_| paused);
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

    /// An attempt was cut short, or was none. Had it gone on, it would have taken longer, so it
    /// counts as far as it is known to be slow.
    pub(crate) fn cut_short(&mut self, took: Duration, now: BootInstant) {
        self.broken_off(now);
        if self.hand_over().is_none_or(|median| took >= median) {
            self.times.note(took);
        }
    }

    /// An attempt ended without verdicts: it is not counted.
    pub(crate) fn broken_off(&mut self, now: BootInstant) {
        self.under_way = self.under_way.saturating_sub(1);
        self.stirred = now;
    }

    /// The median hand-over time of the last attempts; `None` before the first and after a pause.
    pub fn hand_over(&self) -> Option<Duration> {
        self.times.get()
    }

    /// The same, or what it was before the pause: an autoscaler is better told that than nothing. `None`
    /// before the first attempt has ended.
    pub fn last_known(&self) -> Option<Duration> {
        self.hand_over().or(self.before_pause)
    }
}

/// What the control may not go beyond, and what it counts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Attempts at once, as lowered by the downstream; at least 1.
    pub attempts: usize,
    /// Maximum messages of one attempt, at least 1.
    pub batch: usize,
    /// Maximum messages of one call, at least 1.
    pub call: usize,
    /// Maximum messages that may be held beyond what runs.
    pub prefetch: usize,
    /// Within this time of its arrival a message should start.
    pub horizon: Duration,
}

impl Bounds {
    /// Messages that may be under way.
    pub fn running(&self) -> usize {
        self.attempts.saturating_mul(self.batch)
    }

    /// Messages that may be in flight, started or not: what runs, and beyond it as many as start
    /// within the horizon, `running × horizon / median`; not fewer than a full call brings, not
    /// more than `prefetch`, and that many while the median is not known.
    pub fn in_flight(&self, median: Option<Duration>) -> usize {
        self.running().saturating_add(self.ahead(median))
    }

    fn ahead(&self, median: Option<Duration>) -> usize {
        let Some(median) = median.filter(|median| !median.is_zero()) else {
            return self.prefetch;
        };
        let started = self.horizon.as_nanos().saturating_mul(wide(self.running()));
        let started = usize::try_from(started / median.as_nanos()).unwrap_or(usize::MAX);
        started.max(self.call.min(FULL_CALL)).min(self.prefetch)
    }

    /// How long little room is left to collect before it is asked for: until a full call's worth
    /// has come free, `median × call / running`, and half as long again, since attempts do not end
    /// evenly. `covered`: what is at hand keeps the workers busy meanwhile; without, their time
    /// counts more than the call.
    ///
    /// What a seat takes from one message to the next is the attempt and the receive, which takes
    /// `call_time`. Where that is much longer, nearly all that runs ends within three times the median,
    /// and is waited for.
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
        let full = median.as_nanos().saturating_mul(wide(self.call)) / wide(self.running());
        let full = u64::try_from(full).map_or(Duration::MAX, Duration::from_nanos);
        full.saturating_add(full / 2).clamp(WAIT.0, WAIT.1)
    }

    /// How long little room waits for the answer to an outstanding receive that asked for little
    /// as well: twice as long as such a receive and an attempt take. Zero where attempts are not
    /// quick beside receives: there room comes free little by little in any case.
    pub fn join(&self, median: Option<Duration>, call_time: Option<Duration>) -> Duration {
        let cycle = quick(median, call_time).zip(median);
        cycle.map_or(Duration::ZERO, |(call_time, median)| {
            let cycle = call_time.saturating_add(median);
            cycle.saturating_mul(2).min(LONGEST_JOIN)
        })
    }
}

/// What a receive takes, if attempts are quick beside it.
fn quick(median: Option<Duration>, call_time: Option<Duration>) -> Option<Duration> {
    call_time.filter(|call_time| {
        median.is_some_and(|median| median.saturating_mul(QUICK_PART) <= *call_time)
    })
}

fn wide(count: usize) -> u128 {
    count.max(1) as u128
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
