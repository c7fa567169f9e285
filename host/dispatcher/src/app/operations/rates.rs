//! How many messages of each queue came and went in a second, over the last minute: of a few samples
//! that a task takes.

use crate::admin::operations::QueueRates;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::telemetry::metrics::Meters;
use dispatcher_core::telemetry::metrics::meter::Meter;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often a sample is taken.
const EVERY: Duration = Duration::from_secs(10);
/// How many are kept: a minute.
const KEPT: usize = 7;

/// Received, done and failed since the start.
type Sample = [u64; 3];

/// The samples of all queues.
pub(crate) struct Rates {
    meters: Arc<Meters>,
    places: HashMap<String, usize>,
    samples: Mutex<VecDeque<(BootInstant, Vec<Sample>)>>,
}

impl Rates {
    pub(super) fn new(meters: &Arc<Meters>) -> Self {
        let names = meters.iter().enumerate();
        let rates = Self {
            places: names
                .map(|(at, (name, _))| (name.to_string(), at))
                .collect(),
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
        let all = self.meters.iter().map(|(_, meter)| sample(meter)).collect();
        let mut samples = self.lock();
        if samples.len() == KEPT {
            samples.pop_front();
        }
        samples.push_back((now, all));
    }

    /// The rates of a queue since the oldest sample; nothing while that is younger than a second.
    pub(super) fn of(&self, queue: &str, meter: &Meter) -> Option<QueueRates> {
        let at = *self.places.get(queue)?;
        let samples = self.lock();
        let (since, before) = samples.front()?;
        rates(before.get(at)?, &sample(meter), clock::now().since(*since))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(BootInstant, Vec<Sample>)>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sample(meter: &Meter) -> Sample {
    [&meter.received, &meter.done, &meter.failed].map(|counter| counter.get())
}

fn rates(before: &Sample, now: &Sample, time: Duration) -> Option<QueueRates> {
    if time < Duration::from_secs(1) {
        return None;
    }
    let rate = |at: usize| (now[at] - before[at]) as f64 / time.as_secs_f64();
    Some(QueueRates {
        received: rate(0),
        done: rate(1),
        failed: rate(2),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_was_added_in_a_second() {
        let second = Duration::from_secs(1);
        let two = rates(&[5, 5, 0], &[25, 15, 1], 10 * second).expect("ten seconds");
        assert_eq!((two.received, two.done, two.failed), (2.0, 1.0, 0.1));
        assert!(rates(&[0; 3], &[9; 3], second / 2).is_none());
    }

    #[test]
    fn a_minute_of_samples_is_kept() {
        let rates = Rates::new(&Arc::new(Meters::new(["local:a"])));
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
    }
}
