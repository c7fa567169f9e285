//! The rules of one open queue as its route sets them, also while receives wait. Contains no SQL.

use dispatcher_core::message::place::MessagePlace;
use dispatcher_core::queue::sharing::SharingRules;
use parking_lot::Mutex;
use std::sync::Arc;

/// The part of the rules that decides the lanes of messages. It is in the file, for all processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::queue) struct AssignmentRules {
    /// Whether each message group is a tenant, and groups are not kept in order.
    pub by_group: bool,
    /// The place in messages that names their priority.
    pub priority: Option<MessagePlace>,
}

impl AssignmentRules {
    /// Returns the part of these rules.
    pub(super) fn of(sharing: &SharingRules) -> Self {
        Self {
            by_group: sharing.by_group,
            priority: sharing.priority.clone(),
        }
    }
}

/// The rules of one open queue.
#[derive(Debug, Default)]
pub(in crate::queue) struct SharingSlot {
    state: Mutex<SlotState>,
    /// Whether the rules are those of a standard queue of SQS: groups are tenants, if messages have
    /// any, and what a route has written to the file stays.
    is_standard: bool,
}

#[derive(Debug, Default)]
struct SlotState {
    sharing: Option<Arc<SharingRules>>,
    /// The last rules that this process has written to the file.
    written: Option<AssignmentRules>,
}

impl SharingSlot {
    /// Creates the rules of standard queues of SQS, whose groups are never kept in order.
    pub(in crate::queue) fn standard() -> Self {
        let sharing = SharingRules {
            by_group: true,
            ..SharingRules::default()
        };
        let state = SlotState {
            sharing: Some(Arc::new(sharing)),
            written: None,
        };
        Self {
            state: Mutex::new(state),
            is_standard: true,
        }
    }

    /// Whether the rules only matter while messages have groups.
    pub(super) fn is_standard(&self) -> bool {
        self.is_standard
    }

    /// Sets the rules. Returns whether they differ from those before.
    pub(in crate::queue) fn set(&self, sharing: &Arc<SharingRules>) -> bool {
        let before = self.state.lock().sharing.replace(Arc::clone(sharing));
        before.is_none_or(|before| !Arc::ptr_eq(&before, sharing) && before != *sharing)
    }

    /// Returns the rules if they change the delivery.
    pub(in crate::queue) fn sharing(&self) -> Option<Arc<SharingRules>> {
        let state = self.state.lock();
        state
            .sharing
            .clone()
            .filter(|sharing| sharing.changes_delivery())
    }

    /// Whether this process has written these rules to the file since it got them.
    pub(super) fn has_written(&self, rules: &AssignmentRules) -> bool {
        self.is_standard || self.state.lock().written.as_ref() == Some(rules)
    }

    /// Notes that these rules were committed to the file.
    pub(in crate::queue) fn note_written(&self, rules: AssignmentRules) {
        self.state.lock().written = Some(rules);
    }
}
