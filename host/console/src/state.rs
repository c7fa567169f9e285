//! The changes of state by operators that `/api/v1/events` streams.

use serde_json::json;
use tokio::sync::broadcast;

/// The number of changes that a follower may be behind.
const BEHIND: usize = 64;

/// A change of state.
#[derive(Debug, Clone, Copy)]
pub struct StateChange<'a> {
    /// The change in fixed words, such as `queue paused`.
    pub what: &'static str,
    /// The queue, the route or the process.
    pub target: &'a str,
    /// The user who made the change.
    pub by: &'a str,
}

/// The publisher of changes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StateChanges(broadcast::Sender<String>);

impl Default for StateChanges {
    fn default() -> Self {
        Self(broadcast::channel(BEHIND).0)
    }
}

impl StateChanges {
    /// Sends a change to all followers.
    pub fn publish(&self, change: &StateChange<'_>) {
        let StateChange { what, target, by } = change;
        let event = json!({"what": what, "target": target, "by": by});
        // There may be no followers.
        let _ = self.0.send(event.to_string());
    }

    /// Follows changes from now on.
    pub fn follow(&self) -> broadcast::Receiver<String> {
        self.0.subscribe()
    }
}
