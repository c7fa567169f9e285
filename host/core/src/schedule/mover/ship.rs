//! Sends the messages of claimed jobs to one queue. The messages of one job go one after the other,
//! so the accepted ones are always the first. Knows no store, and does not decide when to send.

use crate::clock;
use crate::clock::{BootInstant, Timestamp};
use crate::message::{OutgoingMessage, SendSpan};
use crate::schedule::decide;
use crate::schedule::decide::{DueJob, SendLimits};
use crate::tasks::Group;
use crate::telemetry::trace::Tracer;
use std::collections::HashSet;
use std::sync::Arc;

/// The maximum number of concurrent send calls to queues that keep no order.
const CALLS: usize = 10;

/// The reason why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSent {
    /// A temporary failure: the message may be sent later.
    Transient(String),
    /// A permanent failure: the message can never be sent as it is.
    Refused(String),
}

impl NotSent {
    /// Returns the value of `error.type` and the reason in words.
    fn cause(&self) -> (&'static str, String) {
        match self {
            Self::Transient(why) => ("transient", why.clone()),
            Self::Refused(why) => ("refused", why.clone()),
        }
    }
}

/// The destination of messages.
#[async_trait::async_trait]
pub trait Outlet: Send + Sync + 'static {
    /// Returns the limits of a queue, by the name that a job has for it.
    async fn reach(&self, queue: &str) -> Result<SendLimits, String>;

    /// Sends at most `SendLimits::batch` messages. Returns one answer per item, in order.
    async fn send(&self, queue: &str, items: Vec<OutgoingMessage>) -> Vec<Result<(), NotSent>>;
}

/// An outlet whose calls are traced.
pub struct TracedOutlet {
    /// The outlet that sends.
    pub outlet: Arc<dyn Outlet>,
    /// The tracer that makes the spans.
    pub tracer: Tracer,
}

#[async_trait::async_trait]
impl Outlet for TracedOutlet {
    async fn reach(&self, queue: &str) -> Result<SendLimits, String> {
        self.outlet.reach(queue).await
    }

    async fn send(&self, queue: &str, mut items: Vec<OutgoingMessage>) -> Vec<Result<(), NotSent>> {
        let span = SendSpan::begin(&self.tracer, &mut items);
        let answers = self.outlet.send(queue, items).await;
        if let Some(span) = span {
            let failures: Vec<_> = answers
                .iter()
                .filter_map(|answer| answer.as_ref().err())
                .map(NotSent::cause)
                .collect();
            span.end(queue, "schedule", &failures);
        }
        answers
    }
}

/// A sequence of messages: each is sent only after those ahead of it were accepted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Lane {
    Job(usize),
    Group(String),
}

/// A message to send.
#[derive(Debug, Clone)]
struct DueMessage {
    /// The index of its job.
    job: usize,
    /// Its index among those of its job.
    number: usize,
    lane: Lane,
    due: Timestamp,
    message: OutgoingMessage,
}

/// The index of a job, and the answer for one of its messages.
pub(super) type SendResult = (usize, Result<(), NotSent>);

/// All messages for one queue.
#[derive(Debug, Default)]
pub(super) struct Load {
    parcels: Vec<DueMessage>,
    reach: Option<SendLimits>,
}

impl Load {
    /// Adds the messages of the job with this index.
    pub(super) fn add(&mut self, place: usize, planned: &DueJob, reach: SendLimits) {
        self.reach = Some(reach);
        let DueJob { job, ticks, .. } = planned;
        let group = if reach.ordered {
            job.message.group.clone()
        } else {
            None
        };
        let lane = group.map_or(Lane::Job(place), Lane::Group);
        self.parcels
            .extend(ticks.iter().enumerate().map(|(number, due)| DueMessage {
                job: place,
                number,
                lane: lane.clone(),
                due: *due,
                message: OutgoingMessage {
                    scheduled: Some(format!("{}/{}", job.id, due.0)),
                    ..job.message.clone().with_trace_header_in_place()
                },
            }));
    }

