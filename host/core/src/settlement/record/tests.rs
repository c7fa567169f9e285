//! Settlement with a guard: what is written, before what, what happens if it cannot be, and how it is
//! counted.

use crate::clock;
use crate::idempotency::guard::Guard;
use crate::idempotency::samples::{Fake, FakeBehaviour};
use crate::job::{Job, JobEnding, samples};
use crate::message::{Message, Outcome, OutgoingMessage, Receipt, Verdict};
use crate::queue::{Ask, Depth, Identity, ItemError, Queue, QueueError, ReceivedMessages};
use crate::settlement::Settlement;
use crate::settlement::decide::Policy;
use crate::telemetry::counters::{Counters, Snapshot};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;

/// A queue whose first so many outcomes fail. Writes into the records' log.
struct FailingQueue {
    identity: Identity,
    failing: Mutex<usize>,
    records: Arc<Fake>,
}

#[async_trait::async_trait]
impl Queue for FailingQueue {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    async fn settle(&self, items: &[(Message, Outcome)]) -> Vec<Result<(), ItemError>> {
        let mut failing = self.failing.lock().unwrap();
        let mut log = self.records.log.lock().unwrap();
        items
            .iter()
            .map(|(message, outcome)| {
                log.push(format!("{outcome:?} {}", message.id));
                if *failing > 0 {
                    // It may work meanwhile.
                    *self.records.mood.lock().unwrap() = FakeBehaviour::Well;
                    *failing -= 1;
                    return Err(ItemError::Transient("as a test wants".into()));
                }
                Ok(())
            })
            .collect()
    }

    async fn receive(&self, _: Ask, _: &CancellationToken) -> Result<ReceivedMessages, QueueError> {
        unreachable!("settlement only settles")
    }

    async fn extend(&self, _: &[(Receipt, Duration)]) -> Vec<Result<(), ItemError>> {
        unreachable!("settlement only settles")
    }

    async fn send(&self, _: &[OutgoingMessage]) -> Vec<Result<String, ItemError>> {
        unreachable!("settlement only settles")
    }

    async fn depth(&self) -> Result<Depth, QueueError> {
        unreachable!("settlement only settles")
    }

    async fn peek(&self, _: usize) -> Result<Vec<Message>, QueueError> {
        unreachable!("settlement only settles")
    }
}

fn identity() -> Identity {
    Identity {
        name: "local:test".into(),
        source: "local:test".into(),
        visibility: Duration::from_secs(30),
        batch: 10,
        longest_wait: Duration::ZERO,
        proof_wait: Duration::ZERO,
        ordered_groups: false,
        deduplicates: false,
        dead_letters: false,
        most_receives: None,
        redrive_target: false,
    }
}

/// Settles these, the first outcomes failing, with a store in this mood. What was called, in order.
async fn settled(jobs: Vec<(Job, JobEnding)>, failing: usize, mood: FakeBehaviour) -> Vec<String> {
    settled_and_counted(jobs, failing, mood, false).await.0
}

/// The same, and what was counted. `ordered_groups`: the queue keeps groups in order.
async fn settled_and_counted(
    jobs: Vec<(Job, JobEnding)>,
    failing: usize,
    mood: FakeBehaviour,
    ordered_groups: bool,
) -> (Vec<String>, Snapshot) {
    let records = Arc::<Fake>::default();
    *records.mood.lock().unwrap() = mood;
    let counters = Arc::<Counters>::default();
    let ttl = Duration::from_secs(60);
    let guard = Guard::new(records.clone(), ttl, "r", counters.clone(), Arc::default());
    let queue = FailingQueue {
        identity: identity(),
        failing: Mutex::new(failing),
        records: records.clone(),
    };
    let policy = Policy {
        ordered_groups,
        receives: None,
        first: Duration::from_secs(1),
        most: Duration::from_secs(1),
        attempts: None,
        dead_letters: false,
        shedding: None,
        unmatched: crate::settlement::decide::UnmatchedAction::Delete,
    };
    let permits = crate::scheduler::permits::Permits::new(1);
    let (halt, meter) = (CancellationToken::new(), Arc::default());
    let counted = counters.clone();
    let settlement = Settlement::new(Arc::new(queue), policy, permits, halt, counters, meter);
    let (sender, finished) = unbounded_channel();
    for (job, ending) in jobs {
        sender.send(job.finish(ending)).unwrap();
    }
    drop(sender);
    let settlement = settlement.guarded(Some(Arc::new(guard)));
    Arc::new(settlement).run(finished).await;
    let log = records.log.lock().unwrap();
    (log.clone(), counted.snapshot())
}

