//! The messages in queues for the admin API: looks, deletions, and the jobs that move or remove
//! messages. A call that leases messages runs to its end even if the client disconnects.

mod jobs;
pub(super) mod known;
mod record;
mod sending;

use super::build::Backends;
use super::build::schedule::Schedules;
use super::live::Live;
use super::operations::{PATIENCE, backend_failed, within};
use super::redrive::{Editor, RedriveOpening, open};
use super::sandbox::Sandbox;
use super::waiting::{at_once, by_id, remove};
use dispatcher_config::PluginConfig;
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::{Fault, Problem};
use dispatcher_core::backend::Backend;
use dispatcher_core::clock;
use dispatcher_core::message::Message;
use dispatcher_core::queue::origin::first_id;
use dispatcher_core::queue::{BrowseCursor, Depth, ErrorKind, Queue, QueueError};
use dispatcher_operate::messages::{
    Backlog, DeleteResult, JOB_WAIT, JobView, LookTerms, MessageList, MessageOperations,
    MessageView, Work,
};
use dispatcher_operate::operations::{ListPage, Page};
use dispatcher_operate::problem::{CallProblem, FieldProblem, StatusCode};
use dispatcher_operate::redrive;
use dispatcher_operate::redrive::{
    Destinations, LetterSource, LookBounds, LookEnd, LookResult, Marks, Redrive, RedriveError,
    RedriveRefusal, Review, SCANNED,
};
use dispatcher_operate::request::{AtLeastOne, PluginText, QueueText, Request, Scan, ShellCommand};
use dispatcher_operate::requester::Requester;
use dispatcher_operate::select::{Select, Selection};
use dispatcher_operate::verbs::redrive::RedriveRequest;
use dispatcher_operate::verbs::scan::ScanRequest;
use dispatcher_operate::verbs::send::{MessageOrder, SendReport};
use dispatcher_trials::recording::redact::BLOT;
use jobs::{Job, JobEnd, Jobs};
use known::{KnownQueue, KnownQueues, listed, view};
use parking_lot::Mutex;
use record::JobTask;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The time limit of a look. Then it returns what it has found.
const LOOKING: Duration = Duration::from_secs(10);
/// The default number of messages in a list.
const SHOWN: usize = 100;
/// The size in bytes at which a list ends, with the message that reaches it.
const SHOWN_BYTES: u64 = 16 << 20;
/// The folder of jobs, in the data folder.
const JOBS: &str = "jobs";

/// The operations on the messages of a process's queues.
pub(crate) struct QueueMessages {
    backends: Arc<Backends>,
    schedules: Arc<Schedules>,
    known: Arc<dyn KnownQueues>,
    plugins: TriedPlugins,
    shows_bodies: bool,
    opened: Mutex<HashMap<QueueName, Arc<dyn Queue>>>,
    jobs: Jobs,
    stop: CancellationToken,
}

