//! What each answer of Lambda's means.

use super::*;
use crate::event::NoDigest;
use dispatcher_guest::lambda::Invocation;

const NOW: u64 = 1_700_000_000_000;

fn settings(partial_failures: bool) -> Settings {
    Settings {
        function: "f:live".into(),
        invocation: Invocation::RequestResponse,
        partial_failures,
        no_digest: NoDigest::Absent,
    }
}

/// Messages by id, each with its group; a deadline one second later than the one before.
fn slips(ids: &[(&str, Option<&str>)]) -> Vec<Slip> {
    let slip = |(at, (id, group)): (u64, &(&str, Option<&str>))| Slip {
        id: (*id).into(),
        group: group.map(Into::into),
        deadline: NOW + 1000 * (at + 1),
    };
    (0..).zip(ids).map(slip).collect()
}

fn answer(payload: &str) -> Response {
    Response {
        payload: payload.into(),
        function_error: None,
        log_tail: None,
        executed_version: None,
    }
}

fn judge(result: Result<Response, InvokeError>, partial: bool, slips: &[Slip]) -> Verdicts {
    of(result, &settings(partial), slips, || NOW)
}

const FIRST_FAILED: &str = r#"{"batchItemFailures":[{"itemIdentifier":"a"}]}"#;

#[test]
fn success_is_done_for_all_and_failures_are_read_only_if_configured() {
    let two = slips(&[("a", None), ("b", None)]);
    let none = Verdicts {
        failures: vec![None, None],
        note: None,
    };
    assert_eq!(judge(Ok(answer("no JSON")), false, &two), none);
    assert_eq!(judge(Ok(answer(FIRST_FAILED)), false, &two), none);
    assert_eq!(judge(Ok(answer("{}")), true, &two), none);
    let first = judge(Ok(answer(FIRST_FAILED)), true, &two);
    assert_eq!(first.failures, [Some(Failure::retry()), None]);
    let bad = judge(Ok(answer("no JSON")), true, &two);
    assert_eq!(bad.failures, vec![Some(Failure::retry()); 2]);
    let note = bad.note.expect("a reason");
    assert!(
        note.contains("f:live") && note.contains("not JSON"),
        "{note}"
    );
}

#[test]
fn asynchronous_invocation_is_done_whatever_the_response() {
    let settings = Settings {
        invocation: Invocation::Event,
        ..settings(true)
    };
    let one = slips(&[("a", None)]);
    let verdicts = of(Ok(answer("")), &settings, &one, || NOW);
    assert_eq!(verdicts.failures, [None]);
}

#[test]
fn messages_behind_a_failure_in_their_group_wait() {
    let mixed = slips(&[
        ("x", Some("1")),
        ("a", Some("1")),
        ("y", Some("2")),
        ("z", Some("1")),
        ("s", None),
    ]);
    let verdicts = judge(Ok(answer(FIRST_FAILED)), true, &mixed);
    let behind = Some(Failure::retry_after(Duration::ZERO));
    assert_eq!(
        verdicts.failures,
        [None, Some(Failure::retry()), None, behind, None]
    );
}

#[test]
fn function_error_is_a_retry_for_all_and_one_line() {
    let failed = Response {
        function_error: Some("Unhandled".into()),
        log_tail: Some("START\nEND\n".into()),
        executed_version: Some("7".into()),
        ..answer(r#"{"errorType":"KeyError","errorMessage":"id"}"#)
    };
    for partial in [true, false] {
        let verdicts = judge(
            Ok(failed.clone()),
            partial,
            &slips(&[("a", None), ("b", None)]),
        );
        assert_eq!(verdicts.failures, vec![Some(Failure::retry()); 2]);
        assert_eq!(
            verdicts.note.as_deref(),
            Some(
                "function f:live, version 7, failed on messages a, b: KeyError: id\n    START\n    END"
            )
        );
    }
}

#[test]
fn throttled_invocation_is_busy_and_permanent_error_is_closed() {
    let one = slips(&[("a", None)]);
    let throttled = InvokeError::DidNotRun(DidNotRun {
        reason: "CallerRateLimitExceeded".into(),
        retry_after: Some(1500),
    });
    let busy = Failure::busy_for(
        Duration::from_millis(1500),
        "function f:live: CallerRateLimitExceeded",
    );
    assert_eq!(judge(Err(throttled), false, &one).failures, [Some(busy)]);
    for error in [
        InvokeError::Permanent("not found".into()),
        InvokeError::Forbidden("not found".into()),
    ] {
        let closed = Failure::closed("function f:live: not found");
        assert_eq!(judge(Err(error), false, &one).failures, [Some(closed)]);
    }
    let large = judge(Err(InvokeError::Refused("7 MB".into())), false, &one);
    assert_eq!(
        large.failures,
        [Some(Failure::reject("function f:live: 7 MB"))]
    );
}

#[test]
fn refused_batch_is_not_rejected_whole() {
    let two = slips(&[("a", None), ("b", None)]);
    let verdicts = judge(Err(InvokeError::Refused("too much".into())), false, &two);
    assert_eq!(verdicts.failures, vec![Some(Failure::retry()); 2]);
    assert_eq!(
        verdicts.note.as_deref(),
        Some("function f:live, invoked with messages a, b: too much")
    );
}

#[test]
fn possibly_run_message_is_retried_only_after_its_deadline() {
    let mut three = slips(&[("a", None), ("b", None), ("c", None)]);
    three[2].deadline = NOW - 5;
    let verdicts = judge(Err(InvokeError::MayHaveRun("reset".into())), true, &three);
    let later = |seconds| Some(Failure::retry_after(Duration::from_secs(seconds)));
    assert_eq!(verdicts.failures, [later(1), later(2), later(0)]);
    assert!(verdicts.note.expect("a line").contains("reset"));
}

#[test]
fn clock_is_read_only_where_needed() {
    let clock = || panic!("nobody asked for the time");
    let one = slips(&[("a", None)]);
    of(Ok(answer("{}")), &settings(true), &one, clock);
    of(
        Err(InvokeError::Permanent(String::new())),
        &settings(true),
        &one,
        clock,
    );
}
