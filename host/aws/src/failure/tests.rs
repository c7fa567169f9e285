//! The meaning of AWS's answers, as a table, and how failures read.

use super::*;
use crate::SdkConfig;
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};

#[test]
fn failed_calls_are_classified_by_code_then_status() {
    for (code, status, expected) in [
        ("QueueDoesNotExist", 400, ErrorKind::NotFound),
        (
            "AWS.SimpleQueueService.NonExistentQueue",
            400,
            ErrorKind::NotFound,
        ),
        ("ResourceNotFoundException", 400, ErrorKind::NotFound),
        ("AccessDenied", 403, ErrorKind::AccessDenied),
        ("AccessDeniedException", 400, ErrorKind::AccessDenied),
        ("InvalidClientTokenId", 403, ErrorKind::AccessDenied),
        ("ExpiredToken", 400, ErrorKind::AccessDenied),
        ("SomethingNew", 403, ErrorKind::AccessDenied),
        ("OverLimit", 403, ErrorKind::Transient),
        ("RequestThrottled", 403, ErrorKind::Transient),
        (
            "ProvisionedThroughputExceededException",
            400,
            ErrorKind::Transient,
        ),
        ("TransactionConflictException", 400, ErrorKind::Transient),
        ("", 429, ErrorKind::Transient),
        ("InternalFailure", 500, ErrorKind::Transient),
        ("", 503, ErrorKind::Transient),
        ("InvalidParameterValue", 400, ErrorKind::Invalid),
        ("ValidationException", 400, ErrorKind::Invalid),
        ("", 404, ErrorKind::Invalid),
    ] {
        assert_eq!(judge(code, status), expected, "{code} {status}");
    }
}

#[test]
fn failure_names_the_call_its_target_and_the_endpoint() {
    let call = |about| CallName {
        step: "Query",
        about,
        place: "DYNAMODB in eu-west-1",
    };
    for (about, said) in [
        (
            About::Table("jobs"),
            "Query on table `jobs` at DYNAMODB in eu-west-1 failed: no such thing",
        ),
        (
            About::All,
            "Query at DYNAMODB in eu-west-1 failed: no such thing",
        ),
    ] {
        assert_eq!(call(about).refused("no such thing").message, said);
    }
    assert_eq!(
        call(About::Queue("q")).sentence(ErrorKind::NotFound, "gone"),
        "there is no queue `q` at DYNAMODB in eu-west-1 (gone)"
    );
}

/// The SDK's own words for it are no part of its interface: this fails when they change.
#[tokio::test]
async fn missing_region_differs_from_missing_credentials() {
    let call = CallName {
        step: "ListTables",
        about: About::All,
        place: "DYNAMODB",
    };
    let known = Credentials::new("id", "secret", None, None, "a test");
    let bare = SdkConfig::builder()
        .credentials_provider(SharedCredentialsProvider::new(known))
        .behavior_version(crate::BehaviorVersion::latest())
        .build();
    let client = aws_sdk_dynamodb::Client::new(&bare);
    let failure = client.list_tables().send().await.expect_err("no region");
    let told = call.failed(&failure);
    assert_eq!(told.kind, ErrorKind::Invalid);
    assert!(told.message.contains(NO_REGION), "{told}");
}
