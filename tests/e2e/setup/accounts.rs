//! Queues and functions of several AWS accounts: their roles, their sessions that end, and an
//! account that cannot be used.

use crate::lambda::scene::admin;
use dispatcher_tests::PATIENCE;
use dispatcher_tests::aws_accounts::{AccountPlace, AwsAccounts, RoleTrust};
use dispatcher_tests::child::{Program, RunningProgram};
use dispatcher_tests::http;
use dispatcher_tests::service::{JobService, ServiceAnswer, ServiceStep};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(super) const OWN: AccountPlace = AccountPlace {
    id: "000000000000",
    region: "eu-west-1",
};
pub(super) const ONE: AccountPlace = AccountPlace {
    id: "111111111111",
    region: "eu-west-1",
};
pub(super) const TWO: AccountPlace = AccountPlace {
    id: "222222222222",
    region: "us-east-2",
};
/// The SDK asks for new credentials ten seconds before a session ends.
pub(super) const SESSION: Duration = Duration::from_secs(12);
const OPERATE: (&str, &str) = ("Authorization", "Bearer operator");

/// A server with two accounts and the process's own, each with a queue.
fn accounts() -> AwsAccounts {
    let accounts = AwsAccounts::start(SESSION);
    accounts.add_role(ONE, RoleTrust::ExternalId("one"));
    accounts.add_role(TWO, RoleTrust::Process);
    for place in [ONE, TWO] {
        accounts.add_queue(place, "jobs");
    }
    accounts.add_queue(OWN, "own");
    accounts
}

/// An account in the file.
pub(super) fn account(name: &str, place: AccountPlace, more: &str) -> String {
    let (role, region) = (place.role(), place.region);
    format!("[account.{name}]\nrole = \"{role}\"\nregion = \"{region}\"\n{more}\n")
}

/// A route in the file whose queue has a dead-letter queue of its name.
fn route(name: &str, queue: &str, more: &str) -> String {
    format!(
        "[[route]]\nname = \"{name}\"\nqueues = [\"{queue}\"]\ndead-letter = \"{queue}-dead\"\n{more}\n"
    )
}

fn url_of(place: AccountPlace, queue: &str) -> String {
    let AccountPlace { id, region } = place;
    format!("https://sqs.{region}.amazonaws.com/{id}/{queue}")
}

pub(super) fn program(words: &[&str], accounts: &AwsAccounts) -> Program {
    Program::new([words, &["--config", "d.toml"][..]].concat())
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_REGION", OWN.region)
        .env("DISPATCHER_ENDPOINT_URL", &accounts.url())
}

pub(super) fn start(accounts: &AwsAccounts, file: &str) -> RunningProgram {
    let admin = ["--admin", "127.0.0.1:0", "--admin-token-file", "token"];
    let words = [&["run", "--log-format", "json"][..], &admin].concat();
    let program = program(&words, accounts).file("token", "operator");
    let running = program.file("d.toml", file).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    running
}

/// Waits until this holds.
#[track_caller]
pub(super) fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came to hold");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sends a message by another process with the same accounts.
pub(super) fn send(running: &RunningProgram, accounts: &AwsAccounts, queue: &str, body: &str) {
    send_by(program(&["send", queue, body], accounts), running);
}

pub(super) fn send_by(program: Program, running: &RunningProgram) {
    let sent = program.sharing(running.data()).run();
    assert_eq!(sent.code, 0, "{}", sent.stderr);
}

pub(super) fn service() -> JobService {
    JobService::start(|_| ServiceStep::Answer(ServiceAnswer::new(200)))
}

/// The conditions that `/readyz` names.
pub(super) fn named(url: &str) -> Vec<String> {
    let answer = http::get(&format!("{url}/readyz"));
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    let why = answer["why"].as_array().cloned().unwrap_or_default();
    why.iter()
        .map(|one| one["what"].as_str().expect("text").to_owned())
        .collect()
}

pub(super) fn metric(url: &str, line: &str) -> String {
    let metrics = http::get(&format!("{url}/metrics")).body;
    let mut lines = metrics.lines();
    let found = lines.find_map(|one| one.strip_prefix(line));
    found
        .unwrap_or_else(|| panic!("no {line}"))
        .trim()
        .to_owned()
}

