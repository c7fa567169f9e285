//! A relay passes on everything that a message has, and loses nothing, whatever is killed or down.

use crate::backends::redis::scene::{RedisScene, begins};
use crate::backends::sqs;
use crate::scene::{depth, send, until_depth};
use dispatcher_core::message::{
    Attribute, AttributeValue, Message, Outcome, OutgoingMessage, TRACE_HEADER,
};
use dispatcher_core::queue::origin::text_of;
use dispatcher_core::queue::{Ask, DEAD_LETTER_REASON, Depth, Queue};
use dispatcher_local::queue::LocalStore;
use dispatcher_sqs::queue::Sqs;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::proxy::{Mode, Proxy};
use dispatcher_tests::servers::{MiniStack, free_port};
use dispatcher_tests::sqs::{SqsServer, configuration};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const X_RAY: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
const MESSAGES: usize = 500;
const GROUPS: usize = 20;
const KILLS: usize = 8;
const FIFO: [(&str, &str); 1] = [("FifoQueue", "true")];
/// The number of unsent messages after which their target is up again.
const FAILURES: usize = 5;

/// A relay between two queues.
fn relay(from: &str, to: &str, more: &[&str]) -> Program {
    let words = ["run", "--log-format", "json", "--queues", from];
    Program::new([&words[..], &["--send-to", to], more].concat())
}

/// A message with everything that a queue can carry.
fn whole() -> OutgoingMessage {
    let attribute = |name: &str, data_type: &str, value: AttributeValue| Attribute {
        name: name.into(),
        data_type: data_type.into(),
        value,
    };
    OutgoingMessage {
        body: "  {\"total\": 1.0 ,\"näme\":\"\u{1f600}\"}\r\n\t".into(),
        attributes: vec![
            attribute("count", "Number.int", AttributeValue::Text("007".into())),
            Attribute::text("kind", "order"),
            attribute(
                "thumb",
                "Binary.jpeg",
                AttributeValue::Binary(vec![0, 1, 255]),
            ),
        ],
        group: Some("customer-7".into()),
        deduplication: Some("order-1".into()),
        trace_header: Some(X_RAY.into()),
        ..OutgoingMessage::default()
    }
}

/// Sends numbered messages in groups to a local queue.
async fn send_in_groups(data: &Path) {
    let store = LocalStore::open(data).expect("opens");
    let queue = store.queue("outbox", None).expect("opens");
    let messages: Vec<_> = (0..MESSAGES)
        .map(|number| OutgoingMessage {
            body: number.to_string(),
            group: Some(format!("g{}", number % GROUPS)),
            ..OutgoingMessage::default()
        })
        .collect();
    for call in messages.chunks(100) {
        for sent in queue.send(call).await {
            sent.expect("sent");
        }
    }
}

/// Waits for the next message of a queue, and deletes it.
async fn next(queue: &dyn Queue) -> Message {
    let ask = Ask {
        wait: queue.identity().longest_wait.min(Duration::from_secs(1)),
        ..Ask::PLAIN
    };
    let receiving = async {
        loop {
            let received = queue.receive(ask, &CancellationToken::new()).await;
            if let Some(message) = received.expect("it answers").messages.pop() {
                return message;
            }
        }
    };
    let message = tokio::time::timeout(dispatcher_tests::PATIENCE, receiving).await;
    let message = message.expect("a message comes");
    let settled = queue.settle(&[(message.clone(), Outcome::Delete)]).await;
    settled[0].clone().expect("deleted");
    message
}

async fn sqs_queue(name: &str) -> impl Queue {
    let sqs = Sqs::connect(&configuration(&MiniStack::shared().url()));
    sqs.open(name, None).await.expect("it is there")
}

/// Kills relays of a local queue with all these messages at random moments, until one is left that
/// passes on the rest.
async fn kill_relays(target: &str) -> Arc<tempfile::TempDir> {
    let words = [
        "--visibility",
        "1",
        "--max-attempts",
        "1000",
        "--log-level",
        "debug",
    ];
    let more = [&words[..], &["--batch-size", "4", "--concurrency", "1"]].concat();
    let start = || relay("local:outbox", target, &more).aws(&MiniStack::shared().url());
    let mut running = start().start();
    let data = Arc::clone(running.data());
    send_in_groups(data.path()).await;
    for kill in 0..KILLS {
        running.wait_for_lines(random_kill_point(&running), begins);
        running.signal(Signal::KILL);
        assert_eq!(running.wait_exit(), 137);
        let left = depth(data.path(), "outbox").await;
        assert_ne!(left, Depth::default(), "all was sent before kill {kill}");
        running = start().sharing(&data).start();
    }
    until_depth(data.path(), "outbox", |depth| depth == Depth::default()).await;
    running.stop();
    assert_eq!(depth(data.path(), "outbox.dead").await, Depth::default());
    data
}

