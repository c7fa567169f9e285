//! What the admin API shows of messages in queues and does to them: looks, deletes, and the jobs that
//! move or remove messages. Whatever leases messages runs to its end even if nobody waits for it.

mod jobs;
pub(super) mod known;
mod record;

use super::build::Backends;
use super::operations::{PATIENCE, backend_failed, within};
use super::redrive::open;
use super::sandbox::Sandbox;
use super::waiting::{at_once, by_id, remove};
use crate::admin::audit::Requester;
use crate::admin::messages::{
    Backlog, BodyEdit, DeleteResult, JOB_WAIT, JobKind, JobOrder, JobView, LookOrder, MessageList,
    MessageOperations, MessageView, ReasonView, SelectionText,
};
use crate::admin::operations::{Listed, Page};
use crate::admin::problem::{CallProblem, FieldProblem, StatusCode};
use crate::config::problem::{Fault, Problem};
use crate::config::{PluginConfig, Settings};
use crate::name::QueueName;
use dispatcher_core::backend::Backend;
use dispatcher_core::clock;
use dispatcher_core::message::Message;
use dispatcher_core::queue::{BrowseCursor, Depth, ErrorKind, Queue, QueueError};
use dispatcher_core::recording::redact::BLOT;
use dispatcher_core::redrive;
use dispatcher_core::redrive::{
    Destinations, LetterSource, LookBounds, LookEnd, Looked, Marks, Redrive, RedriveError,
    RedriveRefusal, RedriveRequest, Review, SCANNED, Selection,
};
use jobs::{Job, JobEnd, Jobs};
use known::{KnownQueue, KnownQueues, listed, view};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a look may take: then it ends with what it has.
const LOOKING: Duration = Duration::from_secs(10);
/// A list ends with the message that brings it to so many bytes.
const SHOWN_BYTES: u64 = 16 << 20;
/// The folder of jobs, in the data folder.
const JOBS: &str = "jobs";

/// What is done about the messages of a process's queues.
pub(crate) struct QueueMessages {
    backends: Arc<Backends>,
    known: Arc<dyn KnownQueues>,
    /// What the plugins that can be tried are part of.
    settings: Option<Settings>,
    shows_bodies: bool,
    opened: Mutex<HashMap<QueueName, Arc<dyn Queue>>>,
    jobs: Jobs,
    stop: CancellationToken,
}

