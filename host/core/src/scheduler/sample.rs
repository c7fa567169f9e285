//! The rules that tests begin with.

use super::lane::LaneRules;
use super::ready::Sequence;
use super::{Rules, SchedulerLimits};
use std::collections::BTreeMap;
use std::time::Duration;

/// A queue that behaves like a standard queue of SQS.
pub(super) fn lane() -> LaneRules {
    LaneRules {
        batch: 10,
        poll_for: Duration::from_secs(20),
        proof_wait: Duration::from_secs(1),
        sleep: Duration::ZERO,
        ordered_groups: false,
        most_receives: None,
        sequence: Sequence::Fifo,
        sharing: None,
        queue_shares_out: false,
    }
}

/// A route in strict order that runs this number of attempts at once, with one message each.
pub(super) fn rules(lanes: Vec<LaneRules>, attempts: usize) -> Rules {
    Rules {
        lanes,
        weights: None,
        batch: 1,
        horizon: Duration::from_secs(15),
        limits: limits(attempts),
    }
}

/// The limits of a route that runs this number of attempts at once and holds nothing ahead.
pub(super) fn limits(attempts: usize) -> SchedulerLimits {
    SchedulerLimits {
        attempts,
        prefetch: 0,
        window: Duration::ZERO,
        lanes: Vec::new(),
        weights: BTreeMap::new(),
    }
}
