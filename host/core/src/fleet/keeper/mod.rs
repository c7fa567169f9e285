//! Keeps what a process has in hand up to date with the store, and revokes permits that end. Makes
//! the calls that the hand plans.

use super::control::LiveLimit;
use super::exchange::exchange;
use super::figures::LimitFigures;
use super::hand::{Hand, Needs};
use super::ledger::{Grant, Request};
use super::limit::{Limit, LimitNumbers, NO_KEY};
use super::summary::LimitSummary;
use super::{FleetStore, WhenAway};
use crate::backoff;
use crate::clock;
use crate::clock::BootInstant;
use crate::error_kind::{CallError, ErrorKind};
use crate::message::Message;
use crate::tasks;
use crate::tasks::Task;
use crate::telemetry::log_throttle::LogThrottle;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// The most time for a request, with all its tries.
const PATIENCE: Duration = Duration::from_secs(3);
/// The wait after a failed request; it doubles with each, up to the longest.
const WAITS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
/// The interval at which permits that end are looked for while messages run.
const LOOK: Duration = Duration::from_millis(500);
/// The least time between two rounds of messages that tokens let start.
const TOKENS_APART: Duration = Duration::from_millis(2);
/// The keys of a limit in a summary.
const MOST_SUMMARY_KEYS: usize = 5;
/// The maximum number of messages of one queue that wait for limits, if nothing else is set.
const MOST_WAITING: usize = 1000;
/// The maximum time that a message waits for limits, if nothing else is set.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The limits of a process, shared by its routes.
#[derive(Debug)]
pub struct Fleet {
    /// The limits as configured.
    limits: Vec<Limit>,
    /// Whether a message without a key was logged, by limit.
    keyless_logged: Vec<AtomicBool>,
    state: Mutex<FleetState>,
    /// Notified when the keeper may have something to ask.
    wanted: Notify,
    /// Changes when messages that wait may start.
    granted: watch::Sender<u64>,
    /// The maximum number of messages of one queue that wait in this process.
    most_waiting: usize,
    /// The maximum time that a message waits in this process.
    longest_wait: Duration,
}

#[derive(Debug)]
struct FleetState {
    hand: Hand,
    /// The running messages by their numbers, so that they are stopped in the same order in each
    /// simulation.
    running: BTreeMap<u64, (Needs, CancellationToken)>,
    numbered: u64,
    /// When messages that wait were last told of tokens.
    told: BootInstant,
}

impl FleetState {
    /// Returns when messages that wait are told of tokens which become usable.
    fn tokens_at(&self) -> Option<BootInstant> {
        let next = self.hand.next_tokens(self.told);
        next.map(|at| at.max(self.told + TOKENS_APART))
    }
}

/// The permits of one message that may run. Dropping it gives them back.
#[derive(Debug)]
pub struct FleetPermit {
    fleet: Arc<Fleet>,
    number: u64,
    revoked: CancellationToken,
}

/// The limits of one route.
#[derive(Debug, Clone)]
pub struct RouteLimits {
    /// The limits of the process.
    pub fleet: Arc<Fleet>,
    /// The indexes of the limits that the route's messages need.
    pub limits: Vec<usize>,
}

impl RouteLimits {
    /// Returns what a message of a queue takes of the limits. `opened` is the message with its
    /// envelope opened.
    #[must_use]
    pub fn needs(&self, opened: &Message, queue: &str) -> Needs {
        let needs = self.limits.iter().map(|&limit| {
            let group = opened.group.as_deref();
            let need = self.fleet.limits[limit].need(limit, opened, group);
            if need.key.as_deref() == Some(NO_KEY)
                && !self.fleet.keyless_logged[limit].swap(true, Relaxed)
            {
                let limit = &self.fleet.limits[limit].name;
                tracing::warn!(limit, queue, message_id = %opened.id, "message without a key for a limit, counted under (none); logged once");
            }
            need
        });
        needs.collect()
    }
}

impl FleetPermit {
    /// Returns once the permits end: the message must not run any longer.
    pub async fn revoked(&self) {
        self.revoked.cancelled().await;
    }
}

impl Drop for FleetPermit {
    fn drop(&mut self) {
        let mut state = self.fleet.state.lock();
        let mut others_wait = false;
        if let Some((needs, _)) = state.running.remove(&self.number) {
            others_wait = state.hand.ended(&needs, clock::now());
        }
        drop(state);
        if others_wait {
            self.fleet.wanted.notify_one();
            self.fleet.changed();
        }
    }
}

