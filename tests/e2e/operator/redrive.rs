//! Dead letters are looked at, filtered, corrected and moved back; queues are moved and emptied.

use crate::scene::{depth, guest, run, send, until_depth};
use dispatcher_core::message::{Attribute, AttributeValue, Message, OutgoingMessage};
use dispatcher_core::queue::origin::{FIRST_ID, FIRST_RECEIVED, FIRST_SOURCE};
use dispatcher_core::queue::{
    Ask, DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, POLICY_SOURCE, Queue, REDRIVEN,
};
use dispatcher_local::queue::LocalStore;
use dispatcher_sqs::queue::{Sqs, SqsQueue};
use dispatcher_tests::child::{ExitedProgram, Program, Signal};
use dispatcher_tests::proxy::Proxy;
use dispatcher_tests::queues::received;
use dispatcher_tests::served::LocalServer;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::{SqsServer, configuration};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

fn call(data: &Arc<tempfile::TempDir>, arguments: &[&str]) -> ExitedProgram {
    Program::new(arguments).sharing(data).run()
}

fn folder() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().expect("a folder"))
}

fn report(ended: &ExitedProgram) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// A letter of the queue `q`.
fn letter(body: &str, reason: &str, source: &str) -> OutgoingMessage {
    OutgoingMessage {
        body: body.to_owned(),
        attributes: vec![
            Attribute::text(DEAD_LETTER_REASON, reason),
            Attribute::text(DEAD_LETTER_SOURCE, source),
        ],
        ..OutgoingMessage::default()
    }
}

/// Puts letters into `q.dead` of a folder, and makes `q`.
async fn with_letters(data: &Path, letters: &[OutgoingMessage]) {
    let store = LocalStore::open(data).expect("the store opens");
    let queue = store.queue("q", None).expect("the queue opens");
    drop(queue);
    let dead = store.queue("q.dead", None).expect("the queue opens");
    for answer in dead.send(letters).await {
        answer.expect("sent");
    }
}

/// Everything that can be received, in order; it is not given back.
async fn drained(queue: &dyn Queue) -> Vec<Message> {
    let mut messages = Vec::new();
    loop {
        let more = received(queue).await;
        if more.is_empty() {
            return messages;
        }
        messages.extend(more);
    }
}

async fn local(data: &Path, name: &str) -> Vec<Message> {
    let store = LocalStore::open(data).expect("the store opens");
    drained(&store.queue(name, None).expect("the queue opens")).await
}

