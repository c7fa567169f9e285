//! Leases messages while they are handled. A lease is an owned value, not `Clone`; dropping it ends
//! the extension and never acknowledges the message. Does not depend on a backend or a stage.

pub mod book;
pub mod invisible;
pub mod keeper;

use crate::clock;
use crate::clock::BootInstant;
use book::{Book, LeaseId, LeaseTerms};
use invisible::InvisibleMessages;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The book of a route, shared by the leases, which enter themselves, and the keeper, which reads
/// it.
#[derive(Debug, Default)]
pub struct Ledger {
    book: Mutex<Book>,
    /// Notified when the head of the agenda may have moved forward.
    changed: Notify,
    /// Notified when calls have been answered.
    answered: Notify,
    /// The number of leases in this ledger and all others of the process.
    held: Arc<AtomicUsize>,
}

impl Ledger {
    /// Creates a ledger whose leases are also counted in `held`.
    pub fn counted_in(held: Arc<AtomicUsize>) -> Self {
        Self {
            held,
            ..Self::default()
        }
    }

    /// Enters the leases of one receive.
    pub fn open(self: &Arc<Self>, terms: impl IntoIterator<Item = LeaseTerms>) -> Vec<Lease> {
        let mut book = self.lock();
        let before = book.next_attention();
        let leases: Vec<Lease> = terms
            .into_iter()
            .map(|terms| {
                let (id, cancelled) = book.open(terms);
                Lease {
                    id,
                    cancelled,
                    ledger: self.clone(),
                }
            })
            .collect();
        let sooner = before.is_none() || book.next_attention() < before;
        drop(book);
        self.held.fetch_add(leases.len(), Relaxed);
        if sooner {
            self.changed.notify_one();
        }
        leases
    }

    /// Returns when a lease ends, unless it is extended again; `None` once it is lost or over.
    pub fn deadline(&self, lease: LeaseId) -> Option<BootInstant> {
        self.lock().deadline_kept(lease)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        // Changes of the book are complete or not begun, so a panic elsewhere leaves it consistent.
        self.book.lock()
    }
}

/// The claim of this process on one delivery.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    cancelled: CancellationToken,
    ledger: Arc<Ledger>,
}

impl Lease {
    /// Returns its id in the book.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// Returns the token that is set when the lease is lost: it expired, was taken away, or reached
    /// the 12 h ceiling.
    pub fn lost(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Whether the lease was lost because its message was cancelled. Such a message is not
    /// delivered again.
    pub fn is_cancelled(&self) -> bool {
        self.ledger.lock().is_cancelled(self.id)
    }

    /// Marks the lease as lost if its time is over: after a pause of the whole process, the keeper
    /// may not have noticed that yet.
    pub fn check(&self, now: BootInstant) {
        self.ledger.lock().check(self.id, now);
    }

    /// Returns until when the queue may hide the delivery, whether the lease is lost or not.
    pub fn hidden(&self) -> InvisibleMessages {
        let hidden = self.ledger.lock().hidden(self.id);
        hidden.expect("a lease is in the book until it is dropped")
    }

    /// Ends the extension permanently and returns the right to settle once. Returns `None` if the
    /// lease is lost: its verdict is fenced.
    pub fn settle(self) -> Option<Claim> {
        let until = self.ledger.lock().settle(self.id, clock::now())?;
        Some(Claim { lease: self, until })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.ledger.lock().close(self.id);
        self.ledger.held.fetch_sub(1, Relaxed);
    }
}

/// The right to settle one delivery until its lease ends.
#[derive(Debug)]
pub struct Claim {
    lease: Lease,
    until: BootInstant,
}

impl Claim {
    /// Returns when the right ends: later than at first if an extension that was running is
    /// granted.
    pub fn until(&self) -> BootInstant {
        let deadline = self.lease.ledger.lock().deadline(self.lease.id);
        deadline.map_or(self.until, |deadline| deadline.max(self.until))
    }

    /// Returns until when the queue may hide the delivery.
    pub fn hidden(&self) -> InvisibleMessages {
        self.lease.hidden()
    }

    /// Waits until no extension is running that could overtake an outcome.
    pub async fn quiet(&self) {
        loop {
            let mut answered = std::pin::pin!(self.lease.ledger.answered.notified());
            answered.as_mut().enable();
            if !self.lease.ledger.lock().extending(self.lease.id) {
                return;
            }
            answered.await;
        }
    }

    /// Whether `quiet` would wait.
    pub fn is_quiet(&self) -> bool {
        !self.lease.ledger.lock().extending(self.lease.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Receipt;
    use std::time::Duration;

    #[test]
    fn extension_granted_during_settlement_prolongs_the_right_to_settle() {
        let ledger = Arc::new(Ledger::default());
        let visibility = Duration::from_secs(30);
        let received = clock::now();
        let terms = LeaseTerms {
            queue: 0,
            receipt: Receipt("r".into()),
            received,
            answered: received,
            visibility,
        };
        let lease = ledger.open([terms]).remove(0);
        let called = received + Duration::from_secs(15);
        assert_eq!(ledger.lock().due(called, |_| 10).len(), 1);
        let id = lease.id;
        let claim = lease.settle().expect("it is ours");
        assert_eq!(claim.until(), received + visibility);
        ledger
            .lock()
            .extended(id, called, visibility, &Ok(()), called);
        assert_eq!(claim.until(), called + visibility);
    }
}
