//! Logs the rounds of a mover, and backs off from a store that failed. Knows no queue.

use super::{Mover, MoverRound};
use crate::clock;
use crate::schedule::{ErrorKind, StoreError};
use std::time::Duration;

/// The time for which a missing store is not polled. Well below the 15 minutes by which jobs are
/// read ahead, so that no job is late because of it.
const MISSING: Duration = Duration::from_secs(300);

impl Mover {
    pub(super) fn report(&self, round: &MoverRound) {
        let MoverRound {
            sent, lost, failed, ..
        } = round;
        let store = self.store.place();
        if sent + failed > 0 {
            tracing::info!(store, sent, lost, failed, "scheduled messages sent");
        }
    }

    /// Logs the failure and returns the time until the next look.
    pub(super) fn failed_look(&mut self, error: &StoreError) -> Duration {
        let store = self.store.place();
        match error.kind {
            // Most queues have no store of scheduled messages.
            ErrorKind::NotFound => {
                tracing::debug!(store, %error, "no scheduled messages");
                if self.certain {
                    self.interval
                } else {
                    self.interval.max(MISSING)
                }
            }
            ErrorKind::AccessDenied if !self.unended.is_empty() => {
                if self.said.should_log(clock::now()) {
                    tracing::error!(store, %error, "scheduled messages not sent until sent ones can be removed");
                }
                self.interval
            }
            // Perhaps there is no store and this process may not find out, or the service itself
            // does not exist. A service that answers that it is busy exists.
            kind if !self.known
                && kind != ErrorKind::Transient
                && (kind == ErrorKind::AccessDenied || !self.certain) =>
            {
                if self.said.should_log(clock::now()) {
                    tracing::info!(store, %error, "scheduled messages not read");
                }
                self.interval.max(MISSING)
            }
            _ => {
                if self.said.should_log(clock::now()) {
                    tracing::warn!(store, %error, "scheduled messages delayed");
                }
                self.interval
            }
        }
    }

    pub(super) fn refused(&mut self, queue: &str, job: &str, why: &str) {
        if self.said.should_log(clock::now()) {
            tracing::error!(
                queue,
                job,
                error = why,
                "scheduled message not sent, retried"
            );
        }
    }
}
