//! What is known about a job, and where that outlives the process: one file for each job that changes
//! something, and one lock for each process that has such jobs. A job whose process holds its lock no
//! more was cut.

use crate::admin::audit::Requester;
use crate::admin::messages::{DestinationView, FailureView, JobKind, JobOrder, JobReport, JobView};
use crate::admin::rfc3339;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::files;
use dispatcher_core::process;
use dispatcher_core::redrive::{End, RedriveReport};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The suffix of the file of a job.
const JOB: &str = "json";
/// The suffix of the lock of a process.
const LOCK: &str = "lock";
/// The name of the file that is locked while a job begins.
const TURN: &str = "begin";
/// A lock that is younger may be that of a process which is about to hold it.
const JUST_MADE: Duration = Duration::from_secs(60);
/// So often the work of one order is started again: what ends early each time needs a person.
const MOST_RESTARTS: u32 = 10;

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JobState {
    Running,
    Done,
    Failed,
    Cancelled,
    Cut,
}

impl JobState {
    /// As the API names it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Cut => "cut",
        }
    }
}

/// A job as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct JobRecord {
    pub id: String,
    pub order: JobOrder,
    pub by: Requester,
    /// The process that runs it, for people.
    pub process: String,
    /// The name of that process's lock.
    pub owner: String,
    pub state: JobState,
    pub error: Option<String>,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub waiting: Option<u64>,
    pub removed: Option<u64>,
    pub report: RedriveReport,
    /// The job that goes on with what was left.
    #[serde(default)]
    pub restarted_as: Option<String>,
}

impl JobRecord {
    pub(super) fn new(order: JobOrder, by: Requester, owner: &str) -> Self {
        Self {
            id: uuid::Uuid::now_v7().to_string(),
            order,
            by,
            process: process::label(),
            owner: owner.to_owned(),
            state: JobState::Running,
            error: None,
            started_at: clock::wall_clock_now(),
            ended_at: None,
            waiting: None,
            removed: None,
            report: RedriveReport::default(),
            restarted_as: None,
        }
    }

    /// The end of the job.
    pub(super) fn end(&mut self, state: JobState, error: Option<String>) {
        (self.state, self.error) = (state, error);
        self.ended_at = Some(clock::wall_clock_now());
        let target = &self.order.queue;
        let count = self.changed();
        self.by.log_end(target, &self.id, count, state.name());
    }

    /// How many messages it moved or removed, as far as that is known; what only counts has changed those
    /// that it had to receive.
    fn changed(&self) -> u64 {
        match (self.order.apply, self.order.kind) {
            (false, _) => self.report.received,
            (true, JobKind::Purge) => self.removed.or(self.waiting).unwrap_or_default(),
            (true, JobKind::Redrive | JobKind::Move) => self.report.moved,
        }
    }

    /// What is left of it to be done. The error is why it cannot be started again.
    pub(super) fn rest(&self) -> Result<JobOrder, String> {
        let first = self.order.first;
        let sent = self.report.moved + self.report.not_deleted;
        let left = first.map(|first| first.saturating_sub(sent));
        let is_whole = self.report.end.is_some_and(End::is_whole);
        let all = is_whole || left == Some(0);
        let why = match (self.state, &self.restarted_as) {
            (JobState::Running, _) => "it runs",
            (_, Some(job)) => return Err(format!("job `{job}` goes on with it already")),
            _ if !self.order.apply => "it only counted: start a new one",
            (JobState::Done, _) if all || self.order.kind == JobKind::Purge => "it is complete",
            _ if self.order.has_edits => {
                "its edited bodies are not kept: start a new one with them"
            }
            _ if self.order.restarts >= MOST_RESTARTS => {
                return Err(format!(
                    "it ended early {MOST_RESTARTS} times after it was started again: find out why, \
                     and start a new one"
                ));
            }
            _ => {
                return Ok(JobOrder {
                    first: left,
                    restarts: self.order.restarts + 1,
                    ..self.order.clone()
                });
            }
        };
        Err(why.to_owned())
    }

