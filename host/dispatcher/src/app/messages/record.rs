//! The record of a job and its storage beyond the process: one file for each job that changes
//! something, and one lock for each process with such jobs. A job whose process no longer holds its
//! lock was cut off.

use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::files;
use dispatcher_core::process;
use dispatcher_operate::messages::{JobView, Work};
use dispatcher_operate::redrive::{End, JobReport};
use dispatcher_operate::requester::Requester;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The suffix of a job's file.
const JOB: &str = "json";
/// The suffix of a process's lock.
const LOCK: &str = "lock";
/// The name of the file that is locked while a job begins.
const TURN: &str = "begin";
/// The age below which a free lock may belong to a process that is about to take it.
const JUST_MADE: Duration = Duration::from_secs(60);
/// The maximum number of times that the same work is restarted. After that, someone has to look at
/// it.
const MOST_RESTARTS: u32 = 10;

/// The state of a job.
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
    /// Returns its name in the API.
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

/// The task of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct JobTask {
    /// The queue that messages are taken from.
    pub queue: String,
    /// The work, without edited bodies.
    #[serde(with = "work")]
    pub work: Work,
    /// Whether it had edited bodies. Then it cannot be restarted without them.
    pub has_edits: bool,
    /// The number of times that its work was restarted.
    pub restarts: u32,
}

/// The serialized form of the work of a job.
mod work {
    use super::{Deserialize, Deserializer, Map, Serialize, Serializer, Value, Work};
    use serde::de::Error as _;

    #[derive(Serialize, Deserialize)]
    struct KeptWork {
        kind: String,
        request: Value,
    }

    pub(super) fn serialize<S: Serializer>(work: &Work, serializer: S) -> Result<S::Ok, S::Error> {
        let kept = KeptWork {
            kind: work.kind().to_owned(),
            request: work.json(),
        };
        kept.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(reader: D) -> Result<Work, D::Error> {
        let KeptWork { kind, request } = KeptWork::deserialize(reader)?;
        let fields = match request {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        Work::read(&kind, fields).map_err(D::Error::custom)
    }
}

/// The stored form of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct JobRecord {
    pub id: String,
    pub task: JobTask,
    pub by: Requester,
    /// The process that runs it, for display.
    pub process: String,
    /// The name of that process's lock.
    pub owner: String,
    pub state: JobState,
    pub error: Option<String>,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub waiting: Option<u64>,
    pub report: JobReport,
    /// The job that continues the rest.
    #[serde(default)]
    pub restarted_as: Option<String>,
}

impl JobRecord {
    pub(super) fn new(task: JobTask, by: &Requester, owner: &str) -> Self {
        Self {
            id: uuid::Uuid::now_v7().to_string(),
            task,
            by: by.clone(),
            process: process::label(),
            owner: owner.to_owned(),
            state: JobState::Running,
            error: None,
            started_at: clock::wall_clock_now(),
            ended_at: None,
            waiting: None,
            report: JobReport::default(),
            restarted_as: None,
        }
    }

    /// Records the end of the job.
    pub(super) fn end(&mut self, state: JobState, error: Option<String>) {
        (self.state, self.error) = (state, error);
        self.ended_at = Some(clock::wall_clock_now());
        let target = &self.task.queue;
        let count = self.changed();
        self.by.log_end(target, &self.id, count, state.name());
    }

    /// Returns how many messages it moved or removed, as far as that is known. A job that only
    /// counts has changed the messages that it received.
    fn changed(&self) -> u64 {
        let work = &self.task.work;
        match work {
            _ if !work.applies() => self.report.received,
            Work::Purge(_) => self.report.removed.or(self.waiting).unwrap_or_default(),
            Work::Redrive(_) | Work::Move(_) => self.report.moved,
        }
    }

