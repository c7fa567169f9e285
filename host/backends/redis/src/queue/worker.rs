//! This process as a worker: its name on the server, which expires after three seconds, and its
//! messages in flight. It also finds dead workers and releases their messages. Independent of
//! payloads.

use super::keys::{self, Keys};
use super::link::{Link, RedisConnections};
use super::notifier::Notifier;
use super::script;
use dispatcher_core::backend::WorkerInfo;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::message::{Loss, Receipt};
use dispatcher_core::process;
use dispatcher_core::queue::{ErrorKind, QueueError};
use dispatcher_core::tasks;
use dispatcher_core::tasks::{Group, Task};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The time for which a worker lives without a heartbeat.
const LIFE: Duration = Duration::from_secs(3);
/// The interval of heartbeats and of the search for dead workers, short enough to find them well
/// within a second.
const BEAT: Duration = Duration::from_millis(500);
/// The time after a search for dead workers in which no other worker needs to search.
const SWEPT: Duration = Duration::from_millis(450);

/// This process as a worker, once it receives.
pub struct RedisWorker {
    lines: RedisConnections,
    keys: Keys,
    label: String,
    state: Mutex<WorkerState>,
    joining: tokio::sync::Mutex<()>,
    beating: OnceLock<Task<()>>,
}

#[derive(Default)]
struct WorkerState {
    /// `None` before the first receive, and after the worker was lost.
    id: Option<Arc<str>>,
    /// The time before which no process gives it up.
    lives_until: BootInstant,
    /// The served queues, by the prefix of their keys.
    queues: HashMap<String, ServedQueue>,
}

#[derive(Default)]
struct ServedQueue {
    joined: bool,
    in_flight: HashSet<Receipt>,
    /// The notifiers of all that have opened the queue.
    notifiers: Vec<Weak<Notifier>>,
}

impl RedisWorker {
    /// Creates a worker that is not registered yet.
    pub(crate) fn new(lines: RedisConnections, keys: Keys) -> Arc<Self> {
        Arc::new(Self {
            lines,
            keys,
            label: process::label(),
            state: Mutex::default(),
            joining: tokio::sync::Mutex::default(),
            beating: OnceLock::new(),
        })
    }

    /// Adds a notifier that learns of lost messages of a queue.
    pub(crate) fn add_notifier(&self, base: &str, notifier: &Arc<Notifier>) {
        let mut state = self.lock();
        let served = state.queues.entry(base.to_owned()).or_default();
        served.notifiers.retain(|old| old.strong_count() > 0);
        served.notifiers.push(Arc::downgrade(notifier));
    }

    /// Returns the name under which messages of a queue may be received. A worker that was lost
    /// gets a new one. `base` is the prefix of the queue's keys.
    pub(crate) async fn join(
        self: &Arc<Self>,
        queue: &str,
        base: &str,
    ) -> Result<Arc<str>, QueueError> {
        if let Some(id) = self.joined(base) {
            return Ok(id);
        }
        let _one_at_a_time = self.joining.lock().await;
        if let Some(id) = self.joined(base) {
            return Ok(id);
        }
        let id = self.enrolled().await?;
        let urgent = &self.lines.urgent;
        // In this order, the processes that may have to clean up know every queue from which the
        // worker may receive. Either call refuses a worker that was given up, however late the call
        // comes.
        let mut enter = script::ENTER.key(self.keys.registry());
        let mut joined: bool = urgent.run(enter.arg(queue).arg(&*id)).await?;
        if joined {
            let of_queue = urgent.of(base);
            joined = of_queue.run(script::JOIN.key(base).arg(&*id)).await?;
        }
        if !joined {
            self.lose(&id);
        }
        let mut state = self.lock();
        if state.id.as_ref() != Some(&id) {
            return Err(QueueError {
                kind: ErrorKind::Transient,
                message: format!("Redis at {}: too slow to join", urgent.place()),
            });
        }
        let served = state.queues.entry(base.to_owned()).or_default();
        served.joined = true;
        drop(state);
        self.beating
            .get_or_init(|| tasks::spawn(beat(Arc::downgrade(self))));
        Ok(id)
    }

