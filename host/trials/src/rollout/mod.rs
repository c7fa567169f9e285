//! Chooses the version of a plugin that handles a message: the current one, which may be replaced
//! at any time; a canary, which takes a share of the messages; or a shadow, which is only compared.
//! Does not depend on files or WebAssembly: the loader passes the versions in.

pub mod canary;
pub mod shadow;

use crate::recording::Recorder;
use canary::{Race, Share};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::handler::{Attempt, Handler, Usage};
use dispatcher_core::message::{FailureReason, Verdict};
use parking_lot::{Mutex, RwLock};
use shadow::Shadow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// One version of a plugin, ready to run.
#[derive(Clone)]
pub struct Version {
    /// The handler that runs it.
    pub handler: Arc<dyn Handler>,
    /// The label in logs: its file and the beginning of its digest.
    pub label: Arc<str>,
    /// The SHA-256, which identifies it.
    pub digest: Arc<str>,
}

/// A version that is tried on a share of the messages.
pub struct Canary {
    version: Version,
    share: Share,
    race: Mutex<Race>,
    fallen: AtomicBool,
}

impl Canary {
    /// Creates a canary. Keeps the results of `before` if that has the same version and share.
    pub fn new(version: Version, share: Share, before: Option<&Self>) -> Self {
        let same =
            |before: &&Self| before.version.digest == version.digest && before.share == share;
        let before = before.filter(same);
        Self {
            race: Mutex::new(before.map(Self::race).unwrap_or_default()),
            fallen: AtomicBool::new(before.is_some_and(Self::has_fallen)),
            version,
            share,
        }
    }

    /// Resets the results of both versions. A canary that was rolled back stays rolled back.
    fn begin_again(&self) {
        *self.race.lock() = Race::default();
    }

    /// Returns the version.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Returns the share of the messages that it takes, or `None` once it was rolled back.
    pub fn share(&self) -> Option<Share> {
        (!self.has_fallen()).then_some(self.share)
    }

    /// Returns the results of both versions since the canary began.
    pub fn race(&self) -> Race {
        *self.race.lock()
    }

    /// Whether it was rolled back.
    pub(crate) fn has_fallen(&self) -> bool {
        self.fallen.load(Relaxed)
    }

    fn takes(&self, attempt: &Attempt) -> bool {
        let first = attempt.messages.first();
        !self.has_fallen() && first.is_some_and(|message| self.share.takes(message, "canary"))
    }

    /// Counts an attempt of the canary (`own`) or of the current version. Returns the results if
    /// the canary has just lost.
    fn count(&self, own: bool, count: impl FnOnce(&mut canary::Tally)) -> Option<Race> {
        if self.has_fallen() {
            return None;
        }
        let mut race = self.race.lock();
        count(if own {
            &mut race.canary
        } else {
            &mut race.current
        });
        race.age();
        (race.is_lost() && !self.fallen.swap(true, Relaxed)).then_some(*race)
    }
}

/// The versions in use at one moment. An attempt stays with the stage on which it began.
#[derive(Clone)]
pub struct Stage {
    /// The version that takes all messages that the canary does not take.
    pub current: Version,
    /// The version that is tried.
    pub canary: Option<Arc<Canary>>,
    /// The version that is compared.
    pub shadow: Option<Arc<Shadow>>,
}

/// The recording of a share of the messages.
pub struct RecordedShare {
    /// The recorder that writes the messages.
    pub recorder: Recorder,
    /// The share of the messages that is recorded.
    pub share: Share,
}

/// The versions of one route's plugin.
pub struct Rollout {
    plugin: String,
    /// The batch size of the first version, for which the scheduler has planned.
    batch: usize,
    stage: RwLock<Arc<Stage>>,
    recording: Option<RecordedShare>,
    /// The number of times that the current version was replaced.
    replaced: AtomicU64,
    /// The number of times that a version was refused.
    refused: AtomicU64,
}