impl QueueMessages {
    /// Jobs are kept in `data`, if it is given; `stop` ends them. Shows no bodies and knows no plugins.
    pub(crate) fn new(
        backends: Arc<Backends>,
        known: impl KnownQueues,
        data: Option<&Path>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            backends,
            known: Arc::new(known),
            settings: None,
            shows_bodies: false,
            opened: Mutex::default(),
            jobs: Jobs::new(data.map(|data| data.join(JOBS)), stop.clone()),
            stop,
        }
    }

    /// The same, showing bodies or not.
    pub(crate) fn with_bodies(self, shows_bodies: bool) -> Self {
        Self {
            shows_bodies,
            ..self
        }
    }

    /// The same with the plugins of routes.
    pub(crate) fn with_plugins(self, settings: Settings) -> Self {
        Self {
            settings: Some(settings),
            ..self
        }
    }

    /// Removes a message that nobody holds: one that waits, or that waits for its time.
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

    /// Ends jobs, and waits until nothing is leased any more; not for ever.
    pub(crate) async fn finish(&self) {
        self.stop.cancel();
        self.jobs.finish().await;
    }

    /// A queue, opened once.
    async fn open(&self, name: &QueueName) -> Result<Arc<dyn Queue>, CallProblem> {
        let known = {
            let opened = self.opened.lock();
            let opened = opened.unwrap_or_else(PoisonError::into_inner);
            opened.get(name).cloned()
        };
        if let Some(queue) = known {
            return Ok(queue);
        }
        let opened = within(PATIENCE, self.backends.open_existing(name)).await?;
        let queue = opened.map_err(|error| backend_failed(&error))?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.insert(name.clone(), queue.clone());
        Ok(queue)
    }

    /// Which messages of a queue are meant. Conditions on bodies tell what is in them, so they need the
    /// same grant as bodies, and see no more of them.
    fn selection(&self, of: &KnownQueue, text: &SelectionText) -> Result<Selection, CallProblem> {
        let selection = text.selection().map_err(CallProblem::fields)?;
        if !selection.conditions.is_empty() && !self.shows_bodies {
            let why = "Nothing was done. `where` tells what is in bodies, and this process does not \
                       show them: start it with --admin-bodies.";
            return Err(CallProblem::new(StatusCode::FORBIDDEN, why));
        }
        Ok(Selection {
            redact: of.redact.clone(),
            ..selection
        })
    }

    /// A queue whose messages can be listed.
    async fn listed(&self, queue: &str) -> Result<(KnownQueue, Arc<dyn Queue>), CallProblem> {
        let known = self.known.find(queue)?;
        let open = self.open(&known.name).await?;
        if !open.can_browse() {
            return Err(CallProblem::new(
                StatusCode::CONFLICT,
                format!(
                    "Queue `{queue}` cannot list its messages or find one by its id: {} hands out \
                     messages only by receiving them. POST /api/v1/queues/{{queue}}/scan receives up \
                     to `scan` of them and gives them back at once; each then has one receive more.",
                    known.name.backend.name()
                ),
            ));
        }
        Ok((known, open))
    }

    /// Looks, to its end or until the time is over.
    async fn look_in_time(
        &self,
        queue: Arc<dyn Queue>,
        selection: Selection,
        bounds: LookBounds,
        time: Duration,
    ) -> Result<Looked, CallProblem> {
        let cancel = self.stop.child_token();
        let is_page = bounds.after.is_some();
        let work = async move {
            let look = redrive::look(&*queue, &selection, &bounds, &cancel);
            let mut look = std::pin::pin!(look);
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

    /// A message that waits in a queue.
    async fn find(&self, queue: &Arc<dyn Queue>, id: &str) -> Result<Looked, CallProblem> {
        let found = within(PATIENCE, at_once(&**queue, id)).await?;
        let looked = match found.map_err(|error| backend_failed(&error))? {
            Some(found) => Looked {
                scanned: u64::from(found.is_some()),
                messages: found.into_iter().collect(),
                ..Looked::default()
            },
            None => {
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
                    "No message `{id}` is among the first {scanned} of `{name}`; the others were not \
                     looked at: {why}."
                ),
            }));
        }
        Ok(looked)
    }

    /// What a job needs, checked: nothing was moved yet.
    async fn prepare(&self, order: &JobOrder) -> Result<Task, CallProblem> {
        let known = self.known.find(&order.queue)?;
        let selection = self.selection(&known, &order.select)?;
        if order.kind == JobKind::Purge {
            let queue = self.open(&known.name).await?;
            return Ok(Task::Purge(queue, known.name.backend));
        }
        let to = order.to.as_deref().map(str::parse::<QueueName>).transpose();
        let to = to.map_err(|found| {
            CallProblem::fields(vec![FieldProblem::new("to", &found, "a queue")])
        })?;
        let sandbox = match &order.plugin {
            Some(plugin) => Some(self.sandbox(plugin).await?),
            None => None,
        };
        let edits: HashMap<String, String> = order
            .edits
            .iter()
            .map(|BodyEdit { message, body }| (message.clone(), body.clone()))
            .collect();
        let is_reviewed = sandbox.is_some() || !edits.is_empty();
        let review = is_reviewed.then(|| Arc::new(ApiReview { edits, sandbox }) as Arc<dyn Review>);
        let backends = self.backends.clone();
        let opening = open(
            backends,
            (&known.name, to.as_ref()),
            ["queue", "to"],
            review,
        );
        let redrive = within(PATIENCE, opening).await?.map_err(problems)?;
        let redrive = Redrive {
            to: Arc::new(KnownDestinations {
                all: redrive.to,
                known: Arc::clone(&self.known),
            }),
            ..redrive
        };
        let by_ids = selection.ids.as_ref().map(|ids| ids.len() as u64);
        let usual = RedriveRequest::default();
        let request = RedriveRequest {
            selection,
            first: match (order.first, by_ids) {
                (Some(first), Some(ids)) => Some(first.min(ids)),
                (first, ids) => first.or(ids),
            },
            rate: order.rate,
            scan: order.scan.unwrap_or(usual.scan),
            stop_at: order.stop_at.unwrap_or(usual.stop_at),
            marks: match order.kind {
                JobKind::Redrive => Marks::Redriven,
                JobKind::Move | JobKind::Purge => Marks::Kept,
            },
            apply: order.apply,
        };
        if let Err(refusal) = redrive::check(&redrive, &request) {
            return Err(unmet(order, &refusal));
        }
        Ok(match (order.kind, order.apply) {
            (JobKind::Move, false) => Task::Count(redrive.from),
            _ => Task::Redrive(Box::new(redrive), Box::new(request)),
        })
    }

    async fn begin(
        &self,
        order: JobOrder,
        by: Requester,
        goes_on_with: Option<&str>,
    ) -> Result<JobView, CallProblem> {
        let task = self.prepare(&order).await?;
        let apply = order.apply;
        let job = |job| work(job, task, apply);
        let started = self.jobs.start(order, by, goes_on_with, job).await?;
        Ok(self.jobs.wait(&started, JOB_WAIT).await)
    }

    async fn sandbox(&self, plugin: &str) -> Result<Sandbox, CallProblem> {
        let settings = self.settings.as_ref();
        let plugins: Vec<&PluginConfig> = settings
            .map(|settings| settings.routes.iter().map(|route| &route.plugin).collect())
            .unwrap_or_default();
        let found = plugins.iter().find(|one| one.name == plugin);
        let (Some(found), Some(settings)) = (found, settings) else {
            let names: Vec<&str> = plugins.iter().map(|one| one.name.as_str()).collect();
            let wanted = match &names[..] {
                [] => "none: this process has no plugins".to_owned(),
                names => format!("a plugin of this process: {}", names.join(", ")),
            };
            let found = format!("there is no plugin `{plugin}`");
            let problem = FieldProblem::new("try", &found, &wanted);
            return Err(CallProblem::fields(vec![problem]));
        };
        let loaded = Sandbox::load("try", found, settings).await;
        loaded.map_err(problems)
    }
}