    fn joined(&self, base: &str) -> Option<Arc<str>> {
        let state = self.lock();
        let joined = state.queues.get(base).is_some_and(|served| served.joined);
        if joined { state.id.clone() } else { None }
    }

    async fn enrolled(&self) -> Result<Arc<str>, QueueError> {
        if let Some(id) = &self.lock().id {
            return Ok(id.clone());
        }
        let id: Arc<str> = uuid::Uuid::new_v4().simple().to_string().into();
        let sent = clock::now();
        let mut call = script::ENROL.key(self.keys.registry());
        call.arg(&*id).arg(&self.label).arg(LIFE.as_secs());
        self.lines.urgent.run::<()>(&call).await?;
        let mut state = self.lock();
        state.id = Some(id.clone());
        state.lives_until = sent + LIFE;
        Ok(id)
    }

    /// Records what was received under a name. Returns false if the name has been lost since: the
    /// messages then belong to no worker and will be released.
    pub(crate) fn took(
        &self,
        id: &Arc<str>,
        base: &str,
        receipts: impl Iterator<Item = Receipt>,
    ) -> bool {
        let mut state = self.lock();
        let ours = state.id.as_ref() == Some(id);
        if let (true, Some(served)) = (ours, state.queues.get_mut(base)) {
            served.in_flight.extend(receipts);
        }
        ours
    }

    /// Removes messages that are no longer in flight.
    pub(crate) fn ended<'a>(&self, base: &str, receipts: impl Iterator<Item = &'a Receipt>) {
        if let Some(served) = self.lock().queues.get_mut(base) {
            for receipt in receipts {
                served.in_flight.remove(receipt);
            }
        }
    }

    /// Handles the loss of a name: all messages in flight under it are lost.
    pub(crate) fn lose(&self, id: &Arc<str>) {
        let mut state = self.lock();
        if state.id.as_ref() != Some(id) {
            return;
        }
        state.id = None;
        let mut messages = 0;
        for served in state.queues.values_mut() {
            served.joined = false;
            messages += served.in_flight.len();
            let lost: Vec<Loss> = served.in_flight.drain().map(Loss::taken).collect();
            for notifier in served.notifiers.iter().filter_map(Weak::upgrade) {
                notifier.lose(lost.clone());
                notifier.notify();
            }
        }
        drop(state);
        tracing::warn!(
            worker = &**id,
            messages,
            "heartbeat to Redis missed: this worker's running messages are lost to it, and it rejoins"
        );
    }

    /// Sends one heartbeat and returns the dead workers with their queues.
    async fn beat(&self) -> Vec<(String, Vec<String>)> {
        let (id, lives_until) = {
            let state = self.lock();
            let Some(id) = state.id.clone() else {
                return Vec::new();
            };
            (id, state.lives_until)
        };
        let sent = clock::now();
        let mut call = script::BEAT.key(self.keys.registry());
        call.arg(&*id)
            .arg(&self.label)
            .arg(LIFE.as_secs())
            .arg(u64::try_from(SWEPT.as_millis()).unwrap_or_default());
        let answer = tokio::select! {
            answer = self.lines.urgent.run::<Vec<String>>(&call) => answer,
            // The server has not answered, so it may give this worker up from now on.
            () = clock::sleep_until(Some(lives_until)) => {
                self.lose(&id);
                return Vec::new();
            }
        };
        match answer {
            Ok(answer) if answer.first().is_some_and(|alive| alive == "1") => {
                self.live_on(&id, sent + LIFE);
                return dead(&answer[1..]);
            }
            Ok(answer) => {
                self.lose(&id);
                return dead(answer.get(1..).unwrap_or_default());
            }
            Err(_) if clock::now() >= lives_until => self.lose(&id),
            // The next heartbeat retries; receives report the error.
            Err(error) => tracing::debug!(%error, "heartbeat failed"),
        }
        Vec::new()
    }

    fn live_on(&self, id: &Arc<str>, until: BootInstant) {
        let mut state = self.lock();
        if state.id.as_ref() == Some(id) {
            state.lives_until = until;
        }
    }

    /// Releases the messages of dead workers and removes these workers. If this fails, the next
    /// search finds them again.
    async fn dead_letter(&self, dead: Vec<(String, Vec<String>)>) {
        for (worker, queues) in dead {
            if let Err(error) = self.dead_letter_one(&worker, &queues).await {
                tracing::debug!(worker, %error, "dead worker not cleaned up, retried later");
            }
        }
    }

    async fn dead_letter_one(&self, worker: &str, queues: &[String]) -> Result<(), QueueError> {
        for queue in queues {
            let base = self.keys.queue(queue);
            let link = self.lines.link.of(&base);
            let messages: u64 = link.run(script::RECLAIM.key(&base).arg(worker)).await?;
            if messages > 0 {
                tracing::warn!(
                    worker,
                    queue = format!("redis:{queue}"),
                    messages,
                    "a worker died; its messages are back in the queue"
                );
            }
        }
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.srem(self.keys.workers(), worker).ignore();
        pipe.del(self.keys.worker_queues(worker)).ignore();
        self.lines.link.pipe::<()>(&pipe).await
    }

    fn lock(&self) -> MutexGuard<'_, WorkerState> {
        // Every change is complete or not begun.
        self.state.lock()
    }
}

