//! What a round knows of its queues: their limits, requested once a round with a timeout, so that a
//! silent queue delays no other; and which groups are blocked by an unsent first job. Knows no
//! store.

use super::Mover;
use crate::clock;
use crate::schedule::ScheduledJob;
use crate::schedule::decide::SendLimits;
use crate::tasks::Group;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How long a round waits for its queues to say what they take. One that is slower is asked on, and
/// its jobs are sent in a later round.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// What a round knows of its queues, by their names.
#[derive(Debug, Default)]
pub(super) struct KnownQueues {
    /// What each takes; none if it did not say.
    reaches: HashMap<String, Option<SendLimits>>,
    /// Queues and their groups of which something was left that may be sent later.
    stopped: HashSet<(String, String)>,
}

impl KnownQueues {
    /// What the queue of this job takes, if it is known.
    pub(super) fn reach_of(&self, job: &ScheduledJob) -> Option<SendLimits> {
        self.reaches.get(&job.queue).copied().flatten()
    }

    /// This job is left for a later round, and so what is behind it in its group.
    pub(super) fn stop(&mut self, job: &ScheduledJob) {
        if let Some(group) = &job.message.group {
            self.stopped.insert((job.queue.clone(), group.clone()));
        }
    }

    /// Whether this job is behind one that was left, and its queue keeps their order.
    pub(super) fn is_stopped(&self, job: &ScheduledJob) -> bool {
        let ordered = self.reach_of(job).is_some_and(|reach| reach.ordered);
        let group = job.message.group.as_ref().filter(|_| ordered);
        group.is_some_and(|group| self.stopped.contains(&(job.queue.clone(), group.clone())))
    }
}

/// A queue, a job for it, and what it takes.
type LearnedQueue = (String, String, Result<SendLimits, String>);

/// Queues that were asked what they take, and have not answered yet.
#[derive(Default)]
pub(super) struct PendingQueues {
    calls: Group<LearnedQueue>,
    queues: HashSet<String>,
}

impl Mover {
    /// Asks the queues of these jobs what they take, those that were not asked yet.
    pub(super) async fn learn(&mut self, jobs: &[ScheduledJob], known: &mut KnownQueues) {
        let mut wanted = HashSet::new();
        for job in jobs {
            if known.reaches.contains_key(&job.queue) {
                continue;
            }
            known.reaches.insert(job.queue.clone(), None);
            // One that has not answered an earlier round is not waited for again.
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
