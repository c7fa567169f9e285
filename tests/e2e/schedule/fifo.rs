//! Messages for later on FIFO queues of SQS, where no message has its own delay.

use crate::scene::{printed, prints};
use crate::schedule::scene::{call, good, scene, start};

#[tokio::test]
async fn job_for_a_fifo_queue_is_held_until_due() {
    let fifo = [("FifoQueue", "true"), ("ContentBasedDeduplication", "true")];
    let scene = scene("held", ".fifo", &fifo).await;
    let ungrouped = call(&["schedule", "add", &scene.queue, "--in", "2s", "--body", "x"]);
    assert_eq!(ungrouped.code, 2, "{ungrouped:?}");
    assert!(
        ungrouped.stderr.contains("wanted a message group"),
        "{ungrouped:?}"
    );
    let add = |time: &str, body: &str| {
        let words = [
            "schedule",
            "add",
            &scene.queue,
            "--in",
            time,
            "--body",
            body,
            "--group",
            "g",
        ];
        good(&words);
    };
    add("10m", "print:far");
    add("2s", "print:near");
    let mut running = start(&scene.queue, &[]);
    running.wait_for_line(|line| printed(line) && line.contains("near"));
    running.stop();
    assert_eq!(prints(&running), ["near"]);
    let counts = scene.server.counts(&scene.url).await;
    assert_eq!((counts.waiting, counts.delayed), (0, 0));
    assert_eq!(scene.waiting.items().await.len(), 1);
}

#[tokio::test]
async fn jobs_with_equal_bodies_are_not_deduplicated_by_content() {
    let fifo = [("FifoQueue", "true"), ("ContentBasedDeduplication", "true")];
    let scene = scene("same", ".fifo", &fifo).await;
    for _ in 0..3 {
        let words = [
            "schedule",
            "add",
            &scene.queue,
            "--in",
            "1s",
            "--body",
            "print:same",
            "--group",
            "g",
        ];
        good(&words);
    }
    let mut running = start(&scene.queue, &[]);
    running.wait_for_lines(3, printed);
    running.stop();
    assert_eq!(prints(&running), ["same"; 3]);
    assert_eq!(scene.waiting.items().await.len(), 0);
}
