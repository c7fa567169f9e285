//! The number of replicas that a route needs, for autoscalers. Pure.

use std::time::Duration;

/// The default time within which a backlog must be processed.
pub const USUAL_DRAIN: Duration = Duration::from_secs(60);
/// The maximum time within which a backlog must be processed.
pub const LONGEST_DRAIN: Duration = Duration::from_secs(86_400);

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The load of a route, over all replicas.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteLoad {
    /// The number of messages that wait in its queues, except in paused ones.
    pub backlog: u64,
    /// The number of messages in flight, of all consumers, without those that this process has
    /// released for a later attempt.
    pub in_flight: u64,
    /// The number of those released messages, if their queue counts them as in flight.
    pub released: u64,
    /// The number of messages in flight that this process holds and has not started.
    pub held: u64,
    /// The number of concurrent attempts of one replica.
    pub concurrency: u64,
    /// The maximum number of messages in an attempt.
    pub batch_size: u64,
    /// The number of running attempts in this process, and of messages in them.
    pub running: (u64, u64),
    /// The duration of an attempt; `None` while it is unknown.
    pub median: Option<Duration>,
    /// Its queues with additional limits and waiting messages.
    pub limited: Vec<LimitedLoad>,
    /// The number of messages that all replicas together can start per second, if limits of the
    /// fleet bound it.
    pub fleet_per_second: Option<f64>,
}

/// A queue with its own limits, each of which applies to every replica.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LimitedLoad {
    /// The number of messages that wait in it.
    pub backlog: u64,
    /// The number of its messages that one replica starts per second.
    pub rate: Option<f64>,
    /// The number of concurrent attempts of one replica at its messages.
    pub concurrency: Option<u64>,
}

/// The reason for the number of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleReason {
    /// There is nothing to do.
    Idle,
    /// The backlog must be processed in time.
    Backlog,
    /// The backlog must be processed in time, and the rate of a queue limits each replica.
    Rate,
    /// Messages wait, but the duration of an attempt is unknown: one replica measures it.
    UnknownDuration,
    /// A limit of the fleet allows no more: more replicas would wait.
    Limit,
    /// With fewer replicas, messages in flight would have no place.
    InFlight,
}

impl ScaleReason {
    /// Returns its name in the API.
    pub fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Backlog => "backlog",
            Self::Rate => "rate",
            Self::Limit => "limit",
            Self::UnknownDuration => "unknown-duration",
            Self::InFlight => "in-flight",
        }
    }
}

impl RouteLoad {
    /// Adds messages of a queue that its backend counts as in flight. This process has released
    /// `released` of them for a later attempt; they occupy no consumer.
    pub fn add_in_flight(&mut self, counted: u64, released: u64) {
        let released = released.min(counted);
        self.in_flight = self.in_flight.saturating_add(counted - released);
        self.released = self.released.saturating_add(released);
    }

    /// Returns how many messages one replica handles concurrently.
    pub fn at_once(&self) -> u64 {
        let attempts = self.concurrency.max(1);
        attempts.saturating_mul(self.batch_size.max(1))
    }

    /// Returns how many replicas handle the backlog within `drain`, but at least those that the
    /// messages in flight occupy. Returns `None` if it is unknown how long the backlog takes.
    pub fn replicas(&self, drain: Duration) -> Option<(u64, ScaleReason)> {
        let held = self.held.min(self.in_flight);
        let waiting = self.backlog.saturating_add(held);
        let Some(median) = self.median else {
            let all = self.backlog.saturating_add(self.in_flight);
            let is_known = waiting == 0 || all <= self.at_once();
            let least = u64::from(waiting > 0);
            let reason = if waiting > 0 {
                ScaleReason::UnknownDuration
            } else {
                ScaleReason::Idle
            };
            return is_known.then(|| self.occupied(self.in_flight, (least, reason)));
        };
        let for_backlog = match waiting {
            0 => (0, ScaleReason::Idle),
            _ => {
                let replicas = replicas_for(waiting, self.at_once(), median, drain);
                let by_queues = self
                    .limited
                    .iter()
                    .fold((replicas.max(1), ScaleReason::Backlog), |most, queue| {
                        self.limited_to(queue, median, drain, most)
                    });
                self.within_fleet(median, by_queues)
            }
        };
        Some(self.occupied(self.in_flight - held, for_backlog))
    }

