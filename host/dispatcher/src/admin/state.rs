//! States that change because of operators, as `/api/v1/events` streams them.

use serde_json::json;
use tokio::sync::broadcast;

/// How far a follower may be behind.
const BEHIND: usize = 64;

/// What has changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateChange<'a> {
    /// In fixed words: `queue paused`.
    pub what: &'static str,
    /// The queue, the route or the process.
    pub target: &'a str,
    /// Who changed it.
    pub by: &'a str,
}

/// Where changes are published. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct StateChanges(broadcast::Sender<String>);

impl Default for StateChanges {
    fn default() -> Self {
        Self(broadcast::channel(BEHIND).0)
    }
}

impl StateChanges {
    /// Tells all who follow.
    pub(crate) fn publish(&self, change: &StateChange<'_>) {
        let StateChange { what, target, by } = change;
        let event = json!({"what": what, "target": target, "by": by});
        // Nobody may follow.
        let _ = self.0.send(event.to_string());
    }

    /// Follows what comes from now on.
    pub(crate) fn follow(&self) -> broadcast::Receiver<String> {
        self.0.subscribe()
    }
}
