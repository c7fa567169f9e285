//! The recent history of a queue, or of all queues together: a ring of points for seconds and a
//! ring for minutes. Pure: the caller passes `now`.

use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::metrics::histogram::Samples;
use dispatcher_core::telemetry::metrics::meter::Meter;
use dispatcher_operate::operations::{QueueRates, RecentWork};
use std::collections::VecDeque;
use std::time::Duration;

/// The number of points for seconds: an hour.
pub(super) const SECONDS: usize = 3_600;
/// The number of points for minutes: a day.
pub(super) const MINUTES: usize = 1_440;
/// The interval between the readings from which the current rates of the last minute are computed.
const MARKS_APART: Duration = Duration::from_secs(10);
/// The number of readings that cover a minute.
const MARKS: usize = 7;

/// The numbers of messages and calls since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub received: u64,
    pub done: u64,
    pub failed: u64,
    pub dead_lettered: u64,
    pub calls: u64,
    /// The cost of the calls at list price.
    pub nanodollars: u64,
}

impl Tally {
    /// Reads the numbers of a queue whose calls cost `nanodollars` each.
    pub(super) fn of(meter: &Meter, nanodollars: u64) -> Self {
        Self {
            received: meter.received.get(),
            done: meter.done.get(),
            failed: meter.failed.get(),
            dead_lettered: meter.dead.get(),
            calls: meter.calls.get(),
            nanodollars: meter.calls.get().saturating_mul(nanodollars),
        }
    }

    fn combine(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            received: each(self.received, other.received),
            done: each(self.done, other.done),
            failed: each(self.failed, other.failed),
            dead_lettered: each(self.dead_lettered, other.dead_lettered),
            calls: each(self.calls, other.calls),
            nanodollars: each(self.nanodollars, other.nanodollars),
        }
    }

    /// Adds the numbers of another queue or period.
    pub(super) fn plus(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    /// Returns the increase since `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        self.combine(earlier, u64::saturating_sub)
    }
}

/// The numbers at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub tally: Tally,
    /// The durations of attempts since the start.
    pub durations: Samples,
    /// The number of waiting messages, if it is known.
    pub waiting: Option<u64>,
}

/// The values of one second or minute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// The number of the second or minute since the beginning of the ring.
    at: u32,
    pub received: f32,
    pub done: f32,
    pub failed: f32,
    /// The median, in seconds; NaN without attempts.
    p50: f32,
    p99: f32,
    /// NaN if it is not known. A whole number, exact as in JSON.
    waiting: f64,
}

impl Point {
    /// Computes a point from the increase `delta` over `seconds`.
    fn new(at: u32, seconds: f32, delta: &Reading) -> Self {
        Self {
            at,
            received: delta.tally.received as f32 / seconds,
            done: delta.tally.done as f32 / seconds,
            failed: delta.tally.failed as f32 / seconds,
            p50: quantile_s(&delta.durations, 0.5),
            p99: quantile_s(&delta.durations, 0.99),
            waiting: delta.waiting.map_or(f64::NAN, |waiting| waiting as f64),
        }
    }

    /// Returns the median duration of attempts, in seconds.
    pub(super) fn median_s(&self) -> Option<f64> {
        known(f64::from(self.p50))
    }

    /// Returns the 99th percentile of the durations of attempts, in seconds.
    pub(super) fn p99_s(&self) -> Option<f64> {
        known(f64::from(self.p99))
    }

    /// Returns the number of waiting messages, if it is known.
    pub(super) fn waiting(&self) -> Option<f64> {
        known(self.waiting)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a chart has fewer digits")]
fn quantile_s(durations: &Samples, of: f64) -> f32 {
    durations.quantile(of).map_or(f32::NAN, |it| it as f32)
}

fn known(value: f64) -> Option<f64> {
    (!value.is_nan()).then_some(value)
}

/// The period that charts show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum Span {
    /// 15 minutes, by second.
    #[default]
    Quarter,
    /// An hour, by second.
    Hour,
    /// A day, by minute.
    Day,
}

impl Span {
    pub(super) const ALL: [Self; 3] = [Self::Quarter, Self::Hour, Self::Day];

    /// Returns its label.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Quarter => "15m",
            Self::Hour => "1h",
            Self::Day => "24h",
        }
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|span| span.label() == text)
    }

    /// Returns the length of one of its points, in seconds.
    pub(super) fn step_s(self) -> u64 {
        match self {
            Self::Quarter | Self::Hour => 1,
            Self::Day => 60,
        }
    }

    /// Returns its number of points.
    pub(super) fn points(self) -> usize {
        match self {
            Self::Quarter => 900,
            Self::Hour => SECONDS,
            Self::Day => MINUTES,
        }
    }
}

/// The numbers of the last minute.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LastMinute {
    pub seconds: f64,
    pub tally: Tally,
    pub median_s: Option<f64>,
    pub p99_s: Option<f64>,
}

