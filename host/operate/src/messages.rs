//! The operations on messages in queues: the port that `app` implements, and its objects, which are
//! those of the API. Knows no HTTP.

use super::operations::{ContentView, ListPage, Page};
use super::problem::{CallProblem, FieldProblem};
use super::schema::Count;
use crate::answers;
use crate::redrive::{End, JobReport, ReasonView};
use crate::request::{AtLeastOne, Request, UnreadFields, read_given};
use crate::requester::Requester;
use crate::verbs::move_messages::MoveMessages;
use crate::verbs::purge::PurgeQueue;
use crate::verbs::redrive::RedriveRequest;
use crate::verbs::scan::ScanRequest;
use crate::verbs::send::{MessageOrder, SendReport};
use serde_json::{Map, Value, json};
use std::time::Duration;

answers! {
    /// Messages that wait in a queue: neither in flight nor delayed.
    pub struct MessageList {
        /// The queue.
        queue: String,
        /// The first selected messages, the oldest first where the queue has an order.
        items: Vec<MessageView>,
        /// The cursor of the next page; nothing on the last, and where the queue cannot be listed.
        next: Option<String>,
        /// The selected messages of all that were inspected, by reason; the most frequent first.
        reasons: Vec<ReasonView>,
        /// How many messages were inspected.
        scanned: Count,
        /// How many of them were selected.
        selected: Count,
        /// Whether all messages that wait behind `cursor` were inspected.
        complete: bool,
        /// Why not all were inspected, in words.
        stopped: Option<String>,
        /// How many messages were received to inspect them, and given back: the receive count of
        /// each is one higher.
        received: Count,
        /// Calls that received: on SQS each is billed.
        receive_calls: Count,
        /// How many messages could not be given back: they stay invisible for ten minutes.
        not_released: Count,
    }

    /// A message that waits in a queue.
    pub struct MessageView {
        /// Its id.
        id: String,
        /// Its id before it was first copied, as by a redrive, if it was.
        first_id: Option<String>,
        /// Why it was dead-lettered, if that is known.
        reason: Option<String>,
        /// The queue that it came from, if that is known.
        source: Option<String>,
        /// How often it was received in this queue.
        receive_count: Count,
        /// How often it was moved back from a dead-letter queue.
        redriven: Count,
        /// When it was sent to this queue, if the queue reports it.
        sent_at: Option<String>,
        /// How many bytes its body and attributes have.
        bytes: Count,
        /// Why its content is missing or cannot be read.
        unreadable: Option<String>,
        /// Its content, if `admin-bodies` permits it.
        content: Option<ContentView>,
    }

    /// A job that an operator has started: a redrive, a move or a purge.
    pub struct JobView {
        /// Its unique id.
        id: String,
        /// `redrive`, `move` or `purge`.
        kind: String,
        /// The queue that messages are taken from.
        queue: String,
        /// The queue that they all go to, if there is one.
        to: Option<String>,
        /// Whether messages are moved or removed; otherwise they are only counted.
        applied: bool,
        /// `running`; `done`; `failed`, with the error; `cancelled` by an operator; or `cut`, if
        /// the process ended before it.
        state: String,
        /// Why it failed or was cut.
        error: Option<String>,
        /// Whether it can be started again unchanged, to continue with the rest.
        can_restart: bool,
        /// The job that continues with the rest, once it was started again.
        restarted_as: Option<String>,
        /// Who started it.
        user: String,
        /// The process that runs or ran it.
        process: String,
        /// When it began.
        started_at: String,
        /// When it ended.
        ended_at: Option<String>,
        /// How many messages waited when it began, if the queue reported it: for a progress bar.
        waiting: Option<Count>,
        /// The result so far, or the result that it would have.
        report: JobReport,
    }

    /// A deleted message.
    pub struct DeleteResult {
        /// The message.
        message: String,
        /// How many messages were inspected to find it.
        scanned: Count,
    }
}

/// The options of a look at the messages of a queue.
#[derive(Debug, Clone, Default)]
pub struct LookTerms {
    /// The end of the previous page.
    pub after: Option<String>,
    /// Whether messages may be received if the queue cannot be listed.
    pub receives: bool,
    /// The time limit, if not the default. When it is over, the look returns what it has found.
    pub within: Option<Duration>,
}

