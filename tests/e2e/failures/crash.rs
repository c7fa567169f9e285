//! `kill -9` at any moment: nothing is lost, and only what was in flight comes twice.

use crate::scene::{depth, printed, prints, run, send, until_depth};
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{RunningProgram, Signal};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const MESSAGES: usize = 1_000;
const KILLS: usize = 8;

#[tokio::test]
async fn thousand_messages_survive_kills_at_random_moments() {
    let arguments = [
        "--concurrency",
        "20",
        "--visibility",
        "2",
        "--max-attempts",
        "1000",
    ];
    let mut handled: BTreeMap<String, usize> = BTreeMap::new();
    let mut in_flight_at_kills = 0;
    let first = run("verdicts", &arguments);
    let mut running = first.start();
    let data = running.data().clone();
    send(
        data.path(),
        "default",
        (0..MESSAGES).map(|n| format!("print:{n}")),
    )
    .await;
    for _ in 0..KILLS {
        running.wait_for_lines(random_kill_point(&running), printed);
        running.signal(Signal::KILL);
        assert_eq!(running.wait_exit(), 137);
        count(&mut handled, prints(&running));
        in_flight_at_kills += depth(data.path(), "default").await.in_flight;
        running = run("verdicts", &arguments).sharing(&data).start();
    }
    until_depth(data.path(), "default", |depth| depth == Default::default()).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    count(&mut handled, prints(&running));
    assert_eq!(handled.len(), MESSAGES, "every message is handled");
    let again: usize = handled.values().map(|times| times - 1).sum();
    assert!(
        again as u64 <= in_flight_at_kills,
        "{again} came twice, {in_flight_at_kills} were in flight at a kill"
    );
    assert_eq!(depth(data.path(), "default.dead").await, Default::default());
}

fn count(handled: &mut BTreeMap<String, usize>, prints: Vec<String>) {
    for body in prints {
        *handled.entry(body).or_default() += 1;
    }
}

/// A moment that no run repeats: after 1 to 100 messages, as the process id would have it.
fn random_kill_point(running: &RunningProgram) -> usize {
    (running.id() as usize).wrapping_mul(2_654_435_761) / 128 % 100 + 1
}

#[tokio::test]
async fn acknowledged_send_survives_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut sender = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            "failures::crash::sends_until_killed",
        ])
        .env("DISPATCHER_TEST_STORE", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the sender starts");
    let lines = BufReader::new(sender.stdout.take().expect("piped")).lines();
    let mut acknowledged = Vec::new();
    for line in lines.map_while(Result::ok) {
        if let Some(id) = line.strip_prefix("acknowledged ") {
            acknowledged.push(id.to_owned());
        }
        if acknowledged.len() == 500 {
            sender.kill().expect("it runs");
        }
    }
    sender.wait().expect("it ended");
    let store = LocalStore::open(folder.path()).expect("opens");
    let queue = store.queue("default", None).expect("opens");
    let there = queue.peek(100_000).await.expect("looks");
    let ids: std::collections::HashSet<&str> =
        there.iter().map(|message| message.id.as_str()).collect();
    assert!(acknowledged.len() >= 500);
    assert!(
        acknowledged.iter().all(|id| ids.contains(id.as_str())),
        "an acknowledged message is gone"
    );
}

#[tokio::test]
#[ignore = "the child of the test above"]
async fn sends_until_killed() {
    let folder =
        PathBuf::from(std::env::var_os("DISPATCHER_TEST_STORE").expect("set by the test above"));
    let queue = LocalStore::open(&folder)
        .expect("opens")
        .queue("default", None)
        .expect("opens");
    loop {
        let items = vec![
            OutgoingMessage {
                body: "x".into(),
                ..OutgoingMessage::default()
            };
            7
        ];
        for sent in queue.send(&items).await {
            println!("acknowledged {}", sent.expect("sent"));
        }
    }
}