    /// Sends all messages. Returns the answers of each job in the order of its messages, up to its
    /// first failure. If the queue keeps order, messages behind a temporary failure in the same
    /// group are not sent. A call that would begin too late after the claim at `started` is not
    /// made.
    pub(super) async fn send(
        self,
        outlet: Arc<dyn Outlet>,
        queue: String,
        started: BootInstant,
    ) -> Vec<SendResult> {
        let Some(reach) = self.reach else {
            return Vec::new();
        };
        let mut stopped = HashSet::new();
        let mut answers = Vec::new();
        for mut step in steps(self.parcels, reach) {
            step.retain(|one| {
                !stopped.contains(&Lane::Job(one.job)) && !stopped.contains(&one.lane)
            });
            let told = send_step(&outlet, &queue, &step, reach, started).await;
            for (parcel, answer) in step.into_iter().zip(told) {
                if answer.is_err() {
                    stopped.insert(Lane::Job(parcel.job));
                }
                if matches!(answer, Err(NotSent::Transient(_))) {
                    stopped.insert(parcel.lane);
                }
                answers.push((parcel.job, answer));
            }
        }
        answers
    }
}

/// Splits messages into steps that may be sent concurrently: no two of a lane in one step. If the
/// queue keeps order, a step is one call.
fn steps(mut parcels: Vec<DueMessage>, reach: SendLimits) -> Vec<Vec<DueMessage>> {
    let most = if reach.ordered {
        parcels.sort_by_key(|one| one.due);
        reach.batch.max(1)
    } else {
        // The first message of every job, then the second of those that have one.
        parcels.sort_by_key(|one| one.number);
        usize::MAX
    };
    let mut steps: Vec<Vec<DueMessage>> = Vec::new();
    let mut lanes = HashSet::new();
    for parcel in parcels {
        let fits = steps.last().is_some_and(|step| step.len() < most);
        if !fits || lanes.contains(&parcel.lane) {
            lanes.clear();
            steps.push(Vec::new());
        }
        lanes.insert(parcel.lane.clone());
        steps.last_mut().expect("there is one by now").push(parcel);
    }
    steps
}

/// Sends one step. Returns one answer per message, in order.
async fn send_step(
    outlet: &Arc<dyn Outlet>,
    queue: &str,
    step: &[DueMessage],
    reach: SendLimits,
    started: BootInstant,
) -> Vec<Result<(), NotSent>> {
    let most = if reach.ordered { 1 } else { CALLS };
    let batches: Vec<&[DueMessage]> = step.chunks(reach.batch.max(1)).collect();
    let mut answers: Vec<Option<Vec<Result<(), NotSent>>>> = vec![None; batches.len()];
    let mut calls = Group::new();
    for (number, batch) in batches.iter().enumerate() {
        if calls.len() >= most {
            let (number, answer) = calls.next().await;
            answers[number] = Some(answer);
        }
        if clock::now().since(started) >= decide::SEND_WITHIN {
            break;
        }
        let now = clock::wall_clock_now();
        let items = batch
            .iter()
            .map(|one: &DueMessage| OutgoingMessage {
                delay: decide::delay(&one.message, one.due, now, reach),
                ..one.message.clone()
            })
            .collect();
        let (outlet, queue) = (outlet.clone(), queue.to_owned());
        calls.spawn(async move { (number, outlet.send(&queue, items).await) });
    }
    while !calls.is_empty() {
        let (number, answer) = calls.next().await;
        answers[number] = Some(answer);
    }
    let mut all = Vec::with_capacity(step.len());
    for (batch, answer) in batches.into_iter().zip(answers) {
        let mut answer = answer.unwrap_or_default().into_iter();
        all.extend(batch.iter().map(|_| {
            answer
                .next()
                .unwrap_or_else(|| Err(NotSent::Transient("its claim was about to expire".into())))
        }));
    }
    all
}
