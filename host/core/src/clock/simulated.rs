//! Simulated time. While there is work it stands still, or moves by a little with each read; when
//! there is none it jumps to the next timer. Each thread has its own clock; a thread without one
//! uses the machine's time.

use super::{BootInstant, Timestamp};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The number of reads between two jumps at which the reader counts as an endless loop.
const SPINS: u64 = 1_000_000;

thread_local! {
    /// Whether this thread's time is simulated. A thread without a simulation reads only this.
    static SIMULATED: Cell<bool> = const { Cell::new(false) };
    static TIME: RefCell<Time> = const { RefCell::new(Time::new()) };
}

struct Time {
    now: BootInstant,
    /// The date at instant zero, in milliseconds; negative if the date was set back before 1970.
    began: i64,
    timers: BTreeMap<(BootInstant, u64), Waker>,
    numbered: u64,
    /// The number of times that the machine was restarted.
    boots: u64,
    /// The number of reads since the last jump.
    reads: u64,
    /// The time that each read takes.
    step: Duration,
}

impl Time {
    const fn new() -> Self {
        Self {
            now: BootInstant(Duration::ZERO),
            began: 0,
            timers: BTreeMap::new(),
            numbered: 0,
            boots: 0,
            reads: 0,
            step: Duration::ZERO,
        }
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.now.0.as_millis()).unwrap_or(i64::MAX)
    }
}

/// A guard: this thread's time is simulated while it lives. It stays on its thread.
#[derive(Debug)]
pub struct Simulation(PhantomData<*const ()>);

impl Simulation {
    /// Begins a simulation at instant zero and the date `began`. Ends any earlier simulation on
    /// this thread.
    pub fn begin(began: Timestamp) -> Self {
        TIME.with_borrow_mut(|time| {
            *time = Time::new();
            time.began = i64::try_from(began.0).unwrap_or(i64::MAX);
        });
        SIMULATED.set(true);
        Self(PhantomData)
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        SIMULATED.set(false);
        // Wakers may own other sleeps, so none is dropped while the time is borrowed.
        drop(TIME.take());
    }
}

impl Default for Time {
    fn default() -> Self {
        Self::new()
    }
}

/// Jumps to the next timer and wakes all tasks that are due then. Call it when nothing else can
/// continue. Returns false if there is no timer, so that nothing can ever continue.
pub fn advance() -> bool {
    let due = TIME.with_borrow_mut(|time| {
        let Some((&(at, _), _)) = time.timers.first_key_value() else {
            return Vec::new();
        };
        time.now = time.now.max(at);
        let later = time.timers.split_off(&(time.now, u64::MAX));
        let due = std::mem::replace(&mut time.timers, later);
        time.reads = 0;
        due.into_values().collect()
    });
    let any = !due.is_empty();
    due.into_iter().for_each(Waker::wake);
    any
}

/// Returns the present time if the next call of `advance` jumps over some, because no timer is due.
pub fn before_jump() -> Option<BootInstant> {
    TIME.with_borrow(|time| {
        let ((next, _), _) = time.timers.first_key_value()?;
        (*next > time.now).then_some(time.now)
    })
}

/// Lets time pass without firing any timer, as while the machine is suspended.
pub fn pass(time_passed: Duration) {
    TIME.with_borrow_mut(|time| time.now = time.now + time_passed);
}

/// Sets the time that each read of the clock takes from now on. Without it, what becomes due between
/// two reads of one step is never seen.
pub fn set_step(step: Duration) {
    TIME.with_borrow_mut(|time| time.step = step);
}

/// Sets the wall clock this many milliseconds forward, or back if negative; instants do not change.
pub fn set_date(on_ms: i64) {
    TIME.with_borrow_mut(|time| time.began = time.began.saturating_add(on_ms));
}

/// Restarts the machine: the instant is zero, the date continues, and all timers are dropped.
pub fn reboot() {
    let slept = TIME.with_borrow_mut(|time| {
        time.began = time.began.saturating_add(time.now_ms());
        time.now = BootInstant::default();
        time.boots += 1;
        std::mem::take(&mut time.timers)
    });
    // Wakers may own other sleeps, so none is dropped while the time is borrowed.
    drop(slept);
}

pub(super) fn is_on() -> bool {
    SIMULATED.get()
}

pub(super) fn now() -> BootInstant {
    TIME.with_borrow_mut(|time| {
        time.reads += 1;
        assert!(time.reads < SPINS, "something spins: time cannot go on");
        time.now = time.now + time.step;
        time.now
    })
}

pub(super) fn boot() -> String {
    TIME.with_borrow(|time| format!("simulated {}", time.boots))
}

pub(super) fn today() -> Timestamp {
    let ms = TIME.with_borrow(|time| time.began.saturating_add(time.now_ms()));
    Timestamp(u64::try_from(ms).unwrap_or(0))
}

/// A future that ends at its instant.
#[derive(Debug)]
pub struct Sleep {
    at: BootInstant,
    timer: Option<(BootInstant, u64)>,
}

impl Sleep {
    pub(super) fn until(at: BootInstant) -> Self {
        Self { at, timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        TIME.with_borrow_mut(|time| {
            if time.now >= self.at {
                return Poll::Ready(());
            }
            let at = self.at;
            let key = *self.timer.get_or_insert_with(|| {
                time.numbered += 1;
                (at, time.numbered)
            });
            time.timers.insert(key, context.waker().clone());
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer {
            let waker = TIME.with_borrow_mut(|time| time.timers.remove(&key));
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn simulated_time_moves_only_when_advanced() {
        let _simulation = Simulation::begin(Timestamp(1_000));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .on_thread_park(|| assert!(advance(), "nothing would ever happen"))
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let start = clock::now();
            let later = start + Duration::from_secs(3_600);
            clock::sleep_until(Some(later)).await;
            assert_eq!(clock::now(), later);
            assert_eq!(clock::wall_clock_now(), Timestamp(3_601_000));
            set_date(-3_600_000);
            assert_eq!(
                (clock::now(), clock::wall_clock_now()),
                (later, Timestamp(1_000))
            );
        });
    }

    #[test]
    fn each_read_takes_its_step() {
        let _simulation = Simulation::begin(Timestamp(0));
        let step = Duration::from_micros(7);
        set_step(step);
        let first = clock::now();
        assert_eq!(clock::now(), first + step);
    }

    #[test]
    fn new_boot_starts_at_zero_with_a_new_id() {
        let _simulation = Simulation::begin(Timestamp(1_000));
        let first = clock::boot();
        pass(Duration::from_secs(9));
        reboot();
        assert_eq!(
            (clock::now(), clock::wall_clock_now()),
            (BootInstant::default(), Timestamp(10_000))
        );
        assert_ne!(clock::boot(), first);
    }

    #[test]
    fn machine_time_applies_outside_a_simulation() {
        drop(Simulation::begin(Timestamp(0)));
        assert!(clock::wall_clock_now() > Timestamp(1_000_000));
    }
}
