//! A job: a message with its lease and its permit; and how it ended. The stages pass jobs to each
//! other, so that no stage imports another.

use crate::clock::{BootInstant, Timestamp};
use crate::fleet::hand::Needs;
use crate::fleet::keeper::FleetPermit;
use crate::lease::Lease;
use crate::memory::HeldBytes;
use crate::message::{ContentError, Message, Verdict};
use crate::queue::sharing::Priority;
use crate::scheduler::permits::Permit;
use crate::scheduler::ready::WaitingJob;
use crate::telemetry::metrics::exemplar::ExemplarTrace;
use crate::telemetry::trace::SpanContext;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// A leased message that waits or runs.
#[derive(Debug)]
pub struct Job {
    /// The received message.
    pub message: Message,
    /// The lease on the message.
    pub lease: Lease,
    /// The data that accompany the message.
    pub hold: Hold,
}

/// The data, other than the lease, that accompany a message from its receive to its settlement.
#[derive(Debug)]
pub struct Hold {
    /// The permit; released when the outcome is on its way to the queue.
    pub permit: Option<Permit>,
    /// The bytes that the message takes of the process's budget, if there is one.
    pub bytes: Option<HeldBytes>,
    /// The date when the message was sent, or when it was received if the backend does not report
    /// that.
    pub sent_at: Timestamp,
    /// The time at which the message becomes too old to be started; `None` if it never does.
    pub expires: Option<BootInstant>,
    /// The number of consecutive attempts that ended because the downstream was busy or closed.
    pub pauses: u32,
    /// The number of attempts of this delivery that have ended and count.
    pub tries: u32,
    /// The number of the first attempt of this delivery, from 1: the number of earlier attempts of
    /// the message, as `max-attempts` counts them, plus one.
    pub first_attempt: u32,
    /// The duration of the last attempt, if one was made.
    pub took: Option<Duration>,
    /// The earliest time of the next attempt, after a failed attempt of this delivery.
    pub not_before: Option<BootInstant>,
    /// Whether the next receive may dead-letter the message, so that it should be finished rather
    /// than released.
    pub last_chance: bool,
    /// The span of the last attempt, if attempts are traced.
    pub trace: Option<SpanContext>,
    /// The tenant that the message belongs to; `None` if it belongs to none, or tenants do not
    /// share the route.
    pub tenant: Option<String>,
    /// The priority of the message.
    pub priority: Priority,
    /// When the message has waited for the longest wait of its priority, if there is one.
    pub hastens: Option<BootInstant>,
    /// The message's needs for limits of the fleet, if its route has limits.
    pub needs: Option<Needs>,
    /// The permits of these limits, while the message is attempted.
    pub limits: Option<FleetPermit>,
}

impl Hold {
    /// Returns the number of the message's present or next attempt, from 1.
    pub(crate) fn attempt(&self) -> u32 {
        self.first_attempt.max(1).saturating_add(self.tries)
    }
}

