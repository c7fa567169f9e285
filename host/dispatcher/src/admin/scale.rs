//! How many replicas of this program a route wants, for autoscalers. Pure.

use std::time::Duration;

/// Within what time a backlog is to be gone where the request does not say.
pub(super) const USUAL_DRAIN: Duration = Duration::from_secs(60);
/// The longest such time.
pub(super) const LONGEST_DRAIN: Duration = Duration::from_secs(86_400);

/// What a route has to do, over all replicas.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RouteLoad {
    /// Messages that wait in its queues, without those that are paused.
    pub backlog: u64,
    /// Messages in flight, of all consumers, without those that this process has released for a later
    /// attempt.
    pub in_flight: u64,
    /// Those, where their queue counts them as in flight.
    pub released: u64,
    /// Those of them that this process holds and has not started.
    pub held: u64,
    /// Attempts that one replica makes at once.
    pub concurrency: u64,
    /// Maximum messages of an attempt.
    pub batch_size: u64,
    /// Attempts under way in this process, and messages in them.
    pub running: (u64, u64),
    /// How long an attempt takes; nothing while that is not known.
    pub median: Option<Duration>,
}

/// What decided how many replicas are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScaleReason {
    /// There is nothing to do.
    Idle,
    /// The backlog is to be gone in time.
    Backlog,
    /// Messages wait, and how long one takes is not known: one replica finds out.
    UnknownDuration,
    /// With fewer replicas, messages in flight would have no place.
    InFlight,
}

impl ScaleReason {
    /// As the API has it.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Backlog => "backlog",
            Self::UnknownDuration => "unknown-duration",
            Self::InFlight => "in-flight",
        }
    }
}

impl RouteLoad {
    /// Adds messages of a queue that its backend counts as in flight. Of those this process has released
    /// `released`, which wait for a later attempt and occupy nobody.
    pub(super) fn add_in_flight(&mut self, counted: u64, released: u64) {
        let released = released.min(counted);
        self.in_flight = self.in_flight.saturating_add(counted - released);
        self.released = self.released.saturating_add(released);
    }

    /// Messages that one replica handles at once.
    pub(super) fn at_once(&self) -> u64 {
        let attempts = self.concurrency.max(1);
        attempts.saturating_mul(self.batch_size.max(1))
    }

    /// How many replicas handle the backlog within `drain`, and never fewer than those that the
    /// messages in flight occupy. `None`: nobody knows how long the backlog takes.
    pub(super) fn replicas(&self, drain: Duration) -> Option<(u64, ScaleReason)> {
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
                let work_ns = u128::from(waiting).saturating_mul(median.as_nanos());
                let replica_ns = u128::from(self.at_once()).saturating_mul(drain.as_nanos().max(1));
                let replicas = work_ns.div_ceil(replica_ns).max(1);
                let replicas = u64::try_from(replicas).unwrap_or(u64::MAX);
                (replicas, ScaleReason::Backlog)
            }
        };
        Some(self.occupied(self.in_flight - held, for_backlog))
    }

    /// So many replicas, or as many as these messages occupy with their attempts if that is more. An
    /// attempt has as many messages as those of this process have on average; one where it has none.
    fn occupied(&self, messages: u64, least: (u64, ScaleReason)) -> (u64, ScaleReason) {
        let (attempts, in_them) = self.running;
        let each = in_them.checked_div(attempts).unwrap_or(1);
        let each = each.clamp(1, self.batch_size.max(1));
        let occupied = messages.div_ceil(self.concurrency.max(1).saturating_mul(each));
        if occupied > least.0 {
            return (occupied, ScaleReason::InFlight);
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        }
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
        let replicas = |load: &RouteLoad| load.replicas(60 * SECOND).map(|(replicas, _)| replicas);
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
        let held = |median| RouteLoad {
            concurrency: 2,
            held: 84,
            running: (2, 2),
            ..load(898, 86, median)
        };
        let hour = 3_600 * SECOND;
        let wanted = Some((1, ScaleReason::Backlog));
        assert_eq!(held(Some(1_000)).replicas(hour), wanted);
        assert_eq!(held(None).replicas(hour), None);
        let alone = RouteLoad {
            backlog: 0,
            ..held(None)
        };
        assert_eq!(alone.replicas(hour), None, "what it holds would not fit");
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
            let load = RouteLoad { backlog, in_flight, held, released: 0, concurrency, batch_size, running: (0, 0), median: Some(Duration::from_millis(ms)) };
            let (replicas, _) = load.replicas(SECOND * u32::try_from(drain).expect("small")).expect("its median is known");
            prop_assert!(replicas * concurrency.max(1) >= in_flight.saturating_sub(held));
            prop_assert_eq!(replicas == 0, backlog == 0 && in_flight == 0);
        }

        #[test]
        fn more_work_never_wants_fewer_replicas(backlog in 0_u64..1_000_000, more in 0_u64..1_000, ms in 0_u64..100_000) {
            let replicas = |backlog| load(backlog, 3, Some(ms)).replicas(60 * SECOND);
            let replicas = |backlog| replicas(backlog).map(|(replicas, _)| replicas);
            prop_assert!(replicas(backlog + more) >= replicas(backlog));
        }
    }
}
