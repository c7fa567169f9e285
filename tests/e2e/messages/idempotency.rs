//! What is done is remembered beyond the process where `--idempotency` says so: a message whose
//! delete failed is not run again, in whatever process and after whatever end.

use crate::lambda::scene::admin;
use crate::scene::{field, printed, prints, run};
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::holder::Holder;
use dispatcher_tests::http;
use dispatcher_tests::proxy::Proxy;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use std::sync::Arc;
use tempfile::TempDir;

const AGAIN: &str = "duplicate dropped";

/// A queue whose messages are soon visible again, behind a proxy.
struct IdempotencyScene {
    server: SqsServer,
    name: String,
    url: String,
    proxy: Proxy,
}

impl IdempotencyScene {
    async fn new(hint: &str, visibility: &str) -> Self {
        let server = SqsServer::at(&MiniStack::shared().url());
        let name = SqsServer::fresh_name(hint);
        let attributes = [("VisibilityTimeout", visibility)];
        let url = server.create(&name, &attributes).await;
        let proxy = Proxy::before(MiniStack::shared().address());
        Self {
            server,
            name,
            url,
            proxy,
        }
    }

    fn program(&self, more: &[&str]) -> Program {
        let own = ["--queues", &self.name, "--poll-for", "1"];
        let log = ["--log-level", "info,message=debug"];
        let arguments = [&own[..], &log, more].concat();
        run("verdicts", &arguments).aws(&self.proxy.url())
    }

    fn no_delete_succeeds(&self) {
        self.proxy
            .answer_next(100_000, "DeleteMessageBatch", 500, "{}");
    }

    /// A message is handled, its delete fails and the process is killed. What the next one printed,
    /// and whether it knew the message.
    async fn killed_before_the_delete(&self, more: &[&str]) -> (Vec<String>, bool) {
        self.no_delete_succeeds();
        self.server
            .send_many(&self.url, ["print:once".to_owned()])
            .await;
        let mut first = self.program(more).start();
        self.proxy.wait_until_seen(1, "DeleteMessageBatch");
        let data = killed(&mut first);
        assert_eq!(prints(&first), ["once"]);
        self.proxy.forget_answers();
        let mut second = self.program(more).sharing(&data).start();
        self.server.wait_until_empty(&self.url).await;
        second.stop();
        (prints(&second), repeat_log_lines(&second) > 0)
    }
}

fn killed(running: &mut RunningProgram) -> Arc<TempDir> {
    running.signal(Signal::KILL);
    assert_eq!(running.wait_exit(), 137);
    running.data().clone()
}

fn repeat_log_lines(running: &RunningProgram) -> usize {
    let text = running.text(dispatcher_tests::child::Stream::Err);
    text.lines().filter(|line| line.contains(AGAIN)).count()
}

#[tokio::test]
async fn lesson_12_done_message_is_not_run_again_after_a_kill() {
    let scene = IdempotencyScene::new("remembered", "3").await;
    let more = ["--idempotency", "1h"];
    let (printed, known) = scene.killed_before_the_delete(&more).await;
    assert_eq!(printed, [""; 0]);
    assert!(known);
}

#[tokio::test]
async fn without_idempotency_a_message_is_run_again_after_a_kill() {
    let scene = IdempotencyScene::new("forgotten", "3").await;
    let (printed, known) = scene.killed_before_the_delete(&[]).await;
    assert_eq!(printed, ["once"]);
    assert!(!known);
}

#[tokio::test]
async fn idempotency_record_expires() {
    // It is visible again only when its record has expired.
    let scene = IdempotencyScene::new("expired", "3").await;
    let more = ["--idempotency", "1s"];
    let (printed, known) = scene.killed_before_the_delete(&more).await;
    assert_eq!(printed, ["once"]);
    assert!(!known);
}

#[tokio::test]
async fn lesson_12_processes_sharing_a_folder_share_idempotency_records() {
    const MESSAGES: usize = 60;
    let scene = IdempotencyScene::new("shared", "2").await;
    scene.no_delete_succeeds();
    let bodies = (0..MESSAGES).map(|n| format!("print:{n}"));
    scene.server.send_many(&scene.url, bodies).await;
    let more = ["--idempotency", "1h", "--concurrency", "10"];
    let mut one = scene.program(&more).start();
    let mut two = scene.program(&more).sharing(one.data()).start();
    // Either takes what the other has done, since neither can delete anything.
    let is_known =
        |line: &str| line.contains("message not settled") && field(line, "wanted") == "duplicate";
    one.wait_for_lines(5, is_known);
    two.wait_for_lines(5, is_known);
    scene.proxy.forget_answers();
    scene.server.wait_until_empty(&scene.url).await;
    for running in [&mut one, &mut two] {
        running.stop();
    }
    let mut handled = prints(&one);
    handled.extend(prints(&two));
    handled.sort();
    assert_eq!(handled.len(), MESSAGES, "none twice: {handled:?}");
    handled.dedup();
    assert_eq!(handled.len(), MESSAGES);
}

#[tokio::test]
async fn messages_flow_while_idempotency_records_cannot_be_written() {
    let scene = IdempotencyScene::new("trouble", "30").await;
    let more = ["--idempotency", "1h", "--admin", "127.0.0.1:0"];
    let mut running = scene.program(&more).start();
    let admin = admin(&running);
    scene.proxy.wait_until_seen(1, "ReceiveMessage");
    let holder = Holder::writing(&running.data().path().join("idempotency.db"));
    for n in 0..3 {
        let body = format!("print:{n}");
        scene.server.send_many(&scene.url, [body]).await;
        scene.server.wait_until_empty(&scene.url).await;
    }
    let said = running.wait_for_line(|line| line.contains("idempotency records of route"));
    assert!(said.contains("locked"), "{said}");
    let ready = http::wait_for_status(&format!("{admin}/readyz"), 503);
    assert!(ready.body.contains("idempotency records"), "{ready:?}");
    drop(holder);
    scene
        .server
        .send_many(&scene.url, ["print:after".to_owned()])
        .await;
    running.wait_for_line(|line| line.contains("idempotency store works again"));
    scene.server.wait_until_empty(&scene.url).await;
    http::wait_for_status(&format!("{admin}/readyz"), 200);
    let metrics = http::get(&format!("{admin}/metrics")).body;
    let remembered = "\ndispatcher_idempotency_records_total 1\n";
    assert!(metrics.contains(remembered), "{metrics}");
    running.stop();
    assert_eq!(prints(&running), ["0", "1", "2", "after"]);
    running.wait_for_lines(4, printed);
}

#[test]
fn check_and_doctor_show_the_idempotency_store_and_its_users() {
    let plugin = crate::scene::guest("verdicts");
    for command in ["check", "doctor"] {
        let arguments = [command, "--plugin", &plugin, "--idempotency", "24h"];
        let ended = Program::new(arguments).run();
        assert_eq!(ended.code, 0, "{ended:?}");
        let said = ended.stdout + &ended.stderr;
        let line = said.lines().find(|line| line.contains("idempotency.db"));
        let line = line.unwrap_or_else(|| panic!("no word of it: {said}"));
        assert!(
            line.contains("1day") && line.contains("no other machine"),
            "{line}"
        );
    }
}
