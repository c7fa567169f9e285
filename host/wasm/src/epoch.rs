//! The only thread that advances the engine's epoch, at which a computing guest yields or is
//! stopped. Does not depend on guests or read the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The maximum time for which a guest computes before it yields, apart from the scheduler's delay.
/// Ten `loop {}` guests on one thread thus delay an eleventh by about ten milliseconds.
const TICK: Duration = Duration::from_millis(1);

/// The number of ticks without a guest on a thread after which the ticker sleeps until the next
/// guest. It is more than one, so that a series of short attempts does not wake the ticker for
/// each.
const IDLE_TICKS: u32 = 16;

/// The thread that ticks while at least one guest is being polled. Dropping this ends it.
#[derive(Debug)]
pub(super) struct Ticker {
    shared: Arc<EpochState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct EpochState {
    /// The number of guests that are on a thread now. A guest that waits in a host call does not
    /// count, because it needs no tick.
    polled: AtomicUsize,
    parked: AtomicBool,
    stopped: AtomicBool,
}

impl Ticker {
    /// Starts the thread, which calls `tick` at every tick.
    pub(super) fn start(tick: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(EpochState::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("epoch".into())
            .spawn(move || run(&theirs, tick))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Keeps the ticker awake until the returned value is dropped.
    pub(super) fn awake(&self) -> Awake<'_> {
        self.shared.polled.fetch_add(1, Ordering::SeqCst);
        // The ticker reads `polled` once more after it has set `parked`, so one of the two sees the
        // other.
        if self.shared.parked.load(Ordering::SeqCst)
            && self.shared.parked.swap(false, Ordering::SeqCst)
        {
            self.unpark();
        }
        Awake(&self.shared)
    }

    fn unpark(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.unpark();
        if let Some(thread) = self.thread.take() {
            // It can only have panicked in `tick`, and a drop cannot report that.
            let _ = thread.join();
        }
    }
}

/// A guest that is on a thread.
pub(super) struct Awake<'a>(&'a EpochState);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.polled.fetch_sub(1, Ordering::SeqCst);
    }
}

fn run(shared: &EpochState, tick: impl Fn()) {
    let mut idle = 0;
    while !shared.stopped.load(Ordering::SeqCst) {
        if shared.polled.load(Ordering::SeqCst) > 0 {
            idle = 0;
        } else {
            idle += 1;
        }
        if idle > IDLE_TICKS {
            park(shared);
            idle = 0;
        }
        std::thread::park_timeout(TICK);
        tick();
    }
}

fn park(shared: &EpochState) {
    shared.parked.store(true, Ordering::SeqCst);
    while shared.parked.load(Ordering::SeqCst)
        && shared.polled.load(Ordering::SeqCst) == 0
        && !shared.stopped.load(Ordering::SeqCst)
    {
        std::thread::park();
    }
    shared.parked.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn epoch_ticks_only_while_a_guest_is_polled() {
        let (tick, ticks) = mpsc::channel();
        let ticker = Ticker::start(move || tick.send(()).unwrap()).unwrap();
        for _ in 0..3 {
            let awake = ticker.awake();
            for _ in 0..IDLE_TICKS * 3 {
                ticks.recv().unwrap();
            }
            drop(awake);
            while !ticker.shared.parked.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            while ticks.try_recv().is_ok() {}
        }
        drop(ticker);
        // Ends only if the thread, which owns the sender, has ended.
        for () in ticks {}
    }
}
