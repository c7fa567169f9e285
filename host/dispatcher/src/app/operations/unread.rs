//! Queues that hold messages and that nobody is known to receive from: asked when somebody looks, where
//! a backend lists its queues for nothing, and kept for some time.

use super::super::build::schedule::Schedules;
use crate::admin::operations::UnreadQueue;
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
    kept: Mutex<Option<(BootInstant, Vec<UnreadQueue>)>>,
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
    pub(super) async fn look(
        &self,
        read: impl FnOnce() -> BTreeSet<QueueName>,
    ) -> Vec<UnreadQueue> {
        let mut kept = self.kept.lock().await;
        let now = clock::now();
        if let Some((at, found)) = &*kept
            && now.since(*at) < KEPT
        {
            return found.clone();
        }
        let read = read();
        let found = tokio::select! {
            found = self.find(&read) => found,
            () = clock::sleep_until(Some(now + PATIENCE)) => Vec::new(),
        };
        *kept = Some((clock::now(), found.clone()));
        found
    }

    async fn find(&self, read: &BTreeSet<QueueName>) -> Vec<UnreadQueue> {
        let backends: BTreeSet<&'static dyn Backend> =
            read.iter().map(|name| name.backend).collect();
        let mut found = Vec::new();
        for backend in backends {
            if backend.is_embedded() || backend.lists_workers() {
                found.extend(self.of_backend(backend, read).await);
            }
        }
        found.sort_by_key(|one| std::cmp::Reverse(one.waiting));
        found.truncate(SHOWN);
        found
    }

    async fn of_backend(
        &self,
        backend: &'static dyn Backend,
        read: &BTreeSet<QueueName>,
    ) -> Vec<UnreadQueue> {
        let backends = self.schedules.backends();
        // What cannot be asked is no reason for a warning here.
        let Ok(mut names) = backends.list(backend).await else {
            return Vec::new();
        };
        if backend.lists_workers() {
            let Ok(workers) = backends.workers(backend).await else {
                return Vec::new();
            };
            let queues = workers.into_iter().flat_map(|worker| worker.queues);
            let elsewhere: BTreeSet<String> = queues.map(|(queue, _)| queue).collect();
            names.retain(|name| !elsewhere.contains(&name.name));
        }
        // Dead letters wait for a person.
        names.retain(|name| !read.contains(name) && backend.has_dead_letters(&name.name));
        names.truncate(MOST);
        let depths = backends.depths(&names).await;
        let waiting = names.into_iter().zip(depths).filter_map(|(name, depth)| {
            let waiting = depth.ok()?.waiting;
            (waiting > 0).then_some((name, waiting))
        });
        let mut waiting: Vec<(QueueName, u64)> = waiting.collect();
        waiting.sort_by_key(|(_, waiting)| std::cmp::Reverse(*waiting));
        let mut found = Vec::new();
        for (name, waiting) in waiting {
            if found.len() < SHOWN && !self.is_dead_letter_queue(&name).await {
                found.push(UnreadQueue {
                    queue: name.to_string(),
                    waiting,
                });
            }
        }
        found
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
