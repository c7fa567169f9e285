//! Finds queues with messages but without a known receiver. Runs when a client asks, only for
//! backends that list their queues for free, and caches the result for some time.

use super::super::build::schedule::Schedules;
use dispatcher_config::name::QueueName;
use dispatcher_core::backend::Backend;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_operate::operations::{UnreadLook, UnreadQueue};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long a result is cached.
const KEPT: Duration = Duration::from_secs(30);
/// The time limit of the whole search.
const PATIENCE: Duration = Duration::from_secs(3);
/// The maximum number of queues whose depth is requested.
const MOST: usize = 1_000;
/// The maximum number of queues shown: those with the most messages.
const SHOWN: usize = 10;

/// The last result.
pub(super) struct Unread {
    schedules: Arc<Schedules>,
    kept: Mutex<Option<(BootInstant, UnreadLook)>>,
}

impl Unread {
    pub(super) fn new(schedules: Arc<Schedules>) -> Self {
        Self {
            schedules,
            kept: Mutex::default(),
        }
    }

    /// Returns the queues without a receiver on the backends of this process's queues; `read` are
    /// these queues and their dead-letter queues.
    pub(super) async fn look(&self, read: impl FnOnce() -> BTreeSet<QueueName>) -> UnreadLook {
        let mut kept = self.kept.lock().await;
        let now = clock::now();
        if let Some((at, found)) = &*kept
            && now.since(*at) < KEPT
        {
            return found.clone();
        }
        let read = read();
        let mut found = UnreadLook::default();
        let is_late = tokio::select! {
            () = self.find(&read, &mut found) => false,
            () = clock::sleep_until(Some(now + PATIENCE)) => true,
        };
        if is_late {
            found.incomplete = Some(format!("it took longer than {} s", PATIENCE.as_secs()));
        }
        found
            .queues
            .sort_by_key(|one| std::cmp::Reverse(one.waiting));
        found.queues.truncate(SHOWN);
        *kept = Some((clock::now(), found.clone()));
        found
    }

    async fn find(&self, read: &BTreeSet<QueueName>, found: &mut UnreadLook) {
        let backends: BTreeSet<&'static dyn Backend> =
            read.iter().map(|name| name.backend).collect();
        for backend in backends {
            if !(backend.facts().is_embedded || backend.facts().lists_workers) {
                continue;
            }
            if self.of_backend(backend, read, found).await.is_none() {
                let why = format!("the queues of {} could not be listed", backend.name());
                found.incomplete = Some(why);
            }
        }
    }

    /// Adds the queues of a backend. Returns `None` if its queues or their receivers cannot be
    /// listed.
    async fn of_backend(
        &self,
        backend: &'static dyn Backend,
        read: &BTreeSet<QueueName>,
        found: &mut UnreadLook,
    ) -> Option<()> {
        let backends = self.schedules.backends();
        let mut names = backends.list(backend).await.ok()?;
        if backend.facts().lists_workers {
            let workers = backends.workers(backend).await.ok()?;
            let queues = workers.into_iter().flat_map(|worker| worker.queues);
            let elsewhere: BTreeSet<String> = queues.map(|(queue, _)| queue).collect();
            names.retain(|name| !elsewhere.contains(&name.name));
        }
        // Dead letters wait for an operator.
        names.retain(|name| !read.contains(name) && backend.has_dead_letters(&name.name));
        found.incomplete = cut(&mut names).or(found.incomplete.take());
        let depths = backends.depths(&names).await;
        let mut waiting: Vec<(QueueName, u64)> = names
            .into_iter()
            .zip(depths)
            .filter_map(|(name, depth)| {
                let waiting = depth.ok()?.waiting;
                (waiting > 0).then_some((name, waiting))
            })
            .collect();
        waiting.sort_by_key(|(_, waiting)| std::cmp::Reverse(*waiting));
        let mut count = 0;
        for (name, waiting) in waiting {
            if count < SHOWN && !self.is_dead_letter_queue(&name).await {
                count += 1;
                found.queues.push(UnreadQueue {
                    queue: name.to_string(),
                    waiting,
                    knows_all_receivers: backend.facts().lists_workers,
                });
            }
        }
        Some(())
    }

    /// Returns whether the redrive policy of any queue leads to this queue.
    async fn is_dead_letter_queue(&self, name: &QueueName) -> bool {
        let Ok(queue) = self.schedules.backends().open_existing(name).await else {
            return false;
        };
        queue
            .redrive_sources()
            .await
            .is_ok_and(|sources| !sources.is_empty())
    }
}

/// Limits the number of queues whose depth is requested. Returns a note if some are left out.
fn cut(names: &mut Vec<QueueName>) -> Option<String> {
    let all = names.len();
    names.truncate(MOST);
    (all > MOST).then(|| format!("there are {all}, and only {MOST} are asked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<QueueName> {
        let names = (0..count).map(|number| format!("local:q{number}").parse());
        names.collect::<Result<_, _>>().expect("names")
    }

    #[test]
    fn a_look_at_some_queues_says_of_how_many() {
        let mut all = names(MOST);
        assert_eq!(cut(&mut all), None);
        let mut more = names(MOST + 1);
        let why = cut(&mut more).expect("not all");
        assert_eq!(more.len(), MOST);
        assert_eq!(why, "there are 1001, and only 1000 are asked");
    }
}