#[tokio::test]
async fn roles_of_two_accounts_serve_queues_and_functions_of_two_regions() {
    let accounts = accounts();
    for place in [ONE, TWO] {
        accounts.add_function(place, "answer");
    }
    let queue = url_of(TWO, "jobs");
    let function = format!("arn:aws:lambda:{}:{}:function:answer", TWO.region, TWO.id);
    let more = "external-id = \"one\"\nqueues = [\"jo*\"]\nfunctions = [\"answer\"]\n";
    let file = [
        account("one", ONE, more),
        account("two", TWO, ""),
        "[plugin.one]\nfunction = \"answer\"\n".to_owned(),
        format!("[plugin.two]\nfunction = \"{function}\"\naccount = \"two\"\n"),
        route("one", "jobs", "plugin = \"one\"\n"),
        route("two", &queue, "account = \"two\"\nplugin = \"two\"\n"),
    ]
    .concat();
    let mut running = start(&accounts, &file);
    let url = admin(&running);
    let began = Instant::now();
    let mut sent = 0;
    // Beyond the end of the first sessions, which the server then refuses.
    while began.elapsed() < SESSION + Duration::from_secs(4) {
        for queue in ["jobs", &queue] {
            send(&running, &accounts, queue, "body");
        }
        sent += 1;
        for queue in ["jobs", &queue] {
            let done = format!("dispatcher_queue_messages_done_total{{queue=\"{queue}\"}}");
            until(|| metric(&url, &done) == sent.to_string());
        }
    }
    assert!(sent > 1);
    for name in ["one", "two"] {
        let label = format!("{{account=\"{name}\"}}");
        assert_eq!(
            metric(&url, &format!("dispatcher_account_failures_total{label}")),
            "0"
        );
        assert_eq!(
            metric(&url, &format!("dispatcher_account_unusable{label}")),
            "0"
        );
    }
    assert_eq!(named(&url), [""; 0]);
    let checked = program(&["doctor"], &accounts)
        .sharing(running.data())
        .run();
    for name in ["one", "two"] {
        let line = format!("ok    account {name}: its role arn:aws:iam::");
        assert!(checked.stdout.contains(&line), "{}", checked.stdout);
    }
    assert!(
        !checked.stdout.contains("InvokeFunction"),
        "{}",
        checked.stdout
    );
    accounts.deny(TWO, "lambda:InvokeFunction");
    let checked = program(&["doctor"], &accounts)
        .sharing(running.data())
        .run();
    let denied = format!("bad   function {function}: AWS does not allow Invoke (DryRun)");
    assert!(checked.stdout.contains(&denied), "{}", checked.stdout);
    assert!(
        checked.stdout.contains("needs lambda:InvokeFunction"),
        "{}",
        checked.stdout
    );
    running.stop();
}

#[tokio::test]
async fn account_that_cannot_be_used_stops_only_its_queues() {
    let (accounts, service) = (accounts(), service());
    let plugin = format!("[plugin.p]\nforward = \"{}\"\n", service.url());
    let two = url_of(TWO, "jobs");
    let file = [
        account(
            "one",
            ONE,
            "external-id = \"another\"\nqueues = [\"jobs*\"]\n",
        ),
        account("two", TWO, ""),
        plugin,
        route("one", "jobs", "plugin = \"p\"\n"),
        route("two", &two, "account = \"two\"\nplugin = \"p\"\n"),
        route("own", "own", "plugin = \"p\"\n"),
    ]
    .concat();
    let mut running = start(&accounts, &file);
    let url = admin(&running);
    send(&running, &accounts, "own", "own");
    send(&running, &accounts, &two, "two");
    service.wait_for(2);
    // At the first start every queue is needed once.
    assert_eq!(http::get(&format!("{url}/readyz")).status, 503);
    assert_eq!(named(&url), ["account one", "queues of account one"]);
    let checked = program(&["doctor"], &accounts)
        .sharing(running.data())
        .run();
    let bad =
        "bad   account one: no credentials: User: arn:aws:iam::000000000000:root is not authorized";
    assert!(checked.stdout.contains(bad), "{}", checked.stdout);
    assert!(
        checked.stdout.contains("with the external id another"),
        "{}",
        checked.stdout
    );
    // Once it may be assumed, its route starts without a restart.
    accounts.change_trust(ONE, RoleTrust::ExternalId("another"));
    running
        .wait_for_line(|line| line.contains("\"running\"") && line.contains("\"route\":\"one\""));
    http::wait_for_status(&format!("{url}/readyz"), 200);
    send(&running, &accounts, "jobs", "one");
    service.wait_for(3);
    // An account that fails later is named, and the process stays ready.
    accounts.change_trust(TWO, RoleTrust::Denied);
    running.wait_for_line(|line| {
        line.contains("account gives no credentials") && line.contains("\"account\":\"two\"")
    });
    until(|| named(&url).contains(&"account two".to_owned()));
    assert_eq!(http::get(&format!("{url}/readyz")).status, 200);
    assert_ne!(
        metric(&url, "dispatcher_account_failures_total{account=\"two\"}"),
        "0"
    );
    send(&running, &accounts, "own", "more");
    service.wait_for(4);
    // Once it works again, its messages are handled.
    accounts.change_trust(TWO, RoleTrust::Process);
    send(&running, &accounts, &two, "two");
    service.wait_for(5);
    running.stop();
}

