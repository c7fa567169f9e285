//! Many dispatchers on one table: nothing is lost, nothing runs twice but what a kill left behind.

use crate::backends::dynamodb::{send, start, table};
use crate::scene::prints;
use dispatcher_tests::child::{RunningProgram, Signal};
use std::collections::BTreeMap;

const FLEET: usize = 4;
const TASKS: usize = 100;
const ARGUMENTS: [&str; 4] = ["--concurrency", "5", "--visibility", "10"];

fn count(handled: &mut BTreeMap<String, usize>, running: &RunningProgram) {
    for body in prints(running) {
        *handled.entry(body).or_default() += 1;
    }
}

#[tokio::test]
async fn many_dispatchers_on_one_table_never_run_a_task_twice() {
    let (tables, table, queue) = table("fleet").await;
    let mut fleet: Vec<RunningProgram> = (0..FLEET)
        .map(|_| start(&queue, "verdicts", &ARGUMENTS))
        .collect();
    for running in &fleet {
        running.wait_for_line(|line| line.contains("\"running\""));
    }
    send(&table, (0..TASKS).map(|n| format!("print:{n}"))).await;
    tables
        .until(&table, |statuses| statuses.get("SUCCESS") == Some(&TASKS))
        .await;
    let mut handled = BTreeMap::new();
    for running in &mut fleet {
        running.stop();
        count(&mut handled, running);
    }
    assert_eq!(handled.len(), TASKS, "none is lost");
    assert!(handled.values().all(|times| *times == 1), "{handled:?}");
    let busy = fleet.iter().filter(|running| !prints(running).is_empty());
    assert!(busy.count() > 1, "one alone did all: nothing was contended");
}

#[tokio::test]
async fn kills_lose_nothing_and_only_held_tasks_are_redelivered() {
    let (tables, table, queue) = table("kills").await;
    // Between any two that can be counted one that takes its time, so that kills meet work.
    let bodies = (0..TASKS).flat_map(|n| [format!("print:{n}"), "sleep:200".to_owned()]);
    send(&table, bodies).await;
    let mut fleet: Vec<RunningProgram> = (0..FLEET)
        .map(|_| start(&queue, "verdicts", &ARGUMENTS))
        .collect();
    let mut handled = BTreeMap::new();
    let mut held_at_kills = 0;
    for kill in 0..3 {
        // Which of them does how much is for the machine to say.
        let enough = (kill + 1) * 2 * TASKS / 5;
        let under_way = |statuses: &BTreeMap<String, usize>| {
            statuses.get("SUCCESS").is_some_and(|done| *done >= enough)
        };
        tables.until(&table, under_way).await;
        fleet[0].signal(Signal::KILL);
        assert_eq!(fleet[0].wait_exit(), 137);
        // With what the others hold: at least what this one did.
        let statuses = tables.statuses(&table).await;
        held_at_kills += statuses.get("TAKEN").copied().unwrap_or_default();
        count(&mut handled, &fleet[0]);
        fleet.remove(0);
        fleet.push(start(&queue, "verdicts", &ARGUMENTS));
    }
    tables
        .until(&table, |statuses| {
            statuses.get("SUCCESS") == Some(&(2 * TASKS))
        })
        .await;
    for running in &mut fleet {
        running.stop();
        count(&mut handled, running);
    }
    assert_eq!(handled.len(), TASKS, "none is lost");
    let again: usize = handled.values().map(|times| times - 1).sum();
    assert!(
        again <= held_at_kills,
        "{again} came twice, {held_at_kills} were held at a kill"
    );
}