/// Sends heartbeats until the worker is dropped. Dead workers are cleaned up in the background: a
/// server that is slow to do this must not cost this worker its life.
async fn beat(worker: Weak<RedisWorker>) {
    let mut dead_letterings = Group::new();
    loop {
        let next = clock::now() + BEAT;
        let Some(living) = worker.upgrade() else {
            return;
        };
        let dead = living.beat().await;
        if dead_letterings.is_empty() && !dead.is_empty() {
            dead_letterings.spawn(async move { living.dead_letter(dead).await })
        } else {
            drop(living)
        }
        loop {
            tokio::select! {
                () = dead_letterings.next() => {}
                () = clock::sleep_until(Some(next)) => break,
            }
        }
    }
}

/// Reads dead workers and their queues: name, count, queues, and so on.
fn dead(words: &[String]) -> Vec<(String, Vec<String>)> {
    let mut words = words.iter();
    let mut dead = Vec::new();
    while let (Some(worker), Some(count)) = (words.next(), words.next()) {
        let count = count.parse().unwrap_or_default();
        dead.push((
            worker.clone(),
            words.by_ref().take(count).cloned().collect(),
        ));
    }
    dead
}

/// Returns all workers that are alive, sorted.
pub(super) async fn all(link: &Link, keys: &Keys) -> Result<Vec<WorkerInfo>, QueueError> {
    let mut pipe = redis::pipe();
    pipe.smembers(keys.workers());
    let (ids,): (Vec<String>,) = link.pipe(&pipe).await?;
    let mut known = Vec::new();
    for id in ids {
        let mut pipe = redis::pipe();
        pipe.get(keys.worker(&id)).smembers(keys.worker_queues(&id));
        let (label, mut queues): (Option<String>, Vec<String>) = link.pipe(&pipe).await?;
        let Some(label) = label else { continue };
        queues.sort();
        let mut counted = Vec::with_capacity(queues.len());
        for queue in queues {
            let base = keys.queue(&queue);
            let mut pipe = redis::pipe();
            pipe.scard(keys::in_process(&base, &id));
            let (count,): (u64,) = link.of(&base).pipe(&pipe).await?;
            counted.push((queue, count));
        }
        known.push(WorkerInfo {
            id,
            label,
            queues: counted,
        });
    }
    known.sort_by(|a, b| (&a.label, &a.id).cmp(&(&b.label, &b.id)));
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_workers_are_read_with_their_queues() {
        let words = ["a", "2", "q1", "q2", "b", "0", "c", "1", "q"].map(String::from);
        let read = dead(&words);
        let names: Vec<_> = read
            .iter()
            .map(|(worker, queues)| (&**worker, queues.len()))
            .collect();
        assert_eq!(names, [("a", 2), ("b", 0), ("c", 1)]);
        assert_eq!(read[2].1, ["q"]);
        assert_eq!(dead(&[]), []);
    }
}
