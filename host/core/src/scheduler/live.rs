//! The limits of a route while operators change some of them. Pure.

use super::SchedulerLimits;
use crate::control::QueueControl;

/// The settings of a whole route that operators change; `None` means as configured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteControl {
    /// Whether the route is paused: nothing is received from any of its queues.
    pub paused: bool,
    /// The maximum number of concurrent attempts.
    pub concurrency: Option<usize>,
    /// The maximum number of messages held in addition to those that run.
    pub prefetch: Option<usize>,
}

/// Returns the effective limits: those of the configuration, replaced by what was set on the route
/// and on each of its queues. There are at most `most` attempts, for which the route was created.
/// The smallest prefetch of several queues applies, because prefetch is a limit of their route.
pub fn effective(
    configured: &SchedulerLimits,
    most: usize,
    route: &RouteControl,
    queues: &[QueueControl],
) -> SchedulerLimits {
    let attempts = route.concurrency.unwrap_or(configured.attempts);
    let prefetch = queues.iter().filter_map(|queue| queue.prefetch).min();
    let lanes = configured.lanes.iter().enumerate().map(|(at, own)| {
        let queue = queues.get(at).copied().unwrap_or_default();
        let mut own = *own;
        own.attempts = queue.concurrency.or(own.attempts);
        own.rate = queue.rate.or(own.rate);
        own.paused = own.paused || route.paused || queue.paused;
        own
    });
    SchedulerLimits {
        attempts: attempts.clamp(1, most.max(1)),
        prefetch: prefetch.or(route.prefetch).unwrap_or(configured.prefetch),
        window: configured.window,
        lanes: lanes.collect(),
        weights: configured.weights.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::lane::LaneLimits;
    use super::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn configured() -> SchedulerLimits {
        let lane = LaneLimits {
            rate: Some(5.0),
            attempts: None,
            paused: false,
        };
        SchedulerLimits {
            attempts: 10,
            prefetch: 4,
            window: Duration::from_millis(7),
            lanes: vec![lane; 2],
            weights: BTreeMap::new(),
        }
    }

    #[test]
    fn without_controls_the_configured_limits_hold() {
        let limits = effective(&configured(), 10, &RouteControl::default(), &[]);
        assert_eq!(limits, configured());
    }

    #[test]
    fn what_is_set_on_one_queue_holds_for_it_alone() {
        let control = QueueControl {
            paused: true,
            concurrency: Some(2),
            rate: Some(0.5),
            prefetch: None,
        };
        let queues = [QueueControl::default(), control];
        let limits = effective(&configured(), 10, &RouteControl::default(), &queues);
        assert_eq!(limits.lanes[0], configured().lanes[0]);
        let wanted = LaneLimits {
            rate: Some(0.5),
            attempts: Some(2),
            paused: true,
        };
        assert_eq!(limits.lanes[1], wanted);
        assert_eq!((limits.attempts, limits.prefetch), (10, 4));
    }

    #[test]
    fn a_paused_route_pauses_all_its_queues() {
        let route = RouteControl {
            paused: true,
            ..RouteControl::default()
        };
        let limits = effective(&configured(), 10, &route, &[]);
        assert!(limits.lanes.iter().all(|lane| lane.paused));
    }

    #[test]
    fn a_route_never_gets_more_attempts_than_it_was_made_for() {
        for (concurrency, attempts) in [(3, 3), (12, 12), (500, 12)] {
            let route = RouteControl {
                concurrency: Some(concurrency),
                ..RouteControl::default()
            };
            let limits = effective(&configured(), 12, &route, &[]);
            assert_eq!(limits.attempts, attempts, "{concurrency}");
        }
    }

    #[test]
    fn the_smallest_prefetch_of_its_queues_holds_for_the_route() {
        let queues = [9, 1].map(|prefetch| QueueControl {
            prefetch: Some(prefetch),
            ..QueueControl::default()
        });
        let route = RouteControl {
            prefetch: Some(0),
            ..RouteControl::default()
        };
        assert_eq!(effective(&configured(), 10, &route, &queues).prefetch, 1);
        let queues = [QueueControl::default()];
        assert_eq!(effective(&configured(), 10, &route, &queues).prefetch, 0);
    }
}
