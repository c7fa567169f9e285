//! Logs the rounds of a mover, and backs off from a store that failed. Knows no queue.

use super::{Mover, MoverRound};
use crate::clock;
use crate::schedule::{ErrorKind, StoreError};
use std::time::Duration;

/// How long a store that is not there is left alone. Well below the 15 minutes that a job is read
/// ahead, so that nothing is late for it.
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

    /// Says what is wrong, and how long to leave it alone.
    pub(super) fn failed_look(&mut self, error: &StoreError) -> Duration {
        let store = self.store.place();
        match error.kind {
            // Most queues have none.
            ErrorKind::NotFound => {
                tracing::debug!(store, %error, "no scheduled messages");
                match self.certain {
                    true => self.interval,
                    false => self.interval.max(MISSING),
                }
            }
            ErrorKind::AccessDenied if !self.unended.is_empty() => {
                if self.said.should_log(clock::now()) {
                    tracing::error!(store, %error, "scheduled messages not sent until sent ones can be removed");
                }
                self.interval
            }
            // Perhaps there is none, and nobody who may tell; or the service itself is not there. Who
            // says that it is busy is there.
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