    /// As the API shows it.
    pub(super) fn view(&self) -> JobView {
        let Self { order, report, .. } = self;
        JobView {
            id: self.id.clone(),
            kind: order.kind.name().to_owned(),
            queue: order.queue.clone(),
            to: order.to.clone(),
            applied: order.apply,
            state: self.state.name().to_owned(),
            error: self.error.clone(),
            can_restart: self.rest().is_ok(),
            restarted_as: self.restarted_as.clone(),
            user: self.by.user().to_owned(),
            process: self.process.clone(),
            started_at: rfc3339(self.started_at),
            ended_at: self.ended_at.map(rfc3339),
            waiting: self.waiting.map(Into::into),
            report: report_view(report, self.removed),
        }
    }
}

fn report_view(report: &RedriveReport, removed: Option<u64>) -> JobReport {
    let messages = report.messages.iter().map(|one| DestinationView {
        reason: one.reason.clone(),
        to: one.to.clone(),
        messages: one.messages.into(),
        moved: one.moved.into(),
        samples: one.samples.clone(),
    });
    let failures = report.failures.iter().map(|one| FailureView {
        error: one.error.clone(),
        messages: one.messages.into(),
        samples: one.samples.clone(),
    });
    JobReport {
        scanned: report.scanned.into(),
        selected: report.matched.into(),
        moved: report.moved.into(),
        removed: removed.map(Into::into),
        left: report.left.into(),
        blocked: report.blocked.into(),
        taken: report.taken.into(),
        arrived: report.arrived.into(),
        returned: report.returned.into(),
        not_deleted: report.not_deleted.into(),
        missing: report.missing.into(),
        uncertain: report.uncertain.into(),
        not_released: report.not_released.into(),
        uncounted: report.uncounted.into(),
        received: report.received.into(),
        receive_calls: report.receive_calls.into(),
        messages: messages.collect(),
        failures: failures.collect(),
        end: report.end.map(|end| end.words().to_owned()),
    }
}

/// Why a job does not begin.
#[derive(Debug)]
pub(super) enum BeginRefusal {
    /// This job of another process takes messages from its queue.
    Busy(Box<JobRecord>),
    /// What it was to go on with, as it is now, and why it cannot.
    Older(Box<JobRecord>, String),
}

/// The folder of jobs.
#[derive(Debug)]
pub(super) struct JobFiles {
    folder: PathBuf,
    /// The name of this process's lock.
    owner: String,
    /// Held until the process ends, however it ends.
    lock: Option<File>,
}