impl LastMinute {
    /// Returns the rates in messages per second.
    pub(super) fn rates(&self) -> QueueRates {
        QueueRates {
            received: self.per_second(self.tally.received),
            done: self.per_second(self.tally.done),
            failed: self.per_second(self.tally.failed),
        }
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    /// Returns the durations of attempts and the rate and cost of calls.
    pub(super) fn work(&self, is_billed: bool) -> RecentWork {
        let dollars = self.tally.nanodollars as f64 / 1e9 * 86_400.0 / self.seconds;
        RecentWork {
            attempt_p50_s: self.median_s,
            attempt_p99_s: self.p99_s,
            calls_per_second: self.per_second(self.tally.calls),
            dollars_per_day: is_billed.then_some(dollars),
        }
    }
}

/// The rings of one queue, or of all queues together.
#[derive(Debug)]
pub(super) struct History {
    began: BootInstant,
    last: Reading,
    seconds: VecDeque<Point>,
    minutes: VecDeque<Point>,
    /// The current minute, and the reading at its beginning.
    minute: (u32, Reading),
    /// The readings of the last minute.
    marks: VecDeque<(BootInstant, Tally, Samples)>,
}

impl History {
    /// Starts a history at `now`.
    pub(super) fn new(now: BootInstant, reading: Reading) -> Self {
        Self {
            began: now,
            // Memory of the rings that was never written is not resident.
            seconds: VecDeque::with_capacity(SECONDS),
            minutes: VecDeque::with_capacity(MINUTES),
            minute: (0, reading.clone()),
            marks: VecDeque::from([(now, reading.tally, reading.durations.clone())]),
            last: reading,
        }
    }

    /// Records a reading. The caller does so once a second, sometimes late or twice. A second
    /// reading in the same second is ignored; the next one includes its increase.
    pub(super) fn record(&mut self, now: BootInstant, reading: Reading) {
        let second = whole(now.since(self.began).as_secs());
        if self.seconds.back().is_some_and(|last| last.at >= second) {
            return;
        }
        // The increase since the last reading is spread over all seconds in between.
        let before = self.seconds.back().map_or(0, |last| last.at);
        let passed = second.saturating_sub(before).max(1);
        let delta = reading.since(&self.last);
        keep(
            &mut self.seconds,
            SECONDS,
            Point::new(second, passed as f32, &delta),
        );
        let minute = second / 60;
        if minute > self.minute.0 {
            let (at, earlier) = std::mem::replace(&mut self.minute, (minute, reading.clone()));
            let seconds = (minute - at) as f32 * 60.0;
            keep(
                &mut self.minutes,
                MINUTES,
                Point::new(minute - 1, seconds, &reading.since(&earlier)),
            );
        }
        if self
            .marks
            .back()
            .is_none_or(|mark| now.since(mark.0) >= MARKS_APART)
        {
            if self.marks.len() == MARKS {
                self.marks.pop_front();
            }
            self.marks
                .push_back((now, reading.tally, reading.durations.clone()));
        }
        self.last = reading;
    }

    /// Returns the last reading.
    pub(super) fn last(&self) -> &Reading {
        &self.last
    }

    /// Returns the points of a span that ends at `now`, with how many seconds ago each ended.
    pub(super) fn points(&self, now: BootInstant, span: Span) -> Vec<(u64, Point)> {
        let step = span.step_s();
        let current = now.since(self.began).as_secs() / step;
        let ring = if step == 1 {
            &self.seconds
        } else {
            &self.minutes
        };
        let since = current.saturating_sub(span.points() as u64);
        let first = ring.partition_point(|point| u64::from(point.at) < since);
        let within = ring.iter().skip(first);
        within
            .map(|point| (current.saturating_sub(u64::from(point.at)) * step, *point))
            .collect()
    }

    /// Returns the last point of the ring for seconds.
    pub(super) fn newest(&self) -> Option<&Point> {
        self.seconds.back()
    }

