//! Runs a second version on the same messages for comparison only: after the first has answered, a
//! few attempts at once, without side effects. The code that creates the shadow denies it every
//! outbound capability.

use super::Version;
use super::canary::is_begun;
use crate::recording::entry::RecordedVerdict;
use dispatcher_core::clock;
use dispatcher_core::handler::{Attempt, Deadline, TimeLimit};
use dispatcher_core::message::{FailureReason, Verdict};
use parking_lot::Mutex;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The maximum number of attempts of a shadow at once; further attempts are not compared.
pub const AT_ONCE: usize = 4;
/// The maximum number of differences logged per minute; all are counted.
const SAID: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

tokio::task_local! {
    /// Whether the shadow's attempt that is being polled has used a capability that is denied to
    /// it.
    static ASKED: Cell<bool>;
}

/// Notes that a shadow was denied something that the first version is granted.
pub fn refused() {
    // An attempt that shares its instance is not polled in this scope, so its denials are not
    // noted.
    let _ = ASKED.try_with(|asked| asked.set(true));
}

/// A function that polls a future to its end, on the threads that run guests.
pub type Run = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// The results of the comparison, in messages.
#[derive(Debug, Default)]
pub struct ComparisonCounts {
    /// The verdicts are alike.
    pub same: AtomicU64,
    /// The verdicts differ.
    pub different: AtomicU64,
    /// The verdicts differ, but a capability was denied to the shadow, so the cause is unknown.
    pub closed: AtomicU64,
    /// The shadow did not run the message: it was busy with other attempts, or the run ended.
    pub skipped: AtomicU64,
}

/// A version that runs for comparison only.
pub struct Shadow {
    version: Version,
    plugin: String,
    timeout: TimeLimit,
    run: Run,
    control: Handle,
    room: Arc<Semaphore>,
    over: CancellationToken,
    /// The results so far.
    pub compared: ComparisonCounts,
    said: Mutex<(clock::BootInstant, u32)>,
}

impl Shadow {
    /// Creates a shadow. `run` polls its attempts, which take at most `timeout` and end with
    /// `over`; `control` is the runtime that has the timers.
    pub fn new(
        version: Version,
        plugin: &str,
        timeout: impl Into<TimeLimit>,
        run: Run,
        control: Handle,
        over: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            version,
            plugin: plugin.to_owned(),
            timeout: timeout.into(),
            run,
            control,
            room: Arc::new(Semaphore::new(AT_ONCE)),
            over,
            compared: ComparisonCounts::default(),
            said: Mutex::default(),
        })
    }

    /// Returns the version.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Runs an attempt that the first version has handled and compares the verdicts. Returns at
    /// once.
    pub fn offer(self: &Arc<Self>, attempt: &Attempt, verdicts: &[Verdict]) {
        let messages = attempt.messages.len() as u64;
        // A message that was not begun has no verdict to compare with.
        if !verdicts.iter().all(is_begun) {
            return;
        }
        let room = self.room.clone().try_acquire_owned();
        let (Ok(room), false) = (room, self.over.is_cancelled()) else {
            self.compared.skipped.fetch_add(messages, Relaxed);
            return;
        };
        let copy = Arc::new(Attempt {
            messages: attempt.messages.clone(),
            cancelled: vec![self.over.child_token(); attempt.messages.len()],
            tries: attempt.tries.clone(),
            deadline: Deadline::after(self.timeout),
        });
        let (shadow, verdicts) = (self.clone(), verdicts.to_vec());
        (self.run)(Box::pin(async move {
            let (answer, asked) = shadow.answer(&copy).await;
            drop(room);
            match answer {
                Some(answer) => shadow.compare(&copy, &verdicts, &answer, asked),
                None => drop(shadow.compared.skipped.fetch_add(messages, Relaxed)),
            }
        }));
    }

    /// Returns the shadow's verdicts, and whether a capability was denied to it. The verdicts are
    /// `None` if the run ends first.
    async fn answer(&self, attempt: &Arc<Attempt>) -> (Option<Vec<Verdict>>, bool) {
        let handling = async {
            let answer = self.version.handler.handle(attempt.clone()).await;
            (answer, ASKED.with(Cell::get))
        };
        let timer = attempt.deadline.passed(&self.control);
        tokio::select! {
            biased;
            () = self.over.cancelled() => (None, false),
            (answer, asked) = ASKED.scope(Cell::new(false), handling) => (Some(answer), asked),
            () = timer => {
                let why = FailureReason::TimedOut(self.timeout.timeout + attempt.deadline.added());
                let verdict = Verdict::Retry { after: None, why };
                (Some(vec![verdict; attempt.messages.len()]), false)
            }
        }
    }

    fn compare(&self, attempt: &Attempt, first: &[Verdict], second: &[Verdict], asked: bool) {
        for ((message, first), second) in attempt.messages.iter().zip(first).zip(second) {
            let (first, second) = (RecordedVerdict::of(first), RecordedVerdict::of(second));
            let count = match (first.is_like(&second), asked) {
                (true, _) => &self.compared.same,
                (false, true) => &self.compared.closed,
                (false, false) => &self.compared.different,
            };
            count.fetch_add(1, Relaxed);
            if std::ptr::eq(count, &self.compared.different) && self.may_log() {
                tracing::warn!(
                    plugin = self.plugin,
                    message_id = message.id,
                    current = %first,
                    shadow = %second,
                    "shadow answer differs"
                );
            }
        }
    }

    fn may_log(&self) -> bool {
        let mut said = self.said.lock();
        let now = clock::now();
        if now.since(said.0) >= MINUTE {
            *said = (now, 0);
        }
        said.1 += 1;
        said.1 <= SAID
    }
}
