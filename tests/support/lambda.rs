//! Functions on MiniStack's Lambda, which runs Python here without containers. One function does
//! what the bodies of its messages say and writes down every event that it gets. Knows nothing of
//! the program under test.

use crate::sqs::{self, SqsServer};
use aws_sdk_lambda::Client;
use aws_sdk_lambda::client::Waiters;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::{Environment, FunctionCode, Runtime};
use serde_json::Value;
use std::io::{Cursor, Write};
use std::path::PathBuf;
use zip::write::SimpleFileOptions;

/// What the function does with each record's body, `VERB` or `VERB:ARGUMENT`:
/// `raise-until:N` prints a line and raises until the receive count is N; `fail-until:N` lists the
/// record as failed until then; `sleep:MS` sleeps; anything else is done. A line of the record is
/// written at once with `O_APPEND`, so that environments which run concurrently do not mix theirs.
const HANDLER: &str = r#"
import json, os, time

class HandlerError(Exception):
    pass

def handle(event, context):
    line = json.dumps({
        "event": event,
        "arn": context.invoked_function_arn,
        "version": context.function_version,
    })
    record = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND)
    os.write(record, (line + "\n").encode())
    os.close(record)
    failures = []
    for message in event.get("Records", []):
        verb, _, argument = message["body"].partition(":")
        received = int(message["attributes"]["ApproximateReceiveCount"])
        if verb == "sleep":
            time.sleep(int(argument) / 1000)
        elif verb == "raise-until" and received < int(argument):
            print("about to raise at " + str(received))
            raise HandlerError("not before " + argument)
        elif verb == "fail-until" and received < int(argument):
            failures.append({"itemIdentifier": message["messageId"]})
    return {"batchItemFailures": failures}
"#;

/// A function of a test's own.
#[derive(Debug)]
pub struct Function {
    client: Client,
    /// What to invoke it by.
    pub name: String,
    record: tempfile::NamedTempFile,
}

/// One event, as the function got it.
#[derive(Debug, Clone)]
pub struct FunctionCall {
    /// All of it.
    pub event: Value,
    /// The function's ARN, with the alias or version that was asked for.
    pub arn: String,
    /// The version that ran.
    pub version: String,
}

impl FunctionCall {
    /// Its records.
    pub fn records(&self) -> &[Value] {
        let records = self.event["Records"].as_array();
        records.map_or(&[], Vec::as_slice)
    }

    /// The bodies of its records.
    pub fn bodies(&self) -> Vec<&str> {
        let records = self.records().iter();
        records
            .filter_map(|record| record["body"].as_str())
            .collect()
    }
}

impl Function {
    /// A new function on this server; ready when this returns.
    pub async fn create(endpoint_url: &str, hint: &str) -> Self {
        let record = tempfile::NamedTempFile::new().expect("a temporary file");
        let function = Self {
            client: Client::new(&sqs::configuration(endpoint_url)),
            name: SqsServer::fresh_name(hint),
            record,
        };
        function.create_again().await;
        function
    }

    /// Creates it once more after `delete`.
    pub async fn create_again(&self) {
        let path = self.record.path().display().to_string();
        let environment = Environment::builder().variables("RECORD", path).build();
        let code = FunctionCode::builder().zip_file(Blob::new(archive(HANDLER)));
        self.client
            .create_function()
            .function_name(&self.name)
            .runtime(Runtime::from("python3.11"))
            .handler("handler.handle")
            .role("arn:aws:iam::000000000000:role/tests")
            .timeout(10)
            .environment(environment)
            .code(code.build())
            .send()
            .await
            .unwrap_or_else(|error| panic!("cannot create {}: {error:?}", self.name));
        // It is pending for a moment.
        let waiter = self.client.wait_until_function_active_v2();
        let waiter = waiter.function_name(&self.name).wait(crate::PATIENCE);
        waiter.await.expect("it becomes active");
    }

    /// Removes it.
    pub async fn delete(&self) {
        let call = self.client.delete_function().function_name(&self.name);
        call.send().await.expect("it exists");
    }

    /// Publishes what it is now as a version with this alias; the version.
    pub async fn alias(&self, alias: &str) -> String {
        let call = self.client.publish_version().function_name(&self.name);
        let published = call.send().await.expect("it exists");
        let version = published.version.expect("a version has a number");
        let call = self.client.create_alias().function_name(&self.name);
        let call = call.name(alias).function_version(&version);
        call.send().await.expect("the alias is new");
        version
    }