/// What a job does, with all that it needs.
enum Task {
    Redrive(Box<Redrive>, Box<RedriveRequest>),
    /// Says how many messages would be moved.
    Count(Arc<dyn Queue>),
    Purge(Arc<dyn Queue>, &'static dyn Backend),
}

/// Why an order cannot be met, with the fields that say so.
fn unmet(order: &JobOrder, refusal: &RedriveRefusal) -> CallProblem {
    let why = refusal.to_string();
    let select = &order.select;
    let errors = match refusal {
        RedriveRefusal::SameQueue(_) => vec![FieldProblem::new("to", &why, "another queue")],
        RedriveRefusal::InOrder(_) => {
            let given = [
                ("reason", select.reason.is_some()),
                ("where", !select.conditions.is_empty()),
                ("older", select.older.is_some()),
                ("messages", select.messages.is_some()),
            ];
            let given = given.into_iter().filter(|(_, is_given)| *is_given);
            let wanted = "no condition; `first` moves from the head";
            given
                .map(|(field, _)| FieldProblem::new(field, &why, wanted))
                .collect()
        }
        RedriveRefusal::OneReceive(_) => Vec::new(),
    };
    CallProblem {
        errors,
        ..CallProblem::new(StatusCode::CONFLICT, format!("Nothing was done. {why}."))
    }
}

/// Problems of the queues and plugins that a request names.
fn problems(problems: Vec<Problem>) -> CallProblem {
    let is_away = problems.iter().all(|one| one.fault != Fault::Settings);
    let fields = problems.into_iter().map(|one| {
        let Problem {
            at,
            found,
            wanted,
            hint,
            ..
        } = one;
        let wanted = match hint {
            Some(hint) if wanted.is_empty() => hint,
            Some(hint) => format!("{wanted} ({hint})"),
            None => wanted,
        };
        FieldProblem::new(&at, &found, &wanted)
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

/// Why a look did not see everything.
fn stopped(end: LookEnd, time: Duration) -> Option<String> {
    let why = match end {
        LookEnd::Complete | LookEnd::Enough => return None,
        LookEnd::ScanLimit => "as many were looked at as `scan` says; there may be more",
        LookEnd::Cancelled => {
            return Some(format!("its time of {} s was over", time.as_secs_f64()));
        }
        LookEnd::LastReceive => "the queue's redrive policy leaves a message one receive more",
        LookEnd::ReceivesSpent => {
            "a message has had its last receive: the queue's redrive policy takes it at the next"
        }
    };
    Some(why.to_owned())
}

/// Destinations, without those that letters name and that no route of this process has.
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
                "its attribute names `{name}` as its source, which is no queue of this process; give \
                 `to`"
            )),
            _ => self.all.source(source).await,
        }
    }
}