impl JobFiles {
    /// In a folder, which need not be there yet.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            owner: uuid::Uuid::now_v7().to_string(),
            lock: None,
        }
    }

    /// What this process is called in records.
    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// Keeps a record in the place of an older one of the job. Blocks for some milliseconds.
    pub(super) fn keep(&mut self, record: &JobRecord) -> io::Result<()> {
        files::make_folder(&self.folder)?;
        if self.lock.is_none() {
            let lock = files::create_private(&self.lock_of(&self.owner))?;
            lock.try_lock().map_err(io::Error::from)?;
            self.lock = Some(lock);
        }
        write(&self.folder, record)
    }

    /// Writes down that a job begins and, if it goes on with what `older` has left, that no other does.
    /// One process after the other does so: of all that have the folder, one takes messages from a
    /// queue, and one goes on with a job. Blocks for some milliseconds.
    pub(super) fn begin(
        &mut self,
        record: &JobRecord,
        older: Option<&JobRecord>,
    ) -> io::Result<Result<(), BeginRefusal>> {
        files::make_folder(&self.folder)?;
        let (turn, _) = files::open_private(&self.folder.join(TURN))?;
        turn.lock()?;
        if let Some(other) = self.running_elsewhere(&record.order.queue) {
            return Ok(Err(BeginRefusal::Busy(Box::new(other))));
        }
        if let Some(known) = older {
            // Another process may have gone on with it since this one read it.
            let kept = read(&self.path_of(&known.id)).ok();
            let mut older = kept.unwrap_or_else(|| known.clone());
            if let Err(why) = older.rest() {
                return Ok(Err(BeginRefusal::Older(Box::new(older), why)));
            }
            older.restarted_as = Some(record.id.clone());
            write(&self.folder, &older)?;
        }
        self.keep(record)?;
        Ok(Ok(()))
    }

    /// A job on this queue that another process runs.
    fn running_elsewhere(&self, queue: &str) -> Option<JobRecord> {
        let paths = self.paths(JOB).into_iter();
        let mut records = paths.filter_map(|path| read(&path).ok());
        records.find(|one| {
            one.state == JobState::Running
                && one.order.queue == queue
                && one.owner != self.owner
                && self.is_there(&one.owner)
        })
    }

    /// Whether the process of this lock has not ended.
    fn is_there(&self, owner: &str) -> bool {
        let lock = File::open(self.lock_of(owner));
        lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Forgets a job, unless another process knows it as its own.
    pub(super) fn forget(&self, record: &JobRecord) {
        if record.owner == self.owner || !self.is_there(&record.owner) {
            // It is read again otherwise, and forgotten another time.
            let _ = std::fs::remove_file(self.path_of(&record.id));
        }
    }

    /// The jobs of processes that have ended. Those that ran are marked as cut.
    pub(super) fn left(&self) -> Vec<JobRecord> {
        let mut left = Vec::new();
        for path in self.paths(JOB) {
            match read(&path) {
                Ok(record) => left.extend(self.take_over(record)),
                Err(error) => {
                    let file = path.display();
                    tracing::warn!(%file, %error, "job not read");
                }
            }
        }
        self.paths(LOCK)
            .iter()
            .for_each(|lock| remove_if_free(lock));
        left
    }

    /// A record, unless the process that runs its job is there.
    fn take_over(&self, mut record: JobRecord) -> Option<JobRecord> {
        if record.state != JobState::Running {
            return Some(record);
        }
        // Held while the record is changed, so that no other process does as well.
        let lock = match File::open(self.lock_of(&record.owner)) {
            Ok(lock) => match lock.try_lock() {
                Ok(()) => Some(lock),
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => return None,
        };
        let why = "its process ended before it; what it had leased comes back by itself";
        record.end(JobState::Cut, Some(why.to_owned()));
        if let Err(error) = write(&self.folder, &record) {
            tracing::warn!(job = record.id, %error, "job not kept");
        }
        drop(lock);
        Some(record)
    }

    fn path_of(&self, job: &str) -> PathBuf {
        self.folder.join(job).with_extension(JOB)
    }

    fn lock_of(&self, owner: &str) -> PathBuf {
        self.folder.join(owner).with_extension(LOCK)
    }

    fn paths(&self, suffix: &str) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        paths
            .filter(|path| path.extension().is_some_and(|one| one == suffix))
            .collect()
    }
}

impl Drop for JobFiles {
    fn drop(&mut self) {
        if self.lock.is_some() {
            // Whoever reads the folder next removes it otherwise.
            let _ = std::fs::remove_file(self.lock_of(&self.owner));
        }
    }
}

fn read(path: &Path) -> io::Result<JobRecord> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// A crash leaves the older file or the newer.
fn write(folder: &Path, record: &JobRecord) -> io::Result<()> {
    let path = folder.join(&record.id).with_extension(JOB);
    let fresh = path.with_extension("new");
    files::write_private(&fresh, &serde_json::to_vec(record)?)?;
    std::fs::rename(fresh, path)
}

fn date(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(0) + since
}

