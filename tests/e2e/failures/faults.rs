//! A proxy that breaks calls of every kind, between the program and the server: nothing is lost,
//! and nothing is done twice that the program itself did not give up.

use crate::scene::{field, printed, run};
use dispatcher_tests::chaos::{Chaos, FAULTS};
use dispatcher_tests::child::{RunningProgram, Signal, Stream};
use dispatcher_tests::ledger::number;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use std::collections::{BTreeMap, BTreeSet};

/// Of a thousand calls so many are broken; the dice are always the same.
const BROKEN_PERMILLE: u32 = 200;
const SEED: u64 = 4;

/// How often each number was printed, with the message's id.
fn handled(running: &RunningProgram) -> BTreeMap<u64, Vec<String>> {
    let mut handled: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for line in running
        .text(Stream::Err)
        .lines()
        .filter(|line| printed(line))
    {
        if let Some(number) = number(&field(line, "message")) {
            let ids = handled.entry(number).or_default();
            ids.push(field(line, "message_id"));
        }
    }
    handled
}

/// The messages that the program said it had lost or could not settle.
fn given_up(running: &RunningProgram) -> BTreeSet<String> {
    let text = running.text(Stream::Err);
    let lines = text.lines().filter(|line| {
        line.contains("\"message\":\"lease lost")
            || line.contains("\"message\":\"message not settled")
    });
    lines.map(|line| field(line, "message_id")).collect()
}

#[tokio::test]
async fn nothing_is_lost_through_a_proxy_that_breaks_every_fifth_call() {
    let server = SqsServer::at(&MiniStack::shared().url());
    let (name, dead) = (
        SqsServer::fresh_name("chaos"),
        SqsServer::fresh_name("chaos-dead"),
    );
    // What a broken receive has taken comes back after so many seconds.
    let url = server.create(&name, &[("VisibilityTimeout", "4")]).await;
    let dead_url = server.create(&dead, &[]).await;
    let chaos = Chaos::before(MiniStack::shared().address(), 0, SEED);
    let arguments = ["--queues", &name, "--poll-for", "1", "--dead-letter", &dead];
    let arguments = [&arguments[..], &["--max-attempts", "1000"]].concat();
    let mut running = run("verdicts", &arguments).aws(&chaos.url()).start();
    running.wait_for_line(|line| line.contains("running"));
    chaos.set(BROKEN_PERMILLE);
    let verb = |n: u64| {
        if n.is_multiple_of(10) {
            "reject"
        } else {
            "print"
        }
    };
    let bodies = (0..300).map(|n| format!("{}:m{n}", verb(n)));
    server.send_many(&url, bodies).await;
    server.wait_until_empty(&url).await;
    chaos.set(0);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let handled = handled(&running);
    let wanted: Vec<u64> = (0..300_u64).filter(|n| !n.is_multiple_of(10)).collect();
    assert_eq!(handled.keys().copied().collect::<Vec<_>>(), wanted);
    let given_up = given_up(&running);
    for (number, ids) in handled.iter().filter(|(_, ids)| ids.len() > 1) {
        assert!(
            given_up.contains(&ids[0]),
            "m{number} was handled {} times",
            ids.len()
        );
    }
    let dead_lettered: BTreeSet<u64> = server
        .drain(&dead_url)
        .await
        .iter()
        .filter_map(|body| number(body))
        .collect();
    assert_eq!(
        dead_lettered.into_iter().collect::<Vec<_>>(),
        (0..300).step_by(10).collect::<Vec<_>>()
    );
    let met: u64 = FAULTS.iter().map(|fault| chaos.met(*fault)).sum();
    assert!(met > 0, "{:?}", chaos.counts());
}
