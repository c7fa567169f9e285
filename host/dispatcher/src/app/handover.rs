//! Decides when a new version of a route may start while earlier ones finish. Pure.

use dispatcher_config::Route;
use dispatcher_core::scheduler::AttemptsLeft;

/// A version of a route that finishes its messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EarlierVersion {
    /// Its queues.
    pub queues: Vec<String>,
    /// The attempts that it may still run at once, in the order of its queues.
    pub left: AttemptsLeft,
    /// Whether it keeps groups in order.
    pub orders_groups: bool,
}

impl EarlierVersion {
    /// Returns how many attempts of these queues it may still run at once.
    pub fn attempts_of(&self, concerned: &[String]) -> usize {
        let queues = self.queues.iter().zip(&self.left.of_lanes);
        let of_concerned = queues.filter(|(queue, _)| concerned.contains(queue));
        let sum: usize = of_concerned.map(|(_, attempts)| attempts).sum();
        sum.min(self.left.all)
    }
}

/// Whether a route keeps groups in order that its queues do not.
pub fn orders_groups(route: &Route) -> bool {
    route.settings.group_by.is_some()
}

/// Returns the attempts that a new version, with these queues, leaves to earlier ones.
pub fn left_attempts(queues: &[String], earlier: &[EarlierVersion]) -> AttemptsLeft {
    let of_lanes = queues.iter().map(|queue| {
        let queue = std::slice::from_ref(queue);
        earlier.iter().map(|one| one.attempts_of(queue)).sum()
    });
    AttemptsLeft {
        of_lanes: of_lanes.collect(),
        all: earlier.iter().map(|one| one.left.all).sum(),
    }
}

/// Whether a new version may start beside earlier ones, which leave some attempts to it. Where the
/// process keeps groups in order, only one version knows the order.
pub fn may_start(new: &Route, earlier: &[EarlierVersion]) -> bool {
    let in_order = orders_groups(new) || earlier.iter().any(|one| one.orders_groups);
    let left = left_attempts(&[], earlier).all;
    earlier.is_empty() || (!in_order && left < new.settings.concurrency)
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
            queues: vec![queue.to_owned()],
            left: AttemptsLeft {
                of_lanes: vec![attempts_left],
                all: attempts_left,
            },
            orders_groups: false,
        }
    }

    #[test]
    fn new_version_leaves_the_attempts_of_all_earlier_ones() {
        let earlier = [running("a", 3), running("b", 2), running("a", 1)];
        let queues = ["b", "c", "a"].map(str::to_owned);
        let wanted = AttemptsLeft {
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
    fn one_attempt_is_left_to_the_receives_of_many_queues() {
        let receives = EarlierVersion {
            queues: ["a", "b", "c"].map(str::to_owned).to_vec(),
            left: AttemptsLeft {
                of_lanes: vec![1, 1, 1],
                all: 1,
            },
            orders_groups: false,
        };
        let left = left_attempts(&receives.queues, std::slice::from_ref(&receives));
        assert_eq!(left, receives.left);
        assert_eq!(receives.attempts_of(&receives.queues[1..]), 1);
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