impl Fleet {
    /// Creates the fleet of a process that has no permits yet.
    #[must_use]
    pub fn new(process: String, limits: Vec<Limit>, when_away: WhenAway) -> Self {
        Self {
            state: Mutex::new(FleetState {
                hand: Hand::new(process, limits.clone(), when_away),
                running: BTreeMap::new(),
                numbered: 0,
                told: BootInstant::default(),
            }),
            keyless_logged: limits.iter().map(|_| AtomicBool::default()).collect(),
            limits,
            wanted: Notify::new(),
            granted: watch::Sender::new(0),
            most_waiting: MOST_WAITING,
            longest_wait: LONGEST_WAIT,
        }
    }

    /// Sets how many messages of one queue wait for limits, and for how long, at most. Others go
    /// back to their queue for a while.
    #[must_use]
    pub fn with_waits(self, most_waiting: usize, longest_wait: Duration) -> Self {
        Self {
            most_waiting,
            longest_wait,
            ..self
        }
    }

    /// Returns the maximum number of messages of one queue that wait.
    pub(crate) fn most_waiting(&self) -> usize {
        self.most_waiting
    }

    /// Returns the maximum time that a message waits.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.longest_wait
    }

    /// Returns the permits of a message if they are in hand.
    pub fn start(self: &Arc<Self>, needs: &Needs, now: BootInstant) -> Option<FleetPermit> {
        let mut state = self.state.lock();
        if !state.hand.start(needs, now) {
            return None;
        }
        state.numbered += 1;
        let number = state.numbered;
        let revoked = CancellationToken::new();
        let running = (needs.clone(), revoked.clone());
        state.running.insert(number, running);
        Some(FleetPermit {
            fleet: self.clone(),
            number,
            revoked,
        })
    }

    /// Returns the limits as configured.
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Applies live numbers, as a control record has them. A limit or a key that is missing is as
    /// configured. Other processes must do the same.
    pub fn set_live(&self, live: &BTreeMap<String, LiveLimit>) {
        let limits = self.limits.iter().map(|limit| limit.with_live(live));
        self.state.lock().hand.set_limits(limits.collect());
        self.wanted.notify_one();
        self.changed();
    }

    /// Returns how many messages with these limits may run and start together, with any keys: the
    /// least of the limits without keys.
    #[must_use]
    pub fn common(&self, limits: &[usize]) -> LimitNumbers {
        self.state.lock().hand.common(limits)
    }

    /// Returns what other processes learn of each limit.
    #[must_use]
    pub fn summaries(&self) -> Vec<LimitSummary> {
        let figures = self.figures(MOST_SUMMARY_KEYS);
        figures.into_iter().map(LimitSummary::from).collect()
    }

    /// Whether a message lacks a permit or a token of a limit without keys.
    #[must_use]
    pub fn lacks_common(&self, needs: &Needs, now: BootInstant) -> bool {
        self.state.lock().hand.lacks_common(needs, now)
    }

    /// Returns the state of each limit in this process, with at most `most` keys each.
    #[must_use]
    pub fn figures(&self, most: usize) -> Vec<LimitFigures> {
        self.state.lock().hand.figures(most, clock::now())
    }

    /// Records that a message waits, which `start` refused.
    pub fn wait(&self, needs: &Needs, now: BootInstant) {
        self.state.lock().hand.wait(needs, now);
        self.wanted.notify_one();
    }

    /// Records that a message waits no more: it starts, or has left.
    pub fn wait_no_more(&self, needs: &Needs) {
        self.state.lock().hand.wait_no_more(needs);
    }

    /// Returns what changes when messages that wait may start.
    #[must_use]
    pub fn grants(&self) -> watch::Receiver<u64> {
        self.granted.subscribe()
    }

    fn changed(&self) {
        self.granted.send_modify(|number| *number += 1);
    }

    /// Revokes the permits that end before they are renewed.
    fn revoke(&self, now: BootInstant) {
        let state = self.state.lock();
        for (needs, revoked) in state.running.values() {
            if state.hand.must_stop(needs, now) {
                revoked.cancel();
            }
        }
    }

    /// Lets messages that wait start with a share of the limits, if the store is away.
    fn share_out(&self) {
        let state = self.state.lock();
        let shares_out = state.hand.shares_out() && state.hand.has_waiting();
        drop(state);
        if shares_out {
            self.changed();
        }
    }

    /// Takes the answer to a request.
    pub(crate) fn answered(&self, grant: &Grant, now: BootInstant) {
        if self.state.lock().hand.answered(grant, now) {
            self.changed();
        }
    }

    /// Returns when `keep` must look again, and the request to make now.
    pub(crate) fn next(&self, now: BootInstant) -> (Option<BootInstant>, Option<Request>) {
        let mut state = self.state.lock();
        let looks = !state.running.is_empty() || state.hand.shares_out();
        let look = looks.then(|| now + LOOK);
        let request = match state.hand.next_request(now) {
            Some(at) if at <= now => state.hand.ask(now),
            _ => None,
        };
        let next = state.hand.next_request(now).into_iter().chain(look);
        (next.chain(state.tokens_at()).min(), request)
    }

    /// Lets messages that wait start, if tokens have become usable. Returns when the next become so.
    fn use_tokens(&self, now: BootInstant) -> Option<BootInstant> {
        let mut state = self.state.lock();
        let are_there = state.tokens_at().is_some_and(|at| at <= now);
        if are_there {
            state.told = now;
        }
        let next = state.tokens_at();
        drop(state);
        if are_there {
            self.changed();
        }
        next
    }
}