/// A moment that no run repeats: after 1 to 16 messages, as the process id would have it.
fn random_kill_point(running: &RunningProgram) -> usize {
    (running.id() as usize).wrapping_mul(2_654_435_761) / 128 % 16 + 1
}

fn numbers(bodies: &[String]) -> BTreeSet<usize> {
    let numbers = bodies.iter().map(|body| body.parse().expect("a number"));
    numbers.collect()
}

#[tokio::test]
async fn message_of_redis_arrives_whole_on_a_fifo_queue_of_sqs() {
    let scene = RedisScene::plain();
    let name = SqsServer::fresh_name("relayed") + ".fifo";
    SqsServer::at(&MiniStack::shared().url())
        .create(&name, &FIFO)
        .await;
    let sent = whole();
    for answer in scene.queue().await.send(std::slice::from_ref(&sent)).await {
        answer.expect("sent");
    }
    let program = relay(&scene.full(), &name, &[]).aws(&MiniStack::shared().url());
    let mut running = program
        .env("DISPATCHER_REDIS_URL", &scene.server.url())
        .start();
    let message = next(&sqs_queue(&name).await).await;
    scene.until_depth(|depth| depth == Depth::default()).await;
    running.stop();
    assert_eq!((message.body, message.group), (sent.body, sent.group));
    assert_eq!(message.attributes, sent.attributes);
}

#[tokio::test]
async fn message_keeps_its_own_deduplication_id() {
    let (_, from, _) = sqs::queue("from", &[]).await;
    let names = [from.clone() + ".fifo", from + "-to.fifo"];
    let server = SqsServer::at(&MiniStack::shared().url());
    for name in &names {
        server.create(name, &FIFO).await;
    }
    let own = sqs_queue(&names[0]).await.send(&[whole()]).await;
    own[0].clone().expect("sent");
    let program = relay(&names[0], &names[1], &["--poll-for", "1"]);
    let mut running = program.aws(&MiniStack::shared().url()).start();
    let target = sqs_queue(&names[1]).await;
    let message = next(&target).await;
    running.stop();
    let mut system = message.system_attributes.iter();
    let id = system.find(|(name, _)| name == "MessageDeduplicationId");
    assert_eq!(
        id.map(|(_, id)| id.as_str()),
        Some("order-1"),
        "{message:?}"
    );
}

#[tokio::test]
async fn local_queue_is_drained_into_redis_in_the_order_of_its_groups() {
    let scene = RedisScene::plain();
    let program = relay("local:outbox", &scene.full(), &[]);
    let mut running = program
        .env("DISPATCHER_REDIS_URL", &scene.server.url())
        .start();
    let data = Arc::clone(running.data());
    let store = LocalStore::open(data.path()).expect("opens");
    let outbox = store.queue("outbox", None).expect("opens");
    outbox.send(&[whole()]).await.remove(0).expect("sent");
    let queue = scene.queue().await;
    let message = next(&queue).await;
    assert_eq!(
        (&message.body, &message.group),
        (&whole().body, &whole().group)
    );
    assert_eq!(text_of(&message, TRACE_HEADER), Some(X_RAY));
    let mut attributes = message.attributes;
    attributes.retain(|one| one.name != TRACE_HEADER);
    assert_eq!(attributes, whole().attributes);
    send_in_groups(data.path()).await;
    until_depth(data.path(), "outbox", |depth| depth == Depth::default()).await;
    running.stop();
    let mut last = BTreeMap::new();
    for _ in 0..MESSAGES {
        let message = next(&queue).await;
        let number: usize = message.body.parse().expect("a number");
        let before = last.insert(message.group, number);
        assert!(before.is_none_or(|before| before < number), "{number}");
    }
    assert_eq!(queue.depth().await.expect("told"), Depth::default());
}

#[tokio::test]
async fn kills_lose_nothing_on_the_way_to_a_queue() {
    let (server, name, url) = sqs::queue("killed", &[]).await;
    kill_relays(&name).await;
    assert_eq!(numbers(&server.drain(&url).await), (0..MESSAGES).collect());
}

#[tokio::test]
async fn kills_lose_and_repeat_nothing_on_the_way_to_a_fifo_queue() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let name = SqsServer::fresh_name("killed") + ".fifo";
    let url = server.create(&name, &FIFO).await;
    kill_relays(&name).await;
    let bodies = server.drain(&url).await;
    assert_eq!(numbers(&bodies), (0..MESSAGES).collect());
    assert_eq!(bodies.len(), MESSAGES, "each once");
    let mut last = [None; GROUPS];
    for number in bodies
        .iter()
        .map(|body| body.parse::<usize>().expect("a number"))
    {
        let before = last[number % GROUPS].replace(number);
        assert!(before.is_none_or(|before| before < number), "{number}");
    }
}

