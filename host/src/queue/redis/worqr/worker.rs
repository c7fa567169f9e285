//! This process as a worker of the package: signs of life, what it holds, what others take from it.

use super::super::bell::Bell;
use super::super::link::Lines;
use super::super::script;
use super::wire;
use crate::clock::{self, Moment};
use crate::message::Receipt;
use crate::queue::Identity;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a worker lives on without a sign of life, and how often it gives one; the package's.
pub const LIFE: Duration = Duration::from_secs(3);
const BEAT: Duration = Duration::from_secs(1);

/// One queue's worker.
pub struct Inner {
    /// What is known of the queue.
    pub identity: Identity,
    /// Before all keys and channels.
    pub prefix: String,
    /// The bare name.
    pub name: String,
    /// Where dead letters go.
    pub grave: Option<String>,
    /// The connections.
    pub lines: Lines,
    /// Rings when there is work.
    pub bell: Arc<Bell>,
    /// Who it is, and what it holds.
    pub state: Mutex<State>,
}

/// What may change.
#[derive(Default)]
pub struct State {
    /// None before the first receive, and after the worker has failed.
    pub id: Option<Arc<str>>,
    /// Until then nobody takes it for dead.
    pub lives_until: Moment,
    /// The task of each process that is ours.
    pub held: HashMap<String, String>,
}

impl Inner {
    /// The state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker is one no more; all that it holds is lost.
    pub fn fail(&self, worker: &Arc<str>) {
        let mut state = self.lock();
        if state.id.as_ref() != Some(worker) {
            return;
        }
        state.id = None;
        let lost: Vec<Receipt> = state.held.drain().map(|(id, _)| Receipt(id)).collect();
        drop(state);
        tracing::warn!(
            worker = &**worker,
            queue = self.identity.name,
            tasks = lost.len(),
            "Redis has not heard of this worker in time: what it was handling is lost to it, and it begins anew"
        );
        self.bell.lose(lost);
        self.bell.ring();
    }

    async fn beat(&self) {
        let (worker, lives_until) = {
            let state = self.lock();
            let Some(id) = state.id.clone() else { return };
            (id, state.lives_until)
        };
        let sent = clock::now();
        let mut call = script::WORQR_BEAT.key(&self.prefix);
        call.arg(&*worker);
        let answer = tokio::select! {
            answer = self.lines.urgent.run::<Vec<String>>(&call) => answer,
            () = clock::sleep_until(Some(lives_until)) => return self.fail(&worker),
        };
        match answer.as_deref() {
            Ok([alive, taken_away @ ..]) if alive == "1" => {
                let mut state = self.lock();
                if state.id.as_ref() == Some(&worker) {
                    state.lives_until = sent + LIFE;
                }
                // What was finished meanwhile is nobody's loss.
                let lost = taken_away
                    .iter()
                    .filter(|id| state.held.remove(*id).is_some());
                let lost: Vec<Receipt> = lost.cloned().map(Receipt).collect();
                drop(state);
                self.bell.lose(lost);
            }
            Ok(_) => self.fail(&worker),
            Err(_) if clock::now() >= lives_until => self.fail(&worker),
            Err(error) => tracing::debug!("no sign of life was given: {error}"),
        }
    }

    /// Ends the processes of a cancelled task.
    async fn cancel(&self, task: &str) {
        let (worker, ids) = {
            let state = self.lock();
            let Some(worker) = state.id.clone() else {
                return;
            };
            let ours = state.held.iter().filter(|(_, held)| *held == task);
            (worker, ours.map(|(id, _)| id.clone()).collect::<Vec<_>>())
        };
        if ids.is_empty() {
            return;
        }
        self.bell.lose(ids.iter().cloned().map(Receipt).collect());
        let mut call = self.finish(&worker);
        for id in &ids {
            call.arg(id).arg("d").arg(0).arg(wire::md5(task));
        }
        match self.lines.urgent.run::<Vec<i64>>(&call).await {
            Ok(_) => ids.iter().for_each(|id| drop(self.lock().held.remove(id))),
            Err(error) => tracing::warn!("a cancelled task is still there: {error}"),
        }
    }

    /// The call that ends processes, without any yet.
    pub fn finish(&self, worker: &str) -> redis::ScriptInvocation<'static> {
        let mut call = script::WORQR_FINISH.key(&self.prefix);
        call.arg(&self.name)
            .arg(worker)
            .arg(self.grave.as_deref().unwrap_or_default());
        call
    }
}

/// Beats, and listens for cancelled tasks, until the queue is dropped. `_ear` hangs as long.
pub async fn live(
    inner: Weak<Inner>,
    _ear: Arc<Bell>,
    mut cancelled: mpsc::UnboundedReceiver<Vec<Receipt>>,
) {
    let mut next = clock::now();
    loop {
        tokio::select! {
            () = clock::sleep_until(Some(next)) => {
                next = clock::now() + BEAT;
                let Some(inner) = inner.upgrade() else { return };
                inner.beat().await;
            }
            Some(tasks) = cancelled.recv() => {
                let Some(inner) = inner.upgrade() else { return };
                for task in tasks {
                    inner.cancel(&task.0).await;
                }
            }
        }
    }
}
