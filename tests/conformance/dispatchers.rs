//! What the program as a whole promises on any backend, whatever becomes of one process.

use crate::backend::{Backend, QueueNeeds, TestQueue};
use dispatcher_core::queue::Depth;
use dispatcher_tests::child::{RunningProgram, Signal};
use dispatcher_tests::guests::prints;
use dispatcher_tests::queues::{send, until_depth};
use std::time::Duration;

/// How long what a killed process held stays away; long enough that no living one loses a lease.
const VISIBILITY: Duration = Duration::from_secs(10);
/// Good messages of a check.
const MANY: usize = 40;

fn is_empty(depth: Depth) -> bool {
    (depth.waiting, depth.in_flight, depth.delayed) == (0, 0, 0)
}

/// A started process that receives.
fn start(backend: &Backend, opened: &TestQueue, concurrency: &str) -> RunningProgram {
    let program = backend.dispatcher(opened, "verdicts", VISIBILITY);
    // A stop waits for the outstanding poll.
    let program = program.env("DISPATCHER_POLL_FOR", "1s");
    let running = program.env("DISPATCHER_CONCURRENCY", concurrency).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    running
}

/// The numbers that good messages have printed, in their order.
fn sorted(mut numbers: Vec<String>) -> Vec<usize> {
    numbers.sort_by_key(|number| number.parse::<usize>().expect("a number"));
    let numbers = numbers.iter().map(|number| number.parse().expect("it was"));
    numbers.collect()
}

pub(crate) async fn two_dispatchers_share_a_queue_without_overlap(backend: &Backend) {
    let opened = backend.open(QueueNeeds::default()).await;
    let mut both = [start(backend, &opened, "4"), start(backend, &opened, "4")];
    // Between any two that can be counted one that takes its time, so that neither can do it all.
    let bodies = (0..MANY).flat_map(|n| [format!("print:{n}"), "sleep:50".to_owned()]);
    send(&*opened.queue, bodies).await;
    until_depth(&*opened.queue, is_empty).await;
    both.iter_mut().for_each(RunningProgram::stop);
    let [one, other] = both.map(|running| prints(&running));
    assert!(
        !one.is_empty() && !other.is_empty(),
        "one alone did all: {one:?} {other:?}"
    );
    let all: Vec<usize> = (0..MANY).collect();
    assert_eq!(sorted([one, other].concat()), all, "each once");
}

pub(crate) async fn messages_of_a_killed_dispatcher_are_handled_by_another(backend: &Backend) {
    let wanted = QueueNeeds {
        dead_letter_queue: true,
        ..QueueNeeds::default()
    };
    let opened = backend.open(wanted).await;
    let mut killed = start(backend, &opened, "1");
    send(&*opened.queue, ["sleep:3000".to_owned()]).await;
    until_depth(&*opened.queue, |depth| depth.in_flight == 1).await;
    send(&*opened.queue, (0..MANY).map(|n| format!("print:{n}"))).await;
    killed.signal(Signal::KILL);
    assert_eq!(killed.wait_exit(), 137);
    assert_eq!(prints(&killed), Vec::<String>::new(), "it was busy");
    let mut heir = start(backend, &opened, "4");
    until_depth(&*opened.queue, is_empty).await;
    heir.stop();
    let all: Vec<usize> = (0..MANY).collect();
    assert_eq!(sorted(prints(&heir)), all, "each once");
    let dead_letter_queue = opened.dead_letter_queue.expect("it was wanted");
    let dead = dead_letter_queue.depth().await.expect("the queue tells");
    assert!(is_empty(dead), "{dead:?}");
}
