//! Moves unreadable jobs out of the schedule, so that each is reported once. Knows no queue.

use super::{Mover, MoverRound};
use crate::clock;
use crate::schedule::Unreadable;
use crate::telemetry::events;
use crate::telemetry::events::{Reason, ReasonKind, ScheduledDeadLetter};

/// The maximum number of jobs set aside per page; later rounds set aside the others.
const MOST: usize = 100;

impl Mover {
    /// Sets aside the unreadable jobs of a page.
    pub(super) async fn set_aside(&mut self, unreadable: &[Unreadable], round: &mut MoverRound) {
        for job in unreadable.iter().take(MOST) {
            let why = format!("content missing or unreadable: {}", job.why);
            let reason = Reason::new(ReasonKind::Unreadable, &why);
            match self
                .store
                .set_aside(job, reason.text(), clock::wall_clock_now())
                .await
            {
                Ok(true) => {
                    round.dead += 1;
                    events::scheduled_dead_lettered(
                        &self.counters,
                        &ScheduledDeadLetter {
                            queue: job.queue.as_deref(),
                            job: &job.id,
                            store: &self.store.place(),
                            reason: &reason,
                        },
                    );
                }
                Ok(false) => {}
                Err(error) => {
                    round.error.get_or_insert(error);
                    return;
                }
            }
        }
    }
}
