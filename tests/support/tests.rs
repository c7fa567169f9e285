//! The fake tells what AWS's own client understands.

use crate::faulty_lambda::{FaultyLambda, Invocation, LambdaStep, Record, mixed};
use crate::sqs::configuration;
use aws_sdk_lambda::Client;
use aws_sdk_lambda::error::SdkError;
use aws_sdk_lambda::operation::invoke::{InvokeError, InvokeOutput};
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::LogType;
use serde_json::json;
use std::sync::Arc;

async fn invoke(
    lambda: &FaultyLambda,
    payload: String,
) -> Result<InvokeOutput, SdkError<InvokeError>> {
    let retries = aws_sdk_lambda::config::retry::RetryConfig::disabled();
    let config = aws_sdk_lambda::config::Builder::from(&configuration(&lambda.url()))
        .retry_config(retries)
        .build();
    let call = Client::from_conf(config).invoke().function_name("f");
    let call = call.qualifier("live").log_type(LogType::Tail);
    call.payload(Blob::new(payload)).send().await
}

fn event(body: &str, received: u32) -> String {
    json!({"Records": [{
        "messageId": format!("id of {body}"),
        "body": body,
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:q",
        "attributes": {"ApproximateReceiveCount": received.to_string()},
    }]})
    .to_string()
}

#[tokio::test]
async fn throttle_counts_as_not_run() {
    let lambda = FaultyLambda::start();
    lambda.script(|invocation| match invocation.before() {
        0 => LambdaStep::Throttle {
            reason: "CallerRateLimitExceeded",
            retry_after: Some(7),
        },
        _ => LambdaStep::answer("{}"),
    });
    let error = invoke(&lambda, event("a", 1)).await.expect_err("throttled");
    let InvokeError::TooManyRequestsException(error) = error.into_service_error() else {
        panic!("no throttle");
    };
    assert_eq!(error.retry_after_seconds(), Some("7"));
    let reason = error.reason().map(|reason| reason.as_str());
    assert_eq!(reason, Some("CallerRateLimitExceeded"));
    let answer = invoke(&lambda, event("a", 2)).await.expect("answered");
    assert_eq!(answer.payload.expect("a payload").into_inner(), b"{}");
    let state = lambda.state();
    let seen = state.of("a").expect("it came");
    assert_eq!((seen.invoked, seen.executed, seen.throttled), (2, 1, 1));
    assert_eq!(seen.receive_counts, [1, 2]);
    assert_eq!(state.executions[0].queue.rsplit(':').next(), Some("q"));
}

#[tokio::test]
async fn failed_function_answers_with_its_error_and_log() {
    let lambda = FaultyLambda::start();
    lambda.script(|_| LambdaStep::Fail {
        kind: "HandlerError".into(),
        message: "too bad".into(),
        log: "printed".into(),
    });
    let answer = invoke(&lambda, event("a", 1)).await.expect("answered");
    assert_eq!(answer.function_error.as_deref(), Some("Unhandled"));
    let log = answer.log_result.expect("it was asked for");
    assert_eq!(
        aws_smithy_types::base64::decode(log).expect("base64"),
        b"printed"
    );
}

#[tokio::test]
async fn broken_answers_look_broken_and_are_counted() {
    let lambda = FaultyLambda::start();
    let steps = [
        LambdaStep::Break { ran: true },
        LambdaStep::Break { ran: false },
        LambdaStep::Reset { ran: true },
        LambdaStep::Half,
    ];
    for (at, step) in steps.into_iter().enumerate() {
        let (ran, body) = (u32::from(step.executes()), at.to_string());
        lambda.script(move |_| step.clone());
        let broken = invoke(&lambda, event(&body, 1)).await;
        assert!(broken.is_err(), "{broken:?}");
        let seen = lambda.state().of(&body).cloned().expect("it came");
        assert_eq!((seen.executed, seen.unknown), (ran, 1), "{body}");
    }
    lambda.script(|_| LambdaStep::Deny);
    let denied = invoke(&lambda, event("d", 1)).await.expect_err("denied");
    assert_eq!(
        denied.raw_response().map(|r| r.status().as_u16()),
        Some(403)
    );
    lambda.set_missing(true);
    let missing = invoke(&lambda, event("m", 1)).await.expect_err("missing");
    assert!(
        missing
            .into_service_error()
            .is_resource_not_found_exception()
    );
    lambda.set_missing(false);
    let large = invoke(&lambda, "x".repeat(6_291_457)).await;
    let large = large.expect_err("too large").into_service_error();
    assert!(large.is_request_too_large_exception());
    assert_eq!(lambda.state().refused, 2);
}

#[tokio::test]
async fn held_invocation_answers_when_released() {
    let lambda = Arc::new(FaultyLambda::start());
    lambda.script(|_| LambdaStep::Hold("1".into()));
    let calls: Vec<_> = (0..20)
        .map(|n: u32| {
            let lambda = Arc::clone(&lambda);
            tokio::spawn(async move { invoke(&lambda, event(&n.to_string(), 1)).await.is_ok() })
        })
        .collect();
    let waiting = Arc::clone(&lambda);
    let waiting = tokio::task::spawn_blocking(move || {
        waiting.wait(|state| (state.in_flight == 20).then_some(()));
        waiting.release();
    });
    waiting.await.expect("all came");
    for call in calls {
        assert!(call.await.expect("no panic"));
    }
    assert_eq!(lambda.state().most_in_flight, 20);
}

#[test]
fn fault_mix_is_reproducible_and_close_to_the_configured_rates() {
    let invocation = |n: u32| Invocation {
        number: 0,
        function: "f".into(),
        event: false,
        trace_header: None,
        tenant: None,
        records: vec![Record {
            id: n.to_string(),
            body: n.to_string(),
            queue: String::new(),
            receive_count: 1,
            before: 0,
        }],
    };
    let steps = |seed| -> Vec<LambdaStep> {
        let script = mixed(seed, 5);
        (0..5_000).map(|n| script(&invocation(n))).collect()
    };
    assert_eq!(steps(1), steps(1));
    assert_ne!(steps(1), steps(2));
    let faults = steps(1).into_iter();
    let faults = faults
        .filter(|step| *step != LambdaStep::answer("null"))
        .count();
    assert!((150..350).contains(&faults), "{faults}");
}