/// The number of messages in a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// The messages that could be received.
    pub waiting: u64,
    /// The delayed messages.
    pub delayed: u64,
    /// The messages that a consumer has received and not settled.
    pub in_flight: u64,
    /// Whether a purge also removes messages in flight.
    pub purges_in_flight: bool,
    /// Whether the backend counts exactly; otherwise it estimates.
    pub is_exact: bool,
}

impl JobView {
    /// Returns whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.state != RUNNING
    }

    /// Returns whether it did everything that was requested or, if it only looked, would do it.
    pub fn is_clean(&self) -> bool {
        self.state == DONE && (self.kind == PURGE || self.report.is_clean())
    }

    /// Describes its result for people.
    pub fn lines(&self) -> Vec<String> {
        let (queue, report) = (&self.queue, &self.report);
        let end = report.end.map_or("a call failed", |end| end.words());
        let looked_at = format!("{queue}: {} inspected", report.scanned);
        let mut lines = vec![if self.applied {
            let stay = report.left + report.blocked;
            format!("{looked_at}, {} moved, {stay} stay ({end})", report.moved)
        } else {
            format!("{looked_at}, {} selected ({end})", report.selected)
        }];
        lines.extend(report.lines(self.applied));
        if !self.applied {
            lines.push("nothing was moved; add --apply to move them".to_owned());
        }
        lines
    }

    /// Describes its result as JSON for programs.
    pub fn printed(&self) -> Value {
        let mut printed = json!(self.report);
        printed["queue"] = json!(self.queue);
        printed["applied"] = json!(self.applied);
        printed["matched"] = printed["selected"].take();
        printed["end"] = json!(self.report.end.map(End::name));
        if let Some(fields) = printed.as_object_mut() {
            fields.remove("selected");
            fields.remove("removed");
        }
        printed
    }

    /// Returns whether it is a purge by a single call, which does not report how many messages it
    /// removes.
    pub fn empties_at_once(&self) -> bool {
        let is_done = self.applied && self.state == DONE;
        self.kind == PURGE && is_done && self.report.removed.is_none()
    }
}

impl Backlog {
    /// Returns how many messages a purge would remove.
    pub fn purged(&self) -> u64 {
        let in_flight = if self.purges_in_flight {
            self.in_flight
        } else {
            0
        };
        self.waiting
            .saturating_add(self.delayed)
            .saturating_add(in_flight)
    }
}

/// The requested work of a job. Without `apply` nothing is moved or removed.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Moves dead letters back to their source queues.
    Redrive(Box<RedriveRequest>),
    /// Moves messages to another queue unchanged.
    Move(MoveMessages),
    /// Removes the waiting messages.
    Purge(PurgeQueue),
}

impl Work {
    /// Returns its name in the API.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Redrive(_) => "redrive",
            Self::Move(_) => "move",
            Self::Purge(_) => PURGE,
        }
    }

    /// Returns the queue that all messages go to.
    pub fn to(&self) -> Option<&str> {
        let to = match self {
            Self::Redrive(request) => &request.to,
            Self::Move(request) => &request.to,
            Self::Purge(_) => &None,
        };
        to.as_ref().map(|to| to.0.as_str())
    }

    /// Returns the maximum number of messages.
    pub fn first(&self) -> Option<u64> {
        let first = match self {
            Self::Redrive(request) => request.first,
            Self::Move(request) => request.first,
            Self::Purge(_) => None,
        };
        first.map(|first| first.0 as u64)
    }

    /// Sets the maximum number of messages.
    #[must_use]
    pub fn with_first(mut self, most: usize) -> Self {
        match &mut self {
            Self::Redrive(request) => request.first = Some(AtLeastOne(most)),
            Self::Move(request) => request.first = Some(AtLeastOne(most)),
            Self::Purge(_) => {}
        }
        self
    }

    /// Returns whether it moves or removes anything.
    pub fn applies(&self) -> bool {
        let apply = match self {
            Self::Redrive(request) => request.apply,
            Self::Move(request) => request.apply,
            Self::Purge(request) => request.apply,
        };
        apply.unwrap_or_default()
    }

    /// Removes and returns the edited bodies, which are never written to a file.
    pub fn take_edits(&mut self) -> Vec<(String, String)> {
        let edits = match self {
            Self::Redrive(request) => request.edits.take(),
            Self::Move(_) | Self::Purge(_) => None,
        };
        edits.map(|edits| edits.0).unwrap_or_default()
    }

    /// Returns its JSON form, which is stored in a file.
    pub fn json(&self) -> Value {
        match self {
            Self::Redrive(request) => request.json(),
            Self::Move(request) => request.json(),
            Self::Purge(request) => request.json(),
        }
    }

    /// Parses `kind` and the fields of `json`. The error describes the problem.
    pub fn read(kind: &str, fields: Map<String, Value>) -> Result<Self, String> {
        let given = UnreadFields::new(fields);
        let read = match kind {
            "redrive" => read_given(given, |_: &RedriveRequest| Vec::new())
                .map(|request| Self::Redrive(Box::new(request))),
            "move" => read_given(given, |_: &MoveMessages| Vec::new()).map(Self::Move),
            PURGE => read_given(given, |_: &PurgeQueue| Vec::new()).map(Self::Purge),
            other => return Err(format!("there are no jobs of kind `{other}`")),
        };
        read.map_err(|problems| {
            let problems: Vec<String> = problems.iter().map(FieldProblem::to_string).collect();
            problems.join(". ")
        })
    }
}