impl Job {
    /// Returns the trace to show with the duration of the attempt: that of its own span or, without
    /// one, that of its sender. Returns `None` if that trace is not exported.
    pub(crate) fn sampled_trace(&self) -> Option<ExemplarTrace> {
        if let Some(own) = self.hold.trace {
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

impl WaitingJob for Job {
    fn group(&self) -> Option<&str> {
        self.message.group.as_deref()
    }

    fn sent_at(&self) -> Timestamp {
        self.hold.sent_at
    }

    fn expires(&self) -> Option<BootInstant> {
        self.hold.expires
    }

    fn tenant(&self) -> &str {
        self.hold.tenant.as_deref().unwrap_or_default()
    }

    fn priority(&self) -> Priority {
        self.hold.priority
    }

    fn hastens(&self) -> Option<BootInstant> {
        self.hold.hastens
    }

    fn id(&self) -> &str {
        &self.message.id
    }

    fn is_redelivered(&self) -> bool {
        self.message.receive_count > 1
    }

    fn may_be_given_back(&self) -> bool {
        // After an attempt of this delivery, the message cannot become a dead letter without an
        // attempt.
        !self.hold.last_chance || self.hold.tries > 0
    }

    fn needs(&self) -> Option<&Needs> {
        self.hold.needs.as_ref()
    }

    fn permitted(&mut self, permit: FleetPermit) {
        self.hold.limits = Some(permit);
    }

    fn held_bytes(&self) -> u64 {
        self.message.held_bytes()
    }

    fn pause_until(&mut self, at: BootInstant) {
        self.hold.not_before = Some(at);
    }

    fn note_held(&mut self) {
        self.hold.pauses = self.hold.pauses.saturating_add(1);
    }
}

impl Job {
    /// Returns how the job ends if it is released now.
    pub fn given_back(&self, now: BootInstant) -> JobEnding {
        match self.hold.not_before {
            Some(at) if at > now => JobEnding::Behind(at.since(now)),
            _ => JobEnding::Returned,
        }
    }

    /// Ends the job.
    pub fn finish(mut self, ending: JobEnding) -> FinishedJob {
        self.hold.limits = None;
        FinishedJob {
            job: self,
            ending,
            is_awaited: false,
        }
    }
}

/// The data that settlement has about a message that has just arrived.
#[derive(Debug)]
pub struct Arrival {
    /// The ending of the job, if it need not run.
    pub ending: Option<JobEnding>,
    /// The number of the first attempt of the new delivery, from 1.
    pub first_attempt: u32,
    /// Whether the next receive may dead-letter the message, so that it should be finished rather
    /// than released.
    pub last_chance: bool,
}

/// The ending of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnding {
    /// The attempt ended with a verdict.
    Verdict(Verdict),
    /// The job was never started: another consumer may have the message at once.
    Returned,
    /// A stop, or permits of the fleet that ended, interrupted the handler, which no longer runs
    /// anywhere: another consumer may have the message at once.
    Interrupted,
    /// A stop, or permits of the fleet that ended, did not wait for the answer of a request to another system. That system may have
    /// handled the message, or may still do so for this long: no consumer may have the message
    /// before.
    Abandoned(Duration),
    /// The job was not started because others of its group are ahead and there is no place to wait
    /// for them, or it paused after a failed attempt of this delivery. The message is not needed
    /// before this time has passed.
    Behind(Duration),
    /// The job was not started because too many messages wait for limits of the fleet. The message
    /// is not needed before this time has passed.
    Deferred(Duration),
    /// The message was handled before and only needs to be deleted.
    AlreadyDone,
    /// The message was received more often than attempts are allowed, and no attempt ever ended
    /// with a verdict. Holds the reason as text.
    Exhausted(String),
    /// The message has no content that a handler can be given, so no attempt was made.
    Unreadable(ContentError),
    /// The message was too old before the job was started.
    Shed,
    /// The message matches none of the route's filters.
    Filtered,
    /// The message was cancelled while its attempt ran, and must be deleted.
    Cancelled,
    /// The lease was lost while the job waited or ran.
    Lost,
}

/// A job on its way to settlement.
#[derive(Debug)]
pub struct FinishedJob {
    /// The job. Settlement keeps its permit while it cannot keep up.
    pub job: Job,
    /// The ending of the job.
    pub ending: JobEnding,
    /// Whether settlement must not wait for other jobs to share the call: the queue delivers
    /// nothing more of the group before this job is settled, and no other job of the queue is about
    /// to end.
    pub is_awaited: bool,
}

/// The channels for finished jobs: one sender per queue of a route, in the route's order. A send
/// fails only when the process is past its end; then dropping the lease releases the message.
pub type Outbox = Vec<UnboundedSender<FinishedJob>>;

/// Sends a finished job to the settlement of its queue.
pub(crate) fn hand_on(outbox: &Outbox, lane: usize, finished: FinishedJob) {
    // See `Outbox`: without a receiver, dropping the lease releases the message.
    let _ = outbox[lane].send(finished);
}

/// Jobs for tests.
#[cfg(any(test, feature = "samples"))]
#[allow(clippy::unwrap_used, missing_docs, reason = "for tests")]
pub mod samples {
    use super::{Hold, Job};
    use crate::clock;
    use crate::clock::Timestamp;
    use crate::lease::Ledger;
    use crate::lease::book::LeaseTerms;
    use crate::message::samples;
    use crate::queue::sharing::Priority;
    use crate::scheduler::permits::Permits;
    use std::sync::Arc;
    use std::time::Duration;

    /// Returns a job for a message with this id and a lease of 30 s that is never extended.
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
            hold: Hold {
                permit: Some(Permits::new(1).reserve(1)),
                bytes: None,
                sent_at: Timestamp::default(),
                expires: None,
                pauses: 0,
                tries: 0,
                first_attempt: 1,
                took: None,
                not_before: None,
                last_chance: false,
                trace: None,
                tenant: None,
                priority: Priority::default(),
                hastens: None,
                needs: None,
                limits: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::message::{Attribute, TRACE_HEADER};
    use crate::telemetry::trace::{SpanContext, SpanId, TraceId};

    const OF_SENDER: &str = "5759e988bd862e3fe1be46a994272793";
    const OURS: &str = "0af7651916cd43dd8448eb211c80319c";

    fn shown(job: &super::Job) -> Option<String> {
        job.sampled_trace().map(|of| of.trace_id.to_string())
    }

    #[test]
    fn duration_is_shown_with_the_exported_trace_of_the_attempt_or_its_sender() {
        let mut job = super::samples::job("m");
        assert_eq!(shown(&job), None);
        for (flags, wanted) in [("01", Some(OF_SENDER)), ("00", None), ("x", None)] {
            let parent = format!("00-{OF_SENDER}-53995c3f42cd8ad8-{flags}");
            job.message.attributes = vec![Attribute::text("traceparent", parent)];
            assert_eq!(shown(&job).as_deref(), wanted, "{flags}");
        }
        let header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
        job.message.system_attributes = vec![(TRACE_HEADER.to_owned(), header.to_owned())];
        assert_eq!(shown(&job).as_deref(), Some(OF_SENDER));
        for (sampled, wanted) in [(true, Some(OURS)), (false, None)] {
            job.hold.trace = Some(SpanContext {
                trace_id: TraceId::read(OURS).expect("an id"),
                span_id: SpanId([1; 8]),
                sampled,
            });
            assert_eq!(shown(&job).as_deref(), wanted);
        }
    }
}
