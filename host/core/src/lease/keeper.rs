//! Extends every live lease on the control runtime, where no guest can starve it. Makes the calls
//! that the book plans.

use super::Ledger;
use super::book::ExtensionCall;
use crate::clock;
use crate::clock::BootInstant;
use crate::message::{Loss, Receipt};
use crate::queue::{ItemError, Queue, all_failed, first_failure};
use crate::tasks::Group;
use crate::telemetry::counters::Counters;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::meter::Meter;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The maximum sleep of the keeper while there are leases.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// Extends leases until it is dropped. `queues` holds the queues, each with its meter; leases refer
/// to a queue by its place.
pub async fn keep(
    ledger: Arc<Ledger>,
    queues: Vec<(Arc<dyn Queue>, Arc<Meter>)>,
    counters: Arc<Counters>,
) {
    let mut calls = Group::new();
    let mut losses = Losses::of(&queues);
    let mut said: Vec<LogThrottle> = queues.iter().map(|_| LogThrottle::default()).collect();
    loop {
        let changed = ledger.changed.notified();
        let (due, next) = {
            let mut book = ledger.lock();
            let due = book.due(clock::now(), |queue| queues[queue].0.identity().batch);
            (due, book.next_attention())
        };
        for call in due {
            let (queue, meter) = queues[call.queue].clone();
            counters.extend_calls.one();
            meter.calls.one();
            calls.spawn(extend(queue, call));
        }
        tokio::select! {
            biased; // for simulations; answers are few, and every round checks everything
            answer = calls.next() => {
                let (queue, meter) = &queues[answer.call.queue];
                meter.extensions.record(answer.took, first_failure(&answer.results));
                report(queue, &answer, &mut said[answer.call.queue], &counters);
                note(&ledger, &answer);
            }
            (queue, losses) = losses.next() => ledger.lock().lose(queue, &losses),
            () = changed => {}
            () = clock::sleep_until(soon(next)) => {}
        }
    }
}

/// The reports of lost deliveries, awaited from all queues at once.
struct Losses {
    queues: Vec<Arc<dyn Queue>>,
    waits: Vec<Pin<Box<dyn Future<Output = Vec<Loss>> + Send>>>,
}

impl Losses {
    fn of(queues: &[(Arc<dyn Queue>, Arc<Meter>)]) -> Self {
        let queues: Vec<_> = queues.iter().map(|(queue, _)| queue.clone()).collect();
        Self {
            waits: queues.iter().cloned().map(Self::wait).collect(),
            queues,
        }
    }

    fn wait(queue: Arc<dyn Queue>) -> Pin<Box<dyn Future<Output = Vec<Loss>> + Send>> {
        Box::pin(async move { queue.lost().await })
    }

    /// Returns the next losses and their queue's place. May be dropped and called again.
    async fn next(&mut self) -> (usize, Vec<Loss>) {
        poll_fn(|cx| {
            for (place, wait) in self.waits.iter_mut().enumerate() {
                if let Poll::Ready(losses) = wait.as_mut().poll(cx) {
                    *wait = Self::wait(self.queues[place].clone());
                    return Poll::Ready((place, losses));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Limits the sleep: while the machine sleeps, timers stop but deadlines do not, so the keeper must
/// check often enough to notice.
fn soon(next: Option<BootInstant>) -> Option<BootInstant> {
    next.map(|at| at.min(clock::now() + LONGEST_SLEEP))
}

/// Logs that leases are not extended, once a minute for each queue.
fn report(
    queue: &Arc<dyn Queue>,
    answer: &ExtensionResult,
    said: &mut LogThrottle,
    counters: &Counters,
) {
    let mut errors = answer
        .results
        .iter()
        .filter_map(|result| result.as_ref().err());
    let Some(error) = errors.next() else { return };
    let leases = errors.count() + 1;
    if all_failed(&answer.results) {
        counters.failed_calls.one();
    }
    if said.should_log(clock::now()) {
        let queue = &queue.identity().name;
        tracing::warn!(queue, leases, %error, "leases not extended, retried");
    }
}

struct ExtensionResult {
    call: ExtensionCall,
    called: BootInstant,
    took: Duration,
    results: Vec<Result<(), ItemError>>,
}

async fn extend(queue: Arc<dyn Queue>, call: ExtensionCall) -> ExtensionResult {
    let items: Vec<(Receipt, Duration)> = call
        .items
        .iter()
        .map(|(_, receipt, length)| (receipt.clone(), *length))
        .collect();
    let called = clock::now();
    // A call that hangs must leave time for another before the first lease expires.
    let patience = called + call.runs_out.since(called) / 3;
    let results = tokio::select! {
        biased; // an answer that arrived in time counts
        results = queue.extend(&items) => results,
        () = clock::sleep_until(Some(patience)) => {
            vec![Err(ItemError::Transient("no answer in time".into())); items.len()]
        }
    };
    ExtensionResult {
        call,
        called,
        took: clock::now().since(called),
        results,
    }
}

fn note(ledger: &Ledger, answer: &ExtensionResult) {
    let now = clock::now();
    let mut book = ledger.lock();
    for ((id, _, asked), result) in answer.call.items.iter().zip(&answer.results) {
        book.extended(*id, answer.called, *asked, result, now);
    }
    drop(book);
    ledger.answered.notify_waiters();
}
