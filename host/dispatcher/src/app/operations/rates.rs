//! The rates of each queue over the last minute, from samples that a task takes: messages and calls
//! per second, and the durations of attempts.

use dispatcher_config::prices::Prices;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::metrics::Meters;
use dispatcher_core::telemetry::metrics::histogram::Samples;
use dispatcher_core::telemetry::metrics::meter::Meter;
use dispatcher_operate::operations::{QueueRates, RecentWork};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The interval of samples.
const EVERY: Duration = Duration::from_secs(10);
/// The number of samples that are kept: a minute.
const KEPT: usize = 7;

/// The counts of a queue since the start.
#[derive(Debug, Clone, Default)]
struct Sample {
    received: u64,
    done: u64,
    failed: u64,
    calls: u64,
    /// The durations of attempts, shared with the previous sample if none has ended since.
    durations: Arc<Samples>,
}

/// The samples of all queues.
pub(crate) struct Rates {
    meters: Arc<Meters>,
    prices: Prices,
    samples: Mutex<VecDeque<(BootInstant, SampleByQueue)>>,
}

type SampleByQueue = HashMap<Arc<str>, Sample>;

impl Rates {
    pub(super) fn new(meters: &Arc<Meters>, prices: &Prices) -> Self {
        let rates = Self {
            prices: prices.clone(),
            meters: meters.clone(),
            samples: Mutex::default(),
        };
        rates.sample(clock::now());
        rates
    }

    /// Takes samples until `stop`.
    pub(crate) async fn measure(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock::sleep_until(Some(clock::now() + EVERY)) => self.sample(clock::now()),
            }
        }
    }

    fn sample(&self, now: BootInstant) {
        let mut samples = self.lock();
        let first = Sample::default();
        let meters = self.meters.all().into_iter();
        let all = meters
            .map(|(name, meter)| {
                let last = samples.back().and_then(|(_, all)| all.get(&name));
                let sample = Sample::after(last.unwrap_or(&first), &meter);
                (name, sample)
            })
            .collect();
        if samples.len() == KEPT {
            samples.pop_front();
        }
        samples.push_back((now, all));
    }

    /// Returns the rates of a queue since its oldest sample, or `None` if that is less than a
    /// second old.
    pub(super) fn of(&self, queue: &str, meter: &Meter) -> Option<(QueueRates, RecentWork)> {
        let samples = self.lock();
        let mut of_queue = samples
            .iter()
            .filter_map(|(since, all)| Some((since, all.get(queue)?)));
        let (since, before) = of_queue.next()?;
        let now = Sample::after(before, meter);
        let price = self.prices.dollars_per_million_calls(queue);
        now.since(before, clock::now().since(*since), price)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(BootInstant, SampleByQueue)>> {
        self.samples.lock()
    }
}

impl Sample {
    /// Takes a sample of a meter, after an earlier one.
    fn after(before: &Self, meter: &Meter) -> Self {
        let [received, done, failed, calls] =
            [&meter.received, &meter.done, &meter.failed, &meter.calls]
                .map(|counter| counter.get());
        let no_attempt_ended =
            (received, done, failed) == (before.received, before.done, before.failed);
        let durations = if no_attempt_ended {
            Arc::clone(&before.durations)
        } else {
            Arc::new(meter.durations())
        };
        Self {
            received,
            done,
            failed,
            calls,
            durations,
        }
    }

    fn since(
        &self,
        before: &Self,
        time: Duration,
        price: Option<f64>,
    ) -> Option<(QueueRates, RecentWork)> {
        if time < Duration::from_secs(1) {
            return None;
        }
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / time.as_secs_f64();
        let durations = self.durations.since(&before.durations);
        let calls = rate(self.calls, before.calls);
        Some((
            QueueRates {
                received: rate(self.received, before.received),
                done: rate(self.done, before.done),
                failed: rate(self.failed, before.failed),
            },
            RecentWork {
                attempt_p50_s: durations.quantile(0.5),
                attempt_p99_s: durations.quantile(0.99),
                calls_per_second: calls,
                dollars_per_day: price.map(|price| calls * 86_400.0 * price / 1e6),
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn handle(meter: &Meter, messages: u64, took: Duration) {
        for _ in 0..messages {
            meter.took(took, None, None);
            meter.received.one();
            meter.done.one();
            meter.calls.one();
        }
    }

    #[test]
    fn rates_and_times_are_those_of_what_was_added() {
        let meters = Meters::new(["local:a"]);
        let meter = meters.of("local:a").expect("it is there");
        handle(&meter, 5, 9 * SECOND);
        let before = Sample::after(&Sample::default(), &meter);
        handle(&meter, 20, SECOND / 10);
        meter.failed.one();
        let now = Sample::after(&before, &meter);
        let (rates, work) = now
            .since(&before, 10 * SECOND, Some(0.4))
            .expect("ten seconds");
        assert_eq!((rates.received, rates.done, rates.failed), (2.0, 2.0, 0.1));
        assert_eq!(work.calls_per_second, 2.0);
        let dollars = work.dollars_per_day.expect("it is billed");
        assert!((dollars - 0.069_12).abs() < 1e-9, "{dollars}");
        for quantile in [work.attempt_p50_s, work.attempt_p99_s] {
            assert!(quantile.is_some_and(|took| took < 0.2), "{quantile:?}");
        }
        assert!(now.since(&before, SECOND / 2, None).is_none());
    }

    #[test]
    fn a_minute_of_samples_is_kept_and_idle_queues_share_theirs() {
        let meters = Arc::new(Meters::new(["local:a", "local:b"]));
        let rates = Rates::new(&meters, &Prices::default());
        let began = clock::now();
        for round in 1..100 {
            rates.sample(began + EVERY * round);
        }
        let samples = rates.lock();
        assert_eq!(samples.len(), KEPT);
        assert_eq!(
            samples[KEPT - 1].0.since(samples[0].0),
            Duration::from_secs(60)
        );
        let all = samples.iter().flat_map(|(_, all)| all.values());
        let first = &samples[0].1["local:a"].durations;
        assert!(
            all.into_iter()
                .all(|one| Arc::ptr_eq(&one.durations, first))
        );
    }
}