    /// Returns the remaining task, or the reason why the job cannot be restarted.
    pub(super) fn rest(&self) -> Result<JobTask, String> {
        let task = &self.task;
        let first = task.work.first();
        let sent = self.report.moved + self.report.not_deleted;
        let left = first.map(|first| first.saturating_sub(sent));
        let is_whole = self.report.end.is_some_and(End::is_whole);
        let all = is_whole || left == Some(0);
        let why = match (self.state, &self.restarted_as) {
            (JobState::Running, _) => "it is running",
            (_, Some(job)) => return Err(format!("job `{job}` already continues it")),
            _ if !task.work.applies() => "it only counted: start a new one",
            (JobState::Done, _) if all || matches!(task.work, Work::Purge(_)) => "it is complete",
            _ if task.has_edits => "its edited bodies are not kept: start a new one with them",
            _ if task.restarts >= MOST_RESTARTS => {
                return Err(format!(
                    "it ended early {MOST_RESTARTS} times after it was started again: find out why, \
                     and start a new one"
                ));
            }
            _ => {
                let left = left.and_then(|left| usize::try_from(left).ok());
                let work = task.work.clone();
                return Ok(JobTask {
                    work: match left {
                        Some(left) => work.with_first(left),
                        None => work,
                    },
                    restarts: task.restarts + 1,
                    ..task.clone()
                });
            }
        };
        Err(why.to_owned())
    }

