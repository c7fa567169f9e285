//! Leases messages while they are handled. A lease is a value: owned, not `Clone`; its drop ends
//! the extension and never acknowledges. Knows no backend by name and no stage.

pub mod book;
pub mod invisible;
pub mod keeper;

use crate::clock;
use crate::clock::BootInstant;
use book::{Book, LeaseId, LeaseTerms};
use invisible::InvisibleMessages;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The book, shared by the leases that write themselves into it and the keeper that reads it.
#[derive(Debug, Default)]
pub struct Ledger {
    book: Mutex<Book>,
    /// The agenda's head may have moved forward.
    changed: Notify,
    /// Some calls have been answered.
    answered: Notify,
}

impl Ledger {
    /// Enters leases for one receive.
    pub fn open(self: &Arc<Self>, terms: impl IntoIterator<Item = LeaseTerms>) -> Vec<Lease> {
        let mut book = self.lock();
        let before = book.next_attention();
        let leases = terms
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
        if sooner {
            self.changed.notify_one();
        }
        leases
    }

    /// How many leases are held now.
    pub fn held(&self) -> usize {
        self.lock().len()
    }

    /// When a lease ends, unless it is extended again; `None` once it is lost or over.
    pub fn deadline(&self, lease: LeaseId) -> Option<BootInstant> {
        self.lock().deadline_kept(lease)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        // The book's changes are complete or not begun; a panic elsewhere does not spoil it.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Our claim on one delivery.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    cancelled: CancellationToken,
    ledger: Arc<Ledger>,
}

impl Lease {
    /// Its place in the book.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// Set when the lease is lost: it expired, was taken away, or reached the 12 h ceiling.
    pub fn lost(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Whether the lease was lost because its message was cancelled: it is not delivered again.
    pub fn is_cancelled(&self) -> bool {
        self.ledger.lock().is_cancelled(self.id)
    }

    /// Loses the lease if its time is over: after a pause of the whole process nobody else has
    /// noticed yet.
    pub fn check(&self, now: BootInstant) {
        self.ledger.lock().check(self.id, now);
    }

    /// Until when the queue may hide the delivery, whether it is lost or not.
    pub fn hidden(&self) -> InvisibleMessages {
        let hidden = self.ledger.lock().hidden(self.id);
        hidden.expect("a lease is in the book until it is dropped")
    }

    /// Ends the extension for good and gives the right to settle once; `None` when the lease is
    /// lost, and so the verdict fenced.
    pub fn settle(self) -> Option<Claim> {
        let until = self.ledger.lock().settle(self.id, clock::now())?;
        Some(Claim { lease: self, until })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.ledger.lock().close(self.id);
    }
}

/// The right to settle one delivery, until its lease ends.
#[derive(Debug)]
pub struct Claim {
    lease: Lease,
    until: BootInstant,
}

impl Claim {
    /// When the right ends: later than at first if an extension that was running is granted.
    pub fn until(&self) -> BootInstant {
        let deadline = self.lease.ledger.lock().deadline(self.lease.id);
        deadline.map_or(self.until, |deadline| deadline.max(self.until))
    }

    /// Until when the queue may hide the delivery.
    pub fn hidden(&self) -> InvisibleMessages {
        self.lease.hidden()
    }

    /// Returns when no extension is running any more that could overtake an outcome.
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
