//! Keeps the deadline of the current attempt for code that waits within a handler.
//!
//! An instance runs one handler at any moment, but may have started others. So the deadline is set
//! again each time a handler continues.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The deadline of an attempt without a time limit.
pub(crate) const NEVER: u64 = u64::MAX;

thread_local! {
    static END_MS: Cell<u64> = const { Cell::new(NEVER) };
}

/// Returns the deadline of the current attempt, in milliseconds since the Unix epoch. `None`
/// outside of a handler, and if the message has no deadline.
pub(crate) fn end_ms() -> Option<u64> {
    Some(END_MS.get()).filter(|end_ms| *end_ms != NEVER)
}

/// Returns the time until this date. It is zero if the date is past.
pub(crate) fn left(end_ms: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Duration::from_millis(end_ms).saturating_sub(now.unwrap_or_default())
}

/// Restores the previous deadline when it is dropped, even if a test's handler panics.
struct Before(u64);

impl Drop for Before {
    fn drop(&mut self) {
        END_MS.set(self.0);
    }
}

/// Runs a function with this deadline.
pub(crate) fn until<T>(end_ms: u64, run: impl FnOnce() -> T) -> T {
    let _before = Before(END_MS.replace(end_ms));
    run()
}

/// A future that runs with this deadline.
pub(crate) struct Until<F> {
    end_ms: u64,
    future: Pin<Box<F>>,
}

impl<F> Until<F> {
    pub(crate) fn new(end_ms: u64, future: F) -> Self {
        let future = Box::pin(future);
        Self { end_ms, future }
    }
}

impl<F: Future> Future for Until<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let end_ms = self.end_ms;
        until(end_ms, || self.future.as_mut().poll(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn remaining_time_is_zero_for_the_past_and_long_without_a_deadline() {
        assert_eq!(left(0), Duration::ZERO);
        assert!(left(NEVER) > Duration::from_secs(1 << 40));
    }

    /// A future that is ready at its second poll.
    struct Twice(bool);

    impl Future for Twice {
        type Output = Option<u64>;

        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u64>> {
            if std::mem::replace(&mut self.0, true) {
                Poll::Ready(end_ms())
            } else {
                Poll::Pending
            }
        }
    }

    #[test]
    fn concurrent_handlers_each_see_their_own_deadline() {
        let (mut first, mut second) = (Until::new(1, Twice(false)), Until::new(2, Twice(false)));
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = |future: &mut Until<Twice>| Pin::new(future).poll(&mut context);
        assert_eq!([poll(&mut first), poll(&mut second)], [Poll::Pending; 2]);
        assert_eq!(poll(&mut first), Poll::Ready(Some(1)));
        assert_eq!(poll(&mut second), Poll::Ready(Some(2)));
        assert_eq!(end_ms(), None);
    }
}
