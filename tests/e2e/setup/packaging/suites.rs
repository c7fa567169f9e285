//! `dispatcher local` as the SQS of a test suite: the examples for Docker Compose and GitHub Actions
//! as far as they go without Docker, and the recipes for pytest and Node.

use super::deployed::documents;
use crate::languages::page_examples::shown;
use dispatcher_tests::child::{Program, Signal, binary};
use dispatcher_tests::packaging::{output_of, script};
use dispatcher_tests::servers::free_port;
use dispatcher_tests::toolchains::{node_packages, python};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PYTEST: [&str; 2] = ["pytest==9.2.0", "boto3==1.43.106"];
const JAVASCRIPT: &str = "@aws-sdk/client-sqs@3.1169.0";

fn example(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join("host/docs/examples").join(name)
}

/// A search path on which the program comes first.
fn path() -> OsString {
    let program = binary();
    let folder = program.parent().expect("a file is in a folder").to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).expect("the folders of a PATH make one")
}

#[test]
fn pytest_recipe_works() {
    let python = python(&PYTEST);
    let mut suite = Command::new(python);
    suite.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    suite
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PATH", path());
    // More than a pipe holds, if nobody reads it.
    suite.env("DISPATCHER_LOG_LEVEL", "trace");
    let output = output_of(suite.arg(example("pytest")));
    assert!(output.contains("2 passed"), "{output}");
}

#[test]
fn node_recipe_works() {
    let Some(modules) = node_packages(&[JAVASCRIPT]) else {
        return;
    };
    for file in ["queue.mjs", "orders.test.mjs"] {
        let copied = fs::copy(example("node-test").join(file), modules.join(file));
        copied.expect("the folder is ours");
    }
    let mut suite = Command::new("node");
    suite
        .args(["--test", "orders.test.mjs"])
        .current_dir(modules);
    let output = output_of(
        suite
            .env("PATH", path())
            .env("AWS_CONFIG_FILE", "/dev/null"),
    );
    assert!(output.contains("pass 2"), "{output}");
}

#[test]
fn test_of_the_page_passes_with_the_recipe_for_pytest() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let conftest = example("pytest").join("conftest.py");
    fs::copy(conftest, folder.path().join("conftest.py")).expect("the folder is ours");
    let test = shown("host/docs/testing.md", "python", "def test_order");
    fs::write(folder.path().join("test_page.py"), test).expect("the folder is ours");
    let mut suite = Command::new(python(&PYTEST));
    suite.args(["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    let output = output_of(suite.env("PATH", path()).arg(folder.path()));
    assert!(output.contains("1 passed"), "{output}");
}

/// The scripts of the page one after the other, the second in the place of a test.
#[test]
fn scripts_of_the_page_receive_what_they_send_and_again_a_minute_later() {
    const ADDRESS: &str = "127.0.0.1:9324";
    let page = "host/docs/local-sqs.md";
    let (first, second) = (
        shown(page, "python", "create_queue"),
        shown(page, "python", "def advance"),
    );
    let address = format!("127.0.0.1:{}", free_port());
    let there = second.replace(ADDRESS, &address);
    assert_ne!(there, second);
    let checks = "assert message['Body'] == 'hello', message\nassert again['MessageId'] == message['MessageId']\n";
    let mut server = Program::new(["local", "--memory", "--listen", &address]).start();
    server.wait_for_line(|line| line.contains("AWS_ENDPOINT_URL_SQS"));
    let mut client = Command::new(python(&PYTEST));
    client.args(["-c", &format!("{first}\n{there}\n{checks}")]);
    client.env("AWS_ENDPOINT_URL_SQS", format!("http://{address}"));
    client.env("AWS_CONFIG_FILE", "/dev/null");
    for name in ["AWS_REGION", "AWS_DEFAULT_REGION"] {
        client.env(name, "us-east-1");
    }
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        client.env(name, "local");
    }
    output_of(&mut client);
    server.signal(Signal::TERM);
    assert_eq!(server.wait_exit(), 0);
}

