//! Versions that answer at once, and what the rollout makes of them.

mod recorded;

use super::*;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::handler::Deadline;
use dispatcher_core::message::{FailureReason, Message};
use shadow::Run;
use tokio_util::sync::CancellationToken;

/// Answers every message alike, and counts.
struct Always(Verdict, AtomicU64);

#[async_trait::async_trait]
impl Handler for Always {
    fn batch(&self) -> usize {
        1
    }

    async fn handle(&self, attempt: Arc<Attempt>) -> Vec<Verdict> {
        self.1.fetch_add(1, Relaxed);
        vec![self.0.clone(); attempt.messages.len()]
    }
}

fn version(digest: &str, verdict: Verdict) -> (Version, Arc<Always>) {
    let handler = Arc::new(Always(verdict, AtomicU64::new(0)));
    let version = Version {
        handler: handler.clone(),
        label: digest.into(),
        digest: digest.into(),
    };
    (version, handler)
}

fn alone(current: Version) -> Stage {
    Stage {
        current,
        canary: None,
        shadow: None,
    }
}

fn attempt(id: u64) -> Arc<Attempt> {
    Arc::new(Attempt {
        messages: vec![Message {
            id: id.to_string(),
            body: r#"{"token":"secret"}"#.into(),
            ..Message::default()
        }],
        cancelled: vec![CancellationToken::new()],
        tries: Vec::new(),
        deadline: Deadline::fixed(clock::now() + Duration::from_secs(60), Timestamp(0)),
    })
}

fn retry() -> Verdict {
    Verdict::Retry {
        after: None,
        why: FailureReason::Requested,
    }
}

#[tokio::test]
async fn replaced_version_takes_no_new_messages() {
    let (old, counts_old) = version("1", Verdict::Done);
    let (new, counts_new) = version("2", Verdict::Reject("no".into()));
    let rollout = Rollout::new("p", 1, alone(old), None);
    assert_eq!(rollout.handle(attempt(1)).await, [Verdict::Done]);
    rollout.set(alone(new.clone()));
    assert_eq!(
        rollout.handle(attempt(2)).await,
        [Verdict::Reject("no".into())]
    );
    let counts = (counts_old.1.load(Relaxed), counts_new.1.load(Relaxed));
    assert_eq!((counts, rollout.counts()), ((1, 1), (1, 0)));
    assert_eq!(
        Arc::strong_count(&counts_old),
        1,
        "nothing keeps the old one"
    );
    rollout.set(alone(new));
    assert_eq!(rollout.counts(), (1, 0), "the same version is no other");
}

/// Answers when it is told to.
struct Waits(tokio::sync::Notify);

#[async_trait::async_trait]
impl Handler for Waits {
    fn batch(&self) -> usize {
        1
    }

    async fn handle(&self, _: Arc<Attempt>) -> Vec<Verdict> {
        self.0.notified().await;
        vec![Verdict::Done]
    }
}

#[tokio::test]
async fn running_attempts_finish_on_their_version() {
    let waits = Arc::new(Waits(tokio::sync::Notify::new()));
    let old = Version {
        handler: waits.clone(),
        label: "1".into(),
        digest: "1".into(),
    };
    let rollout = Rollout::new("p", 1, alone(old), None);
    let mut running = rollout.handle(attempt(1));
    assert!(futures_poll(&mut running).is_none());
    let (new, _) = version("2", retry());
    rollout.set(alone(new));
    waits.0.notify_one();
    assert_eq!(running.await, [Verdict::Done]);
    assert_eq!(rollout.handle(attempt(2)).await, [retry()]);
    assert_eq!(Arc::strong_count(&waits), 1);
}

