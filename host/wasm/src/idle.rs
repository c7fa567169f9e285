//! The idle instances of one plugin: those that have answered and may be reused, and prewarmed
//! ones. Creates none itself.

use crate::admission::{Admission, Spare};
use crate::instance::LiveInstance;
use crate::reuse::Reuse;
use crate::tally::IdleInstances;
use crate::warm::Making;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::handler::Attempt;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The instances of one plugin that wait for an attempt.
pub(super) struct Idle {
    /// Without it none is used again.
    reuse: Option<Reuse>,
    /// How many are wanted that were made ahead.
    ahead: usize,
    kept: Mutex<IdleInstance>,
}

#[derive(Default)]
struct IdleInstance {
    /// The one that was used last is at the back.
    used: VecDeque<LiveInstance>,
    /// Made ahead.
    warm: Vec<LiveInstance>,
    making: Making,
}

impl Idle {
    /// None yet.
    pub(super) fn new(reuse: Option<Reuse>, ahead: usize) -> Self {
        Self {
            reuse,
            ahead,
            kept: Mutex::default(),
        }
    }

    /// The instance that was used last, if there is one young enough; else one that was made ahead.
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

    /// Keeps an instance that has answered, unless it has served its time or its room is wanted.
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

    /// Keeps an instance that was made ahead, unless its room is wanted.
    pub(super) fn put(&self, live: LiveInstance, admission: &Admission) {
        {
            let mut kept = self.kept();
            kept.making.succeeded();
            kept.warm.push(live);
        }
        self.let_go_if_wanted(admission);
    }

    /// Whether one is missing that somebody should begin to make now; the asker is to.
    pub(super) fn begin_making(&self) -> bool {
        if self.ahead == 0 {
            return false;
        }
        let mut kept = self.kept();
        kept.warm.len() < self.ahead && kept.making.begin(clock::now())
    }

    /// Whether another one is missing. If not, making has ended.
    pub(super) fn goes_on_making(&self) -> bool {
        let mut kept = self.kept();
        let more = kept.warm.len() < self.ahead;
        if !more {
            kept.making.end();
        }
        more
    }

    /// Nobody makes any at the moment.
    pub(super) fn end_making(&self) {
        self.kept().making.end();
    }

    /// One could not be made. Whether to say so.
    pub(super) fn failed_to_make(&self) -> bool {
        self.kept().making.failed(clock::now())
    }

    fn let_go_if_wanted(&self, admission: &Admission) {
        if admission.is_wanted() {
            self.let_go();
        }
    }

    fn is_young(&self, live: &LiveInstance) -> bool {
        let of_age = |reuse: Reuse| clock::now().since(live.born) >= reuse.age;
        live.attempts == 0 || !self.reuse.is_some_and(of_age)
    }

    fn kept(&self) -> MutexGuard<'_, IdleInstance> {
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

    /// One that has seen nothing, or the one that was used longest ago.
    fn let_go(&self) -> bool {
        let live = {
            let mut kept = self.kept();
            kept.warm.pop().or_else(|| kept.used.pop_front())
        };
        // Its memory goes back to the kernel outside of the lock.
        live.is_some()
    }
}
