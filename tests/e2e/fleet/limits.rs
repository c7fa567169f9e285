//! Limits hold for all processes together, also when processes are killed.

use crate::scene::until_depth;
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::{Depth, Queue};
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::service::{JobService, PostedRequest, ServiceAnswer, ServiceStep};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The settings of a process that forwards to a service under these limits.
pub(super) fn settings(service: &JobService, limits: &str) -> String {
    format!(
        "{limits}\n[[route]]\nqueues = [\"local:default\"]\nplugin = \"api\"\nlimits = [\"api\"]\n\
         concurrency = 20\nvisibility = 5\n\n[plugin.api]\nforward = \"{}\"\n",
        service.url()
    )
}

fn program(text: &str) -> Program {
    Program::new(["run", "--log-format", "json", "--config", "dispatcher.toml"])
        .file("dispatcher.toml", text)
}

/// Starts processes on one data folder.
pub(super) fn start(text: &str, count: usize) -> Vec<RunningProgram> {
    let first = program(text).start();
    let data = Arc::clone(first.data());
    let others = (1..count).map(|_| program(text).sharing(&data).start());
    let all: Vec<RunningProgram> = [first].into_iter().chain(others).collect();
    for one in &all {
        one.wait_for_line(|line| line.contains("\"message\":\"running\""));
    }
    all
}

pub(super) async fn send(data: &Path, messages: impl IntoIterator<Item = (String, &str)>) {
    let store = LocalStore::open(data).expect("opens");
    let queue = store.queue("default", None).expect("opens");
    let messages: Vec<OutgoingMessage> = messages
        .into_iter()
        .map(|(body, customer)| OutgoingMessage {
            body,
            attributes: vec![Attribute::text("customer", customer)],
            ..OutgoingMessage::default()
        })
        .collect();
    for sent in queue.send(&messages).await {
        sent.expect("sent");
    }
}

/// Answers after a time that lets attempts overlap.
fn slowly(_request: &PostedRequest) -> ServiceStep {
    ServiceStep::After(Duration::from_millis(50), ServiceAnswer::new(200))
}

pub(super) async fn finish(processes: Vec<RunningProgram>) {
    let data = Arc::clone(processes[0].data());
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    for mut one in processes {
        one.stop();
    }
}

#[tokio::test]
async fn three_processes_together_run_no_more_than_the_limit() {
    let service = JobService::start(slowly);
    let text = settings(&service, "[limit.api]\nconcurrency = 4\n");
    let processes = start(&text, 3);
    let messages = (0..200).map(|number| (format!("{number}"), "a"));
    send(processes[0].data().path(), messages).await;
    service.wait_for(200);
    finish(processes).await;
    let record = service.record();
    assert_eq!(record.requests.len(), 200, "each once");
    assert!(
        record.most_in_flight <= 4,
        "{} at once",
        record.most_in_flight
    );
    assert!(record.most_in_flight > 1, "they run one after the other");
}

#[tokio::test]
async fn three_processes_together_start_no_more_than_the_rate() {
    let service = JobService::start(|_| ServiceStep::status(200));
    let text = settings(&service, "[limit.api]\nrate = \"10/s\"\nburst = 5\n");
    let processes = start(&text, 3);
    let began = Instant::now();
    let messages = (0..45).map(|number| (format!("{number}"), "a"));
    send(processes[0].data().path(), messages).await;
    service.wait_for(45);
    let took = began.elapsed();
    // Five start at once, and a second's tokens may be unused when the last ones are granted.
    assert!(took >= Duration::from_secs(3), "45 messages in {took:?}");
    finish(processes).await;
    assert_eq!(service.record().requests.len(), 45, "each once");
}

#[tokio::test]
async fn limit_holds_when_a_process_is_killed_and_its_permits_come_back() {
    let service = JobService::start(slowly);
    let text = settings(&service, "[limit.api]\nconcurrency = 3\n");
    let mut processes = start(&text, 3);
    let messages = (0..300).map(|number| (format!("{number}"), "a"));
    send(processes[0].data().path(), messages).await;
    service.wait_for(60);
    let mut killed = processes.remove(2);
    killed.signal(Signal::KILL);
    assert_eq!(killed.wait_exit(), 137);
    finish(processes).await;
    let record = service.record();
    assert!(
        record.most_in_flight <= 3,
        "{} at once",
        record.most_in_flight
    );
    assert!(record.requests.len() >= 300, "every message is handled");
}

#[tokio::test]
async fn full_key_delays_no_other() {
    let service = JobService::start(|request| {
        if request.body == "held" {
            ServiceStep::Hold(ServiceAnswer::new(200))
        } else {
            ServiceStep::status(200)
        }
    });
    let text = settings(
        &service,
        "[limit.api]\nconcurrency = 1\nkey = \"customer\"\n",
    );
    let processes = start(&text, 1);
    let data = Arc::clone(processes[0].data());
    send(data.path(), (0..100).map(|_| ("held".to_owned(), "acme"))).await;
    service.wait_for(1);
    send(data.path(), (0..20).map(|_| ("quick".to_owned(), "other"))).await;
    let quick = |request: &&PostedRequest| request.body == "quick";
    service.wait(|record| record.requests.iter().filter(quick).count() == 20);
    let record = service.record();
    assert_eq!(record.requests.len(), 21, "one of acme, all of the other");
    service.release();
    finish(processes).await;
    assert_eq!(service.record().requests.len(), 120);
}

#[tokio::test]
async fn messages_without_the_key_count_together_and_are_logged_once() {
    let service = JobService::start(slowly);
    let text = settings(&service, "[limit.api]\nconcurrency = 1\nkey = \"tenant\"\n");
    let processes = start(&text, 1);
    let messages = (0..5).map(|number| (format!("{number}"), "a"));
    send(processes[0].data().path(), messages).await;
    service.wait_for(5);
    let is_logged = |line: &str| line.contains("message without a key for a limit");
    let line = processes[0].wait_for_line(is_logged);
    for part in ["\"limit\":\"api\"", "local:default", "\"message_id\":"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let lines = processes[0].lines(is_logged);
    assert_eq!(lines.len(), 1, "{lines:?}");
    finish(processes).await;
    assert_eq!(service.record().most_in_flight, 1);
}
