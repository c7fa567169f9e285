//! This process as a worker of the package: heartbeats, what it holds, what others take from it.

use super::super::link::RedisConnections;
use super::super::notifier::Notifier;
use super::super::script;
use super::wire;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::{Loss, Receipt};
use dispatcher_core::queue::Identity;
use dispatcher_core::tasks::Group;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a worker lives on without a sign of life, and how often it gives one; the package's.
pub(super) const LIFE: Duration = Duration::from_secs(3);
const BEAT: Duration = Duration::from_secs(1);

/// One queue's worker.
pub(super) struct Inner {
    /// What is known of the queue.
    pub identity: Identity,
    /// Before all keys and channels.
    pub prefix: String,
    /// The bare name.
    pub name: String,
    /// Where dead letters go.
    pub dead_letter_queue: Option<String>,
    /// The connections.
    pub lines: RedisConnections,
    /// Rings when there is work.
    pub notifier: Arc<Notifier>,
    /// Who it is, and what it holds.
    pub state: Mutex<WorqrState>,
}

/// What may change.
#[derive(Default)]
pub(super) struct WorqrState {
    /// None before the first receive, and after the worker has failed.
    pub id: Option<Arc<str>>,
    /// Until then nobody takes it for dead.
    pub lives_until: BootInstant,
    /// The processes that are ours.
    pub held: HashMap<String, WorqrProcess>,
    /// Processes that were asked for, and of which nothing is known yet.
    asked: HashSet<String>,
}

/// One of our processes.
pub(super) struct WorqrProcess {
    /// The digest of its task; `None` if that was not loaded.
    pub digest: Option<String>,
    /// When it is to go back unless it is kept.
    pub until: BootInstant,
}

/// Processes that are asked for, until this is dropped: what the server has of them then, and we
/// have not, is released.
pub(super) struct PendingReceive<'a> {
    inner: &'a Inner,
    ids: Vec<String>,
}

impl<'a> PendingReceive<'a> {
    /// Asked for from now on.
    pub(super) fn new(inner: &'a Inner, ids: Vec<String>) -> Self {
        inner.lock().asked.extend(ids.iter().cloned());
        Self { inner, ids }
    }

    /// Their ids.
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
    /// The state.
    pub(super) fn lock(&self) -> MutexGuard<'_, WorqrState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker is one no more; all that it holds is lost.
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

    /// One sign of life. Answers with the worker and what it has on the server and is to release.
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

    /// Notes what a beat that was sent then has told. Answers with what is to be released: what
    /// nobody here has heard of, and what nobody has kept.
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
        // What was finished meanwhile is nobody's loss.
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

    /// Gives processes back to the front. What fails is found again by the next beat.
    async fn give_back(&self, worker: &str, ids: Vec<String>) {
        let mut call = self.finish(worker);
        // In their old order: the first to be taken is the last to be put in front.
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

    /// The call that ends processes, without any yet.
    pub(super) fn finish(&self, worker: &str) -> redis::ScriptInvocation<'static> {
        let mut call = script::WORQR_FINISH.key(&self.prefix);
        call.arg(&self.name)
            .arg(worker)
            .arg(self.dead_letter_queue.as_deref().unwrap_or_default());
        call
    }
}

/// Beats, and listens for cancelled tasks, until the queue is dropped. `_ear` hangs as long. Tasks
/// are released beside that, so that the signs of life are in time.
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
