//! `dispatcher dev`: after `plugin new` one command builds a handler, runs it, serves its queue to AWS
//! SDKs, and builds it again at each save.

use crate::languages::{NAME, calls};
use crate::scene::{field, printed, send};
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::{http, toolchains};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

const ORDER: &str = r#"{"id": "o-1", "amount": 250}"#;
const PRINTED: &str = "cents\\n";

/// A new project in C, whose compiler takes the least time.
struct DevProject(Arc<TempDir>);

impl DevProject {
    fn new() -> Self {
        let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
        calls(&data, &["plugin", "new", "--lang", "c", NAME]);
        Self(data)
    }

    fn handler(&self) -> PathBuf {
        self.0.path().join(NAME).join("handler.c")
    }

    fn read(&self) -> String {
        std::fs::read_to_string(self.handler()).expect("the project is ours")
    }

    /// Saves the handler as an editor does: beside it, and then in its place.
    fn save(&self, text: &str) {
        let beside = self.handler().with_extension("c.new");
        std::fs::write(&beside, text).expect("the project is ours");
        std::fs::rename(beside, self.handler()).expect("the project is ours");
    }

    fn develop(&self) -> RunningProgram {
        let mut dev = Program::new(["dev", NAME, "--log-format", "json"]).sharing(&self.0);
        for (name, value) in toolchains::environment() {
            dev = dev.env(name, value.to_str().expect("paths of tests are text"));
        }
        dev.start()
    }

    async fn order(&self) {
        send(self.0.path(), "default", [ORDER.to_owned()]).await;
    }
}

/// Waits until a handler prints the line.
fn wait_for_print(running: &RunningProgram, text: &str) {
    running.wait_for_line(|line| printed(line) && line.contains(text));
}

#[tokio::test]
async fn a_save_is_built_and_the_next_message_runs_it() {
    let project = DevProject::new();
    let mut running = project.develop();
    running.wait_for_line(|line| line.contains("try it: dispatcher send local:default hello"));
    running.wait_for_line(|line| line.contains("\"running\""));
    project.order().await;
    wait_for_print(&running, "order o-1: 250 cents");
    let first = project.read();
    project.save(&first.replace(PRINTED, "hundredths\\n"));
    running.wait_for_line(|line| line.contains("changed: handler.c"));
    running.wait_for_line(|line| line.contains("replaced: new attempts run this version"));
    project.order().await;
    wait_for_print(&running, "order o-1: 250 hundredths");
    project.save(&first.replace("return is_done;", "return is_done"));
    running.wait_for_line(|line| line.contains("the version before keeps running"));
    running.wait_for_line(|line| line.contains("error: expected ';'"));
    project.order().await;
    running.wait_for_lines(2, |line| printed(line) && line.contains("250 hundredths"));
    project.save(&first.replace(PRINTED, "pennies\\n"));
    running.wait_for_lines(2, |line| {
        line.contains("replaced: new attempts run this version")
    });
    project.order().await;
    wait_for_print(&running, "order o-1: 250 pennies");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

#[tokio::test]
async fn a_first_build_that_fails_waits_for_the_save_that_mends_it() {
    let project = DevProject::new();
    let good = project.read();
    project.save("this is no C\n");
    let mut running = project.develop();
    running.wait_for_line(|line| line.contains("waiting for a change of the sources"));
    project.save(&good);
    running.wait_for_line(|line| line.contains("\"running\""));
    project.order().await;
    wait_for_print(&running, "order o-1: 250 cents");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    project.save("nor is this\n");
    let mut waiting = project.develop();
    waiting.wait_for_line(|line| line.contains("waiting for a change of the sources"));
    waiting.signal(Signal::INT);
    assert_eq!(waiting.wait_exit(), 0);
}

#[test]
fn sdks_and_operators_reach_it_also_where_another_has_its_ports() {
    let projects = [DevProject::new(), DevProject::new()];
    let mut both = projects.each_ref().map(DevProject::develop);
    for running in &both {
        let serving = running.wait_for_line(|line| line.contains("serving the embedded queue"));
        let address = field(&serving, "address");
        let export = format!("export AWS_ENDPOINT_URL_SQS=http://{address}");
        running.wait_for_line(|line| line == export);
        let admin = running.wait_for_line(|line| line.contains("health and metrics at"));
        let health = format!("http://{}/healthz", field(&admin, "address"));
        assert_eq!(http::get(&health).status, 200);
        running.wait_for_line(|line| line.contains("\"running\""));
        let page = http::get(&format!("http://{}/ui", field(&admin, "address")));
        assert_eq!(page.status, 200, "{page:?}");
        assert!(page.body.contains("local:default"), "{}", page.body);
        let queue = format!("http://{address}/000000000000/default");
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let body = "%7B%22id%22%3A%22sdk%22%2C%22amount%22%3A1%7D";
        let sent = format!("Action=SendMessage&MessageBody={body}");
        assert_eq!(http::post(&queue, &form, &sent).status, 200);
        wait_for_print(running, "order sdk: 1 cents");
    }
    for running in &mut both {
        running.signal(Signal::TERM);
        assert_eq!(running.wait_exit(), 0);
    }
}

#[test]
fn a_folder_without_a_project_is_refused() {
    for (folder, words) in [
        ("nowhere", "wanted a project's folder"),
        (".", "no project; wanted one of"),
    ] {
        let ended = Program::new(["dev", folder]).run();
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    let ended = Program::new([
        "dev",
        ".",
        "--lang",
        "c",
        "--concurrency",
        "0",
        "--listen",
        "x",
    ])
    .run();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    for flag in ["--concurrency", "--listen"] {
        assert!(ended.stderr.contains(flag), "{flag}: {}", ended.stderr);
    }
}