impl QueueMessages {
    /// Creates the operations. Stores jobs in `data`, if given; `stop` ends them. Shows no bodies
    /// and knows no plugins.
    pub(crate) fn new(
        schedules: Arc<Schedules>,
        known: impl KnownQueues,
        data: Option<&Path>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            backends: schedules.shared_backends(),
            schedules,
            known: Arc::new(known),
            plugins: TriedPlugins::None,
            shows_bodies: false,
            opened: Mutex::default(),
            jobs: Jobs::new(data.map(|data| data.join(JOBS)), stop.clone()),
            stop,
        }
    }

    /// Sets whether bodies are shown.
    pub(crate) fn with_bodies(self, shows_bodies: bool) -> Self {
        Self {
            shows_bodies,
            ..self
        }
    }

    /// Sets the plugins that messages can be tried on.
    pub(crate) fn with_plugins(self, plugins: TriedPlugins) -> Self {
        Self { plugins, ..self }
    }

    /// Removes a message that no consumer holds: a waiting or a scheduled one.
    pub(crate) async fn cancel_waiting(&self, queue: &str, id: &str) -> Result<(), CallProblem> {
        let problem = match self.delete(queue, id).await {
            Ok(_) => return Ok(()),
            Err(problem) if problem.status == StatusCode::NOT_FOUND => problem,
            Err(problem) => return Err(problem),
        };
        let (_, open) = self.listed(queue).await?;
        let id = id.to_owned();
        let cancelled = async move { open.cancel_delayed(&id).await };
        match self.jobs.to_the_end(cancelled).await? {
            Ok(true) => Ok(()),
            Ok(false) => Err(problem),
            Err(error) => Err(backend_failed(&error)),
        }
    }

    /// Ends the jobs, and waits until no message is leased, up to a limit.
    pub(crate) async fn finish(&self) {
        self.stop.cancel();
        self.jobs.finish().await;
    }

    /// Opens a queue once.
    async fn open(&self, name: &QueueName) -> Result<Arc<dyn Queue>, CallProblem> {
        let known = {
            let opened = self.opened.lock();
            opened.get(name).cloned()
        };
        if let Some(queue) = known {
            return Ok(queue);
        }
        let opened = within(PATIENCE, self.backends.open_existing(name)).await?;
        let queue = opened.map_err(|error| backend_failed(&error))?;
        let mut opened = self.opened.lock();
        opened.insert(name.clone(), queue.clone());
        Ok(queue)
    }

    /// Returns the selection of a request. Conditions reveal the content of bodies, so they need
    /// the same grant as bodies and see only the same redacted content.
    fn selection(&self, of: &KnownQueue, select: &Select) -> Result<Selection, CallProblem> {
        let selection = select.selection(of.redact.clone());
        if !selection.conditions.is_empty() && !self.shows_bodies {
            let why = "Nothing was done. `where` reveals what is in bodies, which this process \
                       does not show: start it with --admin-bodies.";
            return Err(CallProblem::new(StatusCode::FORBIDDEN, why));
        }
        Ok(selection)
    }

    /// Opens a queue whose messages can be listed.
    async fn listed(&self, queue: &str) -> Result<(KnownQueue, Arc<dyn Queue>), CallProblem> {
        let known = self.known.find(queue)?;
        let open = self.open(&known.name).await?;
        if !open.facts().can_browse {
            return Err(CallProblem::new(
                StatusCode::CONFLICT,
                format!(
                    "Queue `{queue}` cannot list its messages or find one by its id: {} hands out \
                     messages only by receiving them. POST /api/v1/queues/{{queue}}/scan receives \
                     up to `scan` of them and gives them back at once; the receive count of each \
                     is then one higher.",
                    known.name.backend.name()
                ),
            ));
        }
        Ok((known, open))
    }

    /// Looks at messages until the end or the time limit.
    async fn look_in_time(
        &self,
        queue: Arc<dyn Queue>,
        selection: Selection,
        bounds: LookBounds,
        time: Duration,
    ) -> Result<LookResult, CallProblem> {
        let cancel = self.stop.child_token();
        let is_page = bounds.after.is_some();
        let work = async move {
            let looking = redrive::look(&*queue, &selection, &bounds, &cancel);
            let mut look = std::pin::pin!(looking);
            tokio::select! {
                looked = &mut look => return looked,
                () = clock::sleep_until(Some(clock::now() + time)) => cancel.cancel(),
            }
            look.await
        };
        let looked = self.jobs.to_the_end(work).await?;
        looked.map_err(|error| match error {
            RedriveError::Refused(why) => CallProblem::new(StatusCode::CONFLICT, format!("{why}.")),
            RedriveError::Source { error, .. } if is_page && error.kind == ErrorKind::Invalid => {
                Page::default().bad_cursor()
            }
            RedriveError::Source { error, .. } => backend_failed(&error),
        })
    }

    /// Finds a message that waits in a queue.
    async fn find(&self, queue: &Arc<dyn Queue>, id: &str) -> Result<LookResult, CallProblem> {
        let found = within(PATIENCE, at_once(&**queue, id)).await?;
        let looked = match found.map_err(|error| backend_failed(&error))? {
            Some(Some(found)) => LookResult {
                scanned: 1,
                messages: vec![found],
                ..LookResult::default()
            },
            // It may be the first id of a message that was copied since.
            Some(None) | None => {
                let (selection, bounds) = by_id(id);
                let looked = self.look_in_time(queue.clone(), selection, bounds, LOOKING);
                looked.await?
            }
        };
        if looked.messages.is_empty() {
            let name = &queue.identity().name;
            let scanned = looked.scanned;
            return Err(CallProblem::not_found(match stopped(looked.end, LOOKING) {
                None => format!(
                    "No message `{id}` waits in `{name}`: it may be in flight, delayed, or gone. \
                     GET /api/v1/running lists the messages in attempts of this process."
                ),
                Some(why) => format!(
                    "No message `{id}` is among the first {scanned} of `{name}`; the others were \
                     not inspected: {why}."
                ),
            }));
        }
        Ok(looked)
    }

    /// Checks and prepares what a job needs. Moves no message.
    async fn prepare(
        &self,
        queue: &str,
        work: &Work,
        edits: Vec<(String, String)>,
    ) -> Result<Task, CallProblem> {
        let known = self.known.find(queue)?;
        let request = match work {
            Work::Redrive(request) => (**request).clone(),
            Work::Move(request) => request.clone().redrive(),
            Work::Purge(_) => {
                let opened = within(PATIENCE, self.backends.open_existing(&known.name)).await?;
                return match opened {
                    Ok(queue) => Ok(Task::Purge(queue, known.name.backend)),
                    Err(error) => {
                        let problem = self.backends.problem("queue", &known.name, &error);
                        Err(problems(vec![problem.await]))
                    }
                };
            }
        };
        let selection = self.selection(&known, &request.select)?;
        let to = request
            .to
            .as_ref()
            .map(|QueueText(to)| to.parse::<QueueName>())
            .transpose()
            .map_err(|found| {
                CallProblem::fields(vec![FieldProblem::new("to", &found, "a queue")])
            })?;
        let opening = RedriveOpening {
            from: &known.name,
            to: to.as_ref(),
            selection,
            marks: match work {
                Work::Redrive(_) => Marks::Redriven,
                Work::Move(_) | Work::Purge(_) => Marks::Kept,
            },
            review: self.review(&request, edits).await?,
        };
        let opened = within(PATIENCE, open(self.backends.clone(), opening)).await?;
        let to_any = opened.map_err(problems)?;
        let redrive = Redrive {
            to: Arc::new(KnownDestinations {
                all: to_any.to,
                known: Arc::clone(&self.known),
            }),
            ..to_any
        };
        if let Err(refusal) = redrive::check(&redrive, &request) {
            return Err(unmet(&request.select, &refusal));
        }
        Ok(match work {
            Work::Move(_) if !work.applies() => Task::Count(redrive.from),
            _ => Task::Redrive(Box::new(redrive), Box::new(request)),
        })
    }

    /// Returns the review of each message before it is moved, if the request has one.
    async fn review(
        &self,
        request: &RedriveRequest,
        edits: Vec<(String, String)>,
    ) -> Result<Option<Arc<dyn Review>>, CallProblem> {
        let sandbox = match &request.r#try {
            Some(PluginText(plugin)) => Some(self.plugins.sandbox(plugin).await?),
            None => None,
        };
        let editor = request
            .edit
            .clone()
            .map(|ShellCommand(command)| Editor { command });
        if sandbox.is_none() && editor.is_none() && edits.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(EditAndTry {
            edits: edits.into_iter().collect(),
            editor,
            sandbox,
        })))
    }

    async fn begin(
        &self,
        task: JobTask,
        edits: Vec<(String, String)>,
        by: &Requester,
        goes_on_with: Option<&str>,
    ) -> Result<JobView, CallProblem> {
        let applies = task.work.applies();
        let prepared = self.prepare(&task.queue, &task.work, edits).await?;
        let started = self
            .jobs
            .start(task, by, goes_on_with, |job| work(job, prepared, applies))
            .await?;
        Ok(self.jobs.wait(&started, JOB_WAIT).await)
    }
}

