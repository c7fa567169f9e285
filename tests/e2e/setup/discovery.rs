//! Queues that patterns find: those that are there, that come and go, and that are not to be served.

use super::accounts::{
    ONE, OWN, SESSION, account, metric, named, program, send, send_by, service, start, until,
};
use crate::lambda::scene::admin;
use dispatcher_tests::aws_accounts::{AwsAccounts, RoleTrust};
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::dynamodb::{Dates, Tables};
use dispatcher_tests::http;
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::service::JobService;

const FAST: &str = "[dispatcher]\ndiscovery-interval = 1\n";

/// A server with a queue `jobs-own` of the process and a queue `jobs-one` of another account.
fn accounts() -> AwsAccounts {
    let accounts = AwsAccounts::start(SESSION);
    accounts.add_role(ONE, RoleTrust::Process);
    accounts.add_tagged_queue(ONE, "jobs-one", &["team=a"]);
    accounts.add_tagged_queue(OWN, "jobs-own", &["team=a"]);
    accounts
}

/// A configuration with the pattern `jobs-*`, whose queues that begin with `jobs-one` are in an
/// account.
fn file(service: &JobService, more: &str) -> String {
    let one = account("one", ONE, "queues = [\"jobs-one*\"]\n");
    let plugin = format!("[plugin.p]\nforward = \"{}\"\n", service.url());
    format!(
        "{FAST}{one}{plugin}[[route]]\nname = \"jobs\"\nqueues = [\"jobs-*\"]\npoll-for = 1\n{more}"
    )
}

/// Waits for the log line about a queue that has come or gone.
fn wait_for(running: &RunningProgram, what: &str, queue: &str) {
    let queue = format!("\"queue\":\"{queue}\"");
    running.wait_for_line(|line| line.contains(what) && line.contains(&queue));
}

fn is_served(url: &str, queue: &str) -> bool {
    let metrics = http::get(&format!("{url}/metrics")).body;
    metrics.contains(&format!(
        "dispatcher_queue_messages_done_total{{queue=\"{queue}\"}}"
    ))
}

/// Returns the standard output and the errors of a command with the same configuration.
fn asked(words: &[&str], running: &RunningProgram, accounts: &AwsAccounts) -> String {
    let ran = program(words, accounts).sharing(running.data()).run();
    ran.stdout + &ran.stderr
}

#[tokio::test]
async fn queues_of_a_pattern_are_served_as_they_come_and_go() {
    let (accounts, service) = (accounts(), service());
    let mut running = start(&accounts, &file(&service, ""));
    let url = admin(&running);
    for queue in ["jobs-own", "jobs-one"] {
        send(&running, &accounts, queue, queue);
    }
    service.wait_for(2);
    let checked = asked(&["check"], &running, &accounts);
    let found = "jobs-* matches 2 queues now, at most 100, looked up every 1 s";
    assert!(checked.contains(found), "{checked}");
    assert!(
        checked.contains("jobs: jobs-one, jobs-own -> "),
        "{checked}"
    );
    // Another one comes. It and its dead-letter queue match; only the queue is served.
    accounts.add_tagged_queue(OWN, "jobs-new", &[]);
    wait_for(&running, "queue found", "jobs-new");
    send(&running, &accounts, "jobs-new", "new");
    send(&running, &accounts, "jobs-own", "own");
    service.wait_for(4);
    for queue in ["jobs-new-dead", "jobs-own-dead", "jobs-one-dead"] {
        assert!(!is_served(&url, queue), "{queue}");
    }
    // One is deleted: it is dropped, and the process stays ready.
    accounts.delete_queue(OWN, "jobs-own");
    wait_for(&running, "queue gone", "jobs-own");
    until(|| !is_served(&url, "jobs-own"));
    assert_eq!(http::get(&format!("{url}/readyz")).status, 200);
    until(|| named(&url).is_empty());
    send(&running, &accounts, "jobs-one", "one");
    service.wait_for(5);
    // A reload looks up by itself, and does not serve more than it may.
    std::fs::write(
        running.data().path().join("d.toml"),
        file(&service, "max-queues = 1\n"),
    )
    .expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("more queues than max-queues"));
    until(|| !is_served(&url, "jobs-one"));
    assert!(is_served(&url, "jobs-new"));
    running.stop();
}

