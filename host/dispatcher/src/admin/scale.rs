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
    /// Messages in flight, of all consumers.
    pub in_flight: u64,
    /// Messages that one replica handles at once.
    pub at_once: u64,
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
    /// How many replicas handle the backlog within `drain`, and never fewer than those that the
    /// messages in flight occupy.
    pub(super) fn replicas(&self, drain: Duration) -> (u64, ScaleReason) {
        let at_once = self.at_once.max(1);
        let occupied = self.in_flight.div_ceil(at_once);
        let (for_backlog, reason) = match (self.backlog, self.median) {
            (0, _) => (0, ScaleReason::Idle),
            (_, None) => (1, ScaleReason::UnknownDuration),
            (backlog, Some(median)) => {
                let work_ns = u128::from(backlog).saturating_mul(median.as_nanos());
                let replica_ns = u128::from(at_once).saturating_mul(drain.as_nanos().max(1));
                let replicas = work_ns.div_ceil(replica_ns).max(1);
                (
                    u64::try_from(replicas).unwrap_or(u64::MAX),
                    ScaleReason::Backlog,
                )
            }
        };
        if occupied > for_backlog {
            return (occupied, ScaleReason::InFlight);
        }
        (for_backlog, reason)
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
            at_once: 10,
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
            (load(9_000_000, 0, None), 1, ScaleReason::UnknownDuration),
            (load(0, 31, Some(500)), 4, ScaleReason::InFlight),
            (load(1_200, 31, Some(500)), 4, ScaleReason::InFlight),
            (load(12_000, 100, Some(500)), 10, ScaleReason::Backlog),
        ] {
            assert_eq!(load.replicas(60 * SECOND), (replicas, reason), "{load:?}");
        }
    }

    #[test]
    fn extreme_loads_are_numbers() {
        let all = RouteLoad {
            backlog: u64::MAX,
            in_flight: u64::MAX,
            at_once: 0,
            median: Some(Duration::MAX),
        };
        assert_eq!(all.replicas(Duration::ZERO).0, u64::MAX);
    }

    proptest! {
        #[test]
        fn messages_in_flight_always_have_a_place(backlog in 0_u64..1_000_000, in_flight in 0_u64..1_000_000, at_once in 0_u64..1_000, ms in proptest::option::of(0_u64..1_000_000), drain in 1_u64..86_400) {
            let load = RouteLoad { backlog, in_flight, at_once, median: ms.map(Duration::from_millis) };
            let (replicas, _) = load.replicas(SECOND * u32::try_from(drain).expect("small"));
            prop_assert!(replicas * at_once.max(1) >= in_flight);
            prop_assert_eq!(replicas == 0, backlog == 0 && in_flight == 0);
        }

        #[test]
        fn more_work_never_wants_fewer_replicas(backlog in 0_u64..1_000_000, more in 0_u64..1_000, ms in 0_u64..100_000) {
            let replicas = |backlog| load(backlog, 3, Some(ms)).replicas(60 * SECOND).0;
            prop_assert!(replicas(backlog + more) >= replicas(backlog));
        }
    }
}