impl Rollout {
    /// Creates a rollout of these versions. `batch` is the maximum number of messages of an
    /// attempt, which every version must accept.
    pub fn new(plugin: &str, batch: usize, stage: Stage, recording: Option<RecordedShare>) -> Self {
        Self {
            plugin: plugin.to_owned(),
            batch,
            stage: RwLock::new(Arc::new(stage)),
            recording,
            replaced: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Returns the plugin's name.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// Returns the versions in use now.
    pub fn stage(&self) -> Arc<Stage> {
        let stage = self.stage.read();
        stage.clone()
    }

    /// Sets the versions for attempts that begin from now on. Attempts under way keep their
    /// versions.
    pub fn set(&self, stage: Stage) {
        let mut now = self.stage.write();
        if now.current.digest != stage.current.digest {
            self.replaced.fetch_add(1, Relaxed);
            // From now on the canary is compared with the new current version.
            stage.canary.iter().for_each(|canary| canary.begin_again());
        }
        // Drop the old stage outside of the lock, because its idle instances may be dropped with
        // it.
        let old = std::mem::replace(&mut *now, Arc::new(stage));
        drop(now);
        drop(old);
    }

    /// Rolls the canary back on request: from now on the current version takes all messages.
    /// Returns the canary's label, or `None` if no canary takes messages.
    pub fn roll_back(&self) -> Option<Arc<str>> {
        let stage = self.stage();
        let canary = stage.canary.as_ref()?;
        if canary.fallen.swap(true, Relaxed) {
            return None;
        }
        let race = canary.race();
        tracing::warn!(
            plugin = self.plugin,
            version = %canary.version.label,
            attempts = race.canary.attempts,
            failed = race.canary.failed,
            "canary rolled back on request: the current version takes all messages again"
        );
        Some(canary.version.label.clone())
    }

    /// Counts a version that was refused.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Returns how often the current version was replaced, and how often another was refused.
    pub fn counts(&self) -> (u64, u64) {
        (self.replaced.load(Relaxed), self.refused.load(Relaxed))
    }

    /// Returns the numbers of messages recorded and left out, or `None` if recording is off.
    pub fn recorded(&self) -> Option<(u64, u64)> {
        let recording = self.recording.as_ref();
        recording.map(|recording| recording.recorder.counts())
    }

    fn fell(&self, canary: &Canary, race: Race) {
        tracing::error!(
            plugin = self.plugin,
            version = %canary.version.label,
            attempts = race.canary.attempts,
            failed = race.canary.failed,
            current_attempts = race.current.attempts,
            current_failed = race.current.failed,
            "canary rolled back: it failed more often than the current version, which takes all messages again"
        );
    }

    /// Records the share of the attempt's messages. `version` returns the version that handled the
    /// message at an index.
    fn record<'a>(
        &self,
        attempt: &Attempt,
        verdicts: &[Verdict],
        version: impl Fn(usize) -> &'a Version,
        took: Duration,
    ) {
        let Some(RecordedShare { recorder, share }) = &self.recording else {
            return;
        };
        for (at, (message, verdict)) in attempt.messages.iter().zip(verdicts).enumerate() {
            if share.takes(message, "record") {
                recorder.keep(message, verdict, &version(at).digest, took);
            }
        }
    }

    async fn try_and_compare(&self, stage: &Stage, attempt: Arc<Attempt>) -> Vec<Verdict> {
        let canary = stage.canary.as_deref();
        let own = canary.is_some_and(|canary| canary.takes(&attempt));
        let version = match canary {
            Some(canary) if own => &canary.version,
            _ => &stage.current,
        };
        let began = clock::now();
        let mut watch = RolloutWatch {
            rollout: self,
            attempt: &attempt,
            version,
            canary,
            own,
            began,
            answered: false,
        };
        let mut verdicts = version.handler.handle(attempt.clone()).await;
        let mut begun = Vec::new();
        if own {
            begun = stand_in(&stage.current, &attempt, &mut verdicts).await;
        }
        watch.answered = true;
        if let Some(canary) = canary
            && let Some(race) = canary.count(own, |tally| match begun[..] {
                [] => tally.count(&verdicts),
                _ => tally.count_failed(),
            })
        {
            self.fell(canary, race);
        }
        self.record(
            &attempt,
            &verdicts,
            |at| {
                if begun.contains(&at) {
                    &stage.current
                } else {
                    version
                }
            },
            clock::now().since(began),
        );
        if let Some(shadow) = &stage.shadow {
            shadow.offer(&attempt, &verdicts);
        }
        verdicts
    }
}

/// Counts and records an attempt that is given up because its time is over, for example while it
/// waits for the network.
struct RolloutWatch<'a> {
    rollout: &'a Rollout,
    attempt: &'a Attempt,
    version: &'a Version,
    canary: Option<&'a Canary>,
    own: bool,
    began: BootInstant,
    answered: bool,
}

