//! What the tests of messages for later on SQS share: a queue with a table of its name, and
//! dispatchers that look at it.

use crate::scene::run;
use dispatcher_tests::child::{Ended, Program, Running, Signal};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::Server;
use dispatcher_tests::waiting::Waiting;
use serde_json::Value;

pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) queue: String,
    pub(crate) url: String,
    pub(crate) waiting: Waiting,
}

pub(crate) fn call(arguments: &[&str]) -> Ended {
    let endpoint = MiniStack::shared().url();
    Program::new(arguments).aws(&endpoint).run()
}

pub(crate) fn good(arguments: &[&str]) -> Ended {
    let ended = call(arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
    ended
}

/// A queue with a table of its name.
pub(crate) async fn scene(hint: &str, suffix: &str, attributes: &[(&str, &str)]) -> Scene {
    let endpoint = MiniStack::shared().url();
    let server = Server::at(&endpoint);
    let queue = Server::fresh_name(hint) + suffix;
    let url = server.create(&queue, attributes).await;
    let made = good(&["schedule", "init", &queue]);
    assert_eq!(made.stdout.trim(), queue);
    Scene {
        waiting: Waiting::at(&endpoint, &queue),
        server,
        queue,
        url,
    }
}

pub(crate) fn start(queue: &str, more: &[&str]) -> Running {
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
pub(crate) async fn start_mover(scene: &Scene) -> Running {
    let idle = Server::fresh_name("idle");
    scene.server.create(&idle, &[]).await;
    start(&idle, &["--schedule-table", &scene.queue])
}

pub(crate) fn stop(running: &mut Running) {
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

pub(crate) fn list(queue: &str) -> Vec<Value> {
    let listed = good(&["schedule", "list", queue, "--json"]).stdout;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    listed.as_array().expect("an array").clone()
}
