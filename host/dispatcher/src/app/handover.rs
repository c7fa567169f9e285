//! Decides when a new version of a route may start while earlier ones finish. Pure.

use dispatcher_config::Route;

/// A version of a route that finishes its messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EarlierVersion {
    /// Whether one of its receives has not been answered.
    pub receives: bool,
    /// The maximum number of attempts that it may still run at once, by queue.
    pub attempts_left: Vec<(String, usize)>,
    /// Whether it keeps groups in order.
    pub orders_groups: bool,
}

/// The attempts that a new version leaves to earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftAttempts {
    /// The number of each queue, in the order of the new version.
    pub of_lanes: Vec<usize>,
    /// The number of all queues together.
    pub all: usize,
}

/// Whether a route keeps groups in order that its queues do not.
pub fn orders_groups(route: &Route) -> bool {
    route.settings.group_by.is_some()
}

/// Returns the attempts that a new version, with these queues, leaves to earlier ones.
pub fn left_attempts(queues: &[String], earlier: &[EarlierVersion]) -> LeftAttempts {
    let left = earlier.iter().flat_map(|one| &one.attempts_left);
    let of_lanes = queues.iter().map(|queue| {
        let own = left.clone().filter(|(name, _)| name == queue);
        own.map(|(_, attempts)| attempts).sum()
    });
    LeftAttempts {
        of_lanes: of_lanes.collect(),
        all: left.map(|(_, attempts)| attempts).sum(),
    }
}

/// Whether a new version may start beside earlier ones, which leave some attempts to it. Where the
/// process keeps groups in order, only one version knows the order.
pub fn may_start(new: &Route, earlier: &[EarlierVersion]) -> bool {
    let in_order = orders_groups(new) || earlier.iter().any(|one| one.orders_groups);
    let is_blocked = earlier.iter().any(|one| in_order || one.receives);
    let left = left_attempts(&[], earlier).all;
    earlier.is_empty() || (!is_blocked && left < new.settings.concurrency)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_config::flags::Flags;
    use dispatcher_core::message::place::MessagePlace;

    /// A route of ten attempts.
    fn route(group_by: Option<&str>) -> Route {
        let (mut settings, _) = dispatcher_config::settings(&Flags::default());
        let mut route = settings.routes.remove(0);
        route.settings.concurrency = 10;
        route.settings.group_by = group_by.map(|name| MessagePlace::Attribute(name.to_owned()));
        route
    }

    fn running(queue: &str, attempts_left: usize) -> EarlierVersion {
        EarlierVersion {
            attempts_left: vec![(queue.to_owned(), attempts_left)],
            ..EarlierVersion::default()
        }
    }

    #[test]
    fn new_version_leaves_the_attempts_of_all_earlier_ones() {
        let earlier = [running("a", 3), running("b", 2), running("a", 1)];
        let queues = ["b", "c", "a"].map(str::to_owned);
        let wanted = LeftAttempts {
            of_lanes: vec![2, 0, 4],
            all: 6,
        };
        assert_eq!(left_attempts(&queues, &earlier), wanted);
        assert_eq!(left_attempts(&queues[..1], &earlier).all, 6);
    }

    #[test]
    fn new_version_starts_once_an_attempt_is_free() {
        for (left, starts) in [
            (&[][..], true),
            (&[0][..], true),
            (&[3, 6][..], true),
            (&[3, 7][..], false),
            (&[20][..], false),
        ] {
            let earlier: Vec<_> = left.iter().map(|left| running("a", *left)).collect();
            assert_eq!(may_start(&route(None), &earlier), starts, "{left:?}");
        }
    }

    #[test]
    fn new_version_waits_for_the_answer_to_every_receive() {
        let receives = EarlierVersion {
            receives: true,
            ..EarlierVersion::default()
        };
        assert!(!may_start(&route(None), &[running("a", 0), receives]));
    }

    #[test]
    fn with_groups_in_order_the_earlier_version_finishes_first() {
        let ordering = EarlierVersion {
            orders_groups: true,
            ..EarlierVersion::default()
        };
        let by_customer = route(Some("customer"));
        assert!(!may_start(&by_customer, &[running("a", 0)]));
        assert!(!may_start(&route(None), &[ordering]));
        assert!(may_start(&by_customer, &[]));
    }
}