/// The arguments of a container that serves the queue, with what is mounted and free here.
fn arguments(command: &[&str], listen: u16, admin: u16) -> Vec<String> {
    let queues = script("compose/queues.toml").display().to_string();
    let here = |word: &str| {
        word.replace("0.0.0.0:9324", &format!("127.0.0.1:{listen}"))
            .replace("127.0.0.1:9090", &format!("127.0.0.1:{admin}"))
            .replace("/etc/dispatcher/queues.toml", &queues)
    };
    command.iter().map(|word| here(word)).collect()
}

/// The queue serves what the file declares, and the probe says so.
fn serves_the_declared_queues(command: &[&str], probe: &[&str]) {
    let (listen, admin) = (free_port(), free_port());
    let mut server = Program::new(arguments(command, listen, admin)).start();
    server.wait_for_line(|line| line.contains("AWS_ENDPOINT_URL_SQS"));
    let probed = Program::new(arguments(probe, listen, admin)).run();
    assert_eq!(probed.code, 0, "{probed:?}");
    let list = "import boto3; print(boto3.client('sqs').list_queues()['QueueUrls'])";
    let mut client = Command::new(python(&PYTEST));
    client
        .args(["-c", list])
        .env("AWS_CONFIG_FILE", "/dev/null");
    client.env("AWS_ENDPOINT_URL_SQS", format!("http://127.0.0.1:{listen}"));
    for (name, value) in [
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
    ] {
        client.env(name, value);
    }
    let queues = output_of(&mut client);
    assert!(
        queues.contains("/orders'") && queues.contains("/orders-dead'"),
        "{queues}"
    );
    server.signal(Signal::TERM);
    assert_eq!(server.wait_exit(), 0);
}

fn words(list: &Value) -> Vec<&str> {
    let list = list.as_array().expect("a list");
    list.iter().filter_map(Value::as_str).collect()
}

#[test]
fn compose_example_serves_the_declared_queues() {
    let text = fs::read_to_string(script("compose/compose.yaml")).expect("the file");
    let file = &documents(&text, None)[0];
    let queue = &file["services"]["queue"];
    let probe = words(&queue["healthcheck"]["test"]);
    let [kind, program, probe @ ..] = &probe[..] else {
        panic!("{probe:?}");
    };
    assert_eq!((*kind, *program), ("CMD", "/usr/bin/dispatcher"));
    serves_the_declared_queues(&words(&queue["command"]), probe);
    let application = &file["services"]["application"];
    let found = &application["environment"]["AWS_ENDPOINT_URL_SQS"];
    assert_eq!(found, "http://queue:9324");
    // Its image is the reader's: the command of the page starts the queue alone.
    assert_eq!(words(&application["profiles"]), ["application"]);
    assert!(queue.get("profiles").is_none());
}

#[test]
fn github_actions_example_serves_the_declared_queues() {
    let text = fs::read_to_string(script("github-actions/test.yml")).expect("the file");
    let file = &documents(&text, None)[0];
    let steps = file["jobs"]["test"]["steps"].as_array().expect("steps");
    let step = steps.iter().find(|step| step["name"] == "SQS");
    let run = step.expect("the step")["run"].as_str().expect("a script");
    let (start, wait) = run.split_once("timeout").expect("it waits");
    let (_, command) = start.split_once(" \"$IMAGE\" ").expect("an image");
    let command = command.replace('\\', " ");
    let (_, probe) = wait.split_once("/usr/bin/dispatcher").expect("a probe");
    let (probe, _) = probe.split_once(';').expect("its end");
    let words =
        |text: &'_ str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    let (command, probe) = (words(&command), words(probe));
    let command: Vec<_> = command.iter().map(String::as_str).collect();
    let probe: Vec<_> = probe.iter().map(String::as_str).collect();
    serves_the_declared_queues(&command, &probe);
}