    /// Returns `wanted`, or the number of replicas that use the limits of the fleet up if that is
    /// less.
    fn within_fleet(&self, median: Duration, wanted: (u64, ScaleReason)) -> (u64, ScaleReason) {
        let Some(per_second) = self.fleet_per_second else {
            return wanted;
        };
        // The messages that run are those that start while one runs.
        let busy = Duration::try_from_secs_f64(per_second * median.as_secs_f64());
        let busy = busy.unwrap_or(Duration::MAX).as_nanos();
        let busy = u64::try_from(busy.div_ceil(NANOS_PER_SECOND)).unwrap_or(u64::MAX);
        let replicas = busy.div_ceil(self.at_once()).max(1);
        if replicas < wanted.0 {
            (replicas, ScaleReason::Limit)
        } else {
            wanted
        }
    }

    /// Returns `least`, or the number of replicas that the limits of a queue require for its
    /// backlog if that is more.
    fn limited_to(
        &self,
        queue: &LimitedLoad,
        median: Duration,
        drain: Duration,
        least: (u64, ScaleReason),
    ) -> (u64, ScaleReason) {
        let by_concurrency = queue.concurrency.map_or(0, |most| {
            let at_once = most.max(1).saturating_mul(self.batch_size.max(1));
            replicas_for(queue.backlog, at_once, median, drain)
        });
        let least = if by_concurrency > least.0 {
            (by_concurrency, ScaleReason::Backlog)
        } else {
            least
        };
        let Some(rate) = queue.rate.filter(|rate| *rate > 0.0) else {
            return least;
        };
        // The time that one replica takes to start all of them.
        let alone = Duration::try_from_secs_f64(queue.backlog as f64 / rate)
            .unwrap_or(Duration::MAX)
            .as_nanos();
        let replicas = alone.div_ceil(drain.as_nanos().max(1));
        let by_rate = u64::try_from(replicas).unwrap_or(u64::MAX);
        if by_rate > least.0 {
            (by_rate, ScaleReason::Rate)
        } else {
            least
        }
    }

    /// Returns `least`, or the number of replicas that these messages occupy with their attempts if
    /// that is more. Assumes the average number of messages per attempt of this process, or one if
    /// it has no attempts.
    fn occupied(&self, messages: u64, least: (u64, ScaleReason)) -> (u64, ScaleReason) {
        let (attempts, in_them) = self.running;
        let each = in_them
            .checked_div(attempts)
            .unwrap_or(1)
            .clamp(1, self.batch_size.max(1));
        let occupied = messages.div_ceil(self.concurrency.max(1).saturating_mul(each));
        if occupied > least.0 {
            return (occupied, ScaleReason::InFlight);
        }
        least
    }
}

