//! The store of the limits that hold for all processes together: it outlives them, has a clock of its
//! own, and its calls pass a network. Knows nothing of what its records mean.

use super::port::sleep;
use super::{NONE, Sim, World};
use crate::circumstances::MetCircumstances;
use dispatcher_core::clock;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::fleet::{FleetStore, RecordChange, Snapshot};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;

/// The longest that a call is waited for here. The program gives up earlier.
const PATIENCE: Duration = Duration::from_secs(60);
/// An answer that takes longer is late.
const PROMPT: Duration = Duration::from_secs(1);
/// Nobody waits for an answer any more that takes longer.
const GIVEN_UP: Duration = Duration::from_secs(3);
/// The store's time at the start of a run, in milliseconds. Its beginning does not matter.
const BEGINS: i64 = 1_000_000_000;

/// One record.
#[derive(Debug, Clone)]
struct StoredRecord {
    text: String,
    /// The store's time after which it is forgotten.
    until: u64,
}

/// The records of the store.
#[derive(Debug, Default)]
pub(crate) struct StoredRecords(BTreeMap<String, StoredRecord>);

impl StoredRecords {
    fn get(&self, name: &str, now: u64) -> Option<&str> {
        let record = self.0.get(name).filter(|record| record.until > now);
        record.map(|record| record.text.as_str())
    }
}

impl StoredRecords {
    /// The records in which a process has permits, by their text.
    pub(crate) fn held_by(&self, holder: &str, now: u64) -> Vec<&str> {
        let has = format!("\"{holder}\":{{\"held\":");
        let holds = |record: &StoredRecord| {
            let after = record.text.split_once(&has);
            after.is_some_and(|(_, held)| !held.starts_with('0'))
        };
        let kept = self.0.iter().filter(|(_, record)| record.until > now);
        let held = kept.filter(|(_, record)| holds(record));
        held.map(|(name, _)| name.as_str()).collect()
    }
}

/// The store as one process has opened it.
pub(crate) struct LimitStore {
    pub sim: Sim,
    pub life: usize,
}

/// The fate of one call on the network.
#[derive(Debug, Clone, Copy)]
struct StoreCall {
    to: Duration,
    back: Duration,
    arrives: bool,
    answered: bool,
    refused: bool,
}

impl World {
    /// The store's time in milliseconds.
    pub(super) fn store_time(&self) -> u64 {
        let ahead = self.scenario.fleet.as_ref().map_or(0, |plan| plan.date_ms);
        let passed = clock::now().since(Default::default()).as_millis();
        let begins = u64::try_from(BEGINS + ahead).unwrap_or_default();
        begins + u64::try_from(passed).unwrap_or(u64::MAX)
    }

    /// The network parts a process from the store, or no longer.
    pub(crate) fn part(&mut self, life: usize, parted: bool) {
        let words = if parted {
            "is parted from the limits"
        } else {
            "reaches the limits"
        };
        self.note(words, life, NONE, vec![]);
        self.lives[life].parted = parted;
        self.limits.reached = clock::now();
    }

    fn is_parted(&self, life: usize) -> bool {
        self.lives[life].parted && !self.quiet
    }

    fn store_passage(&mut self, life: usize) -> StoreCall {
        let ms = Duration::from_millis;
        let mut call = StoreCall {
            to: self.between(ms(1), ms(30)),
            back: self.between(ms(1), ms(30)),
            arrives: !self.is_parted(life),
            answered: true,
            refused: false,
        };
        if !call.arrives {
            self.met.insert(MetCircumstances::LimitsAway);
        }
        let faults = self.scenario.fleet.as_ref().map(|plan| plan.faults);
        let Some(faults) = faults.filter(|_| !self.quiet) else {
            return call;
        };
        let mut roll = |often: u32| often > 0 && self.rng.u32(0..1_000) < often;
        call.refused = roll(faults.refused);
        call.arrives &= !roll(faults.lost_request);
        call.answered = !roll(faults.lost_answer);
        let (hangs, is_late) = (roll(faults.hang), roll(faults.late_answer));
        if hangs {
            call.to = self.between(ms(500), ms(40_000));
        }
        if is_late {
            call.back = self.between(ms(100), ms(5_000));
        }
        call
    }
}