fn done() -> JobEnding {
    JobEnding::Verdict(Verdict::Done)
}

fn place(log: &[String], line: &str) -> usize {
    let found = log.iter().position(|other| other == line);
    found.unwrap_or_else(|| panic!("no `{line}` in {log:?}"))
}

#[tokio::test]
async fn lesson_12_done_message_is_recorded_before_it_is_deleted() {
    let rejected = JobEnding::Verdict(Verdict::Reject("no".into()));
    let jobs = vec![
        (samples::job("done"), done()),
        (samples::job("rejected"), rejected),
        (samples::job("returned"), JobEnding::Returned),
        (samples::job("again"), JobEnding::AlreadyDone),
    ];
    let log = settled(jobs, 0, FakeBehaviour::Well).await;
    let remembered = place(&log, "remember local:test done");
    assert!(remembered < place(&log, "Delete done"), "{log:?}");
    place(&log, "Delete again");
    let writes = log.iter().filter(|line| line.starts_with("remember"));
    assert_eq!(writes.count(), 1, "only what is done now: {log:?}");
}

#[tokio::test]
async fn retried_delete_is_recorded_once() {
    let log = settled(vec![(samples::job("m"), done())], 1, FakeBehaviour::Well).await;
    assert_eq!(log, ["remember local:test m", "Delete m", "Delete m"]);
}

#[tokio::test]
async fn unrecordable_message_is_still_deleted_and_recording_is_retried_with_it() {
    let log = settled(vec![(samples::job("m"), done())], 1, FakeBehaviour::Failing).await;
    let (remember, delete) = ("remember local:test m", "Delete m");
    assert_eq!(log, [remember, delete, remember, delete]);
}

#[tokio::test]
async fn done_message_is_recorded_even_if_its_lease_was_lost() {
    let job = samples::job("m");
    job.lease.check(clock::now() + Duration::from_secs(60));
    let log = settled(vec![(job, done())], 0, FakeBehaviour::Well).await;
    assert_eq!(log, ["remember local:test m"]);
}

#[tokio::test]
async fn settlement_of_which_every_item_failed_counts_as_a_failed_call() {
    let two = || vec![(samples::job("a"), done()), (samples::job("b"), done())];
    for (failing, failed_calls) in [(0, 0), (1, 0), (2, 1)] {
        let (log, counted) = settled_and_counted(two(), failing, FakeBehaviour::Well, false).await;
        assert_eq!(counted.failed_calls, failed_calls, "{failing}: {log:?}");
        assert_eq!(counted.done, 2, "all succeed in the end");
    }
}

#[tokio::test]
async fn messages_of_a_group_go_back_one_by_one_only_if_the_queue_keeps_their_order() {
    for (ordered_groups, failed_calls) in [(false, 1), (true, 2)] {
        let jobs = ["a", "b"].map(|id| {
            let mut job = samples::job(id);
            job.message.group = Some("g".into());
            (job, JobEnding::Returned)
        });
        let settled = settled_and_counted(jobs.into(), 2, FakeBehaviour::Well, ordered_groups);
        let (log, counted) = settled.await;
        assert_eq!(counted.failed_calls, failed_calls, "{log:?}");
    }
}
