//! The jobs of a process: starts, follows, cancels and stores them. Does not know what they do.

use super::record::{BeginRefusal, JobFiles, JobRecord, JobState, JobTask};
use dispatcher_core::clock;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Group;
use dispatcher_operate::messages::JobView;
use dispatcher_operate::operations::{ListPage, Page};
use dispatcher_operate::problem::{CallProblem, StatusCode};
use dispatcher_operate::redrive::{JobReport, Progress};
use dispatcher_operate::requester::Requester;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// The maximum number of jobs that run at once.
const AT_ONCE: usize = 16;
/// The maximum number of ended jobs that are remembered.
const KNOWN: usize = 100;
/// The interval at which a running job is written to its file.
const KEPT_EVERY: Duration = Duration::from_secs(1);
/// How long a stop waits for jobs to release their messages.
const ENDING: Duration = Duration::from_secs(5);

/// A job.
pub(super) struct Job {
    record: Mutex<JobRecord>,
    /// The files of jobs, if it changes something.
    files: Option<Arc<Mutex<JobFiles>>>,
    /// Cancelled when it must end after its current batch.
    pub cancel: CancellationToken,
    ended: CancellationToken,
}

/// The result of a job.
pub(super) enum JobEnd {
    /// It did everything it could.
    Complete,
    /// It was stopped.
    Stopped,
    /// An operation failed.
    Failed(String),
}

impl Job {
    fn lock(&self) -> MutexGuard<'_, JobRecord> {
        self.record.lock()
    }

    /// Updates its progress.
    pub(super) async fn report(&self, report: &JobReport) {
        let must_keep = {
            let mut record = self.lock();
            let sent_before = record.report.moved + record.report.not_deleted;
            let has_moved = report.moved + report.not_deleted != sent_before;
            record.report = report.clone();
            // With a maximum number of messages, the number that is left must also be known after a
            // kill.
            has_moved && record.task.work.first().is_some()
        };
        if must_keep {
            keep(self).await;
        }
    }

    /// Sets how many messages a purge has removed so far; `None` if the backend does not report it.
    pub(super) fn removed(&self, removed: Option<u64>) {
        self.lock().report.removed = removed;
    }

    /// Sets how many messages there were.
    pub(super) fn waiting(&self, waiting: u64) {
        self.lock().waiting = Some(waiting);
    }

    fn view(&self) -> JobView {
        self.lock().view()
    }
}

#[async_trait::async_trait]
impl Progress for Job {
    async fn note(&self, report: &JobReport) {
        self.report(report).await;
    }
}

/// Jobs by their ids, which are ordered by time.
struct KnownJobs(Mutex<BTreeMap<String, Arc<Job>>>);

impl KnownJobs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Job>>> {
        self.0.lock()
    }

    /// Removes the oldest ended jobs if there are too many, and returns them.
    fn take_oldest(&self) -> Vec<JobRecord> {
        let mut known = self.lock();
        let mut taken = Vec::new();
        while known.len() > KNOWN {
            let ended = known.iter().find(|(_, job)| job.ended.is_cancelled());
            let Some(id) = ended.map(|(id, _)| id.clone()) else {
                break;
            };
            let job = known.remove(&id);
            taken.extend(job.map(|job| job.lock().clone()));
        }
        taken
    }
}

/// All jobs of a process, and those that earlier processes left behind.
pub(super) struct Jobs {
    known: Arc<KnownJobs>,
    files: Option<Arc<Mutex<JobFiles>>>,
    owner: String,
    tasks: Mutex<Group<()>>,
    stop: CancellationToken,
}