fn futures_poll<T>(
    future: &mut std::pin::Pin<Box<dyn Future<Output = T> + Send + '_>>,
) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn failing_canary_is_rolled_back_and_successful_canary_stays() {
    for (verdict, falls) in [(retry(), true), (Verdict::Done, false)] {
        let (current, _) = version("1", Verdict::Done);
        let (tried, counts) = version("2", verdict);
        let share = Share::new(0.5).expect("a share");
        let canary = Arc::new(Canary::new(tried, share, None));
        let stage = Stage {
            canary: Some(canary.clone()),
            ..alone(current)
        };
        let rollout = Rollout::new("p", 1, stage, None);
        for id in 0..200 {
            rollout.handle(attempt(id)).await;
        }
        assert_eq!(canary.has_fallen(), falls);
        let taken = counts.1.load(Relaxed);
        if falls {
            assert_eq!(taken, 20, "nothing more once it fell")
        } else {
            assert!((70..130).contains(&taken), "{taken}")
        }
    }
}

fn with_canary(current: Version, canary: &Arc<Canary>) -> Rollout {
    let stage = Stage {
        canary: Some(canary.clone()),
        ..alone(current)
    };
    Rollout::new("p", 1, stage, None)
}

#[tokio::test]
async fn current_version_takes_what_the_canary_does_not_begin() {
    let closed = Verdict::Closed("no such function".into());
    let (current, _) = version("1", Verdict::Done);
    let (tried, counts) = version("2", closed.clone());
    let canary = Arc::new(Canary::new(tried, Share::ALL, None));
    let rollout = with_canary(current, &canary);
    for id in 0..50 {
        assert_eq!(rollout.handle(attempt(id)).await, [Verdict::Done]);
    }
    assert!(canary.has_fallen());
    assert_eq!(counts.1.load(Relaxed), 20);
    // What closes both is no fault of the canary's.
    let (current, _) = version("1", closed.clone());
    let (tried, _) = version("2", closed.clone());
    let canary = Arc::new(Canary::new(tried, Share::ALL, None));
    let rollout = with_canary(current, &canary);
    for id in 0..50 {
        assert_eq!(
            rollout.handle(attempt(id)).await,
            std::slice::from_ref(&closed)
        );
    }
    assert_eq!(canary.race(), Race::default());
}

#[tokio::test]
async fn reloaded_canary_keeps_its_counts_and_a_new_one_starts_over() {
    let (tried, _) = version("2", retry());
    let share = Share::new(0.5).expect("a share");
    let fallen = Canary::new(tried.clone(), share, None);
    let lost = (0..20).filter_map(|_| fallen.count(true, canary::Tally::count_failed));
    assert_eq!(lost.count(), 1, "it falls once");
    assert!(fallen.has_fallen());
    let again = Canary::new(tried.clone(), share, Some(&fallen));
    assert!(again.has_fallen() && again.race().canary.failed == 20);
    assert!(!Canary::new(tried, Share::ALL, Some(&fallen)).has_fallen());
    let (other, _) = version("3", retry());
    assert!(!Canary::new(other, share, Some(&fallen)).has_fallen());
}

#[tokio::test]
async fn new_current_version_restarts_the_comparison() {
    let (current, _) = version("1", retry());
    let (tried, _) = version("2", Verdict::Done);
    let canary = Arc::new(Canary::new(tried, Share::new(0.5).expect("a share"), None));
    let rollout = with_canary(current, &canary);
    for id in 0..100 {
        rollout.handle(attempt(id)).await;
    }
    assert!(canary.race().current.failed > 0);
    let (next, _) = version("3", Verdict::Done);
    let stage = Stage {
        current: next,
        ..(*rollout.stage()).clone()
    };
    rollout.set(stage);
    assert_eq!(canary.race(), Race::default());
}

/// Never answers.
struct SilentVersion;

#[async_trait::async_trait]
impl Handler for SilentVersion {
    fn batch(&self) -> usize {
        1
    }