    /// Returns the numbers of the last minute, or `None` in the first second.
    pub(super) fn last_minute(&self, now: BootInstant) -> Option<LastMinute> {
        let (since, tally, durations) = self.marks.front()?;
        let seconds = now.since(*since).as_secs_f64();
        if seconds < 1.0 {
            return None;
        }
        let durations = self.last.durations.since(durations);
        Some(LastMinute {
            seconds,
            tally: self.last.tally.since(*tally),
            median_s: durations.quantile(0.5),
            p99_s: durations.quantile(0.99),
        })
    }
}

impl Reading {
    /// Returns the increase since `earlier`, with the current number of waiting messages.
    fn since(&self, earlier: &Self) -> Self {
        Self {
            tally: self.tally.since(earlier.tally),
            durations: self.durations.since(&earlier.durations),
            waiting: self.waiting,
        }
    }
}

fn keep(ring: &mut VecDeque<Point>, most: usize, point: Point) {
    if ring.len() == most {
        ring.pop_front();
    }
    ring.push_back(point);
}

fn whole(seconds: u64) -> u32 {
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::telemetry::metrics::Meters;
    use std::sync::Arc;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs(100 + seconds))
    }

    fn done(done: u64) -> Reading {
        Reading {
            tally: Tally {
                done,
                ..Tally::default()
            },
            ..Reading::default()
        }
    }

    fn rates(points: &[(u64, Point)]) -> Vec<(u64, f32)> {
        points
            .iter()
            .map(|(ago, point)| (*ago, point.done))
            .collect()
    }

    #[test]
    fn each_second_has_what_was_added_in_it() {
        let mut history = History::new(at(0), done(100));
        for (second, total) in [(1, 101), (2, 105), (3, 105)] {
            history.record(at(second), done(total));
        }
        let points = history.points(at(3), Span::Quarter);
        assert_eq!(rates(&points), [(2, 1.0), (1, 4.0), (0, 0.0)]);
    }

    #[test]
    fn a_backlog_is_exact_however_large() {
        let waiting = 9_007_199_254_740_991;
        let mut history = History::new(at(0), done(0));
        history.record(
            at(1),
            Reading {
                waiting: Some(waiting),
                ..done(1)
            },
        );
        let shown = history.newest().and_then(Point::waiting);
        assert_eq!(shown, Some(9_007_199_254_740_991.0));
    }

    #[test]
    fn a_second_that_is_told_twice_is_one_point_and_loses_nothing() {
        let mut history = History::new(at(0), done(0));
        history.record(at(1), done(1));
        history.record(at(1) + SECOND / 2, done(5));
        history.record(at(2), done(6));
        let points = history.points(at(2), Span::Quarter);
        assert_eq!(rates(&points), [(1, 1.0), (0, 5.0)]);
    }

    #[test]
    fn what_came_in_a_gap_is_spread_over_it() {
        let mut history = History::new(at(0), done(0));
        history.record(at(1), done(0));
        history.record(at(11), done(50));
        assert_eq!(
            rates(&history.points(at(11), Span::Hour)),
            [(10, 0.0), (0, 5.0)]
        );
    }

    #[test]
    fn an_hour_is_kept_by_second_and_a_day_by_minute() {
        let mut history = History::new(at(0), done(0));
        let days = 2 * 24 * 3_600;
        for second in 1..=days {
            history.record(at(second), done(second));
        }
        let hour = history.points(at(days), Span::Hour);
        assert_eq!((hour.len(), hour[0].0), (SECONDS, SECONDS as u64 - 1));
        let day = history.points(at(days), Span::Day);
        assert_eq!((day.len(), day[0].0), (MINUTES, 24 * 3_600));
        assert!(day.iter().all(|(_, point)| point.done == 1.0));
        assert!(history.seconds.len() == SECONDS && history.minutes.len() == MINUTES);
        let points = history.seconds.capacity() + history.minutes.capacity();
        let bytes = points * size_of::<Point>();
        assert!(bytes <= 162_000, "{bytes} bytes for each history");
    }

    #[test]
    fn points_older_than_the_span_are_not_shown() {
        let mut history = History::new(at(0), done(0));
        history.record(at(1), done(1));
        assert_eq!(history.points(at(901), Span::Quarter).len(), 1);
        assert_eq!(history.points(at(902), Span::Quarter).len(), 0);
        assert_eq!(history.points(at(902), Span::Hour).len(), 1);
    }

    fn reading(meter: &Meter) -> Reading {
        let mut durations = Samples::default();
        meter.add_durations(&mut durations);
        Reading {
            tally: Tally::of(meter, 0),
            durations,
            ..Reading::default()
        }
    }

    #[test]
    fn the_last_minute_forgets_what_came_before_it() {
        let meters = Meters::new(["a"]);
        let meter: Arc<Meter> = meters.of("a").expect("it is there");
        let mut history = History::new(at(0), reading(&meter));
        assert_eq!(history.last_minute(at(0)), None);
        meter.took(10 * SECOND, None, None);
        meter.done.one();
        for second in 1..=100 {
            if second > 60 {
                meter.took(SECOND / 10, None, None);
                meter.done.one();
            }
            history.record(at(second), reading(&meter));
        }
        let minute = history.last_minute(at(100)).expect("a minute is over");
        assert_eq!((minute.seconds, minute.tally.done), (60.0, 40));
        assert!(minute.p99_s.is_some_and(|p99| p99 < 0.2), "{minute:?}");
        assert_eq!(
            history.newest().and_then(Point::median_s).map(|s| s < 0.2),
            Some(true)
        );
    }

    #[test]
    fn spans_are_read_as_they_are_written() {
        for span in Span::ALL {
            assert_eq!(Span::read(span.label()), Some(span));
        }
        assert_eq!(Span::read("1d"), None);
    }
}
