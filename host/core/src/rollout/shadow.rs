//! Runs a second version on the same messages only for comparison: after the first has answered, a
//! few concurrently, without side effects. Knows no plugin; the builder denies it every outbound
//! capability.

use super::Version;
use super::canary::is_begun;
use crate::clock;
use crate::handler::{Attempt, Deadline, TimeLimit};
use crate::message::{FailureReason, Verdict};
use crate::recording::entry::RecordedVerdict;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Maximum attempts of a shadow at once; what comes beyond them is not compared.
pub const AT_ONCE: usize = 4;
/// Maximum number of logged differences per minute; all are counted.
const SAID: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

tokio::task_local! {
    /// Whether the shadow's attempt that is being polled has asked for what is closed to it.
    static ASKED: Cell<bool>;
}

/// To be called when a shadow is refused what the first version is granted.
pub fn refused() {
    // An attempt that shares its instance is not polled under its own name: then nothing is noted.
    let _ = ASKED.try_with(|asked| asked.set(true));
}

/// Polls a future to its end, on threads that run guests.
pub type Run = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// How the answers of a shadow compare, in messages.
#[derive(Debug, Default)]
pub struct Compared {
    /// It answered the same.
    pub same: AtomicU64,
    /// It answered otherwise.
    pub different: AtomicU64,
    /// It answered otherwise after it had asked for what is closed to it: nobody knows why.
    pub closed: AtomicU64,
    /// It was not asked: it was busy with others, or the run ended.
    pub skipped: AtomicU64,
}

/// A version beside the others.
pub struct Shadow {
    version: Version,
    plugin: String,
    timeout: TimeLimit,
    run: Run,
    control: Handle,
    room: Arc<Semaphore>,
    over: CancellationToken,
    /// How it has compared so far.
    pub compared: Compared,
    said: Mutex<(clock::BootInstant, u32)>,
}

impl Shadow {
    /// `run` polls its attempts, which take `timeout` at most and end with `over`; `control` has
    /// the timers.
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
            compared: Compared::default(),
            said: Mutex::default(),
        })
    }

    /// The version.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Runs an attempt that the first version has answered, and compares. Returns at once.
    pub fn offer(self: &Arc<Self>, attempt: &Attempt, verdicts: &[Verdict]) {
        let messages = attempt.messages.len() as u64;
        // What was not begun is no answer to compare with.
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

    /// What it answers, and whether it asked for what is closed. None if the run ends before.
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
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        if now.since(said.0) >= MINUTE {
            *said = (now, 0);
        }
        said.1 += 1;
        said.1 <= SAID
    }
}
