//! This process as a worker of the package: its heartbeats, what it holds, and what others take
//! from it.

use super::super::link::RedisConnections;
use super::super::notifier::Notifier;
use super::super::script;
use super::wire;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::{Loss, Receipt};
use dispatcher_core::queue::{Identity, QueueError};
use dispatcher_core::tasks::Group;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;

/// The time for which a worker lives without a heartbeat, and the interval of heartbeats, both as
/// in the package.
pub(super) const LIFE: Duration = Duration::from_secs(3);
const BEAT: Duration = Duration::from_secs(1);

/// The worker of one queue.
pub(super) struct Inner {
    /// The properties of the queue.
    pub identity: Identity,
    /// The prefix of all keys and channels.
    pub prefix: String,
    /// The bare name.
    pub name: String,
    /// The queue that takes dead letters.
    pub dead_letter_queue: Option<String>,
    /// The connections.
    pub lines: RedisConnections,
    /// The notifier that rings when there is work.
    pub notifier: Arc<Notifier>,
    /// The worker's name, and what it holds.
    pub state: Mutex<WorqrState>,
}

/// The state of a worker.
#[derive(Default)]
pub(super) struct WorqrState {
    /// `None` before the first receive, and after the worker has failed or left.
    pub id: Option<Arc<str>>,
    /// A worker that is being registered. The server may know it even if the call failed.
    pub begun: Option<Arc<str>>,
    /// The number of times that the queue was left. A receive that waits since before a leave ends
    /// then.
    pub leaves: u64,
    /// The time before which no process takes it for dead.
    pub lives_until: BootInstant,
    /// The processes of this worker.
    pub held: HashMap<String, WorqrProcess>,
    /// The processes that were requested and whose state is not known yet.
    asked: HashSet<String>,
}

/// A process of this worker.
pub(super) struct WorqrProcess {
    /// The digest of its task; `None` if that was not loaded.
    pub digest: Option<String>,
    /// The time at which it goes back to the queue unless it is extended.
    pub until: BootInstant,
}

/// Processes that are requested, until this is dropped. A process that the server then has for this
/// worker, but that the worker does not hold, is released.
pub(super) struct PendingReceive<'a> {
    inner: &'a Inner,
    ids: Vec<String>,
}

impl<'a> PendingReceive<'a> {
    /// Records these processes as requested from now on.
    pub(super) fn new(inner: &'a Inner, ids: Vec<String>) -> Self {
        inner.lock().asked.extend(ids.iter().cloned());
        Self { inner, ids }
    }

    /// Returns their ids.
    pub(super) fn ids(&self) -> &[String] {
        &self.ids
    }
}

impl Drop for PendingReceive<'_> {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        for id in &self.ids {
            state.asked.remove(id);
        }
    }
}