#[tokio::test]
async fn queues_that_cannot_be_looked_up_stay_and_stop_only_a_start() {
    let (accounts, service) = (accounts(), service());
    let mut running = start(&accounts, &file(&service, ""));
    accounts.deny(ONE, "sqs:ListQueues");
    running.wait_for_line(|line| {
        line.contains("queues not looked up: those known stay")
            && line.contains("\"account\":\"one\"")
    });
    send(&running, &accounts, "jobs-one", "one");
    service.wait_for(1);
    // Queues of the other account still come.
    accounts.add_tagged_queue(OWN, "jobs-new", &[]);
    wait_for(&running, "queue found", "jobs-new");
    let checked = asked(&["check"], &running, &accounts);
    let problem = "d.toml:12: queues of `jobs-*` not looked up in account one: ";
    assert!(checked.contains(problem), "{checked}");
    assert!(checked.contains("sqs:ListQueues"), "{checked}");
    running.stop();
}

/// Waits for the log line about a queue with a problem.
fn wait_for_refused(running: &RunningProgram, queue: &str) {
    let queue = format!("\"queue\":\"{queue}\"");
    running.wait_for_line(|line| {
        line.contains("\"queue found and not served\"") && line.contains(&queue)
    });
}

#[tokio::test]
async fn queue_that_cannot_be_served_stops_no_other() {
    let (accounts, service) = (accounts(), service());
    // A queue of another account cannot have this dead-letter queue.
    let mut running = start(
        &accounts,
        &file(&service, "dead-letter = \"jobs-own-dead\"\n"),
    );
    wait_for_refused(&running, "jobs-one");
    accounts.add_tagged_queue(ONE, "jobs-one-b", &[]);
    accounts.add_tagged_queue(OWN, "jobs-new", &[]);
    wait_for_refused(&running, "jobs-one-b");
    wait_for(&running, "queue found", "jobs-new");
    for queue in ["jobs-own", "jobs-new"] {
        send(&running, &accounts, queue, "body");
    }
    service.wait_for(2);
    assert!(!is_served(&admin(&running), "jobs-one"));
    running.stop();
}

#[tokio::test]
async fn queues_that_lack_dead_letter_queues_stop_only_a_route_without_others() {
    let (accounts, service) = (accounts(), service());
    // The program itself sends what no filter matches, and a redrive policy is of no use.
    let filter = "filter = ['{\"body\":{\"a\":[1]}}']\nunmatched = \"dead-letter\"\n";
    let alone = file(&service, filter);
    let both = alone.replace("[\"jobs-*\"]", "[\"local:always\", \"jobs-*\"]");
    let mut running = start(&accounts, &both);
    for queue in ["jobs-own", "jobs-one"] {
        wait_for_refused(&running, queue);
    }
    accounts.add_tagged_queue(OWN, "jobs-new", &[]);
    wait_for_refused(&running, "jobs-new");
    send(&running, &accounts, "local:always", "{\"a\":1}");
    service.wait_for(1);
    running.stop();
    let refused = program(&["run"], &accounts).file("d.toml", &alone).run();
    assert_eq!(refused.code, 2, "{refused:?}");
    let problem = "`jobs-own` has no dead-letter queue for them";
    assert!(refused.stderr.contains(problem), "{refused:?}");
}

#[tokio::test]
async fn queues_of_an_account_are_served_once_it_gives_credentials() {
    let (accounts, service) = (accounts(), service());
    accounts.change_trust(ONE, RoleTrust::Denied);
    let mut running = start(&accounts, &file(&service, ""));
    let url = admin(&running);
    send(&running, &accounts, "jobs-own", "own");
    service.wait_for(1);
    assert!(named(&url).contains(&"queues of account one".to_owned()));
    let checked = asked(&["check"], &running, &accounts);
    assert!(
        checked.contains("account one: no credentials: "),
        "{checked}"
    );
    accounts.change_trust(ONE, RoleTrust::Process);
    wait_for(&running, "queue found", "jobs-one");
    send(&running, &accounts, "jobs-one", "one");
    service.wait_for(2);
    until(|| named(&url).is_empty());
    running.stop();
}

#[tokio::test]
async fn only_queues_with_the_tags_of_the_route_are_served() {
    let (accounts, service) = (accounts(), service());
    accounts.add_tagged_queue(OWN, "jobs-other", &["team=b"]);
    let tags = "queue-tag = { team = \"a\" }\n";
    let mut running = start(&accounts, &file(&service, tags));
    let url = admin(&running);
    for queue in ["jobs-own", "jobs-one"] {
        send(&running, &accounts, queue, queue);
    }
    service.wait_for(2);
    assert!(!is_served(&url, "jobs-other"));
    accounts.untag_queue(OWN, "jobs-own", "team");
    wait_for(&running, "queue gone", "jobs-own");
    running.stop();
}

