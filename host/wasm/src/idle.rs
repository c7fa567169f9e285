//! The idle instances of one plugin: those that have answered and may be reused, and prewarmed
//! ones. Does not create instances.

use crate::admission::{Admission, Spare};
use crate::instance::LiveInstance;
use crate::reuse::Reuse;
use crate::tally::IdleInstances;
use crate::warm::CreationState;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::handler::Attempt;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The instances of one plugin that wait for an attempt.
pub(super) struct Idle {
    /// The limits of reuse; `None` if no instance is used again.
    reuse: Option<Reuse>,
    /// The number of instances that should be ready ahead.
    ahead: usize,
    kept: Mutex<IdleInstance>,
}

#[derive(Default)]
struct IdleInstance {
    /// The instances that were used, the most recently used at the back.
    used: VecDeque<LiveInstance>,
    /// The instances that were created ahead.
    warm: Vec<LiveInstance>,
    making: CreationState,
}

impl Idle {
    /// Creates an empty set.
    pub(super) fn new(reuse: Option<Reuse>, ahead: usize) -> Self {
        Self {
            reuse,
            ahead,
            kept: Mutex::default(),
        }
    }

    /// Takes the most recently used instance that is young enough, otherwise one that was created
    /// ahead.
    pub(super) fn take(&self, attempt: &Arc<Attempt>) -> Option<LiveInstance> {
        loop {
            let next = {
                let mut kept = self.kept();
                kept.used.pop_back().or_else(|| kept.warm.pop())
            };
            let mut live = next?;
            if self.is_young(&live) {
                live.begin(attempt);
                return Some(live);
            }
        }
    }

    /// Keeps an instance that has answered, unless it has reached a limit of reuse or its slot is
    /// wanted.
    pub(super) fn give(&self, mut live: LiveInstance, admission: &Admission) {
        let Some(reuse) = self.reuse else { return };
        if live.born == BootInstant::default() {
            live.born = clock::now();
        }
        let memory = live.store.data().limits.memory();
        if live.attempts < reuse.count && memory <= reuse.memory && self.is_young(&live) {
            self.kept().used.push_back(live);
            self.let_go_if_wanted(admission);
        }
    }

    /// Keeps an instance that was created ahead, unless its slot is wanted.
    pub(super) fn put(&self, live: LiveInstance, admission: &Admission) {
        {
            let mut kept = self.kept();
            kept.making.succeeded();
            kept.warm.push(live);
        }
        self.let_go_if_wanted(admission);
    }

    /// Whether an instance is missing that the caller must begin to create now.
    pub(super) fn begin_making(&self) -> bool {
        if self.ahead == 0 {
            return false;
        }
        let mut kept = self.kept();
        kept.warm.len() < self.ahead && kept.making.begin(clock::now())
    }

    /// Whether another instance is missing. If not, the creation has ended.
    pub(super) fn goes_on_making(&self) -> bool {
        let mut kept = self.kept();
        let more = kept.warm.len() < self.ahead;
        if !more {
            kept.making.end();
        }
        more
    }

    /// Notes that no task is creating instances.
    pub(super) fn end_making(&self) {
        self.kept().making.end();
    }

    /// Notes that an instance could not be created. Returns whether to log it.
    pub(super) fn failed_to_make(&self) -> bool {
        self.kept().making.failed(clock::now())
    }

    fn let_go_if_wanted(&self, admission: &Admission) {
        if admission.is_wanted() {
            self.let_go();
        }
    }

    fn is_young(&self, live: &LiveInstance) -> bool {
        live.attempts == 0
            || self
                .reuse
                .is_none_or(|reuse: Reuse| clock::now().since(live.born) < reuse.age)
    }

    fn kept(&self) -> MutexGuard<'_, IdleInstance> {
        // Every thread takes it for each attempt: with parking_lot's, two threads made a sixth fewer
        // fresh instances (`cargo bench --bench attempt`, 2026-11-28).
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdleInstances for Idle {
    fn usage(&self) -> (usize, usize) {
        let kept = self.kept();
        let all = kept.used.iter().chain(&kept.warm);
        let memory = all.map(|live| live.store.data().limits.memory());
        (kept.used.len() + kept.warm.len(), memory.sum())
    }
}

impl Spare for Idle {
    fn spare(&self) -> usize {
        let kept = self.kept();
        kept.used.len() + kept.warm.len()
    }

    /// Drops an unused instance, or the one that was used longest ago.
    fn let_go(&self) -> bool {
        let live = {
            let mut kept = self.kept();
            kept.warm.pop().or_else(|| kept.used.pop_front())
        };
        // Its memory is returned to the kernel outside of the lock.
        live.is_some()
    }
}
