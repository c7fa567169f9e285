//! The store of what is done, as all processes share it: it outlives them, and calls of it take
//! their time, fail or hang. What must hold of it.

use super::port::sleep;
use super::{Sim, World, WorldAnswer};
use crate::circumstances::MetCircumstances;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::idempotency::{Records, RecordsError};
use dispatcher_core::message::Outcome;
use dispatcher_core::queue::Ask;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// What a receive brought and the process has not dealt with yet.
pub(crate) struct ArrivingMessages {
    queue: usize,
    taken: Vec<usize>,
    drained: bool,
    ask: Ask,
}

/// The store as one process has opened it.
pub(crate) struct RecordsStore {
    pub sim: Sim,
    pub life: usize,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallFate {
    Answered,
    Failed,
    Hung,
}

impl World {
    /// An answer to a receive has come. Where the route remembers, it is looked up first; until
    /// then the process knows nothing of it.
    pub(crate) fn answered(
        &mut self,
        life: usize,
        queue: usize,
        taken: &[usize],
        drained: bool,
        ask: &Ask,
    ) {
        if self.scenario.route.remembers_s.is_none() || taken.is_empty() {
            return self.reached(life, queue, taken, drained, ask);
        }
        self.lives[life].arriving = Some(ArrivingMessages {
            queue,
            taken: taken.to_vec(),
            drained,
            ask: *ask,
        });
    }

    fn store_call(&mut self, life: usize) -> (Duration, CallFate) {
        let faults = self.scenario.faults;
        let fate = if self.roll(faults.store_hangs, MetCircumstances::StoreHung) {
            CallFate::Hung
        } else if self.roll(faults.store_fails, MetCircumstances::StoreFailed) {
            CallFate::Failed
        } else {
            CallFate::Answered
        };
        self.lives[life].unremembered |= fate != CallFate::Answered;
        let takes = self.between(Duration::ZERO, Duration::from_millis(20));
        (takes, fate)
    }

    /// The store takes it: these are done.
    fn record(&mut self, life: usize, messages: &[usize], until: Timestamp) {
        for &message in messages {
            if !self.messages[message].done {
                let why = format!("message {message}");
                self.fails("remembered-undone", why);
            }
            let kept = self.records.entry(message).or_default();
            *kept = until.max(*kept);
        }
        self.note("remembers", life, super::NONE, messages.to_vec());
    }

    /// What was done is remembered before its queue is told, unless the store failed.
    pub(crate) fn check_recorded(
        &mut self,
        life: usize,
        delivery: usize,
        said: Option<&WorldAnswer>,
        outcome: &Outcome,
    ) {
        let message = self.deliveries[delivery].message;
        let tells = *outcome == Outcome::Delete && said == Some(&WorldAnswer::Done);
        let remembers = self.scenario.route.remembers_s.is_some();
        let well = !self.lives[life].unremembered;
        if tells && remembers && well && !self.records.contains_key(&message) {
            let why = format!("message {message}, delivery {delivery}");
            self.fails("deleted-unremembered", why);
        }
    }
}

/// A lookup of what a receive brought: whatever comes of it, the process has its answer then.
struct Lookup {
    sim: Sim,
    life: usize,
    arriving: Option<ArrivingMessages>,
}

impl Lookup {
    /// What the store says of each, once it says it.
    fn apply(&self, known: &[bool]) {
        let taken = self.arriving.as_ref().map(|arriving| &*arriving.taken);
        let mut world = self.sim.lock();
        for (&one, &known) in taken.unwrap_or_default().iter().zip(known) {
            world.deliveries[one].known = known;
            if known {
                world.met.insert(MetCircumstances::StoreKnew);
            }
        }
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        let mut world = self.sim.lock();
        if let Some(one) = self.arriving.take()
            && !world.lives[self.life].dead
        {
            world.reached(self.life, one.queue, &one.taken, one.drained, &one.ask);
        }
    }
}

fn numbers(ids: &[&str]) -> Vec<usize> {
    let number = |id: &&str| id[1..].parse().expect("ids are `m` and a number here");
    ids.iter().map(number).collect()
}

fn failed() -> RecordsError {
    RecordsError("the store fails".into())
}

/// Written out, since a lookup that is never begun is to be heard of as well.
impl Records for RecordsStore {
    fn known<'life0, 'life1, 'life2, 'life3, 'async_trait>(
        &'life0 self,
        _queue: &'life1 str,
        ids: &'life2 [&'life3 str],
    ) -> Pin<Box<dyn Future<Output = Result<Vec<bool>, RecordsError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        'life3: 'async_trait,
        Self: 'async_trait,
    {
        let lookup = Lookup {
            sim: self.sim.clone(),
            life: self.life,
            arriving: self.sim.lock().lives[self.life].arriving.take(),
        };
        Box::pin(async move {
            if self.sim.lock().is_gone(self.life) {
                std::future::pending::<()>().await;
            }
            let (takes, fate) = self.sim.lock().store_call(self.life);
            sleep(takes).await;
            match fate {
                CallFate::Hung => std::future::pending().await,
                CallFate::Failed => Err(failed()),
                CallFate::Answered => {
                    let known: Vec<bool> = {
                        let world = self.sim.lock();
                        let today = clock::wall_clock_now();
                        let done = |message| world.records.get(&message);
                        let known = |message| done(message).is_some_and(|until| *until > today);
                        numbers(ids).into_iter().map(known).collect()
                    };
                    lookup.apply(&known);
                    Ok(known)
                }
            }
        })
    }

    fn remember<'life0, 'life1, 'life2, 'life3, 'async_trait>(
        &'life0 self,
        _queue: &'life1 str,
        ids: &'life2 [&'life3 str],
        until: Timestamp,
    ) -> Pin<Box<dyn Future<Output = Result<(), RecordsError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        'life3: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            if self.sim.lock().is_gone(self.life) {
                std::future::pending::<()>().await;
            }
            let (takes, fate) = self.sim.lock().store_call(self.life);
            sleep(takes).await;
            {
                let mut world = self.sim.lock();
                // Without an answer it may have been taken or not.
                let taken = fate == CallFate::Answered || world.rng.bool();
                if taken && !world.lives[self.life].dead {
                    world.record(self.life, &numbers(ids), until);
                }
            }
            match fate {
                CallFate::Hung => std::future::pending().await,
                CallFate::Failed => Err(failed()),
                CallFate::Answered => Ok(()),
            }
        })
    }
}
