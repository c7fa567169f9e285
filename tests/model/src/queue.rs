//! Crossbeam's queues as loom can see them: a count that is published and taken atomically, and
//! the items behind it. It must not be stronger than what it stands for: a look at the count
//! alone orders nothing but by acquire and release, so a missing fence in the pool shows.
//!
//! The items' own lock is the standard library's. Loom switches threads only before one of its own
//! operations, so nothing happens between the count and the items.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use loom::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

pub enum Steal<T> {
    Empty,
    Success(T),
}

impl<T> Steal<T> {
    pub fn is_retry(&self) -> bool {
        false
    }

    pub fn success(self) -> Option<T> {
        match self {
            Self::Success(item) => Some(item),
            Self::Empty => None,
        }
    }
}

/// First in, first out.
pub struct Injector<T> {
    published: AtomicUsize,
    items: Mutex<VecDeque<T>>,
}

impl<T> Injector<T> {
    pub fn new() -> Self {
        Self {
            published: AtomicUsize::new(0),
            items: Mutex::new(VecDeque::new()),
        }
    }

    pub fn push(&self, item: T) {
        self.published.fetch_add(1, Release);
        self.items.lock().unwrap().push_back(item);
    }

    pub fn steal(&self) -> Steal<T> {
        match self.take(|_| 1) {
            Some(mut taken) => Steal::Success(taken.pop_front().expect("one was taken")),
            None => Steal::Empty,
        }
    }

    /// Half goes to `to`, and the first of it to the caller.
    pub fn steal_batch_and_pop(&self, to: &Worker<T>) -> Steal<T> {
        let Some(mut taken) = self.take(|count| count.div_ceil(2)) else {
            return Steal::Empty;
        };
        let first = taken.pop_front().expect("at least one was taken");
        taken.into_iter().for_each(|item| to.push(item));
        Steal::Success(first)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        self.published.load(Acquire)
    }

    fn take(&self, share: impl Fn(usize) -> usize) -> Option<VecDeque<T>> {
        let less = |count: usize| (count > 0).then(|| count - share(count));
        let before = self.published.fetch_update(AcqRel, Acquire, less).ok()?;
        Some(self.items.lock().unwrap().drain(..share(before)).collect())
    }
}

/// A worker's own end of its deque.
pub struct Worker<T>(Arc<Injector<T>>);

impl<T> Worker<T> {
    pub fn new_fifo() -> Self {
        Self(Arc::new(Injector::new()))
    }

    pub fn stealer(&self) -> Stealer<T> {
        Stealer(Arc::clone(&self.0))
    }

    pub fn push(&self, item: T) {
        self.0.push(item);
    }

    pub fn pop(&self) -> Option<T> {
        self.0.steal().success()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub struct Stealer<T>(Arc<Injector<T>>);

impl<T> Stealer<T> {
    pub fn steal_batch_and_pop(&self, to: &Worker<T>) -> Steal<T> {
        self.0.steal_batch_and_pop(to)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}