impl LimitStore {
    /// Makes a call: what the store does goes on when nobody waits for it any more.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut World) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        if self.sim.lock().is_gone(self.life) {
            std::future::pending::<()>().await;
        }
        let (call, called) = (self.sim.lock().store_passage(self.life), clock::now());
        self.sim.lock().lives[self.life].limits_in_vain += 1;
        if call.refused {
            sleep(call.to).await;
            return Err(failed(ErrorKind::Transient, "too many requests"));
        }
        let (answer, answered) = oneshot::channel();
        let (sim, life) = (self.sim.clone(), self.life);
        tokio::spawn(async move {
            sleep(call.to).await;
            if !call.arrives {
                return sleep(PATIENCE).await;
            }
            let value = work(&mut sim.lock());
            sleep(call.back).await;
            if !call.answered || sim.lock().is_parted(life) {
                return sleep(PATIENCE).await;
            }
            // The process may be gone, or wait no more.
            let _ = answer.send(value);
        });
        let value = tokio::select! {
            biased;
            value = answered => value,
            () = sleep(PATIENCE) => return Err(failed(ErrorKind::Unreachable, "no answer")),
        };
        if clock::now().since(called) < PROMPT {
            self.sim.lock().lives[self.life].limits_in_vain -= 1;
        }
        value.map_err(|_| failed(ErrorKind::Unreachable, "no answer"))
    }
}

fn failed(kind: ErrorKind, message: &str) -> CallError {
    let message = message.to_owned();
    CallError { kind, message }
}

#[async_trait::async_trait]
impl FleetStore for LimitStore {
    async fn read(&self, names: &[String]) -> Result<Snapshot, CallError> {
        let called = clock::now();
        let wanted = names.to_vec();
        let answer = self.call(move |world| {
            let now = world.store_time();
            let text = |name: &String| world.limits.records.get(name, now).map(str::to_owned);
            let records = wanted.iter().map(text).collect();
            (Snapshot { now, records }, clock::now())
        });
        let (snapshot, read) = answer.await?;
        self.sim.lock().has_read_limits(self.life, called, read);
        Ok(snapshot)
    }

    async fn replace(&self, changes: &[RecordChange]) -> Result<bool, CallError> {
        let life = self.life;
        let (changes, read) = (changes.to_vec(), self.sim.lock().lives[life].read_limits);
        let names: Vec<String> = changes.iter().map(|change| change.name.clone()).collect();
        let called = clock::now();
        let answer = self.call(move |world| {
            let now = world.store_time();
            let stands = |change: &RecordChange| {
                world.limits.records.get(&change.name, now) == change.stands.as_deref()
            };
            if !changes.iter().all(stands) {
                world.note("finds other limits", life, NONE, vec![]);
                return false;
            }
            let is_late = clock::now().since(called) > GIVEN_UP;
            world.lives[life].wrote_limits_late |= is_late;
            for change in changes {
                let note = format!("{}: {}", change.name, change.text);
                world.note_with("limits", life, NONE, vec![], note);
                let keep_for = u64::try_from(change.keep_for.as_millis()).unwrap_or(u64::MAX);
                let until = now.saturating_add(keep_for);
                world.leases_limit(life, &change.name, read);
                let text = change.text;
                world
                    .limits
                    .records
                    .0
                    .insert(change.name, StoredRecord { text, until });
            }
            true
        });
        let changed = answer.await?;
        if changed {
            self.sim.lock().hears_of_limits(life, &names);
        }
        Ok(changed)
    }

    async fn publish(&self, _: &str, _: &str, _: Duration) -> Result<(), CallError> {
        Err(failed(ErrorKind::Invalid, "nobody publishes here"))
    }

    async fn published(&self) -> Result<Vec<(String, String)>, CallError> {
        Err(failed(ErrorKind::Invalid, "nobody publishes here"))
    }
}
