//! The client of Lambda against a server of a few lines, which answers as AWS does, or not at all.

use super::*;
use crate::test_server::{Act, TestServer, answer, configuration, without_credentials};
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use dispatcher_core::clock;
use dispatcher_core::error_kind::ErrorKind;
use dispatcher_core::tasks;
use std::time::Duration;

/// Far more than any of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn request() -> Request {
    Request {
        function: "orders:live".into(),
        invocation: Invocation::RequestResponse,
        payload: b"{\"a\":1}".to_vec(),
        log_tail: false,
        patience: PATIENCE,
        trace_header: None,
        tenant: None,
    }
}

/// What one invocation comes to if the server does this.
async fn outcome(act: Act) -> Result<Response, InvokeError> {
    let server = TestServer::start(vec![act]).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    let outcome = lambda.invoke(request()).await;
    assert_eq!(server.requests().len(), 1, "Invoke is never repeated");
    outcome
}

#[tokio::test]
async fn response_payload_arrives_whole() {
    let headers =
        "X-Amz-Executed-Version: 7\r\nX-Amzn-RequestId: r-1\r\nX-Amz-Log-Result: U1RBUlQK4oI=\r\n";
    let server = TestServer::start(vec![answer(200, headers, "[1,2]")]).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    let header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
    let request = Request {
        log_tail: true,
        trace_header: Some(header.to_owned()),
        ..request()
    };
    let response = lambda.invoke(request).await.expect("an answer");
    let wanted = Response {
        payload: b"[1,2]".to_vec(),
        function_error: None,
        // The tail ended inside of a character.
        log_tail: Some("START\n\u{fffd}".into()),
        executed_version: Some("7".into()),
        request_id: Some("r-1".into()),
    };
    assert_eq!(response, wanted);
    let seen = server.requests().remove(0);
    assert!(
        seen.contains("/functions/orders%3Alive/invocations"),
        "{seen}"
    );
    assert!(
        seen.contains("x-amz-invocation-type: RequestResponse"),
        "{seen}"
    );
    assert!(seen.contains("x-amz-log-type: Tail"), "{seen}");
    let line = format!("x-amzn-trace-id: {header}");
    assert!(seen.contains(&line), "{seen}");
    assert!(seen.ends_with("{\"a\":1}"), "{seen}");
}

#[tokio::test]
async fn event_invocation_requests_no_log_and_returns_no_payload() {
    let server = TestServer::start(vec![answer(202, "", "")]).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    let request = Request {
        invocation: Invocation::Event,
        log_tail: true,
        ..request()
    };
    let response = lambda.invoke(request).await.expect("an answer");
    assert_eq!(response, Response::default());
    let seen = server.requests().remove(0);
    assert!(seen.contains("x-amz-invocation-type: Event"), "{seen}");
    assert!(!seen.contains("x-amz-log-type"), "{seen}");
}

#[tokio::test]
async fn function_error_is_a_response() {
    let failed = answer(
        200,
        "X-Amz-Function-Error: Unhandled\r\n",
        "{\"errorType\":\"E\"}",
    );
    let response = outcome(failed).await.expect("an answer");
    assert_eq!(response.function_error.as_deref(), Some("Unhandled"));
    assert_eq!(response.payload, b"{\"errorType\":\"E\"}");
}