#[tokio::test]
async fn messages_wait_for_a_target_that_is_down() {
    let (server, name, url) = sqs::queue("down", &[]).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let more = ["--max-attempts", "1000"];
    let program = relay("local:outbox", &name, &more).aws(&proxy.url());
    let mut running = program.start();
    running.wait_for_line(|line| line.contains("\"running\""));
    proxy.set(Mode::Refuse);
    let data = Arc::clone(running.data());
    send(data.path(), "outbox", (0..FAILURES).map(|n| n.to_string())).await;
    running.wait_for_lines(FAILURES, |line| line.contains("it was not sent to"));
    proxy.set(Mode::Pass);
    server
        .wait_until(&url, |counts| counts.waiting == FAILURES as u64)
        .await;
    until_depth(data.path(), "outbox", |depth| depth == Depth::default()).await;
    running.stop();
    assert_eq!(depth(data.path(), "outbox.dead").await, Depth::default());
}

#[tokio::test]
async fn message_that_the_target_refuses_is_dead_lettered_with_its_reason() {
    let (server, name, url) = sqs::queue("refusing", &[]).await;
    let mut running = relay("local:outbox", &name, &[])
        .aws(&MiniStack::shared().url())
        .start();
    let data = Arc::clone(running.data());
    let bodies = ["good", "not of XML: \u{1}"].map(str::to_owned);
    send(data.path(), "outbox", bodies).await;
    let is_dead = |line: &str| line.contains("\"message dead-lettered\"");
    running.wait_for_line(is_dead);
    until_depth(data.path(), "outbox", |depth| depth == Depth::default()).await;
    running.stop();
    assert_eq!(server.drain(&url).await, ["good"]);
    let store = LocalStore::open(data.path()).expect("opens");
    let dead = store.queue("outbox.dead", None).expect("opens");
    let letters = dead.peek(10).await.expect("looks");
    assert_eq!(letters.len(), 1);
    let reason = text_of(&letters[0], DEAD_LETTER_REASON).expect("a reason");
    let wanted = format!("`{name}` refuses it: the body contains U+0001 at byte 12");
    assert!(reason.starts_with(&wanted), "{reason}");
}

#[tokio::test]
async fn check_shows_the_target_and_refuses_one_that_cannot_be() {
    let check = |from: &str, to: &str| {
        let words = ["check", "--queues", from, "--send-to", to];
        Program::new(words).aws(&MiniStack::shared().url()).run()
    };
    let good = check("local:outbox", "local:payments");
    assert_eq!(good.code, 0, "{good:?}");
    let shown = "ok: route payments: local:outbox -> queue local:payments";
    assert!(good.stderr.contains(shown), "{good:?}");
    let (_, name, url) = sqs::queue("own", &[]).await;
    let own = check(&name, &url);
    assert_eq!(own.code, 2, "{own:?}");
    let found = format!("--send-to: `{url}` is the route's own queue `{name}`; wanted a queue");
    assert!(own.stderr.contains(&found), "{own:?}");
    let missing = check("local:outbox", "no-such-queue");
    assert_eq!(missing.code, 2, "{missing:?}");
    assert!(
        missing.stderr.contains("queue `no-such-queue`"),
        "{missing:?}"
    );
    let url = format!("redis://127.0.0.1:{}", free_port());
    let words = [
        "check",
        "--queues",
        "local:outbox",
        "--send-to",
        "redis:away",
    ];
    let away = Program::new(words).env("DISPATCHER_REDIS_URL", &url).run();
    assert_eq!(away.code, 3, "{away:?}");
}

#[tokio::test]
async fn reload_sends_to_another_queue() {
    let text = |to: &str| {
        format!("[[route]]\nname = 'outbox'\nqueues = ['local:outbox']\nsend-to = 'local:{to}'\n")
    };
    let words = ["run", "--log-format", "json", "--config", "d.toml"];
    let mut running = Program::new(words).file("d.toml", &text("a")).start();
    let data = Arc::clone(running.data());
    let is_running = |line: &str| line.contains("\"running\"");
    running.wait_for_line(is_running);
    for (at, to) in ["a", "b"].into_iter().enumerate() {
        std::fs::write(data.path().join("d.toml"), text(to)).expect("written");
        if at > 0 {
            running.signal(Signal::HUP);
            running.wait_for_lines(at + 1, is_running);
        }
        send(data.path(), "outbox", [to.to_owned()]).await;
        until_depth(data.path(), to, |depth| depth.waiting == 1).await;
    }
    running.stop();
    assert_eq!(depth(data.path(), "outbox").await, Depth::default());
}
