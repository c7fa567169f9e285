//! The progress line on a terminal, and bars for long commands. Hidden if stderr is not a terminal
//! or log lines are JSON.

use super::log::Screen;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::counters::Snapshot;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

const REFRESH: Duration = Duration::from_millis(200);
/// The number of refreshes that the rate covers: two seconds.
const WINDOW: usize = 10;

/// A line on the terminal, which disappears when dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Screen {
    /// Shows a run's progress until the value is dropped: messages per second, attempts running,
    /// done, retried, dead. `snapshot` is called five times a second, from its own thread.
    pub fn progress(&self, snapshot: impl Fn() -> Snapshot + Send + Sync + 'static) -> Progress {
        if !self.shows_progress {
            return Progress(ProgressBar::hidden());
        }
        let rate = Arc::new(Mutex::new(Rate::default()));
        let snapshot = Arc::new(snapshot);
        let bar = self.bars.add(ProgressBar::new_spinner());
        bar.set_style(style("{spinner} {counts}").with_key(
            "counts",
            move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
                let counts = snapshot();
                let mut rate = rate.lock();
                let per_second = rate.at(clock::now(), counts.done);
                // If the terminal cannot be written to, there is no way to report it.
                let _ = out.write_str(&line(&counts, per_second));
            },
        ));
        bar.enable_steady_tick(REFRESH);
        Progress(bar)
    }

    /// Shows the current action and its duration until the value is dropped.
    pub fn working(&self, what: String) -> Progress {
        if !self.shows_progress {
            return Progress(ProgressBar::hidden());
        }
        let bar = self.bars.add(ProgressBar::new_spinner());
        bar.set_style(style("{spinner} {msg} {elapsed}"));
        bar.set_message(what);
        bar.enable_steady_tick(REFRESH);
        Progress(bar)
    }

    /// Shows how much of `total` is done until the value is dropped.
    pub fn bar(&self, total: u64) -> Progress {
        let bar = if self.shows_progress {
            self.bars.add(ProgressBar::new(total))
        } else {
            ProgressBar::hidden()
        };
        bar.set_style(style("{wide_bar} {human_pos}/{human_len} {per_sec} {eta}"));
        Progress(bar)
    }
}

impl Progress {
    /// Adds to the number that is done.
    pub fn advance(&self, more: u64) {
        self.0.inc(more);
    }

    /// Hides the line while `print` runs.
    pub fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
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
    /// Returns the growth per second, given the current count.
    fn at(&mut self, now: BootInstant, count: u64) -> f64 {
        self.0.push_back((now, count));
        while self.0.len() > WINDOW + 1 {
            self.0.pop_front();
        }
        let Some((first, before)) = self.0.front().copied() else {
            return 0.0;
        };
        let elapsed = now.since(first).as_secs_f64();
        if elapsed > 0.0 {
            count.saturating_sub(before) as f64 / elapsed
        } else {
            0.0
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
