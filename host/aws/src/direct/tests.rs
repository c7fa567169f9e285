//! Calls before a server that does what a test says. What a call is learnt from is one of DynamoDB,
//! whose protocol is that of SQS.

use super::*;
use crate::test_server::{Act, TestServer, answer, configuration};
use crate::{SdkConfig, with_limits};
use aws_credential_types::provider::future;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{Credentials, ProvideCredentials, SharedCredentialsProvider};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

const OPERATION: &str = "DynamoDB_20120810.ListTables";

fn listed() -> Act {
    answer(200, "", r#"{"TableNames":[]}"#)
}

/// A server that begins with the call that is learnt from, and a client that has learnt.
async fn learnt(acts: Vec<Act>) -> (TestServer, DirectClient) {
    let server = TestServer::start(std::iter::once(listed()).chain(acts).collect()).await;
    let client = learn(&with_limits(&configuration(server.address()))).await;
    (server, client)
}

async fn learn(config: &SdkConfig) -> DirectClient {
    let learner = Learner::default();
    let call = Client::new(config).list_tables().customize();
    let sent = call.interceptor(learner.clone()).send().await;
    sent.expect("the server lists them");
    learner.take().expect("the call was signed")
}

async fn call(client: &DirectClient) -> Result<Value, DirectError> {
    client.call(OPERATION, &json!({}), Patience::Control).await
}

/// A header of a request as it was sent.
fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let (head, _) = request.split_once("\r\n\r\n")?;
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(field, _)| field.eq_ignore_ascii_case(name))?;
    Some(value.trim())
}

#[tokio::test]
async fn call_goes_where_the_learnt_one_went_over_the_same_connection() {
    let (server, client) = learnt(vec![listed()]).await;
    assert_eq!(
        call(&client).await.expect("an answer"),
        json!({"TableNames": []})
    );
    assert_eq!(server.connections(), 1);
    let requests = server.requests();
    for name in ["host", "content-type", "x-amz-target", "user-agent"] {
        assert_eq!(
            header(&requests[1], name),
            header(&requests[0], name),
            "{name}"
        );
    }
    let scope = |request: &str| {
        let authorization = header(request, "authorization")
            .expect("a signature")
            .to_owned();
        authorization
            .split_once(", ")
            .expect("its parts")
            .0
            .to_owned()
    };
    assert_eq!(scope(&requests[1]), scope(&requests[0]));
}

#[tokio::test]
async fn passing_failure_is_repeated_once() {
    for act in [answer(503, "", ""), Act::Close, Act::Reset] {
        let (server, client) = learnt(vec![act, listed()]).await;
        call(&client).await.expect("the second attempt is answered");
        assert_eq!(server.requests().len(), 3);
    }
    let (server, client) = learnt(vec![answer(503, "", ""), answer(500, "", "")]).await;
    let error = call(&client).await.expect_err("two attempts and no more");
    assert!(
        error
            .raw_response()
            .is_some_and(|raw| raw.status().as_u16() == 500)
    );
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn refusal_is_not_repeated() {
    let refusal = r#"{"__type":"com.amazon#ValidationException","message":"no"}"#;
    let (server, client) = learnt(vec![answer(400, "", refusal)]).await;
    let error = call(&client).await.expect_err("a refusal");
    assert_eq!(error.code(), Some("ValidationException"));
    assert_eq!(error.message(), Some("no"));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn answer_that_breaks_off_is_an_error_of_the_answer() {
    let broken = || Act::Say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"Tab".into());
    let (_server, client) = learnt(vec![broken(), broken()]).await;
    let error = call(&client).await.expect_err("broken off");
    assert!(matches!(*error, SdkError::ResponseError(_)), "{error:?}");
}

/// Credentials that have ended when they are given, each with another id.
#[derive(Debug, Default)]
struct ShortLived(AtomicU32);

impl ProvideCredentials for ShortLived {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let id = format!("id-{}", self.0.fetch_add(1, Ordering::Relaxed));
        let ended = Some(SystemTime::UNIX_EPOCH);
        future::ProvideCredentials::ready(Ok(Credentials::new(id, "secret", None, ended, "test")))
    }
}

#[tokio::test]
async fn credentials_that_have_ended_are_asked_for_again() {
    let server = TestServer::start(vec![listed(), listed(), listed()]).await;
    let config = configuration(server.address()).to_builder();
    let provider = SharedCredentialsProvider::new(ShortLived::default());
    let client = learn(&with_limits(&config.credentials_provider(provider).build())).await;
    for _ in 0..2 {
        call(&client).await.expect("an answer");
    }
    let requests = server.requests();
    let signed = |request: &String| {
        header(request, "authorization")
            .unwrap_or_default()
            .to_owned()
    };
    let [_, first, second] = &requests.iter().map(signed).collect::<Vec<_>>()[..] else {
        panic!("{requests:?}");
    };
    assert_ne!(
        first.split_once('/').expect("an id").0,
        second.split_once('/').expect("an id").0
    );
}

#[test]
fn scope_is_read_from_the_end() {
    let scope = |text| SigningScope::of(text).map(|scope| (scope.region, scope.service));
    let read = |region: &str, service: &str| Some((region.to_owned(), service.to_owned()));
    let text =
        "AWS4-HMAC-SHA256 Credential=AKID/20261124/eu-west-1/sqs/aws4_request, SignedHeaders=x";
    assert_eq!(scope(text), read("eu-west-1", "sqs"));
    let slashes = "AWS4-HMAC-SHA256 Credential=a/b/20261124/local/sqs/aws4_request, Signature=x";
    assert_eq!(scope(slashes), read("local", "sqs"));
    assert_eq!(scope("Bearer token"), None);
    assert_eq!(scope("AWS4-HMAC-SHA256 Credential=AKID, Signature=x"), None);
}

#[test]
fn codes_are_bare() {
    assert_eq!(
        bare_code("com.amazonaws.sqs#QueueDoesNotExist"),
        "QueueDoesNotExist"
    );
    assert_eq!(
        bare_code("Throttled:http://internal.amazon.com/"),
        "Throttled"
    );
    assert_eq!(bare_code("AccessDenied"), "AccessDenied");
}