/// The plugins that messages can be tried on.
pub(crate) enum TriedPlugins {
    /// No plugins.
    None,
    /// The plugins of the routes, by their names.
    OfRoutes(Arc<Live>),
    /// The plugins in files, by their paths; with the data folder, where compiled plugins are
    /// cached.
    InFiles(PathBuf),
}

impl TriedPlugins {
    async fn sandbox(&self, plugin: &str) -> Result<Sandbox, CallProblem> {
        let loaded = match self {
            Self::None => return Err(no_plugin(plugin, &[])),
            Self::OfRoutes(live) => {
                let settings = live.settings();
                let plugins: Vec<&PluginConfig> =
                    settings.routes.iter().map(|route| &route.plugin).collect();
                let Some(found) = plugins.iter().find(|one| one.name == plugin) else {
                    return Err(no_plugin(plugin, &plugins));
                };
                Sandbox::load("try", found, &settings).await
            }
            Self::InFiles(data) => Sandbox::of_file("try", Path::new(plugin), data).await,
        };
        loaded.map_err(problems)
    }
}

fn no_plugin(plugin: &str, plugins: &[&PluginConfig]) -> CallProblem {
    let names: Vec<&str> = plugins.iter().map(|one| one.name.as_str()).collect();
    let wanted = match &names[..] {
        [] => "none: this process has no plugins".to_owned(),
        names => format!("a plugin of this process: {}", names.join(", ")),
    };
    let found = format!("there is no plugin `{plugin}`");
    CallProblem::fields(vec![FieldProblem::new("try", &found, &wanted)])
}