#[tokio::test]
async fn a_dead_letter_is_corrected_moved_back_and_handled() {
    let mut running = run("verdicts", &["--queues", "local:q"]).start();
    let data = running.data().clone();
    send(data.path(), "q", ["reject:no such customer".into()]).await;
    running.wait_for_line(|line| line.contains("dead-lettered"));
    let dry = call(&data, &["redrive", "local:q.dead"]);
    assert_eq!(dry.code, 0, "{dry:?}");
    assert!(
        dry.stdout.contains("no such customer") && dry.stdout.contains("-> local:q "),
        "{dry:?}"
    );
    assert_eq!(depth(data.path(), "q.dead").await.waiting, 1);
    let moved = call(
        &data,
        &[
            "redrive",
            "local:q.dead",
            "--edit",
            "echo print:corrected",
            "--apply",
        ],
    );
    assert_eq!(moved.code, 0, "{moved:?}");
    assert!(moved.stderr.contains("messages moved"), "{moved:?}");
    running.wait_for_line(|line| line.contains("corrected"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    assert_eq!(depth(data.path(), "q.dead").await, Default::default());
    assert_eq!(depth(data.path(), "q").await, Default::default());
}

#[tokio::test]
async fn letters_are_selected_by_reason_body_and_age() {
    let data = folder();
    let letters = [
        letter(r#"{"country":"CH","n":1}"#, "timeout of billing", "local:q"),
        letter(r#"{"country":"DE","n":2}"#, "timeout of billing", "local:q"),
        letter(r#"{"country":"CH","n":3}"#, "trap", "local:q"),
        letter("no JSON", "timeout of billing", "local:q"),
    ];
    with_letters(data.path(), &letters).await;
    let chosen = [
        "redrive",
        "local:q.dead",
        "--reason",
        "^timeout",
        "--where",
        "/country=CH",
    ];
    let old = [&chosen[..], &["--older", "1h", "--apply"]].concat();
    assert_eq!(
        report(&call(&data, &[&old[..], &["--json"]].concat()))["matched"],
        0
    );
    let shown = call(
        &data,
        &[
            "peek",
            "local:q.dead",
            "--reason",
            "^timeout",
            "--where",
            "/country=CH",
            "--json",
        ],
    );
    let shown = report(&shown);
    assert_eq!(
        (shown.as_array().map(Vec::len), &shown[0]["reason"]),
        (Some(1), &"timeout of billing".into())
    );
    let moved = report(&call(
        &data,
        &[&chosen[..], &["--apply", "--json"]].concat(),
    ));
    assert_eq!((&moved["moved"], &moved["left"]), (&1.into(), &0.into()));
    let there = local(data.path(), "q").await;
    assert_eq!(there.len(), 1);
    assert!(there[0].body.contains("\"n\":1"), "{there:?}");
    let attributes = there[0].attributes.iter();
    let attributes = attributes.map(|one| (one.name.as_str(), one.data_type.as_str()));
    let attributes: Vec<_> = attributes.collect();
    assert_eq!(
        attributes,
        [
            (FIRST_ID, "String"),
            (REDRIVEN, "Number"),
            (FIRST_SOURCE, "String"),
            (FIRST_RECEIVED, "String")
        ],
        "the marks of a dead letter are gone"
    );
    assert_eq!(depth(data.path(), "q.dead").await.waiting, 3);
}

#[tokio::test]
async fn a_letter_without_a_known_source_stays_and_the_exit_code_says_so() {
    let data = folder();
    let letters = [
        letter("a", "why", "local:q"),
        letter("b", "why", "local:never-made"),
        letter("c", "why", "carrier pigeon"),
        OutgoingMessage {
            body: "d".into(),
            ..OutgoingMessage::default()
        },
        letter("e", "why", "local:q.dead"),
    ];
    with_letters(data.path(), &letters).await;
    let moved = call(&data, &["redrive", "local:q.dead", "--apply", "--json"]);
    assert_eq!(moved.code, 1, "{moved:?}");
    let told = report(&moved);
    assert_eq!((&told["moved"], &told["left"]), (&1.into(), &4.into()));
    let errors = told["failures"].to_string();
    for said in [
        "never-made",
        "carrier pigeon",
        "names no source",
        "this queue itself",
    ] {
        assert!(errors.contains(said), "{said}: {errors}");
    }
    let forced = call(
        &data,
        &["redrive", "local:q.dead", "--to", "local:q", "--apply"],
    );
    assert_eq!(forced.code, 0, "{forced:?}");
    assert_eq!(local(data.path(), "q").await.len(), 5);
}

#[tokio::test]
async fn every_problem_of_a_request_is_told_and_nothing_is_moved() {
    let data = folder();
    with_letters(data.path(), &[letter("a", "why", "local:q")]).await;
    let bad = [
        "redrive",
        "local:q.dead",
        "--to",
        "local:",
        "--reason",
        "(",
        "--where",
        "a",
        "--older",
        "soon",
        "--rate",
        "fast",
        "--stop-at",
        "3",
        "--apply",
    ];
    let ended = call(&data, &bad);
    assert_eq!(ended.code, 2, "{ended:?}");
    for at in [
        "--to",
        "--reason",
        "--where",
        "--older",
        "--rate",
        "--stop-at",
    ] {
        assert!(
            ended.stderr.contains(&format!("error: {at}: ")),
            "{at}: {ended:?}"
        );
    }
    for arguments in [
        ["redrive", "local:q.dead", "--to", "local:q.dead", "--apply"],
        [
            "redrive",
            "local:nothing",
            "--to",
            "local:neither",
            "--apply",
        ],
    ] {
        let ended = call(&data, &arguments);
        assert_eq!(ended.code, 2, "{ended:?}");
    }
    assert_eq!(depth(data.path(), "q.dead").await.waiting, 1);
}

#[tokio::test]
async fn a_plugin_is_tried_first_and_what_it_does_not_handle_stays() {
    let data = folder();
    let bodies = ["done", "reject:no", "trap", "done"];
    let letters: Vec<_> = bodies.map(|body| letter(body, "why", "local:q")).into();
    with_letters(data.path(), &letters).await;
    let plugin = guest("verdicts");
    let tried = ["redrive", "local:q.dead", "--try", &plugin, "--json"];
    let dry = report(&call(&data, &tried));
    assert_eq!(
        (&dry["matched"], &dry["left"]),
        (&4.into(), &2.into()),
        "{dry}"
    );
    let moved = call(&data, &[&tried[..], &["--apply"]].concat());
    assert_eq!(moved.code, 1, "{moved:?}");
    let told = report(&moved);
    assert_eq!(
        (&told["moved"], &told["left"]),
        (&2.into(), &2.into()),
        "{told}"
    );
    assert!(
        told["failures"]
            .to_string()
            .contains("the plugin answered reject: no"),
        "{told}"
    );
    assert_eq!(depth(data.path(), "q.dead").await.waiting, 2);
    let missing = call(
        &data,
        &["redrive", "local:q.dead", "--try", "none.wasm", "--apply"],
    );
    assert!(
        missing.code == 2 && missing.stderr.contains("none.wasm"),
        "{missing:?}"
    );
}

#[tokio::test]
async fn a_run_stops_when_the_moved_letters_fail_again() {
    let mut running = run("verdicts", &["--queues", "local:q"]).start();
    let data = running.data().clone();
    let letters: Vec<_> = (0..100)
        .map(|_| letter("reject:again", "why", "local:q"))
        .collect();
    with_letters(data.path(), &letters).await;
    with_letters(data.path(), &letters).await;
    running.wait_for_line(|line| line.contains("running"));
    let moved = call(
        &data,
        &[
            "redrive",
            "local:q.dead",
            "--rate",
            "100/s",
            "--stop-at",
            "20%",
            "--apply",
            "--json",
        ],
    );
    assert_eq!(moved.code, 1, "{moved:?}");
    let told = report(&moved);
    assert_eq!(told["end"], "too-many-returned", "{told}");
    assert!(told["moved"].as_u64().expect("a count") < 200, "{told}");
    until_depth(data.path(), "q.dead", |depth| depth.waiting == 200).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn a_signal_ends_a_run_and_gives_back_what_it_holds() {
    let data = folder();
    let letters: Vec<_> = (0..100)
        .map(|n| letter(&n.to_string(), "why", "local:q"))
        .collect();
    with_letters(data.path(), &letters).await;
    let mut running = Program::new(["redrive", "local:q.dead", "--rate", "10/s", "--apply"])
        .sharing(&data)
        .start();
    until_depth(data.path(), "q", |depth| depth.waiting > 0).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 1);
    assert_eq!(
        running
            .lines(|line| line.contains("stopped") && line.contains("moved"))
            .len(),
        2
    );
    let left = depth(data.path(), "q.dead").await;
    assert_eq!((left.in_flight, left.delayed), (0, 0));
    assert_eq!(left.waiting + depth(data.path(), "q").await.waiting, 100);
}

#[tokio::test]
async fn a_queue_is_moved_as_it_is_and_emptied() {
    let data = folder();
    let store = LocalStore::open(data.path()).expect("the store opens");
    let (old, new) = (store.queue("old", None), store.queue("new", None));
    let (old, new) = (old.expect("opens"), new.expect("opens"));
    let thumb = Attribute {
        name: "thumb".into(),
        data_type: "Binary.jpeg".into(),
        value: AttributeValue::Binary(vec![0, 255]),
    };
    let messages: Vec<_> = (0..250)
        .map(|n| OutgoingMessage {
            group: Some(format!("g{}", n % 3)),
            attributes: vec![thumb.clone()],
            trace_header: Some("Root=1-2-3".into()),
            ..letter(&n.to_string(), "why", "local:q")
        })
        .collect();
    for part in messages.chunks(100) {
        assert!(old.send(part).await.iter().all(Result::is_ok));
    }
    let dry = call(&data, &["move", "local:old", "local:new"]);
    assert!(
        dry.code == 0 && dry.stdout.contains("250 would go to local:new"),
        "{dry:?}"
    );
    let part = call(
        &data,
        &["move", "local:old", "local:new", "--first", "30", "--apply"],
    );
    assert!(
        part.code == 0 && part.stdout.contains("30 moved"),
        "{part:?}"
    );
    let rest = call(
        &data,
        &["move", "local:old", "local:new", "--apply", "--json"],
    );
    assert_eq!(report(&rest)["moved"], 220);
    let page = new.browse(None, 1_000).await.expect("it lists").messages;
    let bodies: Vec<_> = page.iter().map(|one| one.body.clone()).collect();
    assert_eq!(bodies, (0..250).map(|n| n.to_string()).collect::<Vec<_>>());
    let (own, added) = page[0].attributes.split_at(messages[0].attributes.len());
    assert_eq!(own, messages[0].attributes);
    let added: Vec<_> = added.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(added, [FIRST_ID, FIRST_RECEIVED]);
    assert_eq!(page[0].group.as_deref(), Some("g0"));
    assert_eq!(
        page[0].system_attributes,
        [("AWSTraceHeader".to_owned(), "Root=1-2-3".to_owned())]
    );
    let dry = call(&data, &["purge", "local:new"]);
    assert!(
        dry.code == 0 && dry.stdout.contains("250 would be removed"),
        "{dry:?}"
    );
    assert_eq!(depth(data.path(), "new").await.waiting, 250);
    let purged = call(&data, &["purge", "local:new", "--apply"]);
    assert!(
        purged.code == 0 && purged.stdout.contains("250 removed"),
        "{purged:?}"
    );
    assert_eq!(depth(data.path(), "new").await, Default::default());
}

/// A dead-letter queue and its source on MiniStack.
struct OnSqs {
    url: String,
    server: SqsServer,
    names: [String; 2],
    sqs: Sqs,
}

impl OnSqs {
    async fn new(is_fifo: bool) -> Self {
        Self::at(MiniStack::shared().url(), is_fifo).await
    }

    async fn at(url: String, is_fifo: bool) -> Self {
        let server = SqsServer::at(&url);
        let suffix = if is_fifo { ".fifo" } else { "" };
        let names = ["orders", "orders-dlq"].map(|hint| SqsServer::fresh_name(hint) + suffix);
        let kind: &[(&str, &str)] = if is_fifo {
            &[("FifoQueue", "true")]
        } else {
            &[]
        };
        for name in &names {
            server.create(name, kind).await;
        }
        let sqs = Sqs::connect(&configuration(&url));
        Self {
            url,
            server,
            names,
            sqs,
        }
    }

    async fn open(&self, at: usize) -> SqsQueue {
        self.sqs
            .open(&self.names[at], None)
            .await
            .expect("it is there")
    }

    /// Letters that name the first queue by its ARN.
    async fn fill(
        &self,
        letters: impl IntoIterator<Item = (String, &'static str, Option<String>)>,
    ) {
        let source = self.open(0).await.identity().source.clone();
        let letters: Vec<_> = letters
            .into_iter()
            .map(|(body, reason, group)| OutgoingMessage {
                group,
                ..letter(&body, reason, &source)
            })
            .collect();
        let dead = self.open(1).await;
        for part in letters.chunks(10) {
            assert!(dead.send(part).await.iter().all(Result::is_ok));
        }
    }

    fn redrive(&self, url: &str, more: &[&str]) -> ExitedProgram {
        let arguments = ["redrive", &*self.names[1], "--json"];
        Program::new([&arguments[..], more].concat()).aws(url).run()
    }

    async fn waiting(&self, at: usize) -> (u64, u64) {
        let depth = self.open(at).await.depth().await.expect("it tells");
        (depth.waiting, depth.in_flight)
    }
}

#[tokio::test]
async fn on_sqs_a_filter_is_a_scan_that_gives_back_what_it_does_not_move() {
    let scene = OnSqs::new(false).await;
    let letters = (0..40).map(|n| (n.to_string(), ["trap", "timeout"][n % 2], None));
    scene.fill(letters).await;
    let dry = scene.redrive(&scene.url, &[]);
    assert_eq!(dry.code, 0, "{dry:?}");
    let told = report(&dry);
    assert_eq!(
        (&told["scanned"], &told["received"], &told["moved"]),
        (&40.into(), &40.into(), &0.into())
    );
    assert_eq!(scene.waiting(1).await, (40, 0));
    let moved = report(&scene.redrive(&scene.url, &["--reason", "timeout", "--apply"]));
    assert_eq!(
        (&moved["moved"], &moved["received"]),
        (&20.into(), &20.into()),
        "{moved}"
    );
    assert_eq!(
        (scene.waiting(0).await, scene.waiting(1).await),
        ((20, 0), (20, 0))
    );
    let part = report(&scene.redrive(&scene.url, &["--scan", "10"]));
    assert_eq!(
        (&part["scanned"], &part["end"]),
        (&10.into(), &"scan-limit".into())
    );
    let cut = scene.redrive(&scene.url, &["--scan", "10", "--reason", "none", "--apply"]);
    assert_eq!(cut.code, 1, "it ended early: {cut:?}");
    let dead = &*scene.names[1];
    let peek = Program::new(["peek", dead, "--receive", "-n", "100", "--scan", "10"]);
    let peeked = peek.aws(&scene.url).run();
    assert_eq!(peeked.stdout.lines().count(), 10, "{peeked:?}");
    assert!(
        peeked
            .stderr
            .contains("not all were inspected: --scan permits 10"),
        "{peeked:?}"
    );
    let rest = report(&scene.redrive(&scene.url, &["--apply"]));
    assert_eq!(
        (&rest["moved"], &rest["end"]),
        (&20.into(), &"complete".into()),
        "{rest}"
    );
    assert_eq!(
        (scene.waiting(0).await, scene.waiting(1).await),
        ((40, 0), (0, 0))
    );
}

#[tokio::test]
async fn a_message_of_sqs_cannot_be_cancelled_by_its_id_and_the_command_says_why() {
    let scene = OnSqs::new(false).await;
    let cancel = Program::new(["cancel", &*scene.names[1], "any"]);
    let refused = cancel.aws(&scene.url).run();
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.stderr.contains("cannot find a message by its id"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_peek_that_receives_is_asked_for_and_gives_back() {
    let scene = OnSqs::new(false).await;
    scene
        .fill((0..15).map(|n| (n.to_string(), ["trap", "timeout"][n % 2], None)))
        .await;
    let peek = |more: &[&str]| {
        let arguments = ["peek", &*scene.names[1], "--json", "--reason", "timeout"];
        Program::new([&arguments[..], more].concat())
            .aws(&scene.url)
            .run()
    };
    let refused = peek(&[]);
    assert!(
        refused.code == 2 && refused.stderr.contains("--receive"),
        "{refused:?}"
    );
    let shown = peek(&["--receive"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert_eq!(report(&shown).as_array().map(Vec::len), Some(7));
    assert!(
        shown
            .stderr
            .contains("the receive count of each is one higher"),
        "{shown:?}"
    );
    assert_eq!(scene.waiting(1).await, (15, 0));
}

#[tokio::test]
async fn attributes_types_and_trace_headers_survive_on_sqs() {
    // MiniStack forgets trace headers.
    let server = LocalServer::start();
    let scene = OnSqs::at(server.url().to_owned(), false).await;
    let dead = scene.open(1).await;
    let thumb = Attribute {
        name: "thumb".into(),
        data_type: "Binary.jpeg".into(),
        value: AttributeValue::Binary(vec![0, 255]),
    };
    let own: Vec<_> = (0..10)
        .map(|n| Attribute::text(format!("a{n}"), "x"))
        .collect();
    let sent = [
        OutgoingMessage {
            body: "binary".into(),
            attributes: vec![thumb.clone()],
            trace_header: Some("Root=1-2-3".into()),
            ..OutgoingMessage::default()
        },
        OutgoingMessage {
            body: "ten".into(),
            attributes: own.clone(),
            ..OutgoingMessage::default()
        },
    ];
    assert!(dead.send(&sent).await.iter().all(Result::is_ok));
    let moved = scene.redrive(&scene.url, &["--to", &scene.names[0], "--apply"]);
    let told = report(&moved);
    assert_eq!(
        (moved.code, &told["moved"], &told["uncounted"]),
        (0, &2.into(), &1.into()),
        "{told}"
    );
    let mut there = drained(&scene.open(0).await).await;
    there.sort_by(|a, b| a.body.cmp(&b.body));
    assert!(there[0].attributes.contains(&thumb), "{there:?}");
    let header = ("AWSTraceHeader".to_owned(), "Root=1-2-3".to_owned());
    assert!(there[0].system_attributes.contains(&header), "{there:?}");
    assert_eq!(there[1].attributes, own);
}

#[tokio::test]
async fn a_fifo_dead_letter_queue_is_moved_whole_in_order() {
    let scene = OnSqs::new(true).await;
    scene
        .fill((0..30).map(|n| (n.to_string(), "trap", Some(format!("g{}", n % 2)))))
        .await;
    let refused = scene.redrive(&scene.url, &["--reason", "trap", "--apply"]);
    assert!(
        refused.code == 2 && refused.stderr.contains("FIFO"),
        "{refused:?}"
    );
    let head = scene.redrive(&scene.url, &["--first", "3", "--apply"]);
    assert_eq!(
        (head.code, &report(&head)["moved"]),
        (0, &3.into()),
        "{head:?}"
    );
    let moved = scene.redrive(&scene.url, &["--apply"]);
    assert_eq!(
        (moved.code, &report(&moved)["moved"]),
        (0, &27.into()),
        "{moved:?}"
    );
    let queue = scene.open(0).await;
    let mut there = Vec::new();
    while there.len() < 30 {
        let messages = drained_once(&queue).await;
        assert!(!messages.is_empty(), "{} of 30", there.len());
        there.extend(messages);
    }
    for group in ["g0", "g1"] {
        let of_group = there
            .iter()
            .filter(|one| one.group.as_deref() == Some(group));
        let numbers: Vec<usize> = of_group
            .map(|one| one.body.parse().expect("a number"))
            .collect();
        assert!(numbers.is_sorted() && numbers.len() == 15, "{numbers:?}");
    }
    let standard = OnSqs::new(false).await;
    standard.fill([("x".to_owned(), "trap", None)]).await;
    let refused = standard.redrive(&standard.url, &["--to", &scene.names[0], "--apply"]);
    assert!(
        refused.code == 2 && refused.stderr.contains("have no group"),
        "{refused:?}"
    );
}

/// One receive, deleted.
async fn drained_once(queue: &SqsQueue) -> Vec<Message> {
    let messages = received(queue).await;
    let delete = |one: &Message| (one.clone(), dispatcher_core::message::Outcome::Delete);
    let items: Vec<_> = messages.iter().map(delete).collect();
    assert!(queue.settle(&items).await.iter().all(Result::is_ok));
    messages
}

#[tokio::test]
async fn of_a_send_that_fails_in_part_only_what_was_taken_is_deleted() {
    let scene = OnSqs::new(false).await;
    scene
        .fill((0..3).map(|n| (n.to_string(), "trap", None)))
        .await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let answer = serde_json::json!({
        "Successful": [],
        "Failed": [
            {"Id": "0", "Code": "InternalError", "SenderFault": false, "Message": "busy"},
            {"Id": "1", "Code": "InvalidMessageContents", "SenderFault": true, "Message": "no"},
        ],
    });
    proxy.answer_next(1, "SendMessageBatch", 200, &answer.to_string());
    let ended = scene.redrive(&proxy.url(), &["--apply"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    let told = report(&ended);
    assert_eq!(
        (&told["moved"], &told["left"]),
        (&0.into(), &3.into()),
        "{told}"
    );
    assert!(
        told["uncertain"].as_u64() >= Some(2),
        "silence is no answer: {told}"
    );
    assert_eq!(
        (scene.waiting(0).await, scene.waiting(1).await),
        ((0, 0), (3, 0))
    );
    let again = scene.redrive(&proxy.url(), &["--apply"]);
    assert_eq!(
        (again.code, &report(&again)["moved"]),
        (0, &3.into()),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_destination_that_is_gone_costs_no_letter() {
    let scene = OnSqs::new(false).await;
    scene
        .fill((0..60).map(|n| (n.to_string(), "trap", None)))
        .await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let gone = r#"{"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "no such queue"}"#;
    proxy.answer_next(100, "SendMessageBatch", 400, gone);
    let ended = scene.redrive(&proxy.url(), &["--apply"]);
    let told = report(&ended);
    assert_eq!(
        (ended.code, &told["end"]),
        (1, &"destination-fails".into()),
        "{ended:?}"
    );
    assert_eq!(
        (scene.waiting(0).await, scene.waiting(1).await),
        ((0, 0), (60, 0))
    );
}

#[tokio::test]
async fn what_a_redrive_policy_moved_goes_back_to_the_policys_queue() {
    let scene = OnSqs::new(false).await;
    let dead_arn = scene.open(1).await.identity().source.clone();
    let policy = format!(r#"{{"deadLetterTargetArn":"{dead_arn}","maxReceiveCount":"1"}}"#);
    let source = SqsServer::fresh_name("source");
    let attributes = [("RedrivePolicy", &*policy), ("VisibilityTimeout", "0")];
    let url = scene.server.create(&source, &attributes).await;
    scene.server.send_many(&url, ["x".to_owned()]).await;
    let queue = scene.sqs.open(&source, None).await.expect("it is there");
    let arn = queue.identity().source.clone();
    let dead = scene.open(1).await;
    while dead.depth().await.expect("it tells").waiting == 0 {
        drained_once_kept(&queue).await;
    }
    let told = report(&scene.redrive(&scene.url, &[]));
    let to = told["messages"][0]["to"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        arn == to || to.ends_with(&format!("/{source}")),
        "{POLICY_SOURCE}: {told}"
    );
}

/// One receive that nobody answers for.
async fn drained_once_kept(queue: &SqsQueue) {
    let ask = Ask {
        visibility: std::time::Duration::ZERO,
        ..Ask::PLAIN
    };
    let received = queue.receive(ask, &CancellationToken::new()).await;
    drop(received.expect("it answers"));
}