impl Jobs {
    /// Creates the jobs. `folder` stores them beyond the end of the process.
    pub(super) fn new(folder: Option<PathBuf>, stop: CancellationToken) -> Self {
        let files = folder.map(JobFiles::new);
        let left = files.as_ref().map(JobFiles::left).unwrap_or_default();
        let known = left.into_iter().map(|record| {
            let job = Job {
                files: None,
                cancel: CancellationToken::new(),
                ended: CancellationToken::new(),
                record: Mutex::new(record),
            };
            job.ended.cancel();
            let id = job.lock().id.clone();
            (id, Arc::new(job))
        });
        let known = Arc::new(KnownJobs(Mutex::new(known.collect())));
        if let Some(files) = &files {
            let oldest = known.take_oldest();
            oldest.iter().for_each(|record| files.forget(record));
        }
        Self {
            known,
            owner: files
                .as_ref()
                .map(|files| files.owner().to_owned())
                .unwrap_or_default(),
            files: files.map(|files| Arc::new(Mutex::new(files))),
            tasks: Mutex::default(),
            stop,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Job>>> {
        self.known.lock()
    }

    fn tasks(&self) -> MutexGuard<'_, Group<()>> {
        self.tasks.lock()
    }

    /// Runs work to its end, even if the caller stops waiting: leased messages are returned.
    pub(super) async fn to_the_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, CallProblem> {
        let (answer, answered) = oneshot::channel();
        {
            let mut tasks = self.tasks();
            tasks.take_finished();
            tasks.spawn(async move {
                // The caller may have stopped waiting.
                let _ = answer.send(work.await);
            });
        }
        answered.await.map_err(|_| stopping())
    }

    /// Starts a job, which may continue an earlier one. At most one job at a time takes messages
    /// from a queue: among the jobs of this process and, if it moves messages, of all processes
    /// with its folder.
    pub(super) async fn start<W>(
        &self,
        task: JobTask,
        by: &Requester,
        goes_on_with: Option<&str>,
        work: impl FnOnce(Arc<Job>) -> W,
    ) -> Result<Arc<Job>, CallProblem>
    where
        W: Future<Output = JobEnd> + Send + 'static,
    {
        if self.stop.is_cancelled() {
            return Err(stopping());
        }
        let (job, older) = self.enter(task, by, goes_on_with)?;
        let (known, stop, work) = (self.known.clone(), self.stop.clone(), work(job.clone()));
        // The caller may stop waiting: a job that has begun continues.
        let (answer, answered) = oneshot::channel();
        let running = async move {
            let begun = begin(&job, older.as_deref()).await;
            if begun.is_err() {
                let id = job.lock().id.clone();
                known.lock().remove(&id);
                job.ended.cancel();
            }
            let has_begun = begun.is_ok();
            let _ = answer.send(begun.map(|()| job.clone()));
            if has_begun {
                forget_oldest(&known, job.files.clone()).await;
                follow(job, stop, work).await;
            }
        };
        {
            let mut tasks = self.tasks();
            tasks.take_finished();
            tasks.spawn(running);
        }
        answered.await.map_err(|_| stopping())?
    }

    /// Adds a job, unless another job of this process takes messages from its queue. Also returns
    /// the job that it continues.
    fn enter(
        &self,
        task: JobTask,
        by: &Requester,
        goes_on_with: Option<&str>,
    ) -> Result<(Arc<Job>, Option<Arc<Job>>), CallProblem> {
        let mut known = self.lock();
        let running: Vec<(String, String)> = known
            .values()
            .filter(|job| !job.ended.is_cancelled())
            .map(|job| {
                let record = job.lock();
                (record.task.queue.clone(), record.id.clone())
            })
            .collect();
        if let Some((queue, id)) = running.iter().find(|(queue, _)| *queue == task.queue) {
            return Err(busy(queue, id, ""));
        }
        if running.len() >= AT_ONCE {
            let why = format!(
                "Nothing was done. {AT_ONCE} jobs are already running. Try again \
                               later."
            );
            return Err(CallProblem::new(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        let older = goes_on_with.and_then(|older| known.get(older)).cloned();
        if let Some(older) = &older {
            // Checked again under the lock: of two concurrent calls only one continues the job.
            let older = older.lock();
            older.rest().map_err(|why| not_again(&older.id, &why))?;
        }
        // A job that changes nothing needs no file.
        let files = if task.work.applies() {
            self.files.clone()
        } else {
            None
        };
        let record = JobRecord::new(task, by, &self.owner);
        let id = record.id.clone();
        let job = Arc::new(Job {
            record: Mutex::new(record),
            files,
            cancel: self.stop.child_token(),
            ended: CancellationToken::new(),
        });
        known.insert(id, job.clone());
        Ok((job, older))
    }

    /// Waits for the end of a job, at most `patience`.
    pub(super) async fn wait(&self, job: &Job, patience: Duration) -> JobView {
        tokio::select! {
            () = job.ended.cancelled() => {}
            () = clock::sleep_until(Some(clock::now() + patience)) => {}
        }
        job.view()
    }

    /// Lists the jobs, newest first.
    pub(super) fn list(&self, page: &Page) -> Result<ListPage<JobView>, CallProblem> {
        let known: Vec<Arc<Job>> = self.lock().values().rev().cloned().collect();
        page.of(known.len(), |at| Some(known.get(at)?.view()))
    }

    pub(super) fn view(&self, id: &str) -> Option<JobView> {
        let job = self.lock().get(id).cloned();
        Some(job?.view())
    }

    pub(super) fn cancel(&self, id: &str) -> Result<JobView, CallProblem> {
        let job = self.find(id)?;
        if job.ended.is_cancelled() {
            let why = format!("Job `{id}` has ended already.");
            return Err(CallProblem::new(StatusCode::CONFLICT, why));
        }
        job.cancel.cancel();
        Ok(job.view())
    }

    /// Returns the remaining task of a job.
    pub(super) fn rest(&self, id: &str) -> Result<JobTask, CallProblem> {
        let job = self.find(id)?;
        let rest = job.lock().rest();
        rest.map_err(|why| not_again(id, &why))
    }

    fn find(&self, id: &str) -> Result<Arc<Job>, CallProblem> {
        let job = self.lock().get(id).cloned();
        job.ok_or_else(|| {
            CallProblem::not_found(format!(
                "There is no job `{id}`. GET /api/v1/jobs lists the last ones."
            ))
        })
    }

    /// Waits until all jobs have released their messages, up to a limit.
    pub(super) async fn finish(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks());
        let latest = clock::now() + ENDING;
        while !tasks.is_empty() {
            tokio::select! {
                biased;
                () = tasks.next() => {}
                () = clock::sleep_until(Some(latest)) => {
                    tracing::warn!("jobs did not end; what they hold becomes visible when its lease ends");
                    return;
                }
            }
        }
    }
}

/// Reports that another job takes messages from the queue.
fn busy(queue: &str, id: &str, of: &str) -> CallProblem {
    let why = format!(
        "Nothing was done. Job `{id}`{of} already takes messages from `{queue}`: cancel it, or wait \
         for its end."
    );
    CallProblem::new(StatusCode::CONFLICT, why)
}

fn not_again(id: &str, why: &str) -> CallProblem {
    let why = format!("Job `{id}` cannot be started again: {why}.");
    CallProblem::new(StatusCode::CONFLICT, why)
}

fn stopping() -> CallProblem {
    let why = "Nothing was done. The process is stopping.";
    CallProblem::new(StatusCode::SERVICE_UNAVAILABLE, why)
}

fn lock_files(files: &Mutex<JobFiles>) -> MutexGuard<'_, JobFiles> {
    files.lock()
}

/// Writes to the files that a job begins, and that it continues another one.
async fn begin(job: &Job, older: Option<&Job>) -> Result<(), CallProblem> {
    let record = job.lock().clone();
    let id = record.id.clone();
    if let Some(files) = job.files.clone() {
        let of = older.map(|older| older.lock().clone());
        let begun = tasks::blocking(move || lock_files(&files).begin(&record, of.as_ref()));
        match begun.finished().await {
            Ok(Ok(())) => {}
            Ok(Err(BeginRefusal::Busy(other))) => {
                let of = format!(" of process `{}`", other.process);
                return Err(busy(&other.task.queue, &other.id, &of));
            }
            Ok(Err(BeginRefusal::Older(now, why))) => {
                let problem = not_again(&now.id, &why);
                if let Some(older) = older {
                    *older.lock() = *now;
                }
                return Err(problem);
            }
            Err(error) => log_kept(&id, Err(error)),
        }
    }
    if let Some(older) = older {
        older.lock().restarted_as = Some(id);
    }
    let record = job.lock();
    record.by.log_start(&record.task.queue, &record.id);
    Ok(())
}

/// Removes the oldest ended jobs.
async fn forget_oldest(known: &KnownJobs, files: Option<Arc<Mutex<JobFiles>>>) {
    let oldest = known.take_oldest();
    if !oldest.is_empty()
        && let Some(files) = files
    {
        tasks::blocking(move || {
            let files = lock_files(&files);
            oldest.iter().for_each(|record| files.forget(record));
        })
        .finished()
        .await;
    }
}

/// Runs a job, and writes its progress to its file at intervals.
async fn follow(job: Arc<Job>, stop: CancellationToken, work: impl Future<Output = JobEnd> + Send) {
    let mut work = std::pin::pin!(work);
    let end = loop {
        tokio::select! {
            biased;
            end = &mut work => break end,
            () = clock::sleep_until(Some(clock::now() + KEPT_EVERY)) => {
                keep(&job).await;
            }
        }
    };
    let (state, error) = match end {
        JobEnd::Complete => (JobState::Done, None),
        JobEnd::Failed(error) => (JobState::Failed, Some(error)),
        JobEnd::Stopped if stop.is_cancelled() => {
            (JobState::Cut, Some("the process was stopped".to_owned()))
        }
        JobEnd::Stopped => (JobState::Cancelled, None),
    };
    {
        job.lock().end(state, error);
    }
    keep(&job).await;
    job.ended.cancel();
}

/// Writes a job to its file.
async fn keep(job: &Job) {
    let Some(files) = job.files.clone() else {
        return;
    };
    let record = job.lock().clone();
    let id = record.id.clone();
    let kept = tasks::blocking(move || lock_files(&files).keep(&record)).finished();
    log_kept(&id, kept.await);
}

/// Logs a job that could not be written. It is lost when the process ends.
fn log_kept(job: &str, kept: io::Result<()>) {
    if let Err(error) = kept {
        tracing::warn!(job, %error, "job not kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_operate::messages::Work;
    use dispatcher_operate::verbs::redrive::RedriveRequest;
    use std::sync::LazyLock;

    static BY: LazyLock<Requester> = LazyLock::new(Requester::default);

    fn task(queue: &str) -> JobTask {
        JobTask {
            queue: queue.to_owned(),
            work: Work::Redrive(Box::new(RedriveRequest {
                apply: Some(true),
                ..RedriveRequest::default()
            })),
            has_edits: false,
            restarts: 0,
        }
    }

    async fn until_cancelled(job: Arc<Job>) -> JobEnd {
        job.cancel.cancelled().await;
        JobEnd::Stopped
    }

    #[tokio::test]
    async fn one_job_at_a_time_takes_messages_from_a_queue_and_can_be_cancelled() {
        let jobs = Jobs::new(None, CancellationToken::new());
        let start = |queue: &str| jobs.start(task(queue), &BY, None, until_cancelled);
        let Ok(first) = start("local:a").await else {
            panic!("it starts");
        };
        let refused = start("local:a").await.err().expect("it is refused");
        assert_eq!(refused.status, StatusCode::CONFLICT);
        assert!(start("local:b").await.is_ok());
        let id = first.view().id;
        jobs.cancel(&id).expect("it runs");
        let view = jobs.wait(&first, Duration::from_secs(60)).await;
        assert_eq!((&*view.state, view.can_restart), ("cancelled", true));
        assert!(jobs.cancel(&id).is_err(), "it has ended");
        assert!(start("local:a").await.is_ok());
        let page = Page {
            limit: 2,
            after: None,
        };
        let (items, next) = jobs.list(&page).expect("a good page");
        assert_eq!((items.len(), next.is_some()), (2, true));
        assert_eq!(items[0].state, "running", "the newest is first");
    }

    #[tokio::test]
    async fn a_stop_cuts_jobs_and_a_later_process_knows_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Some(folder.path().join("jobs"));
        let stop = CancellationToken::new();
        let jobs = Jobs::new(place.clone(), stop.clone());
        let started = jobs.start(task("local:a"), &BY, None, |job| async move {
            let report = JobReport {
                moved: 3,
                ..JobReport::default()
            };
            job.report(&report).await;
            job.cancel.cancelled().await;
            JobEnd::Stopped
        });
        let Ok(started) = started.await else {
            panic!("it starts");
        };
        let id = started.view().id;
        stop.cancel();
        jobs.finish().await;
        assert!(
            jobs.start(task("local:b"), &BY, None, |_| async { JobEnd::Complete })
                .await
                .is_err()
        );
        let later = Jobs::new(place, CancellationToken::new());
        let cut = later.view(&id).expect("it is known");
        assert_eq!((&*cut.state, cut.report.moved), ("cut", 3));
        assert!(cut.can_restart);
    }
}