#[tokio::test]
async fn throttle_did_not_run_and_carries_the_retry_delay() {
    let error = "x-amzn-ErrorType: TooManyRequestsException\r\n";
    let body = r#"{"Reason":"ReservedFunctionConcurrentInvocationLimitExceeded","Type":"User","message":"Rate Exceeded."}"#;
    let with_header = answer(429, &format!("{error}Retry-After: 3\r\n"), body);
    let wanted = InvokeError::DidNotRun {
        reason: "Invoke of function `orders:live`: TooManyRequestsException (HTTP 429): \
                 ReservedFunctionConcurrentInvocationLimitExceeded: Rate Exceeded."
            .into(),
        retry_after: Some(Duration::from_secs(3)),
    };
    assert_eq!(outcome(with_header).await, Err(wanted));
    for seconds in ["\"2\"", "2"] {
        let body = format!("{{\"retryAfterSeconds\":{seconds},\"message\":\"slow\"}}");
        let error = outcome(answer(429, error, &body)).await;
        let Err(InvokeError::DidNotRun {
            reason,
            retry_after,
        }) = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(retry_after, Some(Duration::from_secs(2)), "{reason}");
        assert!(
            reason.contains("TooManyRequestsException (HTTP 429): slow"),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn error_responses_are_classified_by_code_and_status() {
    let named = |status, code: &str| {
        answer(
            status,
            &format!("x-amzn-ErrorType: {code}:http://x/\r\n"),
            "{\"Message\":\"so\"}",
        )
    };
    let too_large = outcome(named(413, "RequestTooLargeException")).await;
    assert!(
        matches!(too_large, Err(InvokeError::Refused(_))),
        "{too_large:?}"
    );
    let missing = outcome(named(404, "ResourceNotFoundException")).await;
    let wanted = "Invoke of function `orders:live`: ResourceNotFoundException (HTTP 404): so";
    assert_eq!(missing, Err(InvokeError::Permanent(wanted.into())));
    let broken = outcome(named(500, "ServiceException")).await;
    assert!(
        matches!(broken, Err(InvokeError::MayHaveRun(_))),
        "{broken:?}"
    );
    let proxy = outcome(answer(503, "Content-Type: text/html\r\n", "<h1>busy</h1>")).await;
    assert!(
        matches!(proxy, Err(InvokeError::MayHaveRun(_))),
        "{proxy:?}"
    );
    let proxy = outcome(answer(429, "Content-Type: text/html\r\n", "<h1>busy</h1>")).await;
    assert!(
        matches!(proxy, Err(InvokeError::DidNotRun { .. })),
        "{proxy:?}"
    );
}

#[tokio::test]
async fn broken_connection_means_the_function_may_have_run() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half\":";
    for act in [Act::Reset, Act::Close, Act::Say(half.into())] {
        let seen = format!("{act:?}");
        let error = outcome(act).await;
        let Err(InvokeError::MayHaveRun(words)) = error else {
            panic!("{seen}: {error:?}");
        };
        let wanted = "no answer to Invoke on function `orders:live` at http://";
        let is_cut = words.starts_with("Invoke on function `orders:live` at http://");
        assert!(words.starts_with(wanted) || is_cut, "{words}");
    }
}

#[tokio::test]
async fn invocation_times_out() {
    let server = TestServer::start(vec![Act::Silence]).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    let request = Request {
        patience: Duration::from_millis(50),
        ..request()
    };
    let wanted = "Invoke of function `orders:live`: no answer in 50ms".to_owned();
    assert_eq!(
        lambda.invoke(request).await,
        Err(InvokeError::MayHaveRun(wanted))
    );
}

#[tokio::test]
async fn refused_connection_means_the_function_did_not_run() {
    // Bound, so that nobody else gets the port, and not listening.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket
        .bind(([127, 0, 0, 1], 0).into())
        .expect("a free port");
    let address = socket.local_addr().expect("it is bound");
    let refused = Lambda::connect(&configuration(address))
        .invoke(request())
        .await;
    let Err(InvokeError::DidNotRun {
        reason,
        retry_after,
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("refused"), "{reason}");
    assert_eq!(retry_after, None);
    let nowhere = configuration(address)
        .to_builder()
        .endpoint_url("http://no-such-host.invalid")
        .build();
    let unknown = Lambda::connect(&nowhere).invoke(request()).await;
    assert!(
        matches!(unknown, Err(InvokeError::DidNotRun { .. })),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn nothing_is_sent_without_credentials() {
    let server = TestServer::start(vec![]).await;
    let lambda = Lambda::connect(&without_credentials(server.address()));
    let error = lambda.invoke(request()).await;
    let Err(InvokeError::Permanent(words)) = error else {
        panic!("{error:?}");
    };
    let wanted = "no usable AWS credentials for Invoke on function `orders:live` at http://";
    assert!(words.starts_with(wanted), "{words}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn consecutive_calls_reuse_a_connection() {
    let server = TestServer::start(vec![answer(200, "", "1"), answer(200, "", "2")]).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    for wanted in ["1", "2"] {
        let response = lambda.invoke(request()).await.expect("an answer");
        assert_eq!(response.payload, wanted.as_bytes());
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_not_used() {
    let first = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1";
    let server = TestServer::start(vec![Act::Say(first.into()), answer(200, "", "2")]).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    let response = lambda.invoke(request()).await.expect("an answer");
    assert_eq!(response.payload, b"1");
    // By the time that this is connected the end of the other has been heard of.
    let other = tokio::net::TcpStream::connect(server.address()).await;
    drop(other.expect("it listens"));
    let response = lambda.invoke(request()).await.expect("an answer");
    assert_eq!(response.payload, b"2");
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn call_without_a_connection_did_not_run() {
    // It answers in plain HTTP, and then closes: neither is TLS.
    let server = TestServer::start(vec![]).await;
    let plain = format!("https://{}", server.address());
    for endpoint in ["http://no-such-host.invalid", &plain] {
        let config = configuration(server.address()).to_builder();
        let config = config.endpoint_url(endpoint).build();
        let refused = Lambda::connect(&config).invoke(request()).await;
        let Err(InvokeError::DidNotRun { reason, .. }) = refused else {
            panic!("{endpoint}: {refused:?}");
        };
        assert!(!reason.contains("not sent"), "{reason}");
    }
}

#[tokio::test]
async fn answer_beyond_its_bound_is_refused() {
    let mut endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..9 {
        endless.extend(b"100000\r\n");
        endless.resize(endless.len() + (1 << 20), b'x');
        endless.extend(b"\r\n");
    }
    let mut declared = b"HTTP/1.1 200 OK\r\nContent-Length: 9437184\r\n\r\n".to_vec();
    declared.resize(declared.len() + (9 << 20), b'x');
    for answer in [endless, declared] {
        let error = outcome(Act::Pour(answer)).await;
        let Err(InvokeError::MayHaveRun(words)) = error else {
            panic!("{error:?}");
        };
        let wanted = "the answer is longer than 8 MiB";
        assert!(words.ends_with(wanted), "{words}");
    }
}

/// When a request was signed, in seconds since 1970.
fn signed_at(request: &str) -> i64 {
    let header = request
        .lines()
        .find_map(|line| line.strip_prefix("x-amz-date: "));
    let date = header.expect("it is signed");
    let iso = format!(
        "{}-{}-{}:{}:{}Z",
        &date[..4],
        &date[4..6],
        &date[6..11],
        &date[11..13],
        &date[13..15]
    );
    let date = DateTime::from_str(&iso, Format::DateTime);
    date.expect("a date").secs()
}

#[tokio::test]
async fn signature_refused_for_its_time_is_made_again_by_the_clock_of_the_answer() {
    let ahead = 1_200;
    let now = i64::try_from(clock::wall_clock_now().0 / 1_000).expect("it is this century");
    let date = DateTime::from_secs(now + ahead).fmt(Format::HttpDate);
    let headers = format!(
        "x-amzn-ErrorType: InvalidSignatureException\r\nDate: {}\r\n",
        date.expect("a date")
    );
    let refused = |status| {
        let body = r#"{"message":"Signature expired: 20261127T120000Z is now earlier than …"}"#;
        answer(status, &headers, body)
    };
    let acts = vec![refused(403), answer(200, "", "1"), answer(200, "", "2")];
    let server = TestServer::start(acts).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    for wanted in ["1", "2"] {
        let response = lambda.invoke(request()).await.expect("an answer");
        assert_eq!(response.payload, wanted.as_bytes());
    }
    let signed: Vec<i64> = server.requests().iter().map(|it| signed_at(it)).collect();
    assert!((signed[0] - now).abs() < 600, "{signed:?} {now}");
    for corrected in &signed[1..] {
        assert!((corrected - now - ahead).abs() < 600, "{signed:?} {now}");
    }
    let server = TestServer::start(vec![refused(403), refused(403)]).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    let error = lambda.invoke(request()).await;
    assert!(
        matches!(error, Err(InvokeError::DidNotRun { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn function_of_another_region_is_invoked_and_looked_up_there() {
    let settings = r#"{"Timeout":90,"State":"Active"}"#;
    let acts = vec![
        answer(200, "", "1"),
        answer(200, "", settings),
        answer(200, "", "{}"),
        answer(200, "", "2"),
    ];
    let server = TestServer::start(acts).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    let arn = "arn:aws:lambda:eu-west-1:123456789012:function:orders";
    let elsewhere = Request {
        function: arn.into(),
        ..request()
    };
    assert_eq!(lambda.endpoint(arn), None);
    lambda.invoke(elsewhere).await.expect("an answer");
    lambda.look(arn).await.expect("an answer");
    lambda.invoke(request()).await.expect("an answer");
    let requests = server.requests();
    let regions: Vec<&str> = requests.iter().map(|request| signed_for(request)).collect();
    assert_eq!(
        regions,
        ["eu-west-1", "eu-west-1", "eu-west-1", "us-east-1"]
    );
    assert_eq!(lambda.region(arn).as_deref(), Some("eu-west-1"));
    assert_eq!(lambda.region("orders").as_deref(), Some("us-east-1"));
    assert!(lambda.endpoint(arn).is_some());
}

/// The region in the signature of a request.
fn signed_for(request: &str) -> &str {
    let (_, scope) = request.split_once("Credential=").expect("a signature");
    scope.split('/').nth(2).expect("a region")
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn connection_of_a_function_that_runs_long_is_kept_alive() {
    let server = TestServer::start(vec![Act::Silence]).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    let remote = format!(":{:04X}", server.address().port());
    let waits = tasks::spawn(async move { lambda.invoke(request()).await });
    while server.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let sockets = std::fs::read_to_string("/proc/self/net/tcp").expect("Linux");
    let mut sockets = sockets.lines().map(|line| line.split_whitespace());
    let mut own = sockets
        .find(|fields| {
            fields
                .clone()
                .nth(2)
                .is_some_and(|at| at.ends_with(&remote))
        })
        .expect("our socket");
    // Its timer: 2 is that of keep-alive.
    let timer = own.nth(5).expect("its timer");
    assert!(timer.starts_with("02:"), "{timer}");
    drop(waits);
}

#[tokio::test]
async fn lookup_reads_timeout_state_and_reserved_concurrency() {
    let settings =
        r#"{"Timeout":90,"State":"Active","TenancyConfig":{"TenantIsolationMode":"PER_TENANT"}}"#;
    let reserved = r#"{"ReservedConcurrentExecutions":5}"#;
    let server =
        TestServer::start(vec![answer(200, "", settings), answer(200, "", reserved)]).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    let wanted = Function {
        timeout: Duration::from_secs(90),
        state: "Active".into(),
        state_reason: None,
        reserved_concurrency: Some(5),
        isolates_tenants: true,
    };
    assert_eq!(lambda.look("orders:live").await, Ok(wanted));
    let requests = server.requests();
    assert!(requests[0].contains("/functions/orders%3Alive/configuration"));
    assert!(requests[1].contains("/functions/orders/concurrency"));
}

#[tokio::test]
async fn permission_is_asked_for_without_running_the_function() {
    let denied = answer(
        403,
        "x-amzn-ErrorType: AccessDeniedException\r\n",
        "{\"Message\":\"not authorized to perform: lambda:InvokeFunction\"}",
    );
    let server = TestServer::start(vec![answer(204, "", ""), denied]).await;
    let lambda = Lambda::connect(&configuration(server.address()));
    assert_eq!(lambda.try_permission("orders", true).await, Ok(()));
    let refused = lambda.try_permission("orders", false).await;
    let refused = refused.expect_err("denied");
    assert_eq!(refused.kind, ErrorKind::AccessDenied);
    assert!(
        refused.message.contains("lambda:InvokeFunction"),
        "{refused}"
    );
    let requests = server.requests().into_iter();
    let requests: Vec<String> = requests.map(|one| one.to_ascii_lowercase()).collect();
    for (request, has_tenant) in requests.iter().zip([true, false]) {
        assert!(
            request.contains("x-amz-invocation-type: dryrun"),
            "{request}"
        );
        let tenant = request.contains("x-amz-tenant-id: doctor");
        assert_eq!(tenant, has_tenant, "{request}");
    }
}

#[tokio::test]
async fn lookup_reports_missing_functions_and_denied_access() {
    let named = |status, code: &str| {
        answer(
            status,
            &format!("x-amzn-ErrorType: {code}\r\n"),
            "{\"Message\":\"so\"}",
        )
    };
    let look = async |act| {
        let server = TestServer::start(vec![act]).await;
        let lambda = Lambda::connect(&configuration(server.address()));
        lambda.look("orders").await
    };
    for (status, code, kind, words) in [
        (
            404,
            "ResourceNotFoundException",
            ErrorKind::NotFound,
            "there is no function `orders`",
        ),
        (
            404,
            "",
            ErrorKind::NotFound,
            "there is no function `orders`",
        ),
        (
            403,
            "AccessDeniedException",
            ErrorKind::AccessDenied,
            "AWS does not allow GetFunctionConfiguration on function `orders`",
        ),
        (
            400,
            "InvalidParameterValueException",
            ErrorKind::Invalid,
            "GetFunctionConfiguration on function `orders`",
        ),
    ] {
        let failed = look(named(status, code)).await.expect_err("a failure");
        assert_eq!(failed.kind, kind, "{failed}");
        assert!(failed.message.starts_with(words), "{failed}");
    }
}
