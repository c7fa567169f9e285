//! Admits instances: as many as the engine has slots for. Further ones wait, in the order of
//! arrival, and idle instances are evicted for them. Knows no instance and no plugin.

use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::Verdict;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// An attempt waits for room for this part of its time at most: a quarter. What is left later might
/// be too little to do its work, and fewer attempts at once are the cure.
const WAIT: u32 = 4;

/// Until when an attempt that begins now waits for room.
pub(super) fn patience(attempt: &Attempt) -> BootInstant {
    let now = clock::now();
    now + attempt.deadline.left(now) / WAIT
}

/// Answers that an attempt was not begun.
pub(super) fn turned_away(attempt: &Attempt, why: &str) -> Vec<Verdict> {
    let why = why.to_owned();
    vec![Verdict::Busy { after: None, why }; attempt.messages.len()]
}

/// Why an attempt is turned away that no instance may be made for.
pub(super) const FULL: &str =
    "no slot for another instance: all of them, those of other plugins included, are in use";

/// Room for one instance. Released when dropped, which must not be before the instance is gone.
pub(super) struct Permit(
    #[expect(dead_code, reason = "its drop is what it is for")] OwnedSemaphorePermit,
);

/// Somebody who keeps instances that work on nothing.
pub(super) trait Spare: Send + Sync {
    /// How many, at this moment.
    fn spare(&self) -> usize;

    /// Lets go of one of them. False if there is none.
    fn let_go(&self) -> bool;
}

/// The door to all instances of an engine.
pub(super) struct Admission {
    free: Arc<Semaphore>,
    /// How many wait.
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

    /// Remembers somebody who may make room for others.
    pub(super) fn watch(&self, spare: Weak<dyn Spare>) {
        let mut all = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(spare);
    }

    /// Whether somebody waits. An instance's owner checks this **after** it has put the instance
    /// where `let_go` finds it, and then evicts it: a waiter has registered before it looked
    /// there.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Room, if there is some for which nobody waits.
    pub(super) fn try_enter(&self) -> Option<Permit> {
        // What is released goes to those who wait, and is never free meanwhile.
        let permit = Arc::clone(&self.free).try_acquire_owned();
        permit.ok().map(Permit)
    }

    /// Room, when it is this one's turn. Dropped, it gives its turn to the next.
    pub(super) async fn enter(&self) -> Permit {
        if let Some(permit) = self.try_enter() {
            return permit;
        }
        let _waiting = AdmissionWaiter::begin(&self.waiting);
        let mut permit = pin!(Arc::clone(&self.free).acquire_owned());
        let mut asked = false;
        let permit = poll_fn(|context| match permit.as_mut().poll(context) {
            Poll::Pending if !asked => {
                // It is in the row, so what others let go of comes to it in its turn.
                asked = true;
                self.make_room();
                permit.as_mut().poll(context)
            }
            poll => poll,
        });
        Permit(permit.await.expect("the semaphore is never closed"))
    }

    /// Has one instance thrown away that works on nothing: of whoever has most of them.
    fn make_room(&self) {
        let mut all: Vec<(usize, Arc<dyn Spare>)> = {
            let all = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
            let alive = all.iter().filter_map(Weak::upgrade);
            alive.map(|one| (one.spare(), one)).collect()
        };
        all.sort_by_key(|(spare, _)| std::cmp::Reverse(*spare));
        let _ = all.iter().any(|(_, one)| one.let_go());
    }
}

/// Somebody waits.
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

/// Lets others run once. The engine gives slots of thrown-away instances back some at a time; one
/// who has room and finds no slot has come while another thread was at it.
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
            self.0.lock().unwrap().len()
        }

        fn let_go(&self) -> bool {
            self.0.lock().unwrap().pop().is_some()
        }
    }

    #[test]
    fn idle_instances_are_evicted_from_the_plugin_with_most() {
        let door = Admission::new(4);
        let kept = |count: usize| {
            let permits = (0..count).map(|_| door.try_enter().unwrap()).collect();
            let kept = Arc::new(AdmittedInstance(Mutex::new(permits)));
            let weak: Weak<dyn Spare> = Arc::downgrade(&kept) as _;
            door.watch(weak);
            kept
        };
        let (few, many) = (kept(1), kept(3));
        let entered: Vec<_> = (0..2).map(|_| poll(pin!(door.enter())).unwrap()).collect();
        assert_eq!((few.spare(), many.spare()), (1, 1));
        drop((few, many));
        drop(entered);
        assert_eq!(door.free.available_permits(), 4);
    }
}
