//! The example of a reminder 36 hours ahead: its plugin sets reminders as far ahead as it says, and
//! may send nowhere else. What its README says to type is typed by `readme`.

use crate::scene::{guest, printed, prints, run, until_depth};
use dispatcher_core::queue::Depth;
use dispatcher_tests::child::{Program, RunningProgram};
use serde_json::Value;

const QUEUES: &str = "local:orders,local:reminders";
const GRANTS: [&str; 2] = ["--allow-send", "local:reminders"];

fn start(more: &[&str]) -> RunningProgram {
    let arguments = [&["--queues", QUEUES], more].concat();
    run("reminder", &arguments).start()
}

fn call(running: &RunningProgram, words: &[&str]) -> String {
    let ended = Program::new(words).sharing(running.data()).run();
    assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
    ended.stdout
}

#[tokio::test]
async fn reminder_waits_36_hours_and_can_be_cancelled() {
    let mut running = start(&GRANTS);
    call(&running, &["send", "local:orders", "o-17"]);
    running.wait_for_line(|line| printed(line) && line.contains("in 129600 s"));
    let listed = call(&running, &["schedule", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let reminder = &listed[0];
    assert_eq!(reminder["body"], "was o-17 paid for?");
    let due = reminder["due_ms"].as_u64().expect("a date");
    let hours = (due - dispatcher_core::clock::wall_clock_now().0).div_ceil(3_600_000);
    assert_eq!(hours, 36);
    call(
        &running,
        &[
            "schedule",
            "cancel",
            reminder["id"].as_str().expect("an id"),
        ],
    );
    running.stop();
    assert_eq!(prints(&running).len(), 1);
}

#[tokio::test]
async fn short_reminder_is_delivered_in_time() {
    let mut running = start(&[&GRANTS[..], &["--env", "AFTER_S=1"]].concat());
    call(&running, &["send", "local:orders", "o-18"]);
    running.wait_for_line(|line| printed(line) && line.contains("reminder: was o-18 paid for?"));
    running.stop();
}

#[tokio::test]
async fn denied_queue_is_refused_by_name() {
    // Nothing is granted: the plugin is refused at the start.
    let refused = Program::new(["check", "--plugin", &guest("reminder")]).run();
    assert_eq!(refused.code, 2, "{refused:?}");
    for wanted in ["dispatcher:plugin/queues@0.1.0", "--allow-send"] {
        assert!(refused.stderr.contains(wanted), "{refused:?}");
    }
    // Another queue is granted: the message is refused, and the queue is named.
    let mut running = start(&["--allow-send", "local:elsewhere"]);
    call(&running, &["send", "local:orders", "o-19"]);
    running.wait_for_line(|line| {
        line.contains("dead-lettered")
            && line.contains("does not allow this plugin to send to local:reminders")
    });
    let dead = |depth: Depth| depth.waiting == 1;
    until_depth(running.data().path(), "orders.dead", dead).await;
    running.stop();
}