    async fn handle(&self, _: Arc<Attempt>) -> Vec<Verdict> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn canary_that_answers_too_late_counts_as_failed() {
    let silent = Version {
        handler: Arc::new(SilentVersion),
        label: "2".into(),
        digest: "2".into(),
    };
    let canary = Arc::new(Canary::new(silent, Share::ALL, None));
    let (current, _) = version("1", Verdict::Done);
    let stage = Stage {
        canary: Some(canary.clone()),
        ..alone(current)
    };
    let rollout = Rollout::new("p", 1, stage, None);
    let late = Attempt {
        deadline: Deadline::fixed(clock::now(), Timestamp(0)),
        ..(*attempt(1)).clone()
    };
    let mut given_up = rollout.handle(Arc::new(late));
    assert!(futures_poll(&mut given_up).is_none());
    drop(given_up);
    let mut lost = rollout.handle(attempt(2));
    assert!(futures_poll(&mut lost).is_none());
    drop(lost);
    let race = canary.race();
    assert_eq!(
        (race.canary.attempts, race.canary.failed),
        (1, 1),
        "a lost lease is no failure"
    );
}

/// Asks for what is closed, and fails.
struct Asks;

#[async_trait::async_trait]
impl Handler for Asks {
    fn batch(&self) -> usize {
        1
    }

    async fn handle(&self, _: Arc<Attempt>) -> Vec<Verdict> {
        shadow::refused();
        vec![retry()]
    }
}

async fn compared(handler: Arc<dyn Handler>, current: Verdict) -> [u64; 4] {
    let (sender, mut running) = tokio::sync::mpsc::unbounded_channel();
    let run: Run = Arc::new(move |future| drop(sender.send(future)));
    let label: Arc<str> = "2".into();
    let beside = Version {
        handler,
        digest: label.clone(),
        label,
    };
    let (timeout, over) = (Duration::from_secs(60), CancellationToken::new());
    let control = tokio::runtime::Handle::current();
    let shadow = Shadow::new(beside, "p", timeout, run, control, over);
    let (first, _) = version("1", current.clone());
    let stage = Stage {
        shadow: Some(shadow.clone()),
        ..alone(first)
    };
    let rollout = Rollout::new("p", 1, stage, None);
    for id in 0..shadow::AT_ONCE as u64 + 1 {
        assert_eq!(
            rollout.handle(attempt(id)).await,
            std::slice::from_ref(&current)
        );
    }
    while let Ok(future) = running.try_recv() {
        future.await;
    }
    let compared = &shadow.compared;
    [
        &compared.same,
        &compared.different,
        &compared.closed,
        &compared.skipped,
    ]
    .map(|count| count.load(Relaxed))
}

#[tokio::test]
async fn shadow_is_compared_and_changes_nothing() {
    let done = || Arc::new(Always(Verdict::Done, AtomicU64::new(0)));
    assert_eq!(compared(done(), Verdict::Done).await, [4, 0, 0, 1]);
    assert_eq!(compared(done(), retry()).await, [0, 4, 0, 1]);
    assert_eq!(compared(Arc::new(Asks), Verdict::Done).await, [0, 0, 4, 1]);
    // What was not begun is not compared, nor counted.
    let busy = Verdict::Busy {
        after: None,
        why: "throttled".into(),
    };
    assert_eq!(compared(done(), busy).await, [0; 4]);
}

#[tokio::test]
async fn a_canary_that_is_rolled_back_on_request_takes_no_more_messages() {
    let (current, counts) = version("1", Verdict::Done);
    let (tried, tries) = version("2", Verdict::Done);
    let share = Share::new(1.0).expect("all of them");
    let canary = Canary::new(tried.clone(), share, None);
    let stage = Stage {
        canary: Some(Arc::new(canary)),
        ..alone(current)
    };
    let rollout = Rollout::new("p", 1, stage, None);
    rollout.handle(attempt(1)).await;
    assert_eq!(rollout.roll_back().as_deref(), Some("2"));
    rollout.handle(attempt(2)).await;
    assert_eq!((tries.1.load(Relaxed), counts.1.load(Relaxed)), (1, 1));
    assert_eq!(rollout.roll_back(), None, "it is rolled back");
    // The same file stays rolled back when it is looked at again.
    let before = rollout.stage().canary.clone().expect("it is there");
    let again = Canary::new(tried, share, Some(&before));
    assert_eq!(again.share(), None);
}
