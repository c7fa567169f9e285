//! What the tests of messages for later on SQS share: a queue with a table of its name, and
//! dispatchers that look at it.

use crate::scene::run;
use dispatcher_tests::child::{ExitedProgram, Program, RunningProgram};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use dispatcher_tests::waiting::WaitingTable;
use serde_json::Value;

pub(crate) struct ScheduleScene {
    pub(crate) server: SqsServer,
    pub(crate) queue: String,
    pub(crate) url: String,
    pub(crate) waiting: WaitingTable,
}

pub(crate) fn call(arguments: &[&str]) -> ExitedProgram {
    let endpoint = MiniStack::shared().url();
    Program::new(arguments).aws(&endpoint).run()
}

pub(crate) fn good(arguments: &[&str]) -> ExitedProgram {
    let ended = call(arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
    ended
}

/// A queue with a table of its name.
pub(crate) async fn scene(hint: &str, suffix: &str, attributes: &[(&str, &str)]) -> ScheduleScene {
    let endpoint = MiniStack::shared().url();
    let server = SqsServer::at(&endpoint);
    let queue = SqsServer::fresh_name(hint) + suffix;
    let url = server.create(&queue, attributes).await;
    let made = good(&["schedule", "init", &queue]);
    assert_eq!(made.stdout.trim(), queue);
    ScheduleScene {
        waiting: WaitingTable::at(&endpoint, &queue),
        server,
        queue,
        url,
    }
}

pub(crate) fn start(queue: &str, more: &[&str]) -> RunningProgram {
    let arguments = [
        "--queues",
        queue,
        "--poll-for",
        "1",
        "--schedule-interval",
        "1",
    ];
    run("verdicts", &[&arguments, more].concat())
        .aws(&MiniStack::shared().url())
        .start()
}

/// A dispatcher that takes nothing of the scene's queue and moves its jobs.
pub(crate) async fn start_mover(scene: &ScheduleScene) -> RunningProgram {
    let idle = SqsServer::fresh_name("idle");
    scene.server.create(&idle, &[]).await;
    start(&idle, &["--schedule-table", &scene.queue])
}

pub(crate) fn list(queue: &str) -> Vec<Value> {
    let listed = good(&["schedule", "list", queue, "--json"]).stdout;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    listed.as_array().expect("an array").clone()
}
