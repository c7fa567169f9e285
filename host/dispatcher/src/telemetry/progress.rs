//! The progress line on a terminal, and bars for long commands. Silent if stderr is not a terminal
//! or log lines are JSON.

use super::log::Screen;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::counters::Snapshot;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const REFRESH: Duration = Duration::from_millis(200);
/// The rate covers this many refreshes: two seconds.
const WINDOW: usize = 10;

/// A line on the terminal; gone when dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Screen {
    /// Shows a run's progress until the value is dropped: messages per second, attempts running,
    /// done, retried, dead. `snapshot` is called five times a second, from its own thread.
    pub(crate) fn progress(
        &self,
        snapshot: impl Fn() -> Snapshot + Send + Sync + 'static,
    ) -> Progress {
        if !self.shows_progress {
            return Progress(ProgressBar::hidden());
        }
        let rate = Arc::new(Mutex::new(Rate::default()));
        let snapshot = Arc::new(snapshot);
        let render = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            let counts = snapshot();
            let mut rate = rate.lock().unwrap_or_else(PoisonError::into_inner);
            let per_second = rate.at(clock::now(), counts.done);
            // A terminal that cannot be written to has no reader to tell.
            let _ = out.write_str(&line(&counts, per_second));
        };
        let bar = self.bars.add(ProgressBar::new_spinner());
        bar.set_style(style("{spinner} {counts}").with_key("counts", render));
        bar.enable_steady_tick(REFRESH);
        Progress(bar)
    }

    /// Shows what is being done and for how long, until the value is dropped.
    pub(crate) fn working(&self, what: String) -> Progress {
        if !self.shows_progress {
            return Progress(ProgressBar::hidden());
        }
        let bar = self.bars.add(ProgressBar::new_spinner());
        bar.set_style(style("{spinner} {msg} {elapsed}"));
        bar.set_message(what);
        bar.enable_steady_tick(REFRESH);
        Progress(bar)
    }

    /// Shows how much of `total` is behind us, until the value is dropped.
    pub(crate) fn bar(&self, total: u64) -> Progress {
        let bar = match self.shows_progress {
            true => self.bars.add(ProgressBar::new(total)),
            false => ProgressBar::hidden(),
        };
        bar.set_style(style("{wide_bar} {human_pos}/{human_len} {per_sec} {eta}"));
        Progress(bar)
    }
}

impl Progress {
    /// This many more are behind us.
    pub(crate) fn advance(&self, more: u64) {
        self.0.inc(more);
    }

    /// Prints something that the line must not be in the way of.
    pub(crate) fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn line(counts: &Snapshot, per_second: f64) -> String {
    let Snapshot {
        running,
        done,
        retried,
        dead,
        shed,
        filtered,
        lost,
        ..
    } = counts;
    let mut line = format!(
        "{per_second:.0} msg/s · {running} in flight · {done} done · {retried} retried · {dead} dead"
    );
    if *shed > 0 {
        let _ = write!(line, " · {shed} shed");
    }
    if *filtered > 0 {
        let _ = write!(line, " · {filtered} filtered");
    }
    if *lost > 0 {
        let _ = write!(line, " · {lost} lost");
    }
    line
}

/// The growth of a count over the last refreshes.
#[derive(Debug, Default)]
struct Rate(VecDeque<(BootInstant, u64)>);

impl Rate {
    /// Per second, now that the count is so high.
    fn at(&mut self, now: BootInstant, count: u64) -> f64 {
        self.0.push_back((now, count));
        while self.0.len() > WINDOW + 1 {
            self.0.pop_front();
        }
        let Some((first, before)) = self.0.front().copied() else {
            return 0.0;
        };
        let elapsed = now.since(first).as_secs_f64();
        match elapsed > 0.0 {
            true => count.saturating_sub(before) as f64 / elapsed,
            false => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_covers_the_last_two_seconds() {
        let mut rate = Rate::default();
        let mut shown = 0.0;
        for tick in 0..100_u64 {
            let now = BootInstant::from_boot(REFRESH * u32::try_from(tick).expect("small"));
            shown = rate.at(
                now,
                if tick < 50 {
                    tick * 1_000
                } else {
                    50_000 + (tick - 50) * 20
                },
            );
        }
        assert!((shown - 100.0).abs() < 1e-6, "{shown}");
    }

    #[test]
    fn stopped_clock_divides_by_nothing() {
        let mut rate = Rate::default();
        rate.at(BootInstant::default(), 0);
        assert!(rate.at(BootInstant::default(), 5).abs() < f64::EPSILON);
    }

    #[test]
    fn rare_counts_are_shown_only_when_nonzero() {
        let mut counts = Snapshot {
            done: 7,
            running: 2,
            ..Snapshot::default()
        };
        assert_eq!(
            line(&counts, 1.4),
            "1 msg/s · 2 in flight · 7 done · 0 retried · 0 dead"
        );
        (counts.shed, counts.lost) = (3, 1);
        assert!(line(&counts, 1.4).ends_with("0 dead · 3 shed · 1 lost"));
    }
}
