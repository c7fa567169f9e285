//! Permits for messages: taken before receiving, returned on drop. Pure; notifies when some are
//! free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// The permits for the messages that may be held at once. Clones share the permits.
#[derive(Debug, Clone)]
pub struct Permits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    capacity: AtomicUsize,
    used: AtomicUsize,
    freed: Notify,
}

impl Permits {
    /// Creates this many permits.
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(Inner {
            capacity: AtomicUsize::new(capacity),
            used: AtomicUsize::new(0),
            freed: Notify::new(),
        }))
    }

    /// Returns the number of permits, used or free.
    pub fn capacity(&self) -> usize {
        self.0.capacity.load(Ordering::Acquire)
    }

    /// Changes the number of permits. Those in use stay valid.
    pub fn resize(&self, capacity: usize) {
        if self.0.capacity.swap(capacity, Ordering::AcqRel) < capacity {
            self.0.freed.notify_one();
        }
    }

    /// Returns the number of permits in use; above the capacity after an overdraft.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Acquire)
    }

    /// Returns the number of permits that may be reserved.
    pub fn free(&self) -> usize {
        self.capacity().saturating_sub(self.used())
    }

    /// Reserves as many permits as are free, at most `wanted`; perhaps none.
    pub fn reserve(&self, wanted: usize) -> Permit {
        let mut taken = 0;
        // The closure never returns `None`, so the update cannot fail.
        let _ = self
            .0
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used: usize| {
                taken = wanted.min(self.capacity().saturating_sub(used));
                Some(used + taken)
            });
        Permit {
            permits: self.clone(),
            count: taken,
        }
    }

    /// Takes permits even if none are free: for messages that an idle long poll brought, which must
    /// be held.
    pub fn overdraw(&self, count: usize) -> Permit {
        self.0.used.fetch_add(count, Ordering::AcqRel);
        Permit {
            permits: self.clone(),
            count,
        }
    }

    /// Waits until a permit has been released since the last time that it returned.
    pub async fn freed(&self) {
        self.0.freed.notified().await;
    }
}

/// The right to hold some messages. Dropping it returns its permits.
#[derive(Debug)]
pub struct Permit {
    permits: Permits,
    count: usize,
}

impl Permit {
    /// Returns the number of messages.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Splits off the right for one message; overdraws if none is left.
    pub(crate) fn split_one(&mut self) -> Permit {
        if self.count == 0 {
            return self.permits.overdraw(1);
        }
        self.count -= 1;
        Permit {
            permits: self.permits.clone(),
            count: 1,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.count > 0 {
            self.permits.0.used.fetch_sub(self.count, Ordering::AcqRel);
            self.permits.0.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_permit_is_returned() {
        let permits = Permits::new(3);
        let mut permit = permits.reserve(10);
        assert_eq!((permit.count(), permits.free()), (3, 0));
        assert_eq!(permits.reserve(1).count(), 0);
        let one = permit.split_one();
        drop(permit);
        assert_eq!(permits.free(), 2);
        drop(one);
        assert_eq!(permits.free(), 3);
    }

    #[test]
    fn shrunk_permits_give_none_until_drained() {
        let permits = Permits::new(4);
        let held = permits.reserve(4);
        permits.resize(2);
        assert_eq!((permits.free(), permits.reserve(1).count()), (0, 0));
        drop(held);
        assert_eq!(permits.free(), 2);
        permits.resize(5);
        assert_eq!(permits.free(), 5);
    }

    #[test]
    fn overdraft_is_repaid_before_new_permits_are_given() {
        let permits = Permits::new(2);
        let over = permits.overdraw(5);
        assert_eq!((permits.used(), permits.free()), (5, 0));
        drop(over);
        assert_eq!(permits.free(), 2);
    }
}
