//! Admits as many instances as the engine has slots. Further attempts wait in the order of arrival,
//! and idle instances are evicted for them. Does not depend on instances or plugins.

use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::Verdict;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The divisor of an attempt's remaining time that gives its maximum wait for a slot: a quarter.
/// After a longer wait, too little time might be left for its work; the remedy is fewer attempts at
/// once.
const WAIT: u32 = 4;

/// Returns the time until which an attempt that begins now waits for a slot.
pub(super) fn patience(attempt: &Attempt) -> BootInstant {
    let now = clock::now();
    now + attempt.deadline.left(now) / WAIT
}

/// Returns the verdicts of an attempt that was not begun.
pub(super) fn turned_away(attempt: &Attempt, why: &str) -> Vec<Verdict> {
    let why = why.to_owned();
    vec![Verdict::Busy { after: None, why }; attempt.messages.len()]
}

/// The reason for an attempt that was not begun because no instance can be created for it.
pub(super) const FULL: &str =
    "no slot for another instance: all of them, those of other plugins included, are in use";

/// A slot for one instance. Dropping it releases the slot, so the instance must be dropped first.
pub(super) struct Permit(
    #[expect(dead_code, reason = "its drop is what it is for")] OwnedSemaphorePermit,
);

/// An owner of idle instances.
pub(super) trait Spare: Send + Sync {
    /// Returns the number of idle instances at this moment.
    fn spare(&self) -> usize;

    /// Drops one of them. Returns false if there is none.
    fn let_go(&self) -> bool;
}

/// The slots of an engine for instances.
pub(super) struct Admission {
    free: Arc<Semaphore>,
    /// The number of attempts that wait.
    waiting: AtomicUsize,
    spares: Mutex<Vec<Weak<dyn Spare>>>,
}

impl Admission {
    /// Creates this many slots.
    pub(super) fn new(instances: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(instances.min(Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
            spares: Mutex::default(),
        }
    }

    /// Registers an owner whose idle instances may be evicted.
    pub(super) fn watch(&self, spare: Weak<dyn Spare>) {
        let mut all = self.spares.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(spare);
    }

    /// Whether an attempt waits. The owner of an instance checks this **after** it has put the
    /// instance where `let_go` finds it, and then evicts it: a waiter registers before it looks
    /// there.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Returns a slot if one is free and no attempt waits for it.
    pub(super) fn try_enter(&self) -> Option<Permit> {
        // A slot that is released while attempts wait goes to the first of them and is never free.
        let permit = Arc::clone(&self.free).try_acquire_owned();
        permit.ok().map(Permit)
    }

    /// Waits for a slot, in the order of arrival. Dropping the future passes the turn to the next
    /// one.
    pub(super) async fn enter(&self) -> Permit {
        if let Some(permit) = self.try_enter() {
            return permit;
        }
        let _waiting = AdmissionWaiter::begin(&self.waiting);
        let mut permit = pin!(Arc::clone(&self.free).acquire_owned());
        let mut asked = false;
        let permit = poll_fn(|context| match permit.as_mut().poll(context) {
            Poll::Pending if !asked => {
                // It is in the line now, so a slot that others release reaches it in its turn.
                asked = true;
                self.make_room();
                permit.as_mut().poll(context)
            }
            poll => poll,
        });
        Permit(permit.await.expect("the semaphore is never closed"))
    }

    /// Drops one idle instance of the owner that has the most.
    fn make_room(&self) {
        let mut all: Vec<(usize, Arc<dyn Spare>)> = {
            let all = self.spares.lock();
            let alive = all.iter().filter_map(Weak::upgrade);
            alive.map(|one| (one.spare(), one)).collect()
        };
        all.sort_by_key(|(spare, _)| std::cmp::Reverse(*spare));
        let _ = all.iter().any(|(_, one)| one.let_go());
    }
}

/// An attempt that waits, counted as long as this exists.
struct AdmissionWaiter<'a>(&'a AtomicUsize);

impl<'a> AdmissionWaiter<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for AdmissionWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Lets other tasks run once. The engine returns the slots of dropped instances in groups. If a
/// caller has a permit and finds no slot, another thread is just returning them.
pub(super) async fn soon() {
    tokio::task::yield_now().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn permits_go_to_waiters_in_order_of_arrival() {
        let door = Admission::new(1);
        let first = door.try_enter().unwrap();
        let mut second = pin!(door.enter());
        assert!(poll(second.as_mut()).is_none() && door.is_wanted());
        let mut third = pin!(door.enter());
        assert!(poll(third.as_mut()).is_none());
        drop(first);
        assert!(door.try_enter().is_none(), "it is the second's");
        assert!(poll(third.as_mut()).is_none());
        let second = poll(second.as_mut()).unwrap();
        drop(second);
        assert!(poll(third.as_mut()).is_some());
        assert!(!door.is_wanted());
        assert!(door.try_enter().is_some());
    }

    #[test]
    fn waiter_that_gives_up_passes_its_turn_to_the_next() {
        let door = Admission::new(1);
        let first = door.try_enter().unwrap();
        let mut second = Box::pin(door.enter());
        assert!(poll(second.as_mut()).is_none());
        let mut third = pin!(door.enter());
        assert!(poll(third.as_mut()).is_none());
        drop(first);
        drop(second);
        assert!(poll(third.as_mut()).is_some());
        assert!(!door.is_wanted());
    }

    struct AdmittedInstance(Mutex<Vec<Permit>>);

    impl Spare for AdmittedInstance {
        fn spare(&self) -> usize {
            self.0.lock().len()
        }

        fn let_go(&self) -> bool {
            self.0.lock().pop().is_some()
        }
    }

    #[test]
    fn idle_instances_are_evicted_from_the_plugin_with_most() {
        let door = Admission::new(4);
        let [few, many] = [1, 3].map(|count| {
            let permits = (0..count).map(|_| door.try_enter().unwrap()).collect();
            let kept = Arc::new(AdmittedInstance(Mutex::new(permits)));
            let weak: Weak<dyn Spare> = Arc::downgrade(&kept) as _;
            door.watch(weak);
            kept
        });
        let entered: Vec<_> = (0..2).map(|_| poll(pin!(door.enter())).unwrap()).collect();
        assert_eq!((few.spare(), many.spare()), (1, 1));
        drop((few, many));
        drop(entered);
        assert_eq!(door.free.available_permits(), 4);
    }
}