/// The task of a job, with everything it needs.
enum Task {
    Redrive(Box<Redrive>, Box<RedriveRequest>),
    /// Counts the messages that would be moved.
    Count(Arc<dyn Queue>),
    Purge(Arc<dyn Queue>, &'static dyn Backend),
}

/// Describes why a request cannot be met, with the fields that cause it.
fn unmet(select: &Select, refusal: &RedriveRefusal) -> CallProblem {
    let why = refusal.to_string();
    let errors = match refusal {
        RedriveRefusal::SameQueue(_) => vec![FieldProblem::new("to", &why, "another queue")],
        RedriveRefusal::InOrder(_) => {
            let wanted = "no condition; `first` moves from the head";
            let asked = select.json();
            let given = asked.as_object().into_iter().flat_map(|asked| asked.keys());
            given
                .map(|field: &String| FieldProblem::new(field, &why, wanted))
                .collect()
        }
        RedriveRefusal::OneReceive(_) => Vec::new(),
    };
    CallProblem {
        errors,
        ..CallProblem::new(StatusCode::CONFLICT, format!("Nothing was done. {why}."))
    }
}

/// Converts problems of the queues and plugins that a request names.
pub(super) fn problems(problems: Vec<Problem>) -> CallProblem {
    let is_away = problems.iter().all(|one| one.fault != Fault::Settings);
    let fields = problems.into_iter().map(|one| {
        let Problem {
            at,
            found,
            wanted,
            hint,
            ..
        } = one;
        FieldProblem {
            field: at,
            found,
            wanted,
            hint,
        }
    });
    let problem = CallProblem::fields(fields.collect());
    if is_away {
        return CallProblem {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..problem
        };
    }
    problem
}

/// Returns why a look did not see everything.
fn stopped(end: LookEnd, time: Duration) -> Option<String> {
    let why = match end {
        LookEnd::Complete | LookEnd::Enough => return None,
        LookEnd::ScanLimit => "`scan` permits no more; there may be more",
        LookEnd::Cancelled => {
            return Some(format!(
                "its time limit of {} s was over",
                time.as_secs_f64()
            ));
        }
        LookEnd::LastReceive => "the queue's redrive policy leaves a message only one receive",
        LookEnd::ReceivesSpent => {
            "a message has had its last receive: the queue's redrive policy moves it at the next"
        }
    };
    Some(why.to_owned())
}

/// Destinations without the queues that letters name but that no route of this process reads.
struct KnownDestinations {
    all: Arc<dyn Destinations>,
    known: Arc<dyn KnownQueues>,
}

#[async_trait::async_trait]
impl Destinations for KnownDestinations {
    fn all(&self) -> Option<Arc<dyn Queue>> {
        self.all.all()
    }

