//! The port to handlers: one method. Each implementation is a separate crate.

use crate::clock;
use crate::clock::{BootInstant, Timestamp};
use crate::message::{Message, Verdict};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// Messages of one queue that a handler gets together.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// 1 to `Handler::batch` messages, in the queue's order.
    pub messages: Vec<Message>,
    /// One token per message, at the same index. It is set once the handler's answer for the
    /// message no longer counts.
    pub cancelled: Vec<CancellationToken>,
    /// The earlier attempts of this delivery, per message. May be shorter than `messages`: the
    /// others had none.
    pub tries: Vec<u32>,
    /// The time at which the attempt is stopped.
    pub deadline: Deadline,
}

impl Attempt {
    /// Returns the number of this attempt at a message, from 1. Every earlier delivery counts as
    /// one attempt.
    pub fn number(&self, at: usize) -> u32 {
        let received = self.messages.get(at).map_or(1, |one| one.receive_count);
        let tries = self.tries.get(at).copied().unwrap_or_default();
        received.max(1).saturating_add(tries)
    }
}

/// The time limit of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit {
    /// The limit unless the handler asks for more.
    pub timeout: Duration,
    /// The longest limit that the handler can get by asking.
    pub longest: Duration,
}

impl From<Duration> for TimeLimit {
    fn from(timeout: Duration) -> Self {
        Self {
            timeout,
            longest: timeout,
        }
    }
}

/// The time at which an attempt is stopped. The handler may extend it up to a limit; clones are
/// extended too.
#[derive(Debug, Clone)]
pub struct Deadline {
    first: BootInstant,
    first_date: Timestamp,
    /// `None` if no extension is possible, as in most cases.
    extension: Option<Arc<Extension>>,
}

#[derive(Debug)]
struct Extension {
    added_ms: AtomicU64,
    most_ms: u64,
}

impl Deadline {
    /// Makes a deadline that cannot be extended, given on both clocks.
    pub fn fixed(at: BootInstant, date: Timestamp) -> Self {
        Self {
            first: at,
            first_date: date,
            extension: None,
        }
    }

    /// Makes the deadline of an attempt that begins now.
    pub fn after(limit: impl Into<TimeLimit>) -> Self {
        let TimeLimit { timeout, longest } = limit.into();
        let most_ms = whole_ms(longest.saturating_sub(timeout));
        let extension = (most_ms > 0).then(|| {
            Arc::new(Extension {
                added_ms: AtomicU64::new(0),
                most_ms,
            })
        });
        Self {
            first: clock::now() + timeout,
            first_date: clock::wall_clock_now() + timeout,
            extension,
        }
    }

    /// Returns the time by which the handler extended the deadline.
    pub fn added(&self) -> Duration {
        let extension = self.extension.as_ref();
        let added_ms = extension.map(|one| one.added_ms.load(Ordering::Relaxed));
        Duration::from_millis(added_ms.unwrap_or_default())
    }

    /// Returns the deadline with all extensions so far.
    pub fn get(&self) -> BootInstant {
        self.first + self.added()
    }

    /// Returns the deadline in wall-clock time, for guests.
    pub fn date(&self) -> Timestamp {
        self.first_date + self.added()
    }

    /// Returns the time left until the deadline.
    pub fn left(&self, now: BootInstant) -> Duration {
        self.get().since(now)
    }

    /// Whether the deadline has passed.
    pub fn is_over(&self, now: BootInstant) -> bool {
        now >= self.get()
    }

    /// Extends the deadline to this instant, as far as the limit allows. Never makes it earlier.
    pub fn extend(&self, until: BootInstant) {
        if let Some(extension) = &self.extension {
            let wanted_ms = whole_ms(until.since(self.first)).min(extension.most_ms);
            extension.added_ms.fetch_max(wanted_ms, Ordering::Relaxed);
        }
    }

    /// Waits until the deadline has passed, including extensions made in the meantime. `timers` is
    /// the runtime whose timers are used.
    pub async fn passed(&self, timers: &Handle) {
        loop {
            let at = self.get();
            clock::sleep_on(timers, at).await;
            if at == self.get() {
                return;
            }
        }
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The instances of a plugin and their memory at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Instances at work. If many attempts share an instance, it also counts between two attempts.
    pub running: usize,
    /// Bytes in the memories of the running instances.
    pub running_memory: usize,
    /// Instances that wait for an attempt: used ones and ones made ahead.
    pub idle: usize,
    /// Bytes in the memories of the waiting instances.
    pub idle_memory: usize,
}

/// A handler of messages. Shared by reference; many attempts use it at once.
#[async_trait::async_trait]
pub trait Handler: Send + Sync + 'static {
    /// The maximum number of messages of one attempt; 1 for a handler of single messages.
    fn batch(&self) -> usize;

    /// Whether work that an attempt started may continue elsewhere after the attempt is stopped, as
    /// an invoked Lambda function does.
    fn reaches_out(&self) -> bool {
        false
    }

    /// Returns the version of the code that an attempt would run now, if the handler has versions.
    fn version(&self, _attempt: &Attempt) -> Option<Arc<str>> {
        None
    }

    /// Returns the instances and memory of all versions together. Zero if the handler has no
    /// instances.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Runs one attempt and returns one verdict per message, in order. Never panics because of a
    /// guest: a trap is a verdict. Yields to its executor at every epoch while the guest computes.
    /// Dropping the future stops the guest and frees its instance.
    async fn handle(&self, attempt: Arc<Attempt>) -> Vec<Verdict>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::samples;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn deadline_is_extended_up_to_its_limit_and_never_shortened() {
        let limit = TimeLimit {
            timeout: 30 * S,
            longest: 50 * S,
        };
        let deadline = Deadline::after(limit);
        let (clone, first, date) = (deadline.clone(), deadline.get(), deadline.date());
        for (until, added) in [(5 * S, 5 * S), (2 * S, 5 * S), (60 * S, 20 * S)] {
            clone.extend(first + until);
            assert_eq!(deadline.get(), first + added);
            assert_eq!(deadline.date(), date + added);
        }
        assert!(!deadline.is_over(first) && deadline.is_over(first + 20 * S));
        let fixed = Deadline::after(30 * S);
        let first = fixed.get();
        fixed.extend(first + 60 * S);
        assert_eq!(fixed.get(), first);
    }

    #[tokio::test]
    async fn deadline_that_is_extended_while_it_is_awaited_passes_later() {
        let ms = Duration::from_millis;
        let deadline = Deadline::after(TimeLimit {
            timeout: ms(20),
            longest: ms(60),
        });
        let extended = deadline.clone();
        let passed = async {
            deadline.passed(&Handle::current()).await;
            clock::now()
        };
        let extend = async {
            tokio::task::yield_now().await;
            extended.extend(extended.get() + ms(40));
        };
        let (at, ()) = tokio::join!(passed, extend);
        assert!(at >= extended.get());
    }

    #[test]
    fn attempts_are_numbered_over_deliveries_and_within_one() {
        let attempt = Attempt {
            messages: vec![samples::message("a"), samples::message("b")],
            cancelled: Vec::new(),
            tries: vec![2],
            deadline: Deadline::after(S),
        };
        assert_eq!([0, 1, 2].map(|at| attempt.number(at)), [3, 1, 1]);
    }
}
