//! The turns of tenants in a line: which tenant's job goes next. Each priority has its own turns.
//! A tenant pays for each of its jobs that goes, and the one that has paid least is next. Pure.

use crate::queue::sharing::{PRIORITIES, Priority, SharingRules};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The number of a tenant at a priority, among those that are remembered; never 0.
pub(super) type TurnNumber = u64;

/// The most tenants without jobs that are remembered.
const MOST_IDLE: usize = 1_000;

/// The next turns, the most urgent first.
type Order = BTreeSet<(Priority, u64, TurnNumber)>;

/// The memory of a tenant at one priority.
#[derive(Debug)]
struct Turn {
    priority: Priority,
    tenant: Arc<str>,
    /// The sum that it has paid, or that counted as paid when it began to wait.
    paid: u64,
    /// The number of its waiting jobs.
    waiting: usize,
}

/// The turns of all tenants that have jobs in a line, and of those that have paid more than the
/// tenant whose turn was last.
#[derive(Debug)]
pub(super) struct Turns {
    sharing: Arc<SharingRules>,
    numbers: HashMap<(Priority, Arc<str>), TurnNumber>,
    turns: HashMap<TurnNumber, Turn>,
    order: Order,
    /// The tenants without jobs.
    idle: Order,
    /// The sum that the tenant whose turn was last had paid before, by priority.
    last: [u64; PRIORITIES],
    numbered: TurnNumber,
}

impl Turns {
    pub(super) fn new(sharing: Arc<SharingRules>) -> Self {
        Self {
            sharing,
            numbers: HashMap::new(),
            turns: HashMap::new(),
            order: Order::new(),
            idle: Order::new(),
            last: [0; PRIORITIES],
            numbered: 0,
        }
    }

    /// Replaces the rules, for jobs that go from now on.
    pub(super) fn share_out(&mut self, sharing: Arc<SharingRules>) {
        self.sharing = sharing;
    }

    /// Adds a waiting job. Returns the number of its tenant at its priority.
    pub(super) fn add(&mut self, priority: Priority, tenant: &str) -> TurnNumber {
        let key = (priority, Arc::from(tenant));
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => self.introduce(key),
        };
        self.add_to(number);
        number
    }

    /// Adds a waiting job of this number.
    pub(super) fn add_to(&mut self, number: TurnNumber) {
        let Some(turn) = self.turns.get_mut(&number) else {
            return;
        };
        if turn.waiting == 0 {
            self.idle.remove(&(turn.priority, turn.paid, number));
            // No tenant has a claim on the time that it did not use.
            turn.paid = turn.paid.max(self.last[turn.priority.index()]);
            self.order.insert((turn.priority, turn.paid, number));
        }
        turn.waiting += 1;
    }

    fn introduce(&mut self, key: (Priority, Arc<str>)) -> TurnNumber {
        self.numbered += 1;
        let turn = Turn {
            priority: key.0,
            tenant: key.1.clone(),
            paid: 0,
            waiting: 0,
        };
        self.turns.insert(self.numbered, turn);
        self.numbers.insert(key, self.numbered);
        self.numbered
    }

    /// Records that a waiting job of this number has left.
    pub(super) fn remove(&mut self, number: TurnNumber) {
        let Some(turn) = self.turns.get_mut(&number) else {
            return;
        };
        turn.waiting -= 1;
        if turn.waiting == 0 {
            let place = (turn.priority, turn.paid, number);
            self.order.remove(&place);
            self.idle.insert(place);
            self.forget_idle(place.0);
        }
    }

    /// Records that a job of this number goes; call it before `remove`.
    pub(super) fn charge(&mut self, number: TurnNumber) {
        let Some(turn) = self.turns.get_mut(&number) else {
            return;
        };
        self.order.remove(&(turn.priority, turn.paid, number));
        let last = &mut self.last[turn.priority.index()];
        *last = turn.paid.max(*last);
        turn.paid = turn.paid.saturating_add(self.sharing.price(&turn.tenant));
        self.order.insert((turn.priority, turn.paid, number));
    }

    /// Forgets the tenants without jobs that have paid no more than a new one would have, and those
    /// that have paid least if there are many.
    fn forget_idle(&mut self, priority: Priority) {
        let last = self.last[priority.index()];
        let mut idle = self.idle.range((priority, 0, 0)..);
        while let Some(&place) = idle.next()
            && place.0 == priority
            && (place.1 <= last || self.idle.len() > MOST_IDLE)
        {
            self.idle.remove(&place);
            if let Some(turn) = self.turns.remove(&place.2) {
                self.numbers.remove(&(priority, turn.tenant));
            }
            idle = self.idle.range((priority, 0, 0)..);
        }
    }

    /// Returns the numbers that have jobs, in the order of their turns.
    pub(super) fn order(&self) -> impl Iterator<Item = TurnNumber> {
        self.order.iter().map(|(_, _, number)| *number)
    }

    /// Returns how many tenants are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }
}

#[cfg(test)]
mod tests;