    async fn source(&self, source: Option<&LetterSource>) -> Result<Arc<dyn Queue>, String> {
        match source {
            Some(LetterSource::Attribute(name)) if !self.known.is_source(name) => Err(format!(
                "its attribute names `{name}` as its source, which is not a queue of this process; \
                 give `to`"
            )),
            _ => self.all.source(source).await,
        }
    }
}

/// Edited bodies, a command that edits each body, and the plugin that messages are then tried on.
struct EditAndTry {
    edits: HashMap<String, String>,
    editor: Option<Editor>,
    sandbox: Option<Sandbox>,
}

#[async_trait::async_trait]
impl Review for EditAndTry {
    async fn review(
        &self,
        message: &Message,
        cancel: &CancellationToken,
    ) -> Result<String, String> {
        let edited = self
            .edits
            .get(&message.id)
            .or_else(|| self.edits.get(first_id(message)?));
        let body = match &self.editor {
            Some(editor) => editor.review(message, cancel).await?,
            None => edited.unwrap_or(&message.body).clone(),
        };
        if edited.is_some() && body.contains(BLOT) && !message.body.contains(BLOT) {
            return Err(format!(
                "its edited body has `{BLOT}` in place of a value that the recording rules hide; \
                 give the whole body"
            ));
        }
        if let Some(sandbox) = &self.sandbox {
            let tried = Message {
                body: body.clone(),
                ..message.clone()
            };
            let passed = sandbox.passes(tried, cancel).await;
            passed.map_err(|answer| format!("the plugin answered {answer}"))?;
        }
        Ok(body)
    }
}

/// Runs a job.
async fn work(job: Arc<Job>, task: Task, applies: bool) -> JobEnd {
    match task {
        Task::Redrive(redrive, request) => {
            if let Ok(depth) = redrive.from.depth().await {
                job.waiting(depth.waiting);
            }
            let ended = redrive::run(&redrive, &request, &job.cancel, &*job).await;
            match ended {
                Ok(report) => {
                    job.report(&report).await;
                    match report.end {
                        Some(redrive::End::Cancelled) => JobEnd::Stopped,
                        _ => JobEnd::Complete,
                    }
                }
                Err(RedriveError::Refused(why)) => JobEnd::Failed(why.to_string()),
                Err(RedriveError::Source { error, report }) => {
                    job.report(&report).await;
                    JobEnd::Failed(error.to_string())
                }
            }
        }
        Task::Count(queue) => {
            let depth = queue.depth().await;
            counted(&job, depth.map(|depth| depth.waiting + depth.delayed))
        }
        Task::Purge(queue, backend) if !applies => {
            let depth = queue.depth().await;
            counted(&job, depth.map(|depth| backlog(backend, depth).purged()))
        }
        Task::Purge(queue, backend) => {
            if let Ok(depth) = queue.depth().await {
                job.waiting(backlog(backend, depth).purged());
            }
            purge(&job, &*queue).await
        }
    }
}

fn counted(job: &Job, messages: Result<u64, QueueError>) -> JobEnd {
    match messages {
        Ok(messages) => {
            job.waiting(messages);
            JobEnd::Complete
        }
        Err(error) => JobEnd::Failed(error.to_string()),
    }
}

/// Returns the backlog of a queue of this backend, and what a purge removes.
fn backlog(backend: &dyn Backend, depth: Depth) -> Backlog {
    Backlog {
        waiting: depth.waiting,
        delayed: depth.delayed,
        in_flight: depth.in_flight,
        purges_in_flight: backend.facts().purges_in_flight,
        is_exact: backend.facts().counts_exactly,
    }
}

async fn purge(job: &Job, queue: &dyn Queue) -> JobEnd {
    let mut removed = 0;
    let name = &queue.identity().name;
    loop {
        if job.cancel.is_cancelled() {
            return JobEnd::Stopped;
        }
        match queue.purge().await {
            Err(error) => return JobEnd::Failed(error.to_string()),
            Ok(step) => {
                removed += step.removed.unwrap_or_default();
                job.removed(step.removed.map(|_| removed));
                if step.removed.is_none() || !step.has_more {
                    tracing::info!(target: "message", queue = name, removed = step.removed.map(|_| removed), complete = true, "queue purged");
                    return JobEnd::Complete;
                }
            }
        }
    }
}

#[async_trait::async_trait]
impl MessageOperations for QueueMessages {
    async fn send(
        &self,
        queue: &str,
        orders: Vec<MessageOrder>,
    ) -> Result<SendReport, CallProblem> {
        self.send_all(queue, orders).await
    }