/// Bodies that people have edited, and a plugin that messages are tried on then.
struct ApiReview {
    edits: HashMap<String, String>,
    sandbox: Option<Sandbox>,
}

#[async_trait::async_trait]
impl Review for ApiReview {
    async fn review(
        &self,
        message: &Message,
        cancel: &CancellationToken,
    ) -> Result<String, String> {
        let edited = self.edits.get(&message.id);
        let body = edited.unwrap_or(&message.body);
        if body.contains(BLOT) && !message.body.contains(BLOT) {
            return Err(format!(
                "its edited body has `{BLOT}` in the place of what the recording rules hide; give \
                 the whole body"
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
        Ok(body.clone())
    }
}

/// Does a job.
async fn work(job: Arc<Job>, task: Task, apply: bool) -> JobEnd {
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
        Task::Purge(queue, backend) if !apply => {
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

/// What a queue of this backend holds, and how much of it a purge removes.
pub(crate) fn backlog(backend: &dyn Backend, depth: Depth) -> Backlog {
    Backlog {
        waiting: depth.waiting,
        delayed: depth.delayed,
        in_flight: depth.in_flight,
        purges_in_flight: backend.purges_in_flight(),
        is_exact: backend.counts_exactly(),
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
    async fn look(&self, queue: &str, order: &LookOrder) -> Result<MessageList, CallProblem> {
        let (known, open) = if order.receives {
            let known = self.known.find(queue)?;
            let open = self.open(&known.name).await?;
            (known, open)
        } else {
            self.listed(queue).await?
        };
        let bounds = LookBounds {
            after: order.page.after.clone().map(BrowseCursor),
            most: order.page.limit,
            bytes: SHOWN_BYTES,
            scan: order.scan.unwrap_or(SCANNED),
            counts_on: true,
        };
        let time = order.within.unwrap_or(LOOKING);
        let selection = self.selection(&known, &order.select)?;
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
            reasons: looked
                .reasons
                .into_iter()
                .map(|one| ReasonView {
                    reason: one.reason,
                    messages: one.messages.into(),
                    samples: one.samples,
                })
                .collect(),
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
        let depth = within(PATIENCE, open.depth()).await?;
        let depth = depth.map_err(|error| backend_failed(&error))?;
        Ok(backlog(known.name.backend, depth))
    }

    async fn must_wait(&self, queue: &str, id: &str) -> Result<(), CallProblem> {
        let known = self.known.find(queue)?;
        let open = self.open(&known.name).await?;
        if open.can_browse() {
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
                    "Message `{id}` cannot be taken now: somebody has just received it, or a message \
                     of its group before it must go first. Nothing was done."
                );
                return Err(CallProblem::new(StatusCode::CONFLICT, why));
            }
        }
        Ok(DeleteResult {
            message: id.to_owned(),
            scanned: found.scanned.into(),
        })
    }

    async fn start(&self, order: JobOrder, by: Requester) -> Result<JobView, CallProblem> {
        self.begin(order, by, None).await
    }

    fn jobs(&self, page: &Page) -> Result<Listed<JobView>, CallProblem> {
        self.jobs.list(page)
    }

    fn job(&self, id: &str) -> Option<JobView> {
        self.jobs.view(id)
    }

    fn cancel(&self, id: &str) -> Result<JobView, CallProblem> {
        self.jobs.cancel(id)
    }

    async fn restart(&self, id: &str, by: Requester) -> Result<JobView, CallProblem> {
        let order = self.jobs.rest(id)?;
        self.begin(order, by, Some(id)).await
    }
}
