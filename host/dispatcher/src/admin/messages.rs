//! What operators see of the messages in queues, and what they do to them: the port that `app`
//! implements, and the objects that go through it, which are those of the API. Knows no HTTP.

use super::audit::Requester;
use super::operations::{ContentView, Listed, Page};
use super::problem::{CallProblem, FieldProblem};
use super::schema::{Count, answers};
use dispatcher_core::redrive::{Condition, ReasonPattern, Selection};
use serde::{Deserialize, Serialize};
use std::time::Duration;

answers! {
    /// Messages that wait in a queue: neither in flight nor delayed.
    pub(crate) struct MessageList {
        /// The queue.
        queue: String,
        /// The first selected messages, the oldest first where the queue has an order.
        items: Vec<MessageView>,
        /// The cursor of the next page; nothing on the last, and where the queue cannot be listed.
        next: Option<String>,
        /// The selected messages of all that were looked at, by reason; the most frequent first.
        reasons: Vec<ReasonView>,
        /// How many messages were looked at.
        scanned: Count,
        /// How many of them were selected.
        selected: Count,
        /// Whether all messages that wait behind `cursor` were looked at.
        complete: bool,
        /// Why not, in words.
        stopped: Option<String>,
        /// How many messages were received to be looked at, and given back: each has one receive more.
        received: Count,
        /// Calls that received: on SQS each is billed.
        receive_calls: Count,
        /// How many messages could not be given back: they stay invisible for ten minutes.
        not_released: Count,
    }

    /// Messages with one reason.
    pub(crate) struct ReasonView {
        /// Why they were dead-lettered; nothing where they do not say.
        reason: Option<String>,
        /// How many there are among those that were looked at.
        messages: Count,
        /// The ids of some.
        samples: Vec<String>,
    }

    /// A message that waits in a queue.
    pub(crate) struct MessageView {
        /// Its id.
        id: String,
        /// Why it was dead-lettered, if it says.
        reason: Option<String>,
        /// The queue that it came from, if it says.
        source: Option<String>,
        /// How often it was received since it is in this queue.
        receive_count: Count,
        /// How often it was moved back from a dead-letter queue.
        redriven: Count,
        /// When it was sent to this queue, where the queue tells.
        sent_at: Option<String>,
        /// How many bytes its body and attributes have.
        bytes: Count,
        /// Why its content is missing or cannot be read.
        unreadable: Option<String>,
        /// What it says, where `admin-bodies` permits it.
        content: Option<ContentView>,
    }

    /// A job that an operator has started: a redrive, a move or a purge.
    pub(crate) struct JobView {
        /// Tells it from all others.
        id: String,
        /// `redrive`, `move` or `purge`.
        kind: String,
        /// The queue that messages are taken from.
        queue: String,
        /// The queue that they all go to, if there is one.
        to: Option<String>,
        /// Whether messages are moved or removed; otherwise they are only counted.
        applied: bool,
        /// `running`; `done`; `failed`, with the error; `cancelled` by an operator; or `cut`, when the
        /// process ended before it.
        state: String,
        /// Why it failed or was cut.
        error: Option<String>,
        /// Whether it can be started again as it was: it goes on with what is left.
        can_restart: bool,
        /// The job that goes on with what was left, once it was started again.
        restarted_as: Option<String>,
        /// Who started it.
        user: String,
        /// The process that runs or ran it.
        process: String,
        /// When it began.
        started_at: String,
        /// When it ended.
        ended_at: Option<String>,
        /// How many messages waited when it began, where the queue told: for a bar of progress.
        waiting: Option<Count>,
        /// What it did so far, or would do.
        report: JobReport,
    }

    /// What a job did, or would do.
    pub(crate) struct JobReport {
        /// Messages that were looked at.
        scanned: Count,
        /// Messages that were selected.
        selected: Count,
        /// Messages that were sent to their destination and deleted.
        moved: Count,
        /// Messages that a purge removed; nothing where the backend does not tell.
        removed: Option<Count>,
        /// Messages that were selected and stay, or would; `failures` says why.
        left: Count,
        /// Messages that were selected and wait behind one of their group that stays.
        blocked: Count,
        /// Messages that were selected and that somebody else received or removed first.
        taken: Count,
        /// Messages that came after the job began, and stay.
        arrived: Count,
        /// Messages that failed again while it ran and had been redriven before, by this job or another; 0
        /// for a move.
        returned: Count,
        /// Messages that were sent and could not be deleted: they are in both queues.
        not_deleted: Count,
        /// Messages that were asked for by their ids and not found: in flight, delayed, or gone.
        missing: Count,
        /// Messages whose sending got no clear answer: they stay, and may be in both queues.
        uncertain: Count,
        /// Messages that could not be given back: they stay invisible until their lease ends.
        not_released: Count,
        /// Messages that were moved without `dispatcher-redriven`, for want of room.
        uncounted: Count,
        /// Receives of messages that stay and were given back: each counts, also where a run takes so
        /// long that a message comes again.
        received: Count,
        /// Calls that received: on SQS each is billed.
        receive_calls: Count,
        /// The selected messages by reason and destination.
        messages: Vec<DestinationView>,
        /// Why messages stay.
        failures: Vec<FailureView>,
        /// Why it ended, in words; nothing while it runs.
        end: Option<String>,
    }

    /// Messages with one reason and one destination.
    pub(crate) struct DestinationView {
        /// Why they are dead letters, where they say.
        reason: Option<String>,
        /// Where they go; nowhere if no destination is known.
        to: Option<String>,
        /// How many there are.
        messages: Count,
        /// How many of them were moved.
        moved: Count,
        /// The ids of some.
        samples: Vec<String>,
    }

    /// Messages that stay, or would, for one cause.
    pub(crate) struct FailureView {
        /// Why.
        error: String,
        /// How many.
        messages: Count,
        /// The ids of some.
        samples: Vec<String>,
    }

    /// What was deleted.
    pub(crate) struct DeleteResult {
        /// The message.
        message: String,
        /// How many messages were looked at to find it.
        scanned: Count,
    }
}