    /// Lets no more than so many invocations run at once: others are throttled. All of them with 0.
    pub async fn reserve(&self, concurrency: i32) {
        let call = self.client.put_function_concurrency();
        let call = call.function_name(&self.name);
        let call = call.reserved_concurrent_executions(concurrency);
        call.send().await.expect("it exists");
    }

    /// Takes back what `reserve` did.
    pub async fn unreserve(&self) {
        let call = self.client.delete_function_concurrency();
        let call = call.function_name(&self.name);
        call.send().await.expect("it exists");
    }

    /// Every event so far, in the order the function began with them.
    pub fn calls(&self) -> Vec<FunctionCall> {
        let text = std::fs::read_to_string(self.record.path()).expect("the file is ours");
        let call = |line: &str| {
            let line: Value = serde_json::from_str(line).expect("the function writes JSON");
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            FunctionCall {
                arn: text("arn"),
                version: text("version"),
                event: line["event"].clone(),
            }
        };
        text.lines().map(call).collect()
    }

    /// All events once they are so many; reads again and again, since nothing notifies of a change of a file here.
    pub async fn wait_for_calls(&self, count: usize) -> Vec<FunctionCall> {
        let looking = async {
            while self.calls().len() < count {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(crate::PATIENCE, looking)
            .await
            .unwrap_or_else(|_| panic!("not {count} calls but {:?}", self.calls()));
        self.calls()
    }

    /// Where it writes its events.
    pub fn record(&self) -> PathBuf {
        self.record.path().to_owned()
    }
}

/// A handler's code as Lambda wants it: a zip with `handler.py`.
pub(crate) fn archive(code: &str) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .unix_permissions(0o644);
    archive
        .start_file("handler.py", options)
        .and_then(|()| Ok(archive.write_all(code.as_bytes())?))
        .and_then(|()| archive.finish())
        .expect("memory takes what is written")
        .into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::MiniStack;
    use aws_sdk_lambda::types::LogType;

    fn event(body: &str, received: u32) -> Blob {
        let event = serde_json::json!({"Records": [{
            "messageId": "m",
            "body": body,
            "attributes": {"ApproximateReceiveCount": received.to_string()},
        }]});
        Blob::new(event.to_string())
    }

    #[tokio::test]
    async fn function_follows_bodies_and_records_events() {
        let function = Function::create(&MiniStack::shared().url(), "function").await;
        let version = function.alias("live").await;
        let invoke = |body, received, qualifier: Option<&str>| {
            let call = function.client.invoke().function_name(&function.name);
            let call = call.set_qualifier(qualifier.map(str::to_owned));
            let call = call.log_type(LogType::Tail);
            call.payload(event(body, received)).send()
        };
        let answer = invoke("fail-until:2", 1, None).await.expect("answered");
        let payload = answer.payload.expect("a payload").into_inner();
        assert!(String::from_utf8_lossy(&payload).contains(r#""itemIdentifier": "m""#));
        let answer = invoke("raise-until:2", 1, Some("live")).await;
        let answer = answer.expect("answered");
        assert_eq!(answer.function_error.as_deref(), Some("Unhandled"));
        assert!(answer.log_result.is_some(), "{answer:?}");
        let calls = function.wait_for_calls(2).await;
        assert_eq!(calls[0].bodies(), ["fail-until:2"]);
        assert_eq!(calls[1].version, version);
        assert!(calls[1].arn.ends_with(":live"), "{:?}", calls[1].arn);
    }

    #[tokio::test]
    async fn function_without_concurrency_throttles_like_lambda() {
        let function = Function::create(&MiniStack::shared().url(), "function").await;
        function.reserve(0).await;
        let call = function.client.invoke().function_name(&function.name);
        let error = call
            .send()
            .await
            .expect_err("throttled")
            .into_service_error();
        assert!(error.is_too_many_requests_exception(), "{error:?}");
        function.unreserve().await;
        let call = function.client.invoke().function_name(&function.name);
        call.payload(event("done", 1)).send().await.expect("runs");
        assert_eq!(function.calls().len(), 1, "a throttled one did not run");
    }
}