const PURGE: &str = "purge";
/// The state of a running job.
const RUNNING: &str = "running";
/// The state of a job that did everything it could.
const DONE: &str = "done";

/// How long a call that starts a job waits for its end: the answer of a small job contains its
/// result.
pub const JOB_WAIT: Duration = Duration::from_secs(1);

/// The operations on the messages of queues. All calls may run concurrently. Only queues of this
/// process and their dead-letter queues can be named, since the redaction rules of others are not
/// known.
#[async_trait::async_trait]
pub trait MessageOperations: Send + Sync + 'static {
    /// Returns the messages that wait in a queue, counted by reason.
    async fn look(
        &self,
        queue: &str,
        request: &ScanRequest,
        terms: &LookTerms,
    ) -> Result<MessageList, CallProblem>;

    /// Returns a message that waits in a queue, by its id.
    async fn message(&self, queue: &str, id: &str) -> Result<MessageView, CallProblem>;

    /// Returns how many messages wait in a queue.
    async fn backlog(&self, queue: &str) -> Result<Backlog, CallProblem>;

    /// Fails if no such message waits in a queue that can be listed.
    async fn must_wait(&self, queue: &str, id: &str) -> Result<(), CallProblem>;

    /// Deletes a message that waits in a queue.
    async fn delete(&self, queue: &str, id: &str) -> Result<DeleteResult, CallProblem>;

    /// Sends messages in order to a queue that permits it. Returns the result of each.
    async fn send(&self, queue: &str, orders: Vec<MessageOrder>)
    -> Result<SendReport, CallProblem>;

    /// Starts a job, and waits at most `JOB_WAIT` for its end. Refuses an impossible request before
    /// anything is done.
    async fn start(&self, queue: &str, work: Work, by: &Requester) -> Result<JobView, CallProblem>;

    /// Returns the jobs, newest first.
    fn jobs(&self, page: &Page) -> Result<ListPage<JobView>, CallProblem>;

    /// Returns one job.
    fn job(&self, id: &str) -> Option<JobView>;

    /// Stops a job after its current batch.
    fn cancel(&self, id: &str) -> Result<JobView, CallProblem>;

    /// Restarts a job that ended early. It continues with the rest.
    async fn restart(&self, id: &str, by: &Requester) -> Result<JobView, CallProblem>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Bodies;

    #[test]
    fn what_a_job_does_is_written_and_read_without_edited_bodies() {
        let edits = vec![("m".to_owned(), "secret".to_owned())];
        let mut work = Work::Redrive(Box::new(RedriveRequest {
            edits: Some(Bodies(edits.clone())),
            apply: Some(true),
            ..RedriveRequest::default()
        }));
        assert_eq!(work.take_edits(), edits);
        let Value::Object(fields) = work.json() else {
            panic!("it is an object");
        };
        assert!(!format!("{fields:?}").contains("secret"));
        assert_eq!(Work::read(work.kind(), fields), Ok(work));
    }
}