/// The limits of a process while their permits are kept in a store.
pub struct KeptLimits {
    keeping: Task<()>,
    fleet: Arc<Fleet>,
    store: Arc<dyn FleetStore>,
}

impl KeptLimits {
    /// Keeps the permits until dropped. `broken` is set if that ends unexpectedly.
    #[must_use]
    pub fn start(
        fleet: Arc<Fleet>,
        store: Arc<dyn FleetStore>,
        broken: &CancellationToken,
    ) -> Self {
        let keeping = tasks::watched(broken, keep(fleet.clone(), store.clone()));
        Self {
            keeping: tasks::spawn(keeping),
            fleet,
            store,
        }
    }

    /// Returns the limits.
    #[must_use]
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Gives all permits back. Call it once nothing runs any more.
    pub async fn leave(self) {
        drop(self.keeping);
        leave(&self.fleet, &*self.store).await;
    }
}

/// Asks the store for what messages need, renews permits and gives them back, until it is dropped.
async fn keep(fleet: Arc<Fleet>, store: Arc<dyn FleetStore>) {
    let mut failures = 0;
    let mut said = LogThrottle::default();
    loop {
        let wanted = fleet.wanted.notified();
        fleet.revoke(clock::now());
        fleet.share_out();
        fleet.use_tokens(clock::now());
        let (at, request) = fleet.next(clock::now());
        let Some(request) = request else {
            tokio::select! {
                biased; // for simulations
                () = wanted => {}
                () = clock::sleep_until(at) => {}
            }
            continue;
        };
        let answer = asked(&fleet, &*store, &request).await;
        let now = clock::now();
        match answer {
            Ok(grant) => {
                failures = 0;
                fleet.answered(&grant, now);
            }
            Err(error) => {
                failures += 1;
                let wait = backoff::ceiling(WAITS.0, WAITS.1, failures);
                let is_away = error.kind == ErrorKind::Unreachable;
                fleet.state.lock().hand.failed(is_away, now + wait);
                if said.should_log(now) {
                    tracing::warn!(%error, "limits not renewed, retried; nothing that they limit starts meanwhile");
                }
            }
        }
    }
}

/// Gives all permits back, so that other processes need not wait for their end. Call it once nothing
/// starts any more and `keep` was dropped.
async fn leave(fleet: &Fleet, store: &dyn FleetStore) {
    fleet.state.lock().hand.leave();
    while let (_, Some(request)) = fleet.next(clock::now()) {
        match asked(fleet, store, &request).await {
            Ok(grant) => fleet.answered(&grant, clock::now()),
            Err(error) => {
                tracing::warn!(%error, "permits of limits not given back; they end by themselves");
                return;
            }
        }
    }
}

/// Makes a request, and goes on revoking permits meanwhile.
async fn asked(
    fleet: &Fleet,
    store: &dyn FleetStore,
    request: &Request,
) -> Result<Grant, CallError> {
    let until = clock::now() + PATIENCE;
    let mut exchanged = std::pin::pin!(exchange(store, request));
    loop {
        let look = clock::now() + LOOK;
        let tokens = fleet.use_tokens(clock::now());
        let look = tokens.into_iter().chain([look, until]).min();
        tokio::select! {
            biased; // an answer that arrived in time counts
            answer = &mut exchanged => return answer,
            () = clock::sleep_until(look) => {}
        }
        fleet.revoke(clock::now());
        if clock::now() >= until {
            return Err(CallError {
                kind: ErrorKind::Unreachable,
                message: "the store of limits: no answer in time".to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