/// Which messages are meant, as it was asked for. Conditions that are given must all hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SelectionText {
    /// A regular expression that the reason matches.
    pub reason: Option<String>,
    /// Values in bodies that are JSON: `/order/country=CH`.
    pub conditions: Vec<String>,
    /// How long ago it was sent at least: `1h`.
    pub older: Option<String>,
    /// The ids of messages.
    pub messages: Option<Vec<String>>,
}

impl SelectionText {
    /// What it means.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn selection(&self) -> Result<Selection, Vec<FieldProblem>> {
        let mut problems = Vec::new();
        let mut wrong = |field: &str, found: &str, wanted: &str| {
            problems.push(FieldProblem::new(field, found, wanted));
        };
        let reason = self.reason.as_deref().and_then(|text| {
            let read = ReasonPattern::parse(text);
            read.map_err(|found| wrong("reason", &found, "a regular expression as in `time.?out`"))
                .ok()
        });
        let mut conditions = Vec::new();
        for text in &self.conditions {
            match Condition::parse(text) {
                Ok(condition) => conditions.push(condition),
                Err(found) => {
                    let wanted = "a JSON pointer and a value, as in /order/country=CH";
                    wrong("where", &found, wanted);
                }
            }
        }
        let older = self.older.as_deref().and_then(|text| {
            let read = humantime::parse_duration(text);
            let found = format!("`{text}` is not a duration");
            read.map_err(|_| wrong("older", &found, "a duration as in 90s or 36h"))
                .ok()
        });
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Selection {
            reason,
            conditions,
            older,
            ids: self
                .messages
                .as_ref()
                .map(|ids| ids.iter().cloned().collect()),
            redact: Vec::new(),
        })
    }
}

/// A look at the messages of a queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct LookOrder {
    /// Which messages.
    pub select: SelectionText,
    /// How many are shown, and after which place.
    pub page: Page,
    /// How many are looked at at most; as many as usual without it.
    pub scan: Option<u64>,
    /// Whether messages may be received, where the queue cannot be listed.
    pub receives: bool,
    /// How long it may take, if not as long as usual: then it ends with what it has.
    pub within: Option<Duration>,
}

/// How many messages a queue holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Those that could be received.
    pub waiting: u64,
    /// Those that wait for their time.
    pub delayed: u64,
    /// Those that somebody has received and not settled.
    pub in_flight: u64,
    /// Whether a purge also removes those in flight.
    pub purges_in_flight: bool,
    /// Whether the backend counts each; otherwise it estimates.
    pub is_exact: bool,
}

impl JobView {
    /// Whether it is a purge that was done by one call, which does not tell how many messages it removes.
    pub(crate) fn empties_at_once(&self) -> bool {
        let is_done = self.applied && self.state == "done";
        self.kind == JobKind::Purge.name() && is_done && self.report.removed.is_none()
    }
}

impl Backlog {
    /// How many messages a purge would remove.
    pub(crate) fn purged(&self) -> u64 {
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

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JobKind {
    /// Dead letters go back to where they came from.
    Redrive,
    /// Messages go to another queue as they are.
    Move,
    /// What waits is removed.
    Purge,
}

impl JobKind {
    /// As the API names it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Move => "move",
            Self::Purge => "purge",
        }
    }
}

