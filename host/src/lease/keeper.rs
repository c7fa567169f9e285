//! Extends every live lease on the control runtime, where no guest can starve it: a shell around
//! the book.

use super::Ledger;
use super::book::Call;
use crate::clock::{self, Moment};
use crate::message::Receipt;
use crate::queue::{ItemError, Queue};
use crate::tasks::Group;
use crate::telemetry::counters::Counters;
use std::sync::Arc;
use std::time::Duration;

/// Runs until dropped. Queues are named by their place in `queues`.
pub async fn keep(ledger: Arc<Ledger>, queues: Vec<Arc<dyn Queue>>, counters: Arc<Counters>) {
    let mut calls = Group::new();
    loop {
        let changed = ledger.changed.notified();
        let (due, next) = {
            let mut book = ledger.lock();
            let due = book.due(clock::now(), |queue| queues[queue].identity().batch);
            (due, book.next_attention())
        };
        for call in due {
            let queue = queues[call.queue].clone();
            counters.extend_calls.one();
            calls.spawn(extend(queue, call));
        }
        tokio::select! {
            () = changed => {}
            () = clock::sleep_until(next) => {}
            answer = calls.next() => note(&ledger, &answer),
        }
    }
}

struct Answer {
    call: Call,
    called: Moment,
    results: Vec<Result<(), ItemError>>,
}

async fn extend(queue: Arc<dyn Queue>, call: Call) -> Answer {
    let items: Vec<(Receipt, Duration)> = call
        .items
        .iter()
        .map(|(_, receipt, length)| (receipt.clone(), *length))
        .collect();
    let called = clock::now();
    let results = queue.extend(&items).await;
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        tracing::warn!(queue = queue.identity().name, %error, "a lease was not extended");
    }
    Answer {
        call,
        called,
        results,
    }
}

fn note(ledger: &Ledger, answer: &Answer) {
    let now = clock::now();
    let mut book = ledger.lock();
    for ((id, _, asked), result) in answer.call.items.iter().zip(&answer.results) {
        book.extended(*id, answer.called, *asked, result, now);
    }
    drop(book);
    ledger.answered.notify_waiters();
}
