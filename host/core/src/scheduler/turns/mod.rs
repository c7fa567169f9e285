//! The turns of tenants in a queue: which tenant's job starts next. Each priority has its own turns.
//! A tenant pays for each of its jobs that starts, and the one that has paid least is next. Jobs
//! that go before all others because they have waited for long cost nothing. Pure.

use crate::queue::sharing::{PRIORITIES, Priority, SharingRules};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The number of a tenant at a priority, among those that are remembered; never 0.
pub(super) type TurnNumber = u64;

/// The turn of jobs that go before all others, and of all jobs of a queue without tenants.
pub(super) const HASTENED: TurnNumber = 0;

/// The most tenants without jobs that are remembered.
const MOST_IDLE: usize = 1_000;

/// The thing that a waiting job lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// A worker.
    Worker,
    /// A permit or a token of a limit of the fleet.
    Permit,
}

/// The place of a turn in the order; the least is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TurnPlace {
    priority: Priority,
    paid: u64,
    pub number: TurnNumber,
}

impl TurnPlace {
    /// The place of jobs that go before all others.
    pub(super) const FIRST: Self = Self {
        priority: Priority::FIRST,
        paid: 0,
        number: HASTENED,
    };
}

/// The next turns, the most urgent first.
type Order = BTreeSet<TurnPlace>;

/// The memory of a tenant at one priority.
#[derive(Debug)]
struct Turn {
    tenant: Arc<str>,
    place: TurnPlace,
    /// The numbers of its waiting jobs, by `Lack`.
    waiting: [usize; 2],
}

impl Turn {
    fn is_idle(&self) -> bool {
        self.waiting == [0, 0]
    }
}

/// The turns of all tenants that have waiting jobs, and of those that have paid more than the tenant
/// whose turn was last.
#[derive(Debug)]
pub(super) struct Turns {
    sharing: Arc<SharingRules>,
    numbers: HashMap<(Priority, Arc<str>), TurnNumber>,
    turns: HashMap<TurnNumber, Turn>,
    /// The tenants with waiting jobs, by `Lack`.
    orders: [Order; 2],
    /// The tenants without waiting jobs.
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
            orders: [Order::new(), Order::new()],
            idle: Order::new(),
            last: [0; PRIORITIES],
            numbered: 0,
        }
    }

    /// Replaces the rules, for jobs that go from now on.
    pub(super) fn share_out(&mut self, sharing: Arc<SharingRules>) {
        self.sharing = sharing;
    }

    /// Adds a job that waits for a worker. Returns the number of its tenant at its priority.
    pub(super) fn add(&mut self, priority: Priority, tenant: &str) -> TurnNumber {
        let key = (priority, Arc::from(tenant));
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => self.introduce(key),
        };
        self.add_to(number, Lack::Worker);
        number
    }

    /// Adds a waiting job of this number.
    pub(super) fn add_to(&mut self, number: TurnNumber, lack: Lack) {
        let Some(turn) = self.turns.get_mut(&number) else {
            return;
        };
        if turn.is_idle() {
            self.idle.remove(&turn.place);
            // No tenant has a claim on the time that it did not use.
            let last = self.last[turn.place.priority.index()];
            turn.place.paid = turn.place.paid.max(last);
        }
        let at = lack as usize;
        if turn.waiting[at] == 0 {
            self.orders[at].insert(turn.place);
        }
        turn.waiting[at] += 1;
    }

    fn introduce(&mut self, key: (Priority, Arc<str>)) -> TurnNumber {
        self.forget_idle(key.0);
        self.numbered += 1;
        let turn = Turn {
            tenant: key.1.clone(),
            place: TurnPlace {
                priority: key.0,
                paid: 0,
                number: self.numbered,
            },
            waiting: [0, 0],
        };
        self.turns.insert(self.numbered, turn);
        self.numbers.insert(key, self.numbered);
        self.numbered
    }

    /// Records that a waiting job of this number has left.
    pub(super) fn remove(&mut self, number: TurnNumber, lack: Lack) {
        let Some(turn) = self.turns.get_mut(&number) else {
            return;
        };
        let at = lack as usize;
        turn.waiting[at] -= 1;
        if turn.waiting[at] == 0 {
            self.orders[at].remove(&turn.place);
        }
        if turn.is_idle() {
            self.idle.insert(turn.place);
        }
    }

    /// Records that a job of this number starts.
    pub(super) fn charge(&mut self, number: TurnNumber) {
        let Some(turn) = self.turns.get(&number) else {
            return;
        };
        let old = turn.place;
        let last = &mut self.last[old.priority.index()];
        // A tenant that could not start for a while, for instance because of a limit, does not catch
        // up.
        *last = old.paid.max(*last);
        self.charge_joining(number);
    }

    /// Records that a job of this number joins one of its tenant that starts, whosever turn it is.
    pub(super) fn charge_joining(&mut self, number: TurnNumber) {
        let Some(turn) = self.turns.get_mut(&number) else {
            return;
        };
        let old = turn.place;
        let before = old.paid.max(self.last[old.priority.index()]);
        turn.place.paid = before.saturating_add(self.sharing.price(&turn.tenant));
        let [worker, permit] = &mut self.orders;
        for order in [worker, permit, &mut self.idle] {
            if order.remove(&old) {
                order.insert(turn.place);
            }
        }
    }

    /// Forgets the tenants without jobs that have paid no more than a new one would have, and those
    /// that have paid least if there are many.
    fn forget_idle(&mut self, priority: Priority) {
        let last = self.last[priority.index()];
        let least = TurnPlace {
            priority,
            ..TurnPlace::FIRST
        };
        while let Some(&place) = self.idle.range(least..).next()
            && place.priority == priority
            && (place.paid <= last || self.idle.len() > MOST_IDLE)
        {
            self.idle.remove(&place);
            if let Some(turn) = self.turns.remove(&place.number) {
                self.numbers.remove(&(priority, turn.tenant));
            }
        }
    }

    /// Returns the turns that have jobs with this lack, in their order.
    pub(super) fn order(&self, lack: Lack) -> impl Iterator<Item = TurnPlace> {
        self.orders[lack as usize].iter().copied()
    }

    /// Returns the numbers of a tenant, the most urgent first.
    pub(super) fn of_tenant(&self, tenant: &str) -> impl Iterator<Item = TurnNumber> {
        let tenant: Arc<str> = tenant.into();
        Priority::all().filter_map(move |priority| {
            let number = self.numbers.get(&(priority, tenant.clone()));
            number.copied()
        })
    }

    /// Returns the place of a turn.
    pub(super) fn place(&self, number: TurnNumber) -> TurnPlace {
        let turn = self.turns.get(&number);
        turn.map_or(TurnPlace::FIRST, |turn| turn.place)
    }

    /// Returns how many tenants are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }
}

#[cfg(test)]
mod tests;