#[tokio::test]
async fn profile_of_an_account_goes_before_the_keys_of_the_process() {
    let (accounts, service) = (accounts(), service());
    let file = [
        "[account.one]\nprofile = \"one\"\nqueues = [\"jobs*\"]\n".to_owned(),
        format!("[plugin.p]\nforward = \"{}\"\n", service.url()),
        route("one", "jobs", "plugin = \"p\"\n"),
        route("own", "own", "plugin = \"p\"\n"),
    ]
    .concat();
    let keys = format!(
        "[one]\naws_access_key_id = {}\naws_secret_access_key = test\n",
        ONE.id
    );
    let running = program(&["run"], &accounts)
        .file("credentials", &keys)
        .file("d.toml", &file)
        .env("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    let mut running = running.start();
    for queue in ["jobs", "own"] {
        let sending = program(&["send", queue, queue], &accounts);
        let sending = sending.env("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        send_by(sending, &running);
    }
    service.wait_for(2);
    running.stop();
}

#[tokio::test]
async fn reload_with_an_account_that_cannot_be_used_changes_nothing() {
    let (accounts, service) = (accounts(), service());
    let plugin = format!("[plugin.p]\nforward = \"{}\"\n", service.url());
    let one = |id: &str| {
        let more = format!("external-id = \"{id}\"\nqueues = [\"jobs*\"]\n");
        [
            account("one", ONE, &more),
            plugin.clone(),
            route("one", "jobs", "plugin = \"p\"\n"),
        ]
        .concat()
    };
    let strict = format!("[dispatcher]\nready-when = \"every-route\"\n{}", one("one"));
    let mut running = start(&accounts, &strict);
    let url = admin(&running);
    let reload = |file: &str| {
        std::fs::write(running.data().path().join("d.toml"), file).expect("written");
        let answer = http::post(&format!("{url}/api/v1/process/reload"), &[OPERATE], "");
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        (answer.status, body)
    };
    let (status, answer) = reload(&strict.replace("\"one\"\nqueues", "\"wrong\"\nqueues"));
    assert_eq!(status, 422, "{answer}");
    // The account of before works, and no other is known.
    assert_eq!(http::get(&format!("{url}/readyz")).status, 200);
    assert_eq!(
        metric(&url, "dispatcher_account_unusable{account=\"one\"}"),
        "0"
    );
    let problem = answer["problems"][0].as_str().expect("text");
    let wanted = "queue `jobs`: no usable AWS credentials for GetQueueUrl on queue `jobs`";
    assert!(
        problem.contains(wanted) && problem.contains("account `one`"),
        "{problem}"
    );
    std::fs::write(running.data().path().join("d.toml"), &strict).expect("written");
    send(&running, &accounts, "jobs", "before");
    service.wait_for(1);
    // A new account with its route, and another session of the old one.
    let session = "external-id = \"one\"\nsession-name = \"other\"\n";
    let two = url_of(TWO, "jobs");
    let file = strict.replace("external-id = \"one\"\n", session)
        + &account("two", TWO, "")
        + &route("two", &two, "account = \"two\"\nplugin = \"p\"\n");
    let wanted = json!({
        "added": ["two"], "replaced": [{"route": "one", "settings": ["account"]}],
        "removed": [], "needs_restart": [],
    });
    assert_eq!(reload(&file), (200, wanted));
    send(&running, &accounts, "jobs", "after");
    send(&running, &accounts, &two, "new");
    service.wait_for(3);
    running.stop();
}
