//! A job: a message with its lease and its permit; and how it ended. The stages pass jobs to each
//! other, so that none imports another.

use crate::clock::{BootInstant, Timestamp};
use crate::lease::Lease;
use crate::memory::HeldBytes;
use crate::message::{ContentError, Message, Verdict};
use crate::scheduler::permits::Permit;
use crate::scheduler::ready::Waiting;
use crate::telemetry::metrics::exemplar::ExemplarTrace;
use crate::telemetry::trace::SpanContext;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// A leased message that waits or runs.
#[derive(Debug)]
pub struct Job {
    /// What was received.
    pub message: Message,
    /// Our claim on it.
    pub lease: Lease,
    /// Its permit; released when its outcome is on its way.
    pub permit: Permit,
    /// The bytes that it takes of the process's budget, where there is one.
    pub held: Option<HeldBytes>,
    /// When it was sent; where the backend does not tell, when it was received.
    pub sent_at: Timestamp,
    /// When it becomes too old to be started; never, if there is no such moment.
    pub expires: Option<BootInstant>,
    /// How often in a row it was begun without success, its downstream being busy.
    pub holds: u32,
    /// How many attempts of this delivery have ended with a verdict that counts.
    pub tries: u32,
    /// The number of the first attempt of this delivery, from 1: how many there were of the message, as
    /// `max-attempts` counts them, and one more.
    pub first_attempt: u32,
    /// How long its last attempt took, if one was made.
    pub took: Option<Duration>,
    /// Before when it is not to be attempted again, after an attempt of this delivery that failed.
    pub not_before: Option<BootInstant>,
    /// Whether its next receive may dead-letter it: it is better finished than released.
    pub last_chance: bool,
    /// The span of its last attempt, where attempts are traced.
    pub trace: Option<SpanContext>,
}

impl Job {
    /// The number of its present attempt, or of its next, from 1.
    pub(crate) fn attempt(&self) -> u32 {
        self.first_attempt.max(1).saturating_add(self.tries)
    }

    /// The trace that its attempt's duration is shown with: that of its span, else of its sender's,
    /// if it is exported.
    pub(crate) fn sampled_trace(&self) -> Option<ExemplarTrace> {
        if let Some(own) = self.trace {
            return own.sampled.then_some(ExemplarTrace {
                trace_id: own.trace_id,
                span_id: Some(own.span_id),
            });
        }
        let of_sender = self.message.remote_context()?;
        of_sender.sampled.then_some(ExemplarTrace {
            trace_id: of_sender.trace_id,
            span_id: of_sender.parent,
        })
    }
}

impl Waiting for Job {
    fn group(&self) -> Option<&str> {
        self.message.group.as_deref()
    }

    fn sent_at(&self) -> Timestamp {
        self.sent_at
    }

    fn expires(&self) -> Option<BootInstant> {
        self.expires
    }

    fn id(&self) -> &str {
        &self.message.id
    }

    fn may_be_given_back(&self) -> bool {
        // An attempt was made: what becomes of it then is no dead letter without one.
        !self.last_chance || self.tries > 0
    }
}

impl Job {
    /// How it ends if it is released now.
    pub fn given_back(&self, now: BootInstant) -> JobEnding {
        match self.not_before {
            Some(at) if at > now => JobEnding::Behind(at.since(now)),
            _ => JobEnding::Returned,
        }
    }

