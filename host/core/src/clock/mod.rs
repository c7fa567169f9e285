//! Reads the time. All other code takes `now` as an argument.

mod retry_after;
pub mod simulated;

pub use retry_after::retry_after;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio_util::either::Either;

/// An instant of the machine's own clock: the time since boot, including the time spent suspended.
/// A lease expires on the server while a laptop sleeps, so deadlines must expire as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// Returns the instant this long after boot, for tests and simulations, which keep their own
    /// time.
    pub const fn from_boot(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// Returns how long after `earlier` this is, or zero if it is not after it.
    pub fn since(self, earlier: BootInstant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for BootInstant {
    type Output = BootInstant;
    /// Adds a duration. Saturates, so a distant deadline does not panic.
    fn add(self, later: Duration) -> BootInstant {
        BootInstant(self.0.saturating_add(later))
    }
}

/// A date, in milliseconds since the Unix epoch. It may jump, so it serves only for values that
/// other machines or other processes read.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns how long after `earlier` this is, or zero if the clock went back.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Formats the date as RFC 3339, as JSON and the log have dates.
impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(self.0));
        // A date beyond the year 9999 is shown as the last second of that year.
        let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
        let at = at.map_or(last, |at| at.min(last));
        humantime::format_rfc3339_millis(at).fmt(out)
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, later: Duration) -> Timestamp {
        let ms = u64::try_from(later.as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_add(ms))
    }
}

/// Returns a time in seconds, rounded up, for people to read.
pub fn whole_seconds(time: Duration) -> u64 {
    time.as_secs()
        .saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// The clock that continues while the machine sleeps.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
/// The monotonic clock on other systems; on macOS it also continues while the machine sleeps.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

/// The number of milliseconds by which this process's time was moved ahead.
static AHEAD_MS: AtomicU64 = AtomicU64::new(0);

fn ahead() -> Duration {
    Duration::from_millis(AHEAD_MS.load(Ordering::Relaxed))
}

/// Moves this process's time ahead permanently, instants and dates alike. Only for a process that
/// serves tests and shares no file with another. Sleeps that have already begun do not end sooner.
pub fn advance(by: Duration) {
    let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
    // The closure never returns `None`, so the update always succeeds.
    let _ = AHEAD_MS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |ahead: u64| {
        Some(ahead.saturating_add(ms))
    });
}

/// Returns the present instant.
pub fn now() -> BootInstant {
    if simulated::is_on() {
        return simulated::now();
    }
    let at = rustix::time::clock_gettime(CLOCK);
    let seconds = u64::try_from(at.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(at.tv_nsec).unwrap_or_default();
    BootInstant(Duration::new(seconds, nanos).saturating_add(ahead()))
}

/// Returns the present date.
pub fn wall_clock_now() -> Timestamp {
    if simulated::is_on() {
        return simulated::today();
    }
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .saturating_add(ahead());
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the date of an instant, in nanoseconds since the Unix epoch.
pub fn unix_nanos(at: BootInstant) -> u64 {
    if simulated::is_on() {
        return simulated::today().0.saturating_mul(1_000_000);
    }
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let date = since
        .saturating_add(ahead())
        .saturating_sub(now().since(at));
    u64::try_from(date.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the identifier of this boot of the machine, if the system has one: instants of two boots
/// cannot be compared.
pub fn boot() -> Option<String> {
    if simulated::is_on() {
        return Some(simulated::boot());
    }
    // Only Linux has it as a file; reading it costs a few microseconds.
    let file = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = file.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

/// Returns at `at`, or at once if that is past; never returns if `at` is `None`. Needs the control
/// runtime's timer.
pub async fn sleep_until(at: Option<BootInstant>) {
    match at {
        Some(at) => sleep(at).await,
        None => std::future::pending().await,
    }
}

/// Returns a sleep for a thread without a timer of its own; it uses `control`'s timer.
pub fn sleep_on(control: &Handle, at: BootInstant) -> Sleep {
    let _entered = control.enter();
    sleep(at)
}

/// A future that ends at its instant.
pub type Sleep = Either<tokio::time::Sleep, simulated::Sleep>;

fn sleep(at: BootInstant) -> Sleep {
    if simulated::is_on() {
        Either::Right(simulated::Sleep::until(at))
    } else {
        Either::Left(tokio::time::sleep(at.since(now())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_arithmetic_saturates() {
        let far = BootInstant::from_boot(Duration::MAX) + Duration::from_secs(1);
        assert_eq!(far.since(BootInstant::default()), Duration::MAX);
        assert_eq!(BootInstant::default().since(far), Duration::ZERO);
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
        assert_eq!(Timestamp(u64::MAX) + Duration::MAX, Timestamp(u64::MAX));
    }

    #[test]
    fn partial_second_rounds_up() {
        for (ms, seconds) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn boot_id_is_stable() {
        assert!(boot().is_some());
        assert_eq!(boot(), boot());
    }

    #[test]
    fn monotonic_clock_does_not_go_back() {
        let first = now();
        assert!(now() >= first);
    }
}
