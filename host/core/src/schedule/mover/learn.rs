//! The knowledge of a round about its queues: their limits, requested once a round with a timeout
//! so that a silent queue delays no other, and the groups that are blocked by an unsent job. Knows
//! no store.

use super::Mover;
use crate::clock;
use crate::schedule::ScheduledJob;
use crate::schedule::decide::SendLimits;
use crate::tasks::Group;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// The time for which a round waits for the limits of its queues. The call to a slower queue
/// continues, and its jobs are sent in a later round.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// The limits and blocked groups of a round's queues, by queue name.
#[derive(Debug, Default)]
pub(super) struct KnownQueues {
    /// The limits of each queue; `None` if it did not answer.
    reaches: HashMap<String, Option<SendLimits>>,
    /// Queues and groups with a job that was left and may be sent later.
    stopped: HashSet<(String, String)>,
}

impl KnownQueues {
    /// Returns the limits of the queue of this job, if they are known.
    pub(super) fn reach_of(&self, job: &ScheduledJob) -> Option<SendLimits> {
        self.reaches.get(&job.queue).copied().flatten()
    }

    /// Leaves this job, and those behind it in its group, for a later round.
    pub(super) fn stop(&mut self, job: &ScheduledJob) {
        if let Some(group) = &job.message.group {
            self.stopped.insert((job.queue.clone(), group.clone()));
        }
    }

    /// Whether this job is behind one that was left, and its queue keeps the order of the group.
    pub(super) fn is_stopped(&self, job: &ScheduledJob) -> bool {
        let ordered = self.reach_of(job).is_some_and(|reach| reach.ordered);
        let group = if ordered {
            job.message.group.as_ref()
        } else {
            None
        };
        group.is_some_and(|group| self.stopped.contains(&(job.queue.clone(), group.clone())))
    }
}

/// A queue, the id of a job for it, and its limits.
type LearnedQueue = (String, String, Result<SendLimits, String>);

/// The queues whose limits were requested and that have not answered yet.
#[derive(Default)]
pub(super) struct PendingQueues {
    calls: Group<LearnedQueue>,
    queues: HashSet<String>,
}

impl Mover {
    /// Requests the limits of the queues of these jobs that were not requested yet.
    pub(super) async fn learn(&mut self, jobs: &[ScheduledJob], known: &mut KnownQueues) {
        let mut wanted = HashSet::new();
        for job in jobs {
            if known.reaches.contains_key(&job.queue) {
                continue;
            }
            known.reaches.insert(job.queue.clone(), None);
            // A queue that has not answered an earlier round is not waited for again.
            if self.asked.queues.insert(job.queue.clone()) {
                wanted.insert(job.queue.clone());
                let (outlet, queue, id) = (self.outlet.clone(), job.queue.clone(), job.id.clone());
                self.asked.calls.spawn(async move {
                    let reach = outlet.reach(&queue).await;
                    (queue, id, reach)
                });
            }
        }
        let until = clock::now() + ANSWER_WITHIN;
        loop {
            let enough = async {
                if !wanted.is_empty() {
                    clock::sleep_until(Some(until)).await;
                }
            };
            let (queue, id, reach) = tokio::select! {
                biased;
                answer = self.asked.calls.next() => answer,
                () = enough => break,
            };
            self.asked.queues.remove(&queue);
            wanted.remove(&queue);
            let reach = reach.map_err(|why| self.refused(&queue, &id, &why));
            known.reaches.insert(queue, reach.ok());
        }
        if let Some(queue) = wanted.iter().next() {
            let job = jobs.iter().find(|job| job.queue == *queue);
            let id = job.map_or("", |job| job.id.as_str());
            self.refused(queue, id, "its queue does not answer");
        }
    }
}
