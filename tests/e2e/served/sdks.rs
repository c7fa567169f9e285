//! The SDKs that people have, unchanged, against `dispatcher local`: each runs one script that asks
//! for every operation and ends with `all is well`.

use dispatcher_tests::served::{LocalServer, Sdk};
use std::path::{Path, PathBuf};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("e2e/served")
        .join(name)
}

fn all_is_well(sdk: Sdk, name: &str) {
    let server = LocalServer::start();
    let Some(output) = sdk.run(&script(name), server.url()) else {
        return;
    };
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("all is well"), "{out}\n{err}");
}

#[test]
fn boto3_works_against_the_served_queue() {
    all_is_well(Sdk::Boto3, "sdk.py");
}

#[test]
fn boto3_with_the_query_protocol_works_against_the_served_queue() {
    all_is_well(Sdk::OldBoto3, "sdk.py");
}

#[test]
fn javascript_sdk_works_against_the_served_queue() {
    all_is_well(Sdk::JavaScript, "sdk.mjs");
}

/// What was recorded on AWS, and what its documents say where nothing was.
#[test]
fn answers_are_those_that_sqs_was_recorded_to_give() {
    all_is_well(Sdk::Boto3, "recorded.py");
}

#[test]
fn answers_over_the_query_protocol_are_those_that_sqs_was_recorded_to_give() {
    all_is_well(Sdk::OldBoto3, "recorded.py");
}

/// Each behaviour has its name in the script, and its line where it does not hold.
#[test]
fn finding_12_conformance_script_passes() {
    all_is_well(Sdk::Boto3, "conformance.py");
}

#[test]
fn conformance_script_passes_over_the_query_protocol() {
    all_is_well(Sdk::OldBoto3, "conformance.py");
}