    async fn look(
        &self,
        queue: &str,
        request: &ScanRequest,
        terms: &LookTerms,
    ) -> Result<MessageList, CallProblem> {
        let (known, open) = if terms.receives {
            let known = self.known.find(queue)?;
            let open = self.open(&known.name).await?;
            (known, open)
        } else {
            self.listed(queue).await?
        };
        let bounds = LookBounds {
            after: terms.after.clone().map(BrowseCursor),
            most: request.limit.map_or(SHOWN, |AtLeastOne(limit)| limit),
            bytes: SHOWN_BYTES,
            scan: request.scan.map_or(SCANNED, |Scan(scan)| scan),
            counts_on: true,
        };
        let time = terms.within.unwrap_or(LOOKING);
        let selection = self.selection(&known, &request.select)?;
        let looked = self.look_in_time(open, selection, bounds, time).await?;
        let redact = self.shows_bodies.then_some(&known.redact[..]);
        let stopped = stopped(looked.end, time);
        Ok(MessageList {
            queue: queue.to_owned(),
            items: looked
                .messages
                .iter()
                .map(|message| listed(message, redact))
                .collect(),
            next: looked.next.map(|next| next.0),
            reasons: looked.reasons,
            scanned: looked.scanned.into(),
            selected: looked.matched.into(),
            complete: stopped.is_none(),
            stopped,
            received: looked.received.into(),
            receive_calls: looked.receive_calls.into(),
            not_released: looked.not_released.into(),
        })
    }

    async fn message(&self, queue: &str, id: &str) -> Result<MessageView, CallProblem> {
        let (known, open) = self.listed(queue).await?;
        let found = self.find(&open, id).await?;
        let redact = self.shows_bodies.then_some(&known.redact[..]);
        let mut messages = found.messages.iter();
        let message = messages.next().map(|message| view(message, redact));
        message.ok_or_else(|| CallProblem::not_found(format!("No message `{id}`.")))
    }

    async fn backlog(&self, queue: &str) -> Result<Backlog, CallProblem> {
        let known = self.known.find(queue)?;
        let open = self.open(&known.name).await?;
        let depth = within(PATIENCE, open.depth())
            .await?
            .map_err(|error| backend_failed(&error))?;
        Ok(backlog(known.name.backend, depth))
    }

    async fn must_wait(&self, queue: &str, id: &str) -> Result<(), CallProblem> {
        let known = self.known.find(queue)?;
        let open = self.open(&known.name).await?;
        if open.facts().can_browse {
            self.find(&open, id).await?;
        }
        Ok(())
    }

    async fn delete(&self, queue: &str, id: &str) -> Result<DeleteResult, CallProblem> {
        let (_, open) = self.listed(queue).await?;
        let found = self.find(&open, id).await?;
        for message in found.messages {
            let removed = self.jobs.to_the_end(remove(open.clone(), message)).await?;
            if !removed.map_err(|error| backend_failed(&error))? {
                let why = format!(
                    "Message `{id}` cannot be taken now: another consumer has just received it, or \
                     an earlier message of its group must go first. Nothing was done."
                );
                return Err(CallProblem::new(StatusCode::CONFLICT, why));
            }
        }
        Ok(DeleteResult {
            message: id.to_owned(),
            scanned: found.scanned.into(),
        })
    }

    async fn start(
        &self,
        queue: &str,
        mut work: Work,
        by: &Requester,
    ) -> Result<JobView, CallProblem> {
        let edits = work.take_edits();
        let task = JobTask {
            queue: queue.to_owned(),
            work,
            has_edits: !edits.is_empty(),
            restarts: 0,
        };
        self.begin(task, edits, by, None).await
    }

    fn jobs(&self, page: &Page) -> Result<ListPage<JobView>, CallProblem> {
        self.jobs.list(page)
    }

    fn job(&self, id: &str) -> Option<JobView> {
        self.jobs.view(id)
    }

    fn cancel(&self, id: &str) -> Result<JobView, CallProblem> {
        self.jobs.cancel(id)
    }

    async fn restart(&self, id: &str, by: &Requester) -> Result<JobView, CallProblem> {
        let task = self.jobs.rest(id)?;
        self.begin(task, Vec::new(), by, Some(id)).await
    }
}