/// Removes the lock of a process that has ended. One that was just made may not be held yet.
fn remove_if_free(lock: &Path) {
    let is_old = |file: &File| {
        let made = file.metadata().and_then(|about| about.modified()).ok();
        made.is_some_and(|made| clock::wall_clock_now().since(date(made)) > JUST_MADE)
    };
    if let Ok(file) = File::open(lock)
        && is_old(&file)
        && file.try_lock().is_ok()
    {
        // Another process may have done so.
        let _ = std::fs::remove_file(lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(files: &JobFiles) -> JobRecord {
        let order = JobOrder {
            apply: true,
            first: Some(100),
            ..JobOrder::new(JobKind::Redrive, "local:q.dead")
        };
        let mut record = JobRecord::new(order, Requester::default(), files.owner());
        record.report.moved = 60;
        record
    }

    #[test]
    fn a_job_of_a_process_that_has_ended_is_cut_and_one_that_runs_elsewhere_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = JobFiles::new(folder.path().join("jobs"));
        let running = record(&first);
        first.keep(&running).expect("it is written");
        let second = JobFiles::new(folder.path().join("jobs"));
        assert!(second.left().is_empty(), "its process is there");
        drop(first);
        let cut = second.left().pop().expect("it is found");
        assert_eq!((cut.state, &cut.id), (JobState::Cut, &running.id));
        assert!(cut.ended_at.is_some() && cut.error.is_some());
        let again = second.left().pop().expect("it is kept");
        assert_eq!(again, cut, "it is cut once");
        second.forget(&cut);
        assert!(second.left().is_empty());
    }

    #[test]
    fn of_the_processes_of_a_folder_one_goes_on_with_a_job_and_one_takes_from_a_queue() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("jobs");
        let [mut first, mut second] = [&folder, &folder].map(|place| JobFiles::new(place.clone()));
        let mut older = record(&first);
        older.end(JobState::Cancelled, None);
        first.keep(&older).expect("it is written");
        let known = second.left().pop().expect("it is found");
        let mut again = record(&first);
        let begun = first.begin(&again, Some(&older)).expect("it is written");
        assert!(begun.is_ok(), "{begun:?}");

        let other = record(&second);
        let refused = second.begin(&other, None).expect("it is read");
        let Err(BeginRefusal::Busy(busy)) = refused else {
            panic!("the first process takes from its queue: {refused:?}");
        };
        assert_eq!(busy.id, again.id);

        again.end(JobState::Done, None);
        first.keep(&again).expect("it is written");
        let refused = second.begin(&other, Some(&known)).expect("it is read");
        let Err(BeginRefusal::Older(older, why)) = refused else {
            panic!("the first process has gone on with it: {refused:?}");
        };
        assert_eq!(older.restarted_as, Some(again.id.clone()));
        assert!(why.contains(&again.id), "{why}");
        let begun = second.begin(&other, None).expect("it is written");
        assert!(begun.is_ok(), "the first job has ended: {begun:?}");
    }

    #[test]
    fn a_process_forgets_no_job_of_another_that_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = JobFiles::new(folder.path().join("jobs"));
        let mut ended = record(&first);
        ended.end(JobState::Cancelled, None);
        first.keep(&ended).expect("it is written");
        let second = JobFiles::new(folder.path().join("jobs"));
        second.forget(&ended);
        assert_eq!(second.left().len(), 1, "the first can start it again");
        drop(first);
        second.forget(&ended);
        assert!(second.left().is_empty());
    }

    #[test]
    fn what_is_left_of_a_cut_job_is_what_it_did_not_move() {
        let files = JobFiles::new("unused".into());
        let mut cut = record(&files);
        assert!(cut.rest().is_err(), "it runs");
        cut.end(JobState::Cut, None);
        assert_eq!(cut.rest().expect("it can be").first, Some(40));
        cut.report.moved = 100;
        cut.end(JobState::Done, None);
        assert!(cut.rest().is_err(), "it is complete");
        cut.report.moved = 10;
        cut.report.end = Some(End::DestinationFails);
        assert!(cut.rest().is_ok(), "it ended early");
        cut.order.has_edits = true;
        assert!(cut.rest().is_err(), "its bodies are gone");
        cut.order.has_edits = false;
        cut.order.apply = false;
        assert!(cut.rest().is_err(), "it moved nothing");
    }

    #[test]
    fn what_was_sent_and_not_deleted_counts_towards_the_first_ones() {
        let mut cut = record(&JobFiles::new("unused".into()));
        cut.report.not_deleted = 30;
        cut.end(JobState::Cut, None);
        assert_eq!(cut.rest().expect("it can be").first, Some(10));
    }

    #[test]
    fn the_audit_counts_what_a_dry_run_received() {
        let mut counted = record(&JobFiles::new("unused".into()));
        counted.order.apply = false;
        counted.report.moved = 0;
        assert_eq!(counted.changed(), 0, "its queue was listed");
        counted.report.received = 7;
        assert_eq!(counted.changed(), 7);
        counted.order.apply = true;
        counted.report.moved = 3;
        assert_eq!(counted.changed(), 3);
    }

    #[test]
    fn a_job_is_started_again_once_and_its_work_ten_times() {
        let mut cut = record(&JobFiles::new("unused".into()));
        cut.end(JobState::Cut, None);
        for _ in 0..MOST_RESTARTS {
            cut.order = cut.rest().expect("it can be");
        }
        let why = cut.rest().expect_err("it ends early each time");
        assert!(why.contains("10 times"), "{why}");
        cut.restarted_as = Some("other".to_owned());
        let why = cut.rest().expect_err("another goes on");
        assert!(why.contains("`other`"), "{why}");
    }
}