/// A job as it was asked for. Without `apply` nothing is moved or removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobOrder {
    /// What it does.
    pub kind: JobKind,
    /// The queue that messages are taken from.
    pub queue: String,
    /// The queue that all of them go to.
    pub to: Option<String>,
    /// Which messages.
    pub select: SelectionText,
    /// The first so many of them.
    pub first: Option<u64>,
    /// So many a second at most.
    pub rate: Option<f64>,
    /// How many are looked at at most, where the queue cannot be listed.
    pub scan: Option<u64>,
    /// Stops when more than this share of what was moved has failed again, 0 to 1.
    pub stop_at: Option<f64>,
    /// Bodies to send in place of those of some messages. They are never written to a file.
    #[serde(skip)]
    pub edits: Vec<BodyEdit>,
    /// Whether it had edits: then it cannot be started again without them.
    pub has_edits: bool,
    /// A plugin of this process that must be done with a message before it is moved.
    pub plugin: Option<String>,
    /// Whether to move or remove anything.
    pub apply: bool,
    /// How often its work was started again.
    #[serde(default)]
    pub restarts: u32,
}

impl JobOrder {
    /// Of this kind, of everything in the queue, without doing it.
    pub(crate) fn new(kind: JobKind, queue: &str) -> Self {
        Self {
            kind,
            queue: queue.to_owned(),
            to: None,
            select: SelectionText::default(),
            first: None,
            rate: None,
            scan: None,
            stop_at: None,
            edits: Vec::new(),
            has_edits: false,
            plugin: None,
            apply: false,
            restarts: 0,
        }
    }
}

/// A body in place of that of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BodyEdit {
    /// The id of the message.
    pub message: String,
    /// The body that is sent.
    pub body: String,
}

/// How long a call that starts a job waits for its end: a small one is done in the answer.
pub(crate) const JOB_WAIT: Duration = Duration::from_secs(1);

/// The messages of queues. All calls may run at once. Only queues of this process and their
/// dead-letter queues can be named, since nobody else says what of their messages is redacted.
#[async_trait::async_trait]
pub(crate) trait MessageOperations: Send + Sync + 'static {
    /// The messages that wait in a queue, counted by reason.
    async fn look(&self, queue: &str, order: &LookOrder) -> Result<MessageList, CallProblem>;

    /// A message that waits in a queue, by its id.
    async fn message(&self, queue: &str, id: &str) -> Result<MessageView, CallProblem>;

    /// How many messages wait in a queue.
    async fn backlog(&self, queue: &str) -> Result<Backlog, CallProblem>;

    /// An error if no such message waits in a queue, where the queue can be listed.
    async fn must_wait(&self, queue: &str, id: &str) -> Result<(), CallProblem>;

    /// Deletes a message that waits in a queue.
    async fn delete(&self, queue: &str, id: &str) -> Result<DeleteResult, CallProblem>;

    /// Starts a job, and waits for its end, though no longer than `JOB_WAIT`. What cannot be met is
    /// refused before anything is done.
    async fn start(&self, order: JobOrder, by: Requester) -> Result<JobView, CallProblem>;

    /// The jobs, the newest first.
    fn jobs(&self, page: &Page) -> Result<Listed<JobView>, CallProblem>;

    /// One job.
    fn job(&self, id: &str) -> Option<JobView>;

    /// Stops a job after its present batch.
    fn cancel(&self, id: &str) -> Result<JobView, CallProblem>;

    /// Starts a job that has ended early again: it goes on with what is left.
    async fn restart(&self, id: &str, by: Requester) -> Result<JobView, CallProblem>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_of_a_selection_is_named() {
        let text = SelectionText {
            reason: Some("(".into()),
            conditions: vec!["a=1".into(), "/a=1".into()],
            older: Some("soon".into()),
            messages: None,
        };
        let problems = text.selection().expect_err("it is wrong");
        let fields: Vec<&str> = problems.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(fields, ["reason", "where", "older"]);
    }

    #[test]
    fn edited_bodies_are_not_written_down() {
        let order = JobOrder {
            edits: vec![BodyEdit {
                message: "m".into(),
                body: "secret".into(),
            }],
            has_edits: true,
            ..JobOrder::new(JobKind::Redrive, "local:q.dead")
        };
        let text = serde_json::to_string(&order).expect("it is JSON");
        assert!(!text.contains("secret"), "{text}");
        let read: JobOrder = serde_json::from_str(&text).expect("it is read");
        assert!(read.has_edits && read.edits.is_empty());
    }
}
