//! Chooses the version of a plugin that handles a message: the current one, which may be replaced
//! at any time; a canary that takes a share; a shadow that is only compared. Knows no file and no
//! WebAssembly; the loader passes versions in.

pub mod canary;
pub mod shadow;

use crate::clock;
use crate::clock::BootInstant;
use crate::handler::{Attempt, Handler, Usage};
use crate::message::{FailureReason, Verdict};
use crate::recording::Recorder;
use canary::{Race, Share};
use shadow::Shadow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// One version of a plugin, ready to run.
#[derive(Clone)]
pub struct Version {
    /// What runs it.
    pub handler: Arc<dyn Handler>,
    /// What it is called in logs: its file and the beginning of its digest.
    pub label: Arc<str>,
    /// Its identity: the SHA-256.
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
    /// Not tried yet; or as far as `before` was, if that is the same version with the same share.
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

    /// Forgets what both have done. What has fallen stays so.
    fn begin_again(&self) {
        *self.race.lock().unwrap_or_else(PoisonError::into_inner) = Race::default();
    }

    /// The version.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The part of the messages that it takes; none once it fell back.
    pub fn share(&self) -> Option<Share> {
        (!self.has_fallen()).then_some(self.share)
    }

    /// How both have done since it began.
    pub fn race(&self) -> Race {
        *self.race.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was given up, for the rate at which it failed.
    pub(crate) fn has_fallen(&self) -> bool {
        self.fallen.load(Relaxed)
    }

    fn takes(&self, attempt: &Attempt) -> bool {
        let first = attempt.messages.first();
        !self.has_fallen() && first.is_some_and(|message| self.share.takes(message, "canary"))
    }

    /// Counts, and says whether the canary has just lost.
    fn count(&self, own: bool, count: impl FnOnce(&mut canary::Tally)) -> Option<Race> {
        if self.has_fallen() {
            return None;
        }
        let mut race = self.race.lock().unwrap_or_else(PoisonError::into_inner);
        count(match own {
            true => &mut race.canary,
            false => &mut race.current,
        });
        race.age();
        (race.is_lost() && !self.fallen.swap(true, Relaxed)).then_some(*race)
    }
}

/// What takes part at one moment. An attempt stays with the stage that it began on.
#[derive(Clone)]
pub struct Stage {
    /// What takes all messages that the canary does not.
    pub current: Version,
    /// What is tried.
    pub canary: Option<Arc<Canary>>,
    /// What is compared.
    pub shadow: Option<Arc<Shadow>>,
}

/// Messages of which share are recorded, and by whom.
pub struct Recording {
    /// Writes them.
    pub recorder: Recorder,
    /// Its share of the messages.
    pub share: Share,
}

/// The versions of one route's plugin.
pub struct Rollout {
    plugin: String,
    /// The batch size of the version that it began with, for which the scheduler has planned.
    batch: usize,
    stage: RwLock<Arc<Stage>>,
    recording: Option<Recording>,
    /// How often the current version was replaced.
    replaced: AtomicU64,
    /// How often a version was refused.
    refused: AtomicU64,
}

impl Rollout {
    /// Begins with these; `batch` is the most messages of an attempt that any version must take.
    pub fn new(plugin: &str, batch: usize, stage: Stage, recording: Option<Recording>) -> Self {
        Self {
            plugin: plugin.to_owned(),
            batch,
            stage: RwLock::new(Arc::new(stage)),
            recording,
            replaced: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// The plugin's name.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// What takes part now.
    pub fn stage(&self) -> Arc<Stage> {
        let stage = self.stage.read().unwrap_or_else(PoisonError::into_inner);
        stage.clone()
    }

    /// From now on attempts begin with these. Those under way end with what they began with.
    pub fn set(&self, stage: Stage) {
        let mut now = self.stage.write().unwrap_or_else(PoisonError::into_inner);
        if now.current.digest != stage.current.digest {
            self.replaced.fetch_add(1, Relaxed);
            // It is compared with what runs now.
            stage.canary.iter().for_each(|canary| canary.begin_again());
        }
        // Outside of the lock: with the old one may go its idle instances.
        let old = std::mem::replace(&mut *now, Arc::new(stage));
        drop(now);
        drop(old);
    }

    /// Rolls the canary back because somebody wants it: from now on the current version takes all
    /// messages. What the canary is called; nothing if none takes messages.
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

    /// Counts a version that is not taken.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// How often the current version was replaced, and how often another was refused.
    pub fn counts(&self) -> (u64, u64) {
        (self.replaced.load(Relaxed), self.refused.load(Relaxed))
    }

    /// How many messages were recorded, and how many left out. None where none are recorded.
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

    /// `version` is who answered the message at this place.
    fn record<'a>(
        &self,
        attempt: &Attempt,
        verdicts: &[Verdict],
        version: impl Fn(usize) -> &'a Version,
        took: Duration,
    ) {
        let Some(Recording { recorder, share }) = &self.recording else {
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
        let by = |at| {
            if begun.contains(&at) {
                &stage.current
            } else {
                version
            }
        };
        self.record(&attempt, &verdicts, by, clock::now().since(began));
        if let Some(shadow) = &stage.shadow {
            shadow.offer(&attempt, &verdicts);
        }
        verdicts
    }
}

/// Counts and records an attempt that is given up because its time is over, as those are that wait
/// for the network.
struct RolloutWatch<'a> {
    rollout: &'a Rollout,
    attempt: &'a Attempt,
    version: &'a Version,
    canary: Option<&'a Canary>,
    own: bool,
    began: BootInstant,
    answered: bool,
}

/// The current version takes what the canary has not begun, since that may be for the canary's own
/// sake: a function that it alone asks for and is not there would close the whole route. The places of
/// the messages that it began with, and the canary therefore should have.
async fn stand_in(current: &Version, attempt: &Attempt, verdicts: &mut [Verdict]) -> Vec<usize> {
    let left = |(at, verdict): (usize, &Verdict)| (!canary::is_begun(verdict)).then_some(at);
    let left: Vec<usize> = verdicts.iter().enumerate().filter_map(left).collect();
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
            return; // or a lost lease, or a stop
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

/// The time that an attempt had when it began, without what its way here took.
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
        // The others count where it does.
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
