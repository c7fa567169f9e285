//! Queues on Redis: what a killed process or server held is handled, in its old order, and nothing
//! is lost.

mod cluster;
mod content;
pub(crate) mod scene;
mod tasks;
pub(crate) mod tls;
mod worqr;

use crate::backends::redis::scene::{RedisScene, begins};
use crate::scene::{field, printed, prints};
use dispatcher_core::queue::Queue;
use dispatcher_tests::child::Signal;
use dispatcher_tests::redis::RedisServer;
use std::collections::BTreeMap;
use std::time::Instant;

const MESSAGES: usize = 1_000;
const KILLS: usize = 6;

/// A message that is handled until somebody stops it.
fn endless(number: usize) -> String {
    format!("sleep:{}", 3_600_000 + number)
}

#[tokio::test]
async fn messages_of_a_killed_process_are_first_in_their_old_order() {
    let scene = RedisScene::plain();
    scene.send((0..4).map(endless)).await;
    let holder = [
        "--concurrency",
        "4",
        "--timeout",
        "1h",
        // Longer than a test has patience: only who looks for the dead brings them back.
        "--visibility",
        "600",
        "--log-level",
        "debug",
    ];
    let mut holder = scene.run("verdicts", &holder).start();
    holder.wait_for_lines(4, begins);
    scene.send((4..6).map(endless)).await;
    // Another queue's process finds the dead one as well.
    let other = scene.run_on("redis:other", "verdicts", &[]).start();
    other.wait_for_line(|line| line.contains("\"running\""));
    holder.signal(Signal::KILL);
    let killed = Instant::now();
    assert_eq!(holder.wait_exit(), 137);
    scene.until_depth(|depth| depth.waiting == 6).await;
    println!("back after {:.1} s", killed.elapsed().as_secs_f64());
    let bodies: Vec<String> = scene
        .queue()
        .await
        .peek(10)
        .await
        .expect("looks")
        .into_iter()
        .map(|message| message.body)
        .collect();
    assert_eq!(bodies, (0..6).map(endless).collect::<Vec<_>>());
}

#[tokio::test]
async fn messages_of_a_killed_process_run_elsewhere() {
    let scene = RedisScene::plain();
    let ids = scene.send((0..3).map(endless)).await;
    let options = [
        "--concurrency",
        "3",
        "--timeout",
        "1h",
        "--visibility",
        "600",
        "--log-level",
        "debug",
    ];
    let mut holder = scene.run("verdicts", &options).start();
    holder.wait_for_lines(3, begins);
    let heir = scene.run("verdicts", &options).start();
    heir.wait_for_line(|line| line.contains("\"running\""));
    holder.signal(Signal::KILL);
    let killed = Instant::now();
    let lines = heir.wait_for_lines(3, begins);
    println!(
        "run elsewhere after {:.1} s",
        killed.elapsed().as_secs_f64()
    );
    assert_eq!(holder.wait_exit(), 137);
    let mut begun: Vec<String> = lines.iter().map(|line| field(line, "message_id")).collect();
    begun.sort();
    assert_eq!(begun, ids);
}

#[tokio::test]
async fn thousand_messages_survive_kills_of_their_process() {
    let scene = RedisScene::plain();
    let options = ["--concurrency", "20", "--max-attempts", "1000"];
    scene
        .send((0..MESSAGES).map(|n| format!("print:{n}")))
        .await;
    let mut handled: BTreeMap<String, usize> = BTreeMap::new();
    let mut in_flight = 0;
    let mut running = scene.run("verdicts", &options).start();
    for _ in 0..KILLS {
        let some = running.id() as usize % 100 + 1;
        running.wait_for_lines(some, printed);
        running.signal(Signal::KILL);
        assert_eq!(running.wait_exit(), 137);
        count(&mut handled, prints(&running));
        in_flight += scene.until_depth(|_| true).await.in_flight;
        running = scene.run("verdicts", &options).start();
    }
    scene.until_depth(|depth| depth == Default::default()).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    count(&mut handled, prints(&running));
    assert_eq!(handled.len(), MESSAGES, "every message is handled");
    let again: usize = handled.values().map(|times| times - 1).sum();
    println!("{again} came twice, {in_flight} were in flight at a kill");
    assert!(again as u64 <= in_flight);
}

fn count(handled: &mut BTreeMap<String, usize>, prints: Vec<String>) {
    for body in prints {
        *handled.entry(body).or_default() += 1;
    }
}

#[tokio::test]
async fn server_restart_loses_nothing() {
    let mut scene = RedisScene::new(RedisServer::durable());
    scene
        .send((0..MESSAGES).map(|n| format!("print:{n}")))
        .await;
    let mut running = scene
        .run(
            "verdicts",
            &["--concurrency", "4", "--max-attempts", "1000"],
        )
        .start();
    running.wait_for_lines(100, printed);
    scene.server.kill();
    scene.server = scene.server.again();
    scene.send(["print:afterwards".to_owned()]).await;
    scene.until_depth(|depth| depth == Default::default()).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let mut handled = prints(&running);
    handled.sort();
    handled.dedup();
    assert_eq!(handled.len(), MESSAGES + 1);
}

#[tokio::test]
async fn process_that_was_suspended_stops_what_it_has_lost() {
    let scene = RedisScene::plain();
    scene.send([endless(0)]).await;
    let options = ["--timeout", "1h", "--log-level", "debug"];
    let mut still = scene.run("verdicts", &options).start();
    still.wait_for_line(begins);
    let heir = scene.run("verdicts", &options).start();
    still.signal(Signal::STOP);
    heir.wait_for_line(begins);
    still.signal(Signal::CONT);
    still.wait_for_line(|line| line.contains("it rejoins"));
    still.wait_for_line(|line| line.contains("lease lost"));
    // It is a worker again: what is sent next may go to either.
    drop(heir);
    scene.send(["print:anew".to_owned()]).await;
    still.wait_for_line(printed);
    still.signal(Signal::KILL);
    assert_eq!(still.wait_exit(), 137);
}

#[tokio::test]
async fn stop_returns_everything_at_once() {
    let scene = RedisScene::plain();
    scene.send((0..5).map(endless)).await;
    let options = [
        "--concurrency",
        "3",
        "--timeout",
        "1h",
        "--shutdown-grace",
        "100ms",
    ];
    let mut running = scene.run("verdicts", &options).start();
    scene.until_depth(|depth| depth.in_flight >= 3).await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let left = scene.until_depth(|_| true).await;
    assert_eq!((left.waiting, left.in_flight, left.delayed), (5, 0, 0));
}

/// Queues, what is due, buckets and the check of the eviction policy share them.
#[tokio::test]
async fn finding_10_process_has_two_connections_to_a_server() {
    let scene = RedisScene::plain();
    let mut running = scene.run("verdicts", &["--store", "b=redis:b"]).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    let full = scene.full();
    let later = [
        "schedule",
        "add",
        &full,
        "--in",
        "3s",
        "--body",
        "print:later",
    ];
    let added = scene.command(&later);
    assert_eq!(added.code, 0, "{}", added.stderr);
    // By now it has looked for what is due, taken it and sent it on.
    running.wait_for_line(printed);
    let mut own = scene.server.connect();
    let id = own.call(&["CLIENT", "ID"]).expect("an answer").number();
    let listed = own.call(&["CLIENT", "LIST"]).expect("an answer").text();
    let others = listed
        .lines()
        .filter(|line| !line.starts_with(&format!("id={id} ")));
    assert_eq!(others.count(), 2, "{listed}");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}