    /// Ends the job.
    pub fn finish(self, ending: JobEnding) -> Finished {
        Finished {
            message: self.message,
            lease: self.lease,
            permit: self.permit,
            held: self.held,
            tries: self.tries,
            took: self.took,
            trace: self.trace,
            ending,
            is_awaited: false,
        }
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnding {
    /// Its attempt ended with a verdict.
    Verdict(Verdict),
    /// It was never started, or stopped with the process: others may have it at once.
    Returned,
    /// It was stopped with the process, and what it has begun elsewhere may continue for this long:
    /// nobody is to have it before.
    Stopped(Duration),
    /// It was not started, because others of its group are ahead and there is no place to wait for
    /// them; or it paused after a failed attempt of this delivery. It is not needed before this
    /// time.
    Behind(Duration),
    /// It was handled before and only its deletion is missing.
    AlreadyDone,
    /// It was received more often than attempts are allowed, and no attempt ever answered; in words.
    Exhausted(String),
    /// It has no content that a handler can be given, so no attempt was made.
    Unreadable(ContentError),
    /// It was too old before it was started.
    Shed,
    /// None of the route's filters matches it.
    Filtered,
    /// Somebody cancelled it while it ran: it is to be deleted.
    Cancelled,
    /// Its lease was lost while it ran.
    Lost,
}

/// A job on its way to settlement.
#[derive(Debug)]
pub struct Finished {
    /// What was received.
    pub message: Message,
    /// Our claim on it, to be settled or let go.
    pub lease: Lease,
    /// Its permit, which settlement keeps while it cannot keep up.
    pub permit: Permit,
    /// The bytes that it takes, until it is settled.
    pub held: Option<HeldBytes>,
    /// How many attempts of this delivery have ended with a verdict that counts.
    pub tries: u32,
    /// How long its last attempt took, if one was made.
    pub took: Option<Duration>,
    /// The span of its last attempt, where attempts are traced.
    pub trace: Option<SpanContext>,
    /// How it ended.
    pub ending: JobEnding,
    /// Its queue delivers nothing more of its group before it is settled, and nothing else of the
    /// queue is about to end: its settlement does not wait for others to share the call.
    pub is_awaited: bool,
}

/// Where finished jobs go: one sender per queue of a route, in the route's order. A send fails
/// only when the process is past its end, and then the lease's drop lets the message go.
pub(crate) type Outbox = Vec<UnboundedSender<Finished>>;

/// Sends a job that ended on to the settlement of its queue.
pub(crate) fn hand_on(outbox: &Outbox, lane: usize, finished: Finished) {
    // See `Outbox`: without a receiver the lease's drop lets the message go.
    let _ = outbox[lane].send(finished);
}

/// Jobs for tests.
#[cfg(any(test, feature = "samples"))]
#[allow(clippy::unwrap_used, missing_docs, reason = "for tests")]
pub mod samples {
    use super::Job;
    use crate::clock;
    use crate::clock::Timestamp;
    use crate::lease::Ledger;
    use crate::lease::book::LeaseTerms;
    use crate::message::samples;
    use crate::scheduler::permits::Permits;
    use std::sync::Arc;
    use std::time::Duration;

    /// A job on a message of this id, with a lease of 30 s that nobody extends.
    pub fn job(id: &str) -> Job {
        let message = samples::message(id);
        let terms = LeaseTerms {
            queue: 0,
            receipt: message.receipt.clone(),
            received: clock::now(),
            answered: clock::now(),
            visibility: Duration::from_secs(30),
        };
        let lease = Arc::new(Ledger::default()).open([terms]).remove(0);
        Job {
            message,
            lease,
            permit: Permits::new(1).reserve(1),
            held: None,
            sent_at: Timestamp::default(),
            expires: None,
            holds: 0,
            tries: 0,
            first_attempt: 1,
            took: None,
            not_before: None,
            last_chance: false,
            trace: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::message::{Attribute, TRACE_HEADER};
    use crate::telemetry::trace::{SpanContext, SpanId, TraceId};

    const OF_SENDER: &str = "5759e988bd862e3fe1be46a994272793";
    const OURS: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn duration_is_shown_with_the_exported_trace_of_the_attempt_or_its_sender() {
        let mut job = super::samples::job("m");
        let shown = |job: &super::Job| job.sampled_trace().map(|of| of.trace_id.to_string());
        assert_eq!(shown(&job), None);
        let parent = |flags| format!("00-{OF_SENDER}-53995c3f42cd8ad8-{flags}");
        for (flags, wanted) in [("01", Some(OF_SENDER)), ("00", None), ("x", None)] {
            job.message.attributes = vec![Attribute::text("traceparent", parent(flags))];
            assert_eq!(shown(&job).as_deref(), wanted, "{flags}");
        }
        let header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
        job.message.system_attributes = vec![(TRACE_HEADER.to_owned(), header.to_owned())];
        assert_eq!(shown(&job).as_deref(), Some(OF_SENDER));
        for (sampled, wanted) in [(true, Some(OURS)), (false, None)] {
            job.trace = Some(SpanContext {
                trace_id: TraceId::read(OURS).expect("an id"),
                span_id: SpanId([1; 8]),
                sampled,
            });
            assert_eq!(shown(&job).as_deref(), wanted);
        }
    }
}
