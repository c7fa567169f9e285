//! Completes the claims of a mover, and keeps those that failed for its next round.

use super::{Mover, MoverRound, Ready};
use crate::clock;
use crate::schedule::{ErrorKind, JobOutcome, ScheduledJob, StoreError, decide};

impl Mover {
    /// Ends the claims after `sent` messages of each job were sent, or releases them if none was.
    pub(super) async fn end(
        &mut self,
        ours: Vec<Ready>,
        sent: &[usize],
        token: &str,
    ) -> Result<(), StoreError> {
        let endings: Vec<JobOutcome> = ours
            .into_iter()
            .zip(sent)
            .map(|((one, _), sent)| JobOutcome {
                next: decide::next_after(&one, *sent),
                job: one.job,
                token: token.to_owned(),
            })
            .collect();
        self.end_all(endings).await
    }

    /// Handles a claim that failed. If the claim may have succeeded and only its answer was lost,
    /// it is released before the next look. Otherwise the job would wait until the claim expires.
    pub(super) fn unclaimed(
        &mut self,
        job: ScheduledJob,
        why: StoreError,
        token: &str,
        round: &mut MoverRound,
    ) {
        if matches!(why.kind, ErrorKind::Unreachable | ErrorKind::Transient) {
            self.unended.push(JobOutcome {
                next: Some(job.due),
                job,
                token: token.to_owned(),
            });
        }
        round.error.get_or_insert(why);
    }

    pub(super) async fn end_the_rest(&mut self) -> Result<(), StoreError> {
        let rest = std::mem::take(&mut self.unended);
        self.end_all(rest).await
    }

    /// Ends claims, and keeps those that cannot be ended for the next round. Otherwise their jobs
    /// would be sent again when the claims expire. Returns an error if this process may not end
    /// claims.
    async fn end_all(&mut self, endings: Vec<JobOutcome>) -> Result<(), StoreError> {
        let mut denied = Ok(());
        if endings.is_empty() {
            return denied;
        }
        let answers = self.store.end(&endings).await;
        for (ending, answer) in endings.into_iter().zip(answers) {
            let Err(why) = answer else { continue };
            if why.kind != ErrorKind::AccessDenied && self.said.should_log(clock::now()) {
                let job = &ending.job.id;
                if is_given_back(&ending) {
                    tracing::warn!(job, error = %why, "scheduled message not released");
                } else {
                    tracing::warn!(job, error = %why, "scheduled message sent but not removed from its store");
                }
            }
            if why.kind != ErrorKind::NotFound {
                self.unended.push(ending);
            }
            if why.kind == ErrorKind::AccessDenied {
                denied = Err(why);
            }
        }
        denied
    }
}

/// Returns whether no message of the job was sent.
pub(super) fn is_given_back(ending: &JobOutcome) -> bool {
    ending.next == Some(ending.job.due)
}