/// Runs the messages that the canary did not begin on the current version, since the canary may be
/// the reason: if it alone imports a function that does not exist, its verdict would close the
/// whole route. Returns the indices of the messages that the current version began, which the
/// canary should have begun too.
async fn stand_in(current: &Version, attempt: &Attempt, verdicts: &mut [Verdict]) -> Vec<usize> {
    let left: Vec<usize> = verdicts
        .iter()
        .enumerate()
        .filter(|(_, verdict)| !canary::is_begun(verdict))
        .map(|(at, _)| at)
        .collect();
    if left.is_empty() {
        return left;
    }
    let attempt = Attempt {
        messages: left
            .iter()
            .map(|at| attempt.messages[*at].clone())
            .collect(),
        cancelled: left
            .iter()
            .map(|at| attempt.cancelled[*at].clone())
            .collect(),
        tries: left
            .iter()
            .filter_map(|at| attempt.tries.get(*at).copied())
            .collect(),
        deadline: attempt.deadline.clone(),
    };
    let answers = current.handler.handle(Arc::new(attempt)).await;
    let mut begun = Vec::new();
    for (at, answer) in left.into_iter().zip(answers) {
        if canary::is_begun(&answer) {
            begun.push(at);
        }
        verdicts[at] = answer;
    }
    begun
}

impl Drop for RolloutWatch<'_> {
    fn drop(&mut self) {
        let (attempt, now) = (self.attempt, clock::now());
        if self.answered || !attempt.deadline.is_over(now) {
            return; // or given up for a lost lease or a stop
        }
        if let Some(canary) = self.canary
            && let Some(race) = canary.count(self.own, canary::Tally::count_failed)
        {
            self.rollout.fell(canary, race);
        }
        let verdict = Verdict::Retry {
            after: None,
            why: FailureReason::TimedOut(limit(attempt.deadline.left(self.began))),
        };
        let (verdicts, took) = (vec![verdict; attempt.messages.len()], now.since(self.began));
        self.rollout
            .record(attempt, &verdicts, |_| self.version, took);
    }
}

/// Returns the time limit of an attempt that had `left` when it reached the plugin, rounded up to
/// milliseconds.
fn limit(left: Duration) -> Duration {
    Duration::from_millis(u64::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX))
}

#[async_trait::async_trait]
impl Handler for Rollout {
    fn batch(&self) -> usize {
        self.batch
    }

    fn reaches_out(&self) -> bool {
        let stage = self.stage();
        let canary = stage.canary.as_ref();
        stage.current.handler.reaches_out()
            || canary.is_some_and(|canary| canary.version.handler.reaches_out())
    }

    fn version(&self, attempt: &Attempt) -> Option<Arc<str>> {
        let stage = self.stage();
        let canary = stage.canary.as_ref().filter(|canary| canary.takes(attempt));
        let version = canary.map_or(&stage.current, |canary| canary.version());
        Some(version.label.clone())
    }

    fn usage(&self) -> Usage {
        // All versions count into the same usage.
        self.stage().current.handler.usage()
    }

    async fn handle(&self, attempt: Arc<Attempt>) -> Vec<Verdict> {
        let stage = self.stage();
        if stage.canary.is_none() && stage.shadow.is_none() && self.recording.is_none() {
            return stage.current.handler.handle(attempt).await;
        }
        self.try_and_compare(&stage, attempt).await
    }
}

#[cfg(test)]
mod tests;
