//! Every way in which an attempt can end.

use super::*;
use crate::job::samples::job;

type AttemptAnswer = fn(Arc<Attempt>) -> Pin<Box<dyn Future<Output = Vec<Verdict>> + Send>>;

/// A handler made of one function.
struct ScriptedHandler(AttemptAnswer);

#[async_trait::async_trait]
impl Handler for ScriptedHandler {
    fn batch(&self) -> usize {
        10
    }

    async fn handle(&self, attempt: Arc<Attempt>) -> Vec<Verdict> {
        (self.0)(attempt).await
    }
}

async fn end_of(
    jobs: Vec<Job>,
    timeout: Duration,
    halt: &CancellationToken,
    answer: AttemptAnswer,
) -> Vec<JobEnding> {
    let limits = AttemptLimits {
        timeout: timeout.into(),
        halt,
        control: &Handle::current(),
        running: &RunningAttempts::default(),
        lane: 0,
    };
    let ended = attempt(&ScriptedHandler(answer), jobs, limits).await;
    ended.into_iter().map(|(_, ending)| ending).collect()
}

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn verdicts_are_matched_to_their_messages() {
    let halt = CancellationToken::new();
    let endings = end_of(vec![job("a"), job("b")], LONG, &halt, |_| {
        Box::pin(async { vec![Verdict::Done, Verdict::Reject("no".into())] })
    });
    let wanted = [Verdict::Done, Verdict::Reject("no".into())].map(JobEnding::Verdict);
    assert_eq!(endings.await, wanted);
}

#[tokio::test]
async fn panicking_handler_is_a_retry() {
    let halt = CancellationToken::new();
    let endings = end_of(vec![job("a")], LONG, &halt, |_| {
        Box::pin(async { panic!("of ours") })
    })
    .await;
    let why = FailureReason::Host("of ours".into());
    assert_eq!(
        endings,
        [JobEnding::Verdict(Verdict::Retry { after: None, why })]
    );
}

#[tokio::test]
async fn wrong_number_of_verdicts_completes_no_message() {
    let halt = CancellationToken::new();
    let endings = end_of(vec![job("a"), job("b")], LONG, &halt, |_| {
        Box::pin(async { vec![Verdict::Done] })
    })
    .await;
    assert!(
        endings
            .iter()
            .all(|ending| matches!(ending, JobEnding::Verdict(Verdict::Retry { .. })))
    );
}

#[tokio::test]
async fn handler_is_stopped_at_its_timeout() {
    let halt = CancellationToken::new();
    let limit = Duration::from_millis(20);
    let endings = end_of(vec![job("a")], limit, &halt, |_| {
        Box::pin(std::future::pending())
    })
    .await;
    let why = FailureReason::TimedOut(limit);
    assert_eq!(
        endings,
        [JobEnding::Verdict(Verdict::Retry { after: None, why })]
    );
}

#[tokio::test]
async fn lost_lease_stops_the_attempt() {
    let halt = CancellationToken::new();
    let job = job("a");
    job.lease.lost().cancel();
    let endings = end_of(vec![job], LONG, &halt, |_| Box::pin(std::future::pending())).await;
    assert_eq!(endings, [JobEnding::Lost]);
}

#[tokio::test]
async fn lost_lease_fences_only_its_own_message_of_a_batch() {
    let halt = CancellationToken::new();
    let jobs = vec![job("a"), job("b")];
    jobs[0].lease.lost().cancel();
    let endings = end_of(jobs, LONG, &halt, |_| {
        Box::pin(async { vec![Verdict::Reject("a".into()), Verdict::Reject("b".into())] })
    });
    assert_eq!(
        endings.await,
        [
            JobEnding::Lost,
            JobEnding::Verdict(Verdict::Reject("b".into()))
        ]
    );
}

#[tokio::test]
async fn halt_returns_the_message() {
    let halt = CancellationToken::new();
    halt.cancel();
    let endings = end_of(vec![job("a")], LONG, &halt, |_| {
        Box::pin(std::future::pending())
    })
    .await;
    assert_eq!(endings, [JobEnding::Returned]);
}

#[tokio::test]
async fn stopped_attempt_keeps_its_message_until_outbound_calls_end() {
    struct ReachingHandler;

    #[async_trait::async_trait]
    impl Handler for ReachingHandler {
        fn batch(&self) -> usize {
            1
        }

        fn reaches_out(&self) -> bool {
            true
        }

        async fn handle(&self, _: Arc<Attempt>) -> Vec<Verdict> {
            std::future::pending().await
        }
    }

    let halt = CancellationToken::new();
    let limits = AttemptLimits {
        timeout: LONG.into(),
        halt: &halt,
        control: &Handle::current(),
        running: &RunningAttempts::default(),
        lane: 0,
    };
    let halting = async { halt.cancel() };
    let (ended, ()) = tokio::join!(attempt(&ReachingHandler, vec![job("a")], limits), halting);
    let JobEnding::Abandoned(left) = &ended[0].1 else {
        panic!("{ended:?}");
    };
    assert!(*left > LONG / 2 && *left <= LONG);
}

#[tokio::test]
async fn stopped_attempt_that_began_nothing_elsewhere_is_interrupted() {
    let halt = CancellationToken::new();
    let halting = async { halt.cancel() };
    let ending = end_of(vec![job("a")], LONG, &halt, |_| {
        Box::pin(std::future::pending())
    });
    let (endings, ()) = tokio::join!(ending, halting);
    assert_eq!(endings, [JobEnding::Interrupted]);
}

#[tokio::test]
async fn message_lost_before_its_attempt_does_not_run_and_blocks_its_group() {
    let in_group = |id: &str, group: &str| {
        let mut job = job(id);
        job.message.group = Some(group.to_owned());
        job
    };
    let jobs = || vec![in_group("1", "a"), in_group("2", "b"), in_group("3", "a")];
    for (ordered, wanted) in [(true, vec!["2"]), (false, vec!["2", "3"])] {
        let jobs = jobs();
        jobs[0].lease.lost().cancel();
        let (ours, over) = still_ours(jobs, ordered);
        let ids: Vec<&str> = ours.iter().map(|job| job.message.id.as_str()).collect();
        assert_eq!(ids, wanted);
        assert_eq!(over[0].1, JobEnding::Lost);
        assert!(
            over[1..]
                .iter()
                .all(|(_, ending)| *ending == JobEnding::Returned)
        );
    }
}

#[tokio::test]
async fn a_cancelled_message_is_to_be_deleted_and_its_attempt_ends_at_once() {
    let halt = CancellationToken::new();
    let running = Arc::new(RunningAttempts::default());
    let (all, control) = (running.clone(), Handle::current());
    let attempting = tokio::spawn(async move {
        let limits = AttemptLimits {
            timeout: LONG.into(),
            halt: &halt,
            control: &control,
            running: &all,
            lane: 0,
        };
        let never: AttemptAnswer = |_| Box::pin(std::future::pending());
        attempt(&ScriptedHandler(never), vec![job("a"), job("b")], limits).await
    });
    while running.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.cancel(1), 2);
    let ended = attempting.await.expect("it ends");
    assert!(
        ended
            .iter()
            .all(|(_, ending)| *ending == JobEnding::Cancelled)
    );
    assert!(running.is_empty());
    let settled = ended.into_iter().next().expect("two").0;
    assert!(
        settled.lease.settle().is_some(),
        "the lease is ours, so it can be deleted"
    );
}
