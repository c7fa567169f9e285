//! Messages that are too much for the memory there is: the program stays, handles the others, and
//! says what became of them. In a control group of 256 MiB where the machine lets us make one;
//! where it does not, the setting stands in for the limit, and nothing shows that the program would
//! have outlived it.

use crate::scene::{depth, field, prints, run, send, until_depth};
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::limited::MemoryLimit;

const LIMIT: u64 = 256 * 1024 * 1024;
const MIB: usize = 1024 * 1024;

fn large(bytes: usize) -> String {
    format!("print:{}", "x".repeat(bytes))
}

fn good() -> [String; 3] {
    ["print:one", "print:two", "print:three"].map(str::to_owned)
}

fn dead_lettered(line: &str) -> bool {
    line.contains("\"message dead-lettered\"")
}

/// The data folder of a run that never was, with these messages in `local:default`.
async fn with_messages(bodies: Vec<String>) -> std::sync::Arc<tempfile::TempDir> {
    let (_, data) = Program::new(["queues"]).into_command();
    send(data.path(), "default", bodies).await;
    data
}

fn ends_well(mut running: RunningProgram) {
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn finding_04_body_beyond_the_memory_limit_is_dead_lettered_and_others_handled() {
    let data = with_messages([vec![large(70 * MIB)], good().to_vec()].concat()).await;
    let limit = MemoryLimit::new(LIMIT);
    let setting: &[&str] = match limit {
        Some(_) => &[],
        None => &["--message-memory", "32MiB"],
    };
    let program = run("verdicts", setting).sharing(&data);
    let running = match &limit {
        Some(limit) => limit.run(program).start(),
        None => program.start(),
    };
    let line = running.wait_for_line(dead_lettered);
    assert!(field(&line, "reason").contains("too large"), "{line}");
    assert_eq!(field(&line, "queue"), "local:default");
    until_depth(data.path(), "default", |depth| depth == Default::default()).await;
    let mut handled = prints(&running);
    handled.sort();
    assert_eq!(handled, ["one", "three", "two"]);
    assert_eq!(depth(data.path(), "default.dead").await.waiting, 1);
    ends_well(running);
}

/// The setting allows the body, and the process is killed by it: after as many receives as attempts
/// are allowed it is dead-lettered without being read again.
#[tokio::test]
async fn finding_04_body_that_kills_the_process_is_limited_to_the_attempts() {
    let Some(limit) = MemoryLimit::new(LIMIT) else {
        return;
    };
    let data = with_messages(vec![large(150 * MIB)]).await;
    let more = [
        "--message-memory",
        "1GiB",
        "--max-attempts",
        "2",
        "--visibility",
        "2",
    ];
    let start = || limit.run(run("verdicts", &more).sharing(&data)).start();
    for _ in 0..2 {
        assert_eq!(start().wait_exit(), 137, "it is killed");
    }
    let running = start();
    let line = running.wait_for_line(dead_lettered);
    let reason = field(&line, "reason");
    assert!(reason.contains("received 2 times"), "{reason}");
    assert_eq!(depth(data.path(), "default.dead").await.waiting, 1);
    ends_well(running);
}

/// More than may be held waits in the queue, and all of it is handled in the end.
#[tokio::test]
async fn finding_04_messages_wait_for_memory_and_all_are_handled() {
    let bodies = (0..40)
        .map(|number| format!("done:{number}{}", "x".repeat(700_000)))
        .collect();
    let data = with_messages(bodies).await;
    let more = ["--message-memory", "2MiB", "--concurrency", "20"];
    let running = run("verdicts", &more).sharing(&data).start();
    until_depth(data.path(), "default", |depth| depth == Default::default()).await;
    assert_eq!(depth(data.path(), "default.dead").await, Default::default());
    ends_well(running);
}
