//! Whole batches on a function that is played.

use super::*;
use crate::event::NoDigest;
use dispatcher_guest::Failure;
use dispatcher_guest::lambda::{DidNotRun, Invocation};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Answer = Result<Response, InvokeError>;

/// A function that waits until `together` invocations are under way.
struct Played<F> {
    answer: F,
    together: usize,
    under_way: Cell<usize>,
    room: Room,
    payloads: RefCell<Vec<Vec<String>>>,
    lines: RefCell<Vec<String>>,
}

impl<F: Fn(&[String], usize) -> Answer> Played<F> {
    fn new(together: usize, answer: F) -> Self {
        Self {
            answer,
            together,
            under_way: Cell::new(0),
            room: Room::new(),
            payloads: RefCell::default(),
            lines: RefCell::default(),
        }
    }
}

impl<F: Fn(&[String], usize) -> Answer> Host for Played<F> {
    async fn invoke(&self, request: Request) -> Answer {
        assert_eq!(request.deadline, Some(3000), "as the messages say");
        let event: serde_json::Value = serde_json::from_slice(&request.payload).expect("JSON");
        let records = event["Records"].as_array().expect("a list");
        let id = |record: &serde_json::Value| record["messageId"].as_str().expect("text").into();
        let ids: Vec<String> = records.iter().map(id).collect();
        self.payloads.borrow_mut().push(ids.clone());
        self.under_way.set(self.under_way.get() + 1);
        poll_fn(|_| {
            if self.under_way.get() >= self.together {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        (self.answer)(&ids, request.payload.len())
    }

    fn now(&self) -> u64 {
        1000
    }

    fn log(&self, line: &str) {
        self.lines.borrow_mut().push(line.into());
    }
}

/// Runs a delivery; what waits is polled a few times more.
fn run<F: Fn(&[String], usize) -> Answer>(
    messages: Vec<Message>,
    partial_failures: bool,
    host: &Played<F>,
) -> Vec<(String, Failure)> {
    let settings = Settings {
        function: "f".into(),
        invocation: Invocation::RequestResponse,
        partial_failures,
        no_digest: NoDigest::Absent,
    };
    let mut delivery = pin!(deliver(messages, &settings, &host.room, host));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        if let Poll::Ready(failed) = delivery.as_mut().poll(&mut context) {
            return failed.into_iter().map(|f| (f.id, f.failure)).collect();
        }
    }
    panic!("it waits for ever");
}

fn message(id: &str, group: Option<&str>, bytes: usize) -> Message {
    Message {
        id: id.into(),
        body: "x".repeat(bytes),
        source: "local:default".into(),
        group: group.map(Into::into),
        deadline: 3000,
        ..Message::default()
    }
}

fn done() -> Answer {
    Ok(Response {
        payload: Vec::new(),
        function_error: None,
        log_tail: None,
        executed_version: None,
    })
}

fn throttled() -> Answer {
    Err(InvokeError::DidNotRun(DidNotRun {
        reason: "slow down".into(),
        retry_after: None,
    }))
}

const BIG: usize = 4 * 1024 * 1024;

#[test]
fn unordered_parts_are_invoked_concurrently() {
    let host = Played::new(3, |_, _| done());
    let batch = ["a", "b", "c"].map(|id| message(id, None, BIG));
    assert_eq!(run(batch.into(), false, &host), []);
    assert_eq!(host.payloads.take(), [["a"], ["b"], ["c"]]);
}

#[test]
fn group_stops_at_its_first_failure() {
    let at_once = || Failure::retry_after(Duration::ZERO);
    let busy = || Failure::busy("function f: slow down");
    let lost = || Err(InvokeError::MayHaveRun("reset".into()));
    let cases = [
        (throttled as fn() -> Answer, busy(), busy()),
        (
            lost,
            Failure::retry_after(Duration::from_secs(2)),
            at_once(),
        ),
    ];
    for (answer, failure, behind) in cases {
        let host = Played::new(
            1,
            |ids: &[String], _| if ids == ["b"] { answer() } else { done() },
        );
        let batch = ["a", "b", "c"].map(|id| message(id, Some("g"), BIG));
        let expected = [("b".into(), failure), ("c".into(), behind)];
        assert_eq!(run(batch.into(), false, &host), expected);
        assert_eq!(host.payloads.take(), [["a"], ["b"]]);
    }
}

#[test]
fn failure_blocks_its_group_and_no_other() {
    let lost = || Err(InvokeError::MayHaveRun("reset".into()));
    let batch = || {
        let groups = [("a", "g"), ("b", "h"), ("c", "h"), ("d", "g"), ("e", "h")];
        let mut batch: Vec<_> = groups
            .map(|(id, group)| message(id, Some(group), BIG))
            .into();
        batch.push(message("f", Some("g"), 10));
        batch
    };
    let host = Played::new(
        1,
        |ids: &[String], _| if ids == ["a"] { lost() } else { done() },
    );
    let at_once = |id: &str| (id.into(), Failure::retry_after(Duration::ZERO));
    let failed = |id: &str| (id.into(), Failure::retry_after(Duration::from_secs(2)));
    let expected = [failed("a"), at_once("d"), at_once("f")];
    assert_eq!(run(batch(), false, &host), expected);
    assert_eq!(host.payloads.take(), [["a"], ["b"], ["c"], ["e"]]);

    let host = Played::new(1, |ids: &[String], _| match ids {
        [one] if one == "a" => lost(),
        [one] if one == "c" => throttled(),
        _ => done(),
    });
    let busy = |id: &str| (id.into(), Failure::busy("function f: slow down"));
    let expected = [
        failed("a"),
        busy("c"),
        at_once("d"),
        at_once("f"),
        busy("e"),
    ];
    let mut found = run(batch(), false, &host);
    found.sort_by_key(|(id, _)| expected.iter().position(|(one, _)| one == id));
    assert_eq!(found, expected);
    assert_eq!(host.payloads.take(), [["a"], ["b"], ["c"]]);
}

#[test]
fn message_too_large_for_any_event_is_rejected_alone() {
    let host = Played::new(1, |_, _| done());
    let batch = vec![
        message("a", None, 10),
        message("b", None, 2 * BIG),
        message("c", None, 10),
    ];
    let failed = run(batch, false, &host);
    let [(id, Failure::Reject(why))] = &failed[..] else {
        panic!("{failed:?}");
    };
    assert_eq!(id, "b");
    assert!(
        why.contains("less than 6291456") && why.contains("838"),
        "{why}"
    );
    assert_eq!(host.payloads.take(), [["a"], ["c"]]);
}

#[test]
fn event_too_large_for_lambda_is_halved() {
    let limit = 700;
    let host = Played::new(1, |_, bytes| {
        if bytes > limit {
            Err(InvokeError::Refused("too much".into()))
        } else {
            done()
        }
    });
    let batch = vec![
        message("a", None, 0),
        message("b", None, 0),
        message("c", None, 0),
        message("d", None, limit),
    ];
    let reject = Failure::reject("function f: too much");
    assert_eq!(run(batch, false, &host), [("d".to_owned(), reject)]);
    let all = [
        &["a", "b", "c", "d"][..],
        &["a", "b"],
        &["c", "d"],
        &["c"],
        &["d"],
    ];
    assert_eq!(host.payloads.take(), all);
}

#[test]
fn refused_large_batch_is_retried_in_smaller_parts() {
    const MIB: usize = 1024 * 1024;
    let host = Played::new(1, |_, bytes| {
        if bytes > MIB {
            Err(InvokeError::Refused("too much".into()))
        } else {
            done()
        }
    });
    // The last is larger than what was learnt, and alone it is sent all the same.
    let batch = || {
        let sizes = [MIB / 2, MIB / 2, MIB / 2, MIB - 1024];
        let batch = ["a", "b", "c", "d"].iter().zip(sizes);
        Vec::from_iter(batch.map(|(id, bytes)| message(id, None, bytes)))
    };
    let again = |id: &str| (id.to_owned(), Failure::retry());
    assert_eq!(run(batch(), false, &host), ["a", "b", "c", "d"].map(again));
    while !run(batch(), false, &host).is_empty() {
        assert!(
            host.payloads.borrow().len() < 10,
            "in the same composition for ever"
        );
    }
    assert_eq!(host.payloads.take().last(), Some(&vec!["d".to_owned()]));
}

#[test]
fn message_with_refused_content_is_found_and_rejected_alone() {
    let host = Played::new(1, |ids: &[String], _| {
        if ids.contains(&"c".into()) {
            Err(InvokeError::Refused("not for us".into()))
        } else {
            done()
        }
    });
    let batch = ["a", "b", "c", "d"].map(|id| message(id, None, 10));
    let reject = Failure::reject("function f: not for us");
    assert_eq!(run(batch.into(), false, &host), [("c".to_owned(), reject)]);
    assert_eq!(host.payloads.take().len(), 5);
}

proptest! {
    #[test]
    fn every_message_gets_one_verdict(sizes in prop::collection::vec(0_usize..3000, 1..12), ordered: bool, limit in 300_usize..9000, bad in 0_usize..12) {
        let host = Played::new(1, |ids: &[String], bytes| match bytes > limit {
            true => Err(InvokeError::Refused("too much".into())),
            false if ids.contains(&bad.to_string()) => throttled(),
            false => done(),
        });
        let group = ordered.then_some("g");
        let batch = sizes.iter().enumerate();
        let batch = batch.map(|(id, bytes)| message(&id.to_string(), group, *bytes)).collect();
        let failed = run(batch, true, &host);
        let mut ids: Vec<usize> = failed.iter().map(|(id, _)| id.parse().expect("a number")).collect();
        ids.sort_unstable();
        prop_assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        prop_assert_eq!(ids.contains(&bad), bad < sizes.len());
        if ordered && !ids.is_empty() {
            prop_assert_eq!(ids.clone(), (ids[0]..sizes.len()).collect::<Vec<_>>());
        }
    }
}
