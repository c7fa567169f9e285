//! Queues that hold messages and that nobody is known to receive from: asked when somebody looks, where
//! a backend lists its queues for nothing, and kept for some time.

use super::super::build::schedule::Schedules;
use crate::admin::operations::{UnreadLook, UnreadQueue};
use crate::name::QueueName;
use dispatcher_core::backend::Backend;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// For how long what was found is shown.
const KEPT: Duration = Duration::from_secs(30);
/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// So many queues are asked how much they hold.
const MOST: usize = 1_000;
/// So many are shown, those that hold most.
const SHOWN: usize = 10;

/// What was found last.
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

    /// Those of the backends of this process's queues; `read` are these queues, and those that dead
    /// letters go to.
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
            if !(backend.is_embedded() || backend.lists_workers()) {
                continue;
            }
            if self.of_backend(backend, read, found).await.is_none() {
                let why = format!("the queues of {} could not be listed", backend.name());
                found.incomplete = Some(why);
            }
        }
    }

    /// Adds those of a backend; nothing where its queues or their receivers cannot be listed.
    async fn of_backend(
        &self,
        backend: &'static dyn Backend,
        read: &BTreeSet<QueueName>,
        found: &mut UnreadLook,
    ) -> Option<()> {
        let backends = self.schedules.backends();
        let mut names = backends.list(backend).await.ok()?;
        if backend.lists_workers() {
            let workers = backends.workers(backend).await.ok()?;
            let queues = workers.into_iter().flat_map(|worker| worker.queues);
            let elsewhere: BTreeSet<String> = queues.map(|(queue, _)| queue).collect();
            names.retain(|name| !elsewhere.contains(&name.name));
        }
        // Dead letters wait for a person.
        names.retain(|name| !read.contains(name) && backend.has_dead_letters(&name.name));
        found.incomplete = cut(&mut names).or(found.incomplete.take());
        let depths = backends.depths(&names).await;
        let waiting = names.into_iter().zip(depths).filter_map(|(name, depth)| {
            let waiting = depth.ok()?.waiting;
            (waiting > 0).then_some((name, waiting))
        });
        let mut waiting: Vec<(QueueName, u64)> = waiting.collect();
        waiting.sort_by_key(|(_, waiting)| std::cmp::Reverse(*waiting));
        let mut count = 0;
        for (name, waiting) in waiting {
            if count < SHOWN && !self.is_dead_letter_queue(&name).await {
                count += 1;
                found.queues.push(UnreadQueue {
                    queue: name.to_string(),
                    waiting,
                    knows_all_receivers: backend.lists_workers(),
                });
            }
        }
        Some(())
    }

    /// Whether a queue's redrive policy leads there.
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

/// Leaves as many queues as are asked how much they hold. Why that is not all of them.
fn cut(names: &mut Vec<QueueName>) -> Option<String> {
    let all = names.len();
    names.truncate(MOST);
    (all > MOST).then(|| format!("there are {all}, and {MOST} are asked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_some_queues_says_of_how_many() {
        let names = |count: usize| -> Vec<QueueName> {
            let names = (0..count).map(|number| format!("local:q{number}").parse());
            names.collect::<Result<_, _>>().expect("names")
        };
        let mut all = names(MOST);
        assert_eq!(cut(&mut all), None);
        let mut more = names(MOST + 1);
        let why = cut(&mut more).expect("not all");
        assert_eq!(more.len(), MOST);
        assert_eq!(why, "there are 1001, and 1000 are asked");
    }
}
