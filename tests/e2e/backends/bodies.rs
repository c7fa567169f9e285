//! Whatever a backend takes arrives unchanged, at the handler and among the dead letters; what it
//! does not take is refused in plain words.

use crate::scene::{depth, guest, run, send, until_depth};
use dispatcher_core::message::AttributeValue;
use dispatcher_core::queue::{DEAD_LETTER_REASON, Queue};
use dispatcher_core::telemetry::escape::escape_control_characters;
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::bodies::{AllowedCharacters, LARGEST, odd_characters};
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;

/// Of a reason so much at least is kept.
const SHORT: usize = 2_000;

/// The handler rejects it with what follows the verb, so the reason is what it was given.
fn echoed(text: &str) -> String {
    format!("echo:{text}")
}

/// As long as SQS takes, with characters of every length.
fn largest() -> String {
    let mut text = "echo:".to_owned();
    let mut parts = ["x", "\u{e9}", "\u{20ac}", "\u{10ffff}"].iter().cycle();
    while let Some(part) = parts
        .next()
        .filter(|part| text.len() + part.len() <= LARGEST)
    {
        text.push_str(part);
    }
    text.push_str(&"x".repeat(LARGEST - text.len()));
    text
}

#[tokio::test]
async fn every_character_and_a_mebibyte_pass_a_local_queue_unchanged() {
    let odd = odd_characters(AllowedCharacters::All);
    let bodies = [echoed(&odd), echoed(&odd.repeat(200)), largest()];
    let mut running = run("verdicts", &[]).start();
    let data = running.data().clone();
    send(data.path(), "default", bodies.clone()).await;
    until_depth(data.path(), "default.dead", |depth| depth.waiting == 3).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let store = LocalStore::open(data.path()).expect("the store opens");
    let dead = store.queue("default.dead", None).expect("the queue opens");
    let letters = dead.peek(10).await.expect("the store tells");
    for body in &bodies {
        let letter = letters.iter().find(|letter| letter.body == *body);
        let letter = letter.expect("the body is as it was sent");
        let reason = letter
            .attributes
            .iter()
            .find(|one| one.name == DEAD_LETTER_REASON);
        let Some(AttributeValue::Text(reason)) = reason.map(|reason| &reason.value) else {
            panic!("it has no reason");
        };
        // A long reason is cut, and says so.
        // What steers a terminal is spelt out.
        let wanted = &escape_control_characters(&body["echo:".len()..]);
        let got = reason.strip_suffix(" (cut)").unwrap_or(reason);
        let whole = wanted.len() <= SHORT;
        assert!(
            wanted.starts_with(got) && got.len() >= wanted.len().min(SHORT),
            "the handler got another text"
        );
        assert!(!whole || got == wanted, "it was cut");
    }
}

#[tokio::test]
async fn every_sqs_character_and_a_mebibyte_pass_sqs_unchanged() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let (name, dead) = (
        SqsServer::fresh_name("odd"),
        SqsServer::fresh_name("odd-dead"),
    );
    let url = server.create(&name, &[]).await;
    let dead_url = server.create(&dead, &[]).await;
    let odd = odd_characters(AllowedCharacters::Xml);
    server.send_many(&url, [echoed(&odd)]).await;
    server.send_many(&url, [largest()]).await;
    let arguments = ["--queues", &name, "--poll-for", "1", "--dead-letter", &dead];
    let endpoint = MiniStack::shared().url();
    let mut running = run("verdicts", &arguments).aws(&endpoint).start();
    server.wait_until_empty(&url).await;
    // Nothing fits beside a mebibyte, and that is said.
    running.wait_for_line(|line| line.contains("no space for these attributes"));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let mut letters = Vec::new();
    while letters.len() < 2 {
        let call = server.client.receive_message().queue_url(&dead_url);
        let call = call.message_attribute_names("All").wait_time_seconds(5);
        let answer = call.send().await.expect("the queue exists");
        letters.extend(answer.messages.unwrap_or_default());
    }
    letters.sort_by_key(|letter| letter.body.as_ref().map(String::len));
    let [small, large] = &letters[..] else {
        panic!("{} dead letters", letters.len())
    };
    assert!(large.body.as_deref() == Some(&largest()), "it has changed");
    assert_eq!(small.body, Some(echoed(&odd)));
    let reason = &small.message_attributes.as_ref().expect("has attributes")[DEAD_LETTER_REASON];
    assert_eq!(
        reason.string_value(),
        Some(&*escape_control_characters(&odd))
    );
}

#[tokio::test]
async fn body_that_sqs_refuses_is_refused_with_the_limit() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let name = SqsServer::fresh_name("limits");
    let url = server.create(&name, &[]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |body: &str| {
        let file = folder.path().join("body");
        std::fs::write(&file, body).expect("the folder is ours");
        let file = file.display().to_string();
        let sent = Program::new(["send", &name, "--file", &file]);
        let sent = sent.aws(&MiniStack::shared().url()).run();
        assert_eq!((sent.code, &*sent.stdout), (1, ""), "{sent:?}");
        assert_eq!(sent.stderr.lines().count(), 1, "{sent:?}");
        sent.stderr
    };
    let words = refused(&"x".repeat(LARGEST + 1));
    assert!(
        words.contains("1048577") && words.contains("at most 1048576"),
        "{words}"
    );
    let words = refused("caf\u{e9}\u{0}");
    assert!(
        words.contains("U+0000 at byte 5") && words.contains("XML 1.0"),
        "{words}"
    );
    assert_eq!(server.counts(&url).await, Default::default());
}

#[tokio::test]
async fn local_queue_accepts_bodies_that_sqs_refuses() {
    let folder = std::sync::Arc::new(tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("body");
    let body = format!("\0{}", "x".repeat(LARGEST));
    std::fs::write(&file, &body).expect("the folder is ours");
    let arguments = ["send", "local:default", "--file", "body"];
    let sent = Program::new(arguments).sharing(&folder).run();
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(depth(folder.path(), "default").await.waiting, 1);
    let invoked = Program::new(["plugin", "invoke", &guest("bench-noop"), "--file", "body"]);
    let invoked = invoked.sharing(&folder).run();
    assert_eq!(
        (invoked.code, &*invoked.stdout),
        (0, "done\n"),
        "{invoked:?}"
    );
}