#[tokio::test]
async fn queues_that_are_excepted_are_not_served() {
    let (accounts, service) = (accounts(), service());
    let excepted = |names: &str| file(&service, &format!("queue-except = [{names}]\n"));
    let mut running = start(&accounts, &excepted("\"jobs-o*n\""));
    let url = admin(&running);
    send(&running, &accounts, "jobs-one", "one");
    service.wait_for(1);
    assert!(!is_served(&url, "jobs-own"));
    let path = running.data().path().join("d.toml");
    std::fs::write(path, excepted("\"jobs-one\"")).expect("written");
    running.signal(Signal::HUP);
    wait_for(&running, "queue found", "jobs-own");
    wait_for(&running, "queue gone", "jobs-one");
    running.stop();
}

/// A route whose pattern matches no queue at first, on a backend that makes queues when they are used.
fn start_with_the_first_queue(backend: &str, places: &[&str]) {
    let service = service();
    let name = RedisServer::fresh_name("jobs");
    let file = format!(
        "{FAST}[plugin.p]\nforward = \"{}\"\n[[route]]\nqueues = [\"{backend}:{name}-*\"]\n",
        service.url()
    );
    let words = ["run", "--log-format", "json", "--admin", "127.0.0.1:0"];
    let words = [&words[..], &["--config", "d.toml"], places].concat();
    let program = Program::new(words).file("d.toml", &file);
    let mut running = program.start();
    running.wait_for_line(|line| line.contains("pattern matches no queue now"));
    let url = admin(&running);
    let checked = Program::new([&["check", "--config", "d.toml"], places].concat());
    let checked = checked.sharing(running.data()).run();
    let found = format!("{backend}:{name}-* matches 0 queues now");
    assert!(checked.stderr.contains(&found), "{checked:?}");
    let queue = |end: &str| format!("{backend}:{name}{end}");
    for end in ["others", "-a.dead", "-a"] {
        let queue = queue(end);
        let words = [&["send", &queue, "body"], places].concat();
        send_by(Program::new(words), &running);
    }
    service.wait_for(1);
    wait_for(&running, "queue found", &queue("-a"));
    let done = |end: &str| {
        format!(
            "dispatcher_queue_messages_done_total{{queue=\"{}\"}}",
            queue(end)
        )
    };
    until(|| metric(&url, &done("-a")) == "1");
    assert!(!is_served(&url, &queue("-a.dead")) && !is_served(&url, &queue("others")));
    http::wait_for_status(&format!("{url}/readyz"), 200);
    running.stop();
}

#[tokio::test]
async fn route_starts_with_the_first_local_queue_of_its_pattern() {
    start_with_the_first_queue("local", &[]);
}

#[tokio::test]
async fn route_starts_with_the_first_redis_queue_of_its_pattern() {
    let url = RedisServer::shared().url();
    start_with_the_first_queue("redis", &["--redis-url", &url]);
}

#[tokio::test]
async fn table_that_is_no_queue_is_not_served() {
    let (server, service) = (MiniStack::shared().url(), service());
    let tables = Tables::at(&server);
    let name = RedisServer::fresh_name("jobs");
    tables.create_fleet(&format!("{name}-fleet")).await;
    let first = format!("{name}-a");
    tables.create_named(&first, Dates::Number).await;
    let file = format!(
        "{FAST}[plugin.p]\nforward = \"{}\"\n[[route]]\nqueues = [\"dynamodb:{name}-*\"]\n",
        service.url()
    );
    let words = ["run", "--log-format", "json", "--config", "d.toml"];
    let mut running = Program::new(words)
        .file("d.toml", &file)
        .aws(&server)
        .start();
    let queues = format!("\"queues\":\"dynamodb:{first}\"");
    running.wait_for_line(|line| line.contains("\"running\"") && line.contains(&queues));
    tables.put_as_sample(&first, &[]).await;
    service.wait_for(1);
    // Another one comes.
    let second = format!("{name}-b");
    tables.create_named(&second, Dates::Number).await;
    wait_for(&running, "queue found", &format!("dynamodb:{second}"));
    tables.put_as_sample(&second, &[]).await;
    service.wait_for(2);
    running.stop();
}
