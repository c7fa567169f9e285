//! The meaning of AWS's answers, as a table, and how failures read.

use super::*;
use crate::SdkConfig;
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};

#[test]
fn whole_calls_are_sorted_by_code_then_status() {
    for (code, status, expected) in [
        ("QueueDoesNotExist", 400, Trouble::Missing),
        (
            "AWS.SimpleQueueService.NonExistentQueue",
            400,
            Trouble::Missing,
        ),
        ("ResourceNotFoundException", 400, Trouble::Missing),
        ("AccessDenied", 403, Trouble::Denied),
        ("AccessDeniedException", 400, Trouble::Denied),
        ("InvalidClientTokenId", 403, Trouble::Denied),
        ("ExpiredToken", 400, Trouble::Denied),
        ("SomethingNew", 403, Trouble::Denied),
        ("OverLimit", 403, Trouble::Passing),
        ("RequestThrottled", 403, Trouble::Passing),
        (
            "ProvisionedThroughputExceededException",
            400,
            Trouble::Passing,
        ),
        ("TransactionConflictException", 400, Trouble::Passing),
        ("", 429, Trouble::Passing),
        ("InternalFailure", 500, Trouble::Passing),
        ("", 503, Trouble::Passing),
        ("InvalidParameterValue", 400, Trouble::Refused),
        ("ValidationException", 400, Trouble::Refused),
        ("", 404, Trouble::Refused),
    ] {
        assert_eq!(judge(code, status), expected, "{code} {status}");
    }
}

#[test]
fn a_failure_names_the_call_what_it_was_about_and_the_place() {
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
        call(About::Queue("q")).sentence(Trouble::Missing, "gone"),
        "there is no queue `q` at DYNAMODB in eu-west-1 (gone)"
    );
}

/// The SDK's own words for it are no part of its interface: this fails when they change.
#[tokio::test]
async fn a_missing_region_is_told_from_missing_credentials() {
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
    assert_eq!(told.kind, Trouble::Refused);
    assert!(told.message.contains(NO_REGION), "{told}");
}