/// Returns how many replicas, each handling `at_once` messages concurrently, handle the waiting
/// messages within `drain`.
fn replicas_for(waiting: u64, at_once: u64, median: Duration, drain: Duration) -> u64 {
    let work_ns = u128::from(waiting).saturating_mul(median.as_nanos());
    let replica_ns = u128::from(at_once).saturating_mul(drain.as_nanos().max(1));
    u64::try_from(work_ns.div_ceil(replica_ns)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::fleet::limit::{LimitNumbers, Rate};
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn load(backlog: u64, in_flight: u64, median_ms: Option<u64>) -> RouteLoad {
        RouteLoad {
            backlog,
            in_flight,
            concurrency: 10,
            batch_size: 1,
            held: 0,
            released: 0,
            running: (0, 0),
            median: median_ms.map(Duration::from_millis),
            limited: Vec::new(),
            fleet_per_second: None,
        }
    }

    /// 6,000 messages of 10 ms each, which one replica would handle in six seconds.
    fn limited(rate: Option<f64>, concurrency: Option<u64>) -> RouteLoad {
        let limited = LimitedLoad {
            backlog: 6_000,
            rate,
            concurrency,
        };
        RouteLoad {
            limited: vec![limited],
            ..load(6_000, 0, Some(10))
        }
    }

    #[test]
    fn limits_of_a_queue_bound_how_much_of_its_backlog_a_replica_handles() {
        for (rate, concurrency, replicas, reason) in [
            (None, None, 1, ScaleReason::Backlog),
            (Some(10.0), None, 10, ScaleReason::Rate),
            (Some(0.5), None, 200, ScaleReason::Rate),
            // As many as a replica handles anyway.
            (Some(1_000.0), None, 1, ScaleReason::Backlog),
            (None, Some(1), 1, ScaleReason::Backlog),
            (Some(100.0), Some(1), 1, ScaleReason::Backlog),
            (Some(0.0), None, 1, ScaleReason::Backlog),
        ] {
            let load = limited(rate, concurrency);
            let wanted = Some((replicas, reason));
            assert_eq!(
                load.replicas(60 * SECOND),
                wanted,
                "{rate:?} {concurrency:?}"
            );
        }
        let mut slow = limited(None, Some(2));
        slow.median = Some(SECOND);
        // The route alone handles 600 a minute, the queue 120.
        let wanted = Some((50, ScaleReason::Backlog));
        assert_eq!(slow.replicas(60 * SECOND), wanted);
    }

    #[test]
    fn limits_of_the_fleet_bound_the_replicas() {
        // 100 replicas for the backlog, of which each runs 10 messages of a second.
        let backlog = load(60_000, 0, Some(1_000));
        for (concurrency, rate, replicas, reason) in [
            (None, None, 100, ScaleReason::Backlog),
            (Some(40), None, 4, ScaleReason::Limit),
            (Some(41), Some(1_000.0), 5, ScaleReason::Limit),
            (Some(5_000), Some(25.0), 3, ScaleReason::Limit),
            (Some(1), Some(0.1), 1, ScaleReason::Limit),
            (Some(2_000), Some(5_000.0), 100, ScaleReason::Backlog),
        ] {
            let rate = rate.map(|per_second| Rate {
                per_second,
                burst: 1,
            });
            let numbers = LimitNumbers { concurrency, rate };
            let load = RouteLoad {
                fleet_per_second: numbers.most_per_second(backlog.median),
                ..backlog.clone()
            };
            let wanted = Some((replicas, reason));
            assert_eq!(load.replicas(60 * SECOND), wanted, "{load:?}");
        }
        // What is in flight keeps its place.
        let busy = RouteLoad {
            in_flight: 70,
            fleet_per_second: Some(1.0),
            ..backlog
        };
        let wanted = Some((7, ScaleReason::InFlight));
        assert_eq!(busy.replicas(60 * SECOND), wanted);
    }

    #[test]
    fn rate_of_an_empty_queue_wants_no_replicas() {
        let mut idle = limited(Some(1.0), None);
        idle.backlog = 0;
        idle.limited[0].backlog = 0;
        let wanted = Some((0, ScaleReason::Idle));
        assert_eq!(idle.replicas(60 * SECOND), wanted);
        // Another queue of the route has messages.
        idle.backlog = 10;
        let wanted = Some((1, ScaleReason::Backlog));
        assert_eq!(idle.replicas(60 * SECOND), wanted);
    }

    #[test]
    fn replicas_follow_the_work_that_waits() {
        for (load, replicas, reason) in [
            (load(0, 0, Some(500)), 0, ScaleReason::Idle),
            (load(1, 0, Some(500)), 1, ScaleReason::Backlog),
            // 12,000 × 0.5 s is 6,000 s; a replica does 600 s in a minute.
            (load(12_000, 0, Some(500)), 10, ScaleReason::Backlog),
            (load(12_001, 0, Some(500)), 11, ScaleReason::Backlog),
            (load(8, 2, None), 1, ScaleReason::UnknownDuration),
            (load(0, 31, None), 4, ScaleReason::InFlight),
            (load(0, 31, Some(500)), 4, ScaleReason::InFlight),
            (load(1_200, 31, Some(500)), 4, ScaleReason::InFlight),
            (load(12_000, 100, Some(500)), 10, ScaleReason::Backlog),
        ] {
            let wanted = Some((replicas, reason));
            assert_eq!(load.replicas(60 * SECOND), wanted, "{load:?}");
        }
    }

    #[test]
    fn backlog_beyond_one_replica_is_no_number_until_the_duration_is_known() {
        for load in [load(11, 0, None), load(9_000_000, 10, None)] {
            assert_eq!(load.replicas(60 * SECOND), None, "{load:?}");
        }
    }

    fn replicas(load: &RouteLoad) -> Option<u64> {
        load.replicas(60 * SECOND).map(|(replicas, _)| replicas)
    }

    #[test]
    fn messages_in_flight_occupy_attempts_however_large_a_batch_may_be() {
        let mut batches = RouteLoad {
            concurrency: 4,
            batch_size: 10,
            running: (4, 4),
            ..load(0, 8, None)
        };
        // Eight came singly: four run, and four are held.
        batches.held = 4;
        assert_eq!(replicas(&batches), Some(2));
        batches.held = 0;
        batches.median = Some(SECOND);
        assert_eq!(replicas(&batches), Some(2));
        batches.running = (0, 0);
        assert_eq!(replicas(&batches), Some(2), "nothing runs here");
        // Full batches in two replicas.
        batches.in_flight = 80;
        batches.running = (4, 40);
        assert_eq!(replicas(&batches), Some(2));
    }

    #[test]
    fn messages_that_are_only_held_are_backlog() {
        let mut held = RouteLoad {
            concurrency: 2,
            held: 84,
            running: (2, 2),
            ..load(898, 86, Some(1_000))
        };
        let hour = 3_600 * SECOND;
        let wanted = Some((1, ScaleReason::Backlog));
        assert_eq!(held.replicas(hour), wanted);
        held.median = None;
        assert_eq!(held.replicas(hour), None);
        held.backlog = 0;
        assert_eq!(held.replicas(hour), None, "what it holds would not fit");
    }

    #[test]
    fn messages_that_wait_for_their_retry_occupy_nobody() {
        let mut outage = load(0, 0, Some(500));
        outage.add_in_flight(1_000, 990);
        assert_eq!((outage.in_flight, outage.released), (10, 990));
        let wanted = Some((1, ScaleReason::InFlight));
        assert_eq!(outage.replicas(60 * SECOND), wanted);
        // The count of the queue is older than that of the releases.
        let mut late = load(0, 0, Some(500));
        late.add_in_flight(3, 5);
        assert_eq!((late.in_flight, late.released), (0, 3));
    }

    #[test]
    fn extreme_loads_are_numbers() {
        let all = RouteLoad {
            backlog: u64::MAX,
            in_flight: u64::MAX,
            median: Some(Duration::MAX),
            ..RouteLoad::default()
        };
        let replicas = all.replicas(Duration::ZERO);
        assert_eq!(replicas.map(|(replicas, _)| replicas), Some(u64::MAX));
    }

    proptest! {
        #[test]
        fn messages_in_flight_always_have_a_place(backlog in 0_u64..1_000_000, in_flight in 0_u64..1_000_000, held in 0_u64..1_000, concurrency in 0_u64..1_000, batch_size in 1_u64..10, ms in 0_u64..1_000_000, drain in 1_u64..86_400) {
            let load = RouteLoad { backlog, in_flight, held, released: 0, concurrency, batch_size, running: (0, 0), median: Some(Duration::from_millis(ms)), limited: Vec::new(), fleet_per_second: None };
            let (replicas, _) = load.replicas(SECOND * u32::try_from(drain).expect("small")).expect("its median is known");
            prop_assert!(replicas * concurrency.max(1) >= in_flight.saturating_sub(held));
            prop_assert_eq!(replicas == 0, backlog == 0 && in_flight == 0);
        }

        #[test]
        fn more_work_never_wants_fewer_replicas(backlog in 0_u64..1_000_000, more in 0_u64..1_000, ms in 0_u64..100_000) {
            let (less, more) = (load(backlog, 3, Some(ms)), load(backlog + more, 3, Some(ms)));
            prop_assert!(replicas(&more) >= replicas(&less));
        }
    }
}