impl Inner {
    /// Locks the state.
    pub(super) fn lock(&self) -> MutexGuard<'_, WorqrState> {
        self.state.lock()
    }

    /// Begins to leave: the worker ends here, and all that it holds is lost. Returns the workers
    /// that the server may know. With `only_idle`, does nothing and returns none if the worker is
    /// not idle.
    pub(super) fn retire(&self, only_idle: bool) -> Vec<Arc<str>> {
        let mut state = self.lock();
        let is_idle = state.held.is_empty() && state.asked.is_empty();
        if only_idle && !is_idle {
            return Vec::new();
        }
        if !only_idle {
            state.leaves += 1;
        }
        let workers = [state.id.take(), state.begun.take()];
        let held = state.held.drain();
        let lost: Vec<Loss> = held.map(|(id, _)| Loss::taken(Receipt(id))).collect();
        drop(state);
        self.notifier.lose(lost);
        self.notifier.notify();
        workers.into_iter().flatten().collect()
    }

    /// Ends a worker on the server. Safe to repeat.
    pub(super) async fn end(&self, worker: &str) -> Result<(), QueueError> {
        let mut call = script::WORQR_LEAVE.key(&self.prefix);
        call.arg(worker).arg(&self.name);
        let tasks: u64 = self.lines.urgent.run(&call).await?;
        let queue = &self.identity.name;
        tracing::info!(queue, worker, tasks, "worqr queue left");
        Ok(())
    }

    /// Handles the failure of a worker: all that it holds is lost.
    pub(super) fn fail(&self, worker: &Arc<str>) {
        let mut state = self.lock();
        if state.id.as_ref() != Some(worker) {
            return;
        }
        state.id = None;
        let held = state.held.drain();
        let lost: Vec<Loss> = held.map(|(id, _)| Loss::taken(Receipt(id))).collect();
        drop(state);
        tracing::warn!(
            worker = &**worker,
            queue = self.identity.name,
            tasks = lost.len(),
            "heartbeat to Redis missed: this worker's running messages are lost to it, and it rejoins"
        );
        self.notifier.lose(lost);
        self.notifier.notify();
    }

    /// Sends one heartbeat. Returns the worker and those of its processes on the server that it
    /// must release.
    async fn beat(&self) -> Option<(Arc<str>, Vec<String>)> {
        let (worker, lives_until) = {
            let state = self.lock();
            (state.id.clone()?, state.lives_until)
        };
        let sent = clock::now();
        let mut call = script::WORQR_BEAT.key(&self.prefix);
        call.arg(&*worker);
        let answer = tokio::select! {
            answer = self.lines.urgent.run::<Vec<String>>(&call) => answer,
            () = clock::sleep_until(Some(lives_until)) => {
                self.fail(&worker);
                return None;
            }
        };
        match answer.as_deref().map(wire::beat) {
            Ok(Some(beat)) if beat.alive => {
                let back = self.apply_heartbeat(&worker, sent, beat);
                return Some((worker, back));
            }
            Ok(_) => self.fail(&worker),
            Err(_) if clock::now() >= lives_until => self.fail(&worker),
            Err(error) => tracing::debug!(%error, "heartbeat failed"),
        }
        None
    }

    /// Applies the answer to a heartbeat that was sent at `sent`. Returns the processes to release:
    /// those that are unknown here, and those that were not extended.
    fn apply_heartbeat(
        &self,
        worker: &Arc<str>,
        sent: BootInstant,
        beat: wire::Heartbeat<'_>,
    ) -> Vec<String> {
        let mut state = self.lock();
        if state.id.as_ref() != Some(worker) {
            return Vec::new();
        }
        state.lives_until = sent + LIFE;
        let now = clock::now();
        // A process that was finished meanwhile is not a loss.
        let gone = beat
            .gone
            .iter()
            .filter(|id| state.held.remove(*id).is_some());
        let mut lost: Vec<Loss> = gone.cloned().map(Receipt).map(Loss::taken).collect();
        state.held.retain(|id, held| {
            let kept = held.until > now;
            if !kept {
                lost.push(Loss::taken(Receipt(id.clone())));
            }
            kept
        });
        let strangers = beat
            .there
            .iter()
            .filter(|id| !state.held.contains_key(*id) && !state.asked.contains(*id));
        let back = strangers.cloned().collect();
        drop(state);
        self.notifier.lose(lost);
        back
    }

    /// Returns processes to the front of the queue. If this fails, the next heartbeat finds them
    /// again.
    async fn give_back(&self, worker: &str, ids: Vec<String>) {
        let mut call = self.finish(worker);
        // This keeps their old order: the first to be taken is the last to be put in front.
        let mut ids = ids;
        ids.sort_unstable_by(|a, b| b.cmp(a));
        for id in &ids {
            call.arg(id).arg("r").arg(0).arg("");
        }
        match self.lines.urgent.run::<Vec<i64>>(&call).await {
            Ok(_) => self.notifier.notify(),
            Err(error) => tracing::debug!(%error, "tasks are released later"),
        }
    }

    /// Ends the processes of a cancelled task.
    async fn cancel(&self, task: &str) {
        let digest = wire::md5(task);
        let (worker, ids) = {
            let state = self.lock();
            let Some(worker) = state.id.clone() else {
                return;
            };
            let held = state.held.iter();
            let ours = held.filter(|(_, held)| held.digest.as_ref() == Some(&digest));
            (worker, ours.map(|(id, _)| id.clone()).collect::<Vec<_>>())
        };
        if ids.is_empty() {
            return;
        }
        let cancelled = ids.iter().cloned().map(Receipt).map(Loss::cancelled);
        self.notifier.lose(cancelled.collect());
        let mut call = self.finish(&worker);
        for id in &ids {
            call.arg(id).arg("d").arg(0).arg(&digest);
        }
        match self.lines.urgent.run::<Vec<i64>>(&call).await {
            Ok(_) => ids.iter().for_each(|id| drop(self.lock().held.remove(id))),
            Err(error) => tracing::warn!(%error, "a cancelled task still exists"),
        }
    }

    /// Returns the call that ends processes, without any yet.
    pub(super) fn finish(&self, worker: &str) -> redis::ScriptInvocation<'static> {
        let mut call = script::WORQR_FINISH.key(&self.prefix);
        call.arg(&self.name)
            .arg(worker)
            .arg(self.dead_letter_queue.as_deref().unwrap_or_default());
        call
    }
}

/// Sends heartbeats and listens for cancelled tasks until the queue is dropped; `_ear` is held as
/// long. Tasks are released in the background, so that heartbeats are in time.
pub(super) async fn live(
    inner: Weak<Inner>,
    _ear: Arc<Notifier>,
    mut cancelled: mpsc::UnboundedReceiver<Vec<Loss>>,
) {
    let mut next = clock::now();
    let mut returns = Group::new();
    loop {
        tokio::select! {
            () = returns.next() => {}
            () = clock::sleep_until(Some(next)) => {
                next = clock::now() + BEAT;
                let Some(inner) = inner.upgrade() else { return };
                if let Some((worker, back)) = inner.beat().await
                    && returns.is_empty()
                    && !back.is_empty()
                {
                    returns.spawn(async move { inner.give_back(&worker, back).await });
                }
            }
            Some(tasks) = cancelled.recv() => {
                let Some(inner) = inner.upgrade() else { return };
                for task in tasks {
                    inner.cancel(&task.receipt.0).await;
                }
            }
        }
    }
}
