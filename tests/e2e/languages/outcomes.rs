//! One list of handlers in JavaScript, run by the host, in fresh and in reused instances, and by the fake
//! of the SDK: both judge each of them as the list says, after as many requests.

use crate::languages::{NAME, calls};
use crate::scene::{depth, send, until_depth};
use dispatcher_core::message::AttributeValue;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::service::{JobService, PostedRequest, ServiceAnswer, ServiceStep};
use dispatcher_tests::toolchains;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

const HANDLERS: &str = include_str!("handled/outcomes.js");
const FAKE: &str = include_str!("handled/fake.mjs");

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// With this reason.
    Reject(&'static str),
    /// As asked, with this reason.
    Retry(&'static str),
    /// The attempt fails; the reason or the log has these words.
    Fails(&'static str),
}

use Outcome::{Done, Fails, Reject, Retry};

const STUCK: &str = "the handler does not end: a promise that it waits for is never settled";

/// Each handler, what becomes of its message, and how many requests it sends.
const OUTCOMES: [(&str, Outcome, usize); 54] = [
    ("withTimeout", Done, 1),
    ("withController", Done, 1),
    ("withAny", Reject("good"), 1),
    ("withTimerThatAborts", Done, 1),
    ("withClearedTimer", Done, 1),
    ("raceWithNever", Done, 1),
    ("raceWithSleep", Done, 1),
    ("raceWithRejection", Done, 1),
    ("raceOfRequests", Done, 2),
    ("anyOfRequests", Reject("good"), 2),
    ("timer", Done, 0),
    ("interval", Done, 0),
    ("neverAwaited", Done, 0),
    ("neverInWork", Done, 1),
    ("listener", Done, 0),
    ("bodyNotRead", Done, 1),
    ("unawaited", Done, 1),
    ("unawaitedChain", Done, 2),
    ("sendUnawaited", Done, 0),
    ("sendInRace", Done, 0),
    ("unawaitedAfterSleep", Done, 0),
    ("abortedBefore", Reject("AbortError"), 0),
    ("abortedAtOnce", Reject("enough"), 1),
    ("timedOut", Fails("TimeoutError: The operation was"), 1),
    ("timedOutCaught", Reject("TimeoutError true true"), 1),
    ("timersWaitForRequests", Reject("TimeoutError"), 1),
    ("requestsInOrder", Reject("TimeoutError good"), 2),
    ("abortEvent", Reject("TimeoutError"), 0),
    ("onabort", Fails("TimeoutError: The operation was"), 0),
    ("abortByTimer", Done, 0),
    ("never", Fails(STUCK), 0),
    ("neverInRace", Fails(STUCK), 0),
    ("neverAborted", Fails(STUCK), 0),
    ("neverAfterRequest", Fails(STUCK), 1),
    ("neverAfterTimer", Fails(STUCK), 0),
    (
        "unheard",
        Fails("nobody awaits was rejected: Error: boom"),
        0,
    ),
    (
        "unheardOfRequest",
        Fails("nobody awaits was rejected: Error: unheard"),
        0,
    ),
    ("heardLater", Done, 0),
    (
        "timerThrows",
        Fails("nobody awaits was rejected: Error: in a timer"),
        0,
    ),
    // No timer comes before the end of a handler that does not wait.
    ("timerThrowsAtOnce", Done, 0),
    (
        "microtaskThrows",
        Fails("nobody awaits was rejected: Error: in a microtask"),
        0,
    ),
    ("intervalOfThree", Reject("tick tick tick"), 0),
    ("retry", Retry("later"), 0),
    ("plainRetry", Retry(""), 0),
    ("plainReject", Reject("plain"), 0),
    ("plainWrong", Fails("the handler threw {"), 0),
    ("throwsText", Fails("the handler threw \"text\""), 0),
    ("throwsError", Fails("TypeError: wrong"), 0),
    ("returnsText", Fails("the handler returned \"ok\""), 0),
    ("returnsNull", Fails("the handler returned null"), 0),
    ("returnsGenerator", Fails("the handler returned {}"), 0),
    // What it leaves is not the next one's.
    ("throwsAndLeaves", Reject("thrown"), 0),
    ("thenable", Done, 0),
    ("thenableRejected", Fails("Error: thenable"), 0),
];

/// Those of them that send a message, one each.
const SENDING: [&str; 2] = ["sendUnawaited", "sendInRace"];

/// Answers all but `/slow`.
fn api() -> JobService {
    JobService::start(|request: &PostedRequest| {
        if request.line.ends_with("/slow") {
            return ServiceStep::Never;
        }
        ServiceStep::Answer(ServiceAnswer::new(200).body("good"))
    })
}

/// A new project with these files.
fn project(files: &[(&str, &str)]) -> Arc<TempDir> {
    let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    calls(&data, &["plugin", "new", "--lang", "js", NAME]);
    for (file, text) in files {
        std::fs::write(data.path().join(NAME).join(file), text).expect("the project is ours");
    }
    data
}

/// Changes what the project imports and exports.
fn change_world(data: &Arc<TempDir>, from: &str, to: &str) {
    let world = data.path().join(NAME).join("wit/world.wit");
    let text = std::fs::read_to_string(&world).expect("the project is ours");
    assert!(text.contains(from), "{text}");
    std::fs::write(&world, text.replace(from, to)).expect("the project is ours");
}

fn build(data: &Arc<TempDir>) -> String {
    let (component, _) = calls(data, &["plugin", "build", NAME]);
    component.trim().to_owned()
}

/// The reasons of dead letters by their bodies.
async fn reasons(data: &Arc<TempDir>, queue: &str) -> BTreeMap<String, String> {
    let store = LocalStore::open(data.path()).expect("opens");
    let dead = store.queue(&format!("{queue}.dead"), None).expect("opens");
    let letters = dead.peek(100).await.expect("looks");
    let mut reasons = BTreeMap::new();
    for letter in letters {
        let mut attributes = letter.attributes.iter();
        let reason = attributes.find(|one| one.name == "dispatcher-dead-letter-reason");
        let Some(AttributeValue::Text(why)) = reason.map(|one| one.value.clone()) else {
            panic!("no reason: {letter:?}");
        };
        reasons.insert(letter.body, why.trim().to_owned());
    }
    reasons
}

/// Runs messages to their ends, one attempt each. Returns the program, which still runs.
async fn run(
    data: &Arc<TempDir>,
    component: &str,
    api: &JobService,
    queue: &str,
    flags: &[&str],
    bodies: Vec<String>,
) -> RunningProgram {
    let (host, queues) = (host_of(api), format!("local:{queue}"));
    let run = ["run", "--plugin", component, "--queues", &queues];
    let grants = ["--allow-http", &host, "--max-attempts", "1"];
    let run = run.into_iter().chain(grants).chain(flags.iter().copied());
    let running = Program::new(run.chain(["--log-format", "json"]))
        .sharing(data)
        .start();
    running.wait_for_line(|line| line.contains("running"));
    send(data.path(), queue, bodies).await;
    until_depth(data.path(), queue, |depth| {
        (depth.waiting, depth.in_flight, depth.delayed) == (0, 0, 0)
    })
    .await;
    running
}

fn host_of(api: &JobService) -> String {
    api.url().replace("http://", "").replace("/jobs", "")
}

/// What the host makes of every handler on the list.
async fn host_judges(data: &Arc<TempDir>, component: &str, queue: &str, flags: &[&str]) {
    let api = api();
    let host = host_of(&api);
    // As long as a busy machine may take to send a request.
    let body = |name: &str| format!("{name} http://{host}/{name} 2000");
    let bodies = OUTCOMES.iter().map(|(name, ..)| body(name)).collect();
    let mut running = run(data, component, &api, queue, flags, bodies).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let reasons = reasons(data, queue).await;
    let requests = api.record().requests;
    for (name, wanted, count) in OUTCOMES {
        let reason = reasons.get(&body(name)).map(String::as_str);
        let is_right = match wanted {
            Done => reason.is_none(),
            Reject(why) => reason == Some(why),
            Retry(why) => {
                let why = if why.is_empty() {
                    "the handler asked for a retry"
                } else {
                    why
                };
                let ending = format!("{why}; not handled in 1 attempts");
                reason.is_some_and(|it| it.ends_with(&ending))
            }
            Fails(words) => {
                let is_logged = !running
                    .lines(|line| of_json(line).contains(words))
                    .is_empty();
                reason.is_some_and(|it| it.contains(words) || is_logged)
            }
        };
        assert!(is_right, "{name}: wanted {wanted:?}: {reason:?}");
        let of = |request: &&PostedRequest| request.line.split('/').nth(1) == Some(name);
        let sent = requests.iter().filter(of).count();
        assert_eq!(sent, count, "{name}: {requests:?}");
    }
}

/// The text of a line of the log.
fn of_json(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap_or_default();
    line["message"].as_str().unwrap_or_default().to_owned()
}

/// What the fake makes of them, as a test in the project finds it.
fn fake_judges(data: &Arc<TempDir>) {
    let mut node = Command::new("node");
    node.arg("fake.mjs").current_dir(data.path().join(NAME));
    let ended = node.output().expect("node starts");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{told}");
    let all: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    for (name, wanted, count) in OUTCOMES {
        let found = all[name].as_array().expect("it was run");
        assert_eq!(found.len(), 3);
        for one in found {
            let outcome = &one["outcome"];
            let is_right = match wanted {
                Done => outcome["done"] == true,
                Reject(why) => outcome["reject"] == why,
                Retry(why) => outcome["retry"]["reason"].as_str().unwrap_or_default() == why,
                Fails(words) => outcome["failed"]
                    .as_str()
                    .is_some_and(|it| it.contains(words)),
            };
            assert!(is_right, "{name}: wanted {wanted:?}: {outcome}");
            assert_eq!(one["requests"], count, "{name}");
            let sent = usize::from(SENDING.contains(&name));
            assert_eq!(one["sent"], sent, "{name}");
        }
    }
    assert_eq!(
        all.as_object().map(serde_json::Map::len),
        Some(OUTCOMES.len())
    );
}

#[tokio::test]
async fn host_and_fake_judge_every_handler_alike() {
    if !toolchains::has(&["node", "npm"], "handlers in JavaScript") {
        return;
    }
    let data = project(&[("handler.js", HANDLERS), ("fake.mjs", FAKE)]);
    let queues = "world plugin {\n    import dispatcher:plugin/queues@0.1.0;\n";
    change_world(&data, "world plugin {\n", queues);
    let component = build(&data);
    fake_judges(&data);
    let granted = ["--allow-send", "local:sent"];
    host_judges(&data, &component, "fresh", &granted).await;
    // What one attempt leaves does not change the next.
    let reused = [&granted[..], &["--reuse", "1000", "--concurrency", "1"]].concat();
    host_judges(&data, &component, "reused", &reused).await;
    let sent = depth(data.path(), "sent").await;
    assert_eq!(sent.waiting, 2 * SENDING.len() as u64);
}

/// Leaves what nothing settles; a message `bad` is rejected, and one `never` alone is waited for in vain.
const OF_BATCHES: &str = r#"
import { Reject } from "dispatcher-guest";

export const batchHandler = {
  async handle(messages) {
    const controller = new AbortController();
    const [first] = messages;
    const [name, api] = first.body.split(" ");
    await Promise.race([fetch(api, { signal: controller.signal }), new Promise(() => {})]);
    if (name === "never") await new Promise(() => {});
    setTimeout(() => controller.abort(), 3_600_000);
    const bad = messages.filter(({ body }) => body.startsWith("bad"));
    return bad.map(({ id }) => ({ id, failure: new Reject("bad") }));
  },
};
"#;

const FAKE_OF_BATCHES: &str = r#"
import { Response, fakeHost, runBatch } from "dispatcher-guest/testing";
import { batchHandler } from "./handler.js";

const api = "http://api.test/jobs";
const host = fakeHost({ http: () => new Response("") });
const outcomes = await runBatch(batchHandler, [`good ${api}`, `bad ${api}`]);
const never = await runBatch(batchHandler, [`never ${api}`]).catch(String);
console.log(JSON.stringify([outcomes, never, host.requests.length]));
"#;

#[tokio::test]
async fn batch_is_judged_by_the_promise_of_its_handler() {
    if !toolchains::has(&["node", "npm"], "handlers in JavaScript") {
        return;
    }
    let data = project(&[("handler.js", OF_BATCHES), ("fake.mjs", FAKE_OF_BATCHES)]);
    change_world(
        &data,
        "plugin/handler-async@",
        "plugin/batch-handler-async@",
    );
    let component = build(&data);
    let (api, flags) = (api(), ["--batch-size", "10", "--reuse", "1000"]);
    let body = |name: &str| format!("{name} http://{}/jobs", host_of(&api));
    for (queue, bodies) in [
        ("mixed", vec![body("good"), body("bad"), body("good")]),
        ("stuck", vec![body("never")]),
    ] {
        let mut running = run(&data, &component, &api, queue, &flags, bodies).await;
        running.signal(Signal::TERM);
        assert_eq!(running.wait_exit(), 0);
    }
    let mixed = reasons(&data, "mixed").await;
    let rejected = BTreeMap::from([(body("bad"), "bad".to_owned())]);
    assert_eq!(mixed, rejected);
    assert!(reasons(&data, "stuck").await.contains_key(&body("never")));
    let fake = Command::new("node")
        .arg("fake.mjs")
        .current_dir(data.path().join(NAME))
        .output();
    let fake: Value = serde_json::from_slice(&fake.expect("node starts").stdout).expect("JSON");
    assert_eq!(
        fake[0],
        serde_json::json!([{"done": true}, {"reject": "bad"}])
    );
    assert!(
        fake[1].as_str().is_some_and(|why| why.contains(STUCK)),
        "{fake}"
    );
    assert_eq!(fake[2], 2);
}