    /// Returns its form in the API.
    pub(super) fn view(&self) -> JobView {
        let JobTask { queue, work, .. } = &self.task;
        JobView {
            id: self.id.clone(),
            kind: work.kind().to_owned(),
            queue: queue.clone(),
            to: work.to().map(str::to_owned),
            applied: work.applies(),
            state: self.state.name().to_owned(),
            error: self.error.clone(),
            can_restart: self.rest().is_ok(),
            restarted_as: self.restarted_as.clone(),
            user: self.by.user.clone(),
            process: self.process.clone(),
            started_at: self.started_at.to_string(),
            ended_at: self.ended_at.map(|at| at.to_string()),
            waiting: self.waiting.map(Into::into),
            report: self.report.clone(),
        }
    }
}

/// The reason why a job does not begin.
#[derive(Debug)]
pub(super) enum BeginRefusal {
    /// This job of another process takes messages from its queue.
    Busy(Box<JobRecord>),
    /// The job to continue, in its current state, and the reason why it cannot be continued.
    Older(Box<JobRecord>, String),
}

/// The folder of jobs.
#[derive(Debug)]
pub(super) struct JobFiles {
    folder: PathBuf,
    /// The name of this process's lock.
    owner: String,
    /// Held until the process ends, even by a crash.
    lock: Option<File>,
}

impl JobFiles {
    /// Uses a folder, which need not exist yet.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            owner: uuid::Uuid::now_v7().to_string(),
            lock: None,
        }
    }

    /// Returns the name of this process in records.
    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// Replaces the stored record of the job. Blocks for some milliseconds.
    pub(super) fn keep(&mut self, record: &JobRecord) -> io::Result<()> {
        files::make_folder(&self.folder)?;
        if self.lock.is_none() {
            let lock = files::create_private(&self.lock_of(&self.owner))?;
            lock.try_lock().map_err(io::Error::from)?;
            self.lock = Some(lock);
        }
        write(&self.folder, record)
    }

    /// Writes that a job begins and, if it continues `older`, that no other job does. A lock lets
    /// one process at a time do so: of all processes with the folder, only one takes messages from
    /// a queue, and only one continues a job. Blocks for some milliseconds.
    pub(super) fn begin(
        &mut self,
        record: &JobRecord,
        older: Option<&JobRecord>,
    ) -> io::Result<Result<(), BeginRefusal>> {
        files::make_folder(&self.folder)?;
        let (turn, _) = files::open_private(&self.folder.join(TURN))?;
        turn.lock()?;
        if let Some(other) = self.running_elsewhere(&record.task.queue) {
            return Ok(Err(BeginRefusal::Busy(Box::new(other))));
        }
        if let Some(known) = older {
            // Another process may have continued it since this one read it.
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

    /// Returns a job on this queue that another process runs.
    fn running_elsewhere(&self, queue: &str) -> Option<JobRecord> {
        let paths = self.paths(JOB).into_iter();
        let mut records = paths.filter_map(|path| read(&path).ok());
        records.find(|one| {
            one.state == JobState::Running
                && one.task.queue == queue
                && one.owner != self.owner
                && self.is_there(&one.owner)
        })
    }

    /// Returns whether the process of this lock still runs.
    fn is_there(&self, owner: &str) -> bool {
        let lock = File::open(self.lock_of(owner));
        lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Removes the record of a job, unless it belongs to another running process.
    pub(super) fn forget(&self, record: &JobRecord) {
        if record.owner == self.owner || !self.is_there(&record.owner) {
            // If this fails, the record is read again and removed later.
            let _ = std::fs::remove_file(self.path_of(&record.id));
        }
    }

    /// Returns the jobs of processes that have ended, with running ones marked as cut.
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

    /// Returns a record, unless the process that runs its job still exists.
    fn take_over(&self, mut record: JobRecord) -> Option<JobRecord> {
        if record.state != JobState::Running {
            return Some(record);
        }
        // Held while the record is changed, so that no other process changes it.
        let lock = match File::open(self.lock_of(&record.owner)) {
            Ok(lock) => match lock.try_lock() {
                Ok(()) => Some(lock),
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => return None,
        };
        let why = "its process ended before it did; the messages that it had leased become visible \
                   again by themselves";
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
            // If this fails, the next process that reads the folder removes it.
            let _ = std::fs::remove_file(self.lock_of(&self.owner));
        }
    }
}

fn read(path: &Path) -> io::Result<JobRecord> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// Writes a record atomically: a crash leaves either the old file or the new one.
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

/// Removes the lock of a process that has ended. A new lock may not be held yet.
fn remove_if_free(lock: &Path) {
    if let Ok(file) = File::open(lock)
        && is_old(&file)
        && file.try_lock().is_ok()
    {
        // Another process may have removed it.
        let _ = std::fs::remove_file(lock);
    }
}

fn is_old(file: &File) -> bool {
    let made = file.metadata().and_then(|about| about.modified()).ok();
    made.is_some_and(|made| clock::wall_clock_now().since(date(made)) > JUST_MADE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_operate::request::AtLeastOne;
    use dispatcher_operate::verbs::redrive::RedriveRequest;

    fn record(files: &JobFiles) -> JobRecord {
        let task = JobTask {
            queue: "local:q.dead".to_owned(),
            work: Work::Redrive(Box::new(RedriveRequest {
                apply: Some(true),
                first: Some(AtLeastOne(100)),
                ..RedriveRequest::default()
            })),
            has_edits: false,
            restarts: 0,
        };
        let mut record = JobRecord::new(task, &Requester::default(), files.owner());
        record.report.moved = 60;
        record
    }

    fn counting() -> Work {
        Work::Redrive(Box::default())
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
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("jobs");
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
        assert!(cut.rest().is_err(), "it is running");
        cut.end(JobState::Cut, None);
        assert_eq!(cut.rest().expect("it can be").work.first(), Some(40));
        cut.report.moved = 100;
        cut.end(JobState::Done, None);
        assert!(cut.rest().is_err(), "it is complete");
        cut.report.moved = 10;
        cut.report.end = Some(End::DestinationFails);
        assert!(cut.rest().is_ok(), "it ended early");
        cut.task.has_edits = true;
        assert!(cut.rest().is_err(), "its bodies are gone");
        cut.task.has_edits = false;
        cut.task.work = counting();
        assert!(cut.rest().is_err(), "it moved nothing");
    }

    #[test]
    fn what_was_sent_and_not_deleted_counts_towards_the_first_ones() {
        let mut cut = record(&JobFiles::new("unused".into()));
        cut.report.not_deleted = 30;
        cut.end(JobState::Cut, None);
        assert_eq!(cut.rest().expect("it can be").work.first(), Some(10));
    }

    #[test]
    fn the_audit_counts_what_a_dry_run_received() {
        let mut counted = record(&JobFiles::new("unused".into()));
        let moving = std::mem::replace(&mut counted.task.work, counting());
        counted.report.moved = 0;
        assert_eq!(counted.changed(), 0, "its queue was listed");
        counted.report.received = 7;
        assert_eq!(counted.changed(), 7);
        counted.task.work = moving;
        counted.report.moved = 3;
        assert_eq!(counted.changed(), 3);
    }

    #[test]
    fn a_job_is_started_again_once_and_its_work_ten_times() {
        let mut cut = record(&JobFiles::new("unused".into()));
        cut.end(JobState::Cut, None);
        for _ in 0..MOST_RESTARTS {
            cut.task = cut.rest().expect("it can be");
        }
        let why = cut.rest().expect_err("it ends early each time");
        assert!(why.contains("10 times"), "{why}");
        cut.restarted_as = Some("other".to_owned());
        let why = cut.rest().expect_err("another goes on");
        assert!(why.contains("`other`"), "{why}");
    }
}
