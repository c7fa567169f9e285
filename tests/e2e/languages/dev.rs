//! `dispatcher dev`: after `plugin new` one command builds a handler, runs it, serves its queue to AWS
//! SDKs, and builds it again at each save.

use crate::languages::calls;
use crate::scene::{field, printed, send, until_depth};
use dispatcher_tests::child::{self, Program, RunningProgram, Signal};
use dispatcher_tests::slow_module::slow_module;
use dispatcher_tests::{browser, http, toolchains};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Not that of other tests: what cargo makes of a name lies in one folder for all of them.
const NAME: &str = "dev-orders";
const ORDER: &str = r#"{"id": "o-1", "amount": 250}"#;
/// Functions of a component that is still compiled when the test has done what it does meanwhile.
const SLOW: usize = 8_000;
const PRINTED: &str = "cents\\n";

/// A new project.
struct DevProject {
    data: Arc<TempDir>,
    handler: PathBuf,
}

impl DevProject {
    /// In C, whose compiler takes the least time.
    fn new() -> Self {
        Self::of("c", "handler.c")
    }

    /// In a language, whose handler is in this file. Built once, which takes minutes where a tool has
    /// nothing in its cache yet.
    fn of(language: &str, handler: &str) -> Self {
        let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
        calls(&data, &["plugin", "new", "--lang", language, NAME]);
        calls(&data, &["plugin", "build", NAME]);
        Self {
            handler: data.path().join(NAME).join(handler),
            data,
        }
    }

    fn read(&self) -> String {
        std::fs::read_to_string(&self.handler).expect("the project is ours")
    }

    /// The record of the last build of this project; empty if there is none.
    fn build_record(&self) -> String {
        let file = format!("{NAME}/build/{NAME}.built");
        std::fs::read_to_string(self.data.path().join(file)).unwrap_or_default()
    }

    /// Saves the handler as an editor does: beside it, and then in its place.
    fn save(&self, text: &str) {
        let beside = self.handler.with_extension("new~");
        std::fs::write(&beside, text).expect("the project is ours");
        std::fs::rename(beside, &self.handler).expect("the project is ours");
    }

    fn program(&self) -> Program {
        self.program_with(&[])
    }

    fn program_with(&self, more: &[&str]) -> Program {
        let words = ["dev", NAME, "--log-format", "json"];
        let dev = Program::new([&words, more].concat()).sharing(&self.data);
        toolchains::environment()
            .into_iter()
            .fold(dev, |dev, (name, value)| {
                dev.env(name, value.to_str().expect("paths of tests are text"))
            })
    }

    fn develop(&self) -> RunningProgram {
        self.program().start()
    }

    async fn order(&self) {
        send(self.data.path(), NAME, [ORDER.to_owned()]).await;
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
    running.wait_for_line(|line| {
        line.contains(&format!("try it: dispatcher send local:{NAME} '{ORDER}'"))
    });
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

/// Compiles as the tests do, until there is a module that takes longer.
const COMPILER: &str = "#!/bin/sh\nslow=\"$(dirname \"$0\")/slow.wasm\"\n\
    [ -e \"$slow\" ] || exec python3 -m ziglang \"$@\"\n\
    while [ \"$1\" != -o ]; do shift; done\nexec cp \"$slow\" \"$2\"\n";

#[tokio::test]
async fn the_old_version_serves_while_a_save_is_compiled() {
    let project = DevProject::new();
    let tools = project.data.path().join("tools");
    std::fs::create_dir_all(&tools).expect("it is ours");
    let compiler = tools.join("zig");
    std::fs::write(&compiler, COMPILER).expect("it is ours");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&compiler, mode).expect("it is ours");
    let environment = toolchains::environment();
    let path = environment.iter().find(|(name, _)| *name == "PATH");
    let path = path.and_then(|(_, path)| path.to_str()).expect("a path");
    let path = format!("{}:{path}", tools.display());
    // What an earlier test has compiled would be compiled at once.
    let cache = project.data.path().join("cache").display().to_string();
    let program = project.program().env("PATH", &path);
    let mut running = program.env("XDG_CACHE_HOME", &cache).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    let slow = slow_module(SLOW);
    std::fs::write(tools.join("slow.wasm"), slow).expect("it is ours");
    project.save(&project.read().replace(PRINTED, "hundredths\\n"));
    let replaced = |line: &str| line.contains("replaced: new attempts run this version");
    running.wait_for_line(|line| line.contains("compiling plugin") && line.contains("\"seconds\""));
    project.order().await;
    wait_for_print(&running, "order o-1: 250 cents");
    assert!(running.lines(replaced).is_empty(), "it is compiled by now");
    running.wait_for_line(replaced);
    project.order().await;
    until_depth(project.data.path(), NAME, |depth| {
        depth.waiting + depth.in_flight == 0
    })
    .await;
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let printed = running.lines(|line| printed(line) && line.contains("order o-1"));
    assert_eq!(
        printed.len(),
        1,
        "the new version prints nothing: {printed:?}"
    );
}

#[tokio::test]
async fn a_failure_is_shown_with_the_place_of_the_trap() {
    let project = DevProject::new();
    let price = "__attribute__((noinline)) static int price_of(int amount) {\n  \
                 if (amount) __builtin_trap();\n  return amount;\n}\n\nstatic bool check(";
    let call = "  printf(\"priced %d\\n\", price_of((int)amount));\n  printf(\"order ";
    let text = project.read().replace("static bool check(", price);
    project.save(&text.replace("  printf(\"order ", call));
    let mut running = project.develop();
    running.wait_for_line(|line| line.contains("\"running\""));
    project.order().await;
    let shown = running.wait_for_line(|line| {
        line.contains("dispatcher_wasm::scene") && line.contains("the plugin trapped")
    });
    let trace = field(&shown, "trace");
    assert!(trace.starts_with("price_of ← "), "{trace}: {shown}");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

/// The next message after a save is handled by what was saved.
async fn a_save_is_served(language: &str, handler: &str) {
    let project = DevProject::of(language, handler);
    let mut running = project.develop();
    running.wait_for_line(|line| line.contains("\"running\""));
    project.order().await;
    wait_for_print(&running, "order o-1: 250 cents");
    let first = project.read();
    let at = first.rfind(" cents").expect("the template prints it");
    let recorded = project.build_record();
    let (before, after) = (&first[..at], &first[at + " cents".len()..]);
    project.save(&format!("{before} hundredths{after}"));
    running.wait_for_line(|line| line.contains("replaced: new attempts run this version"));
    project.order().await;
    wait_for_print(&running, "order o-1: 250 hundredths");
    // Cargo itself sees what is unchanged.
    if language == "rust" {
        running.stop();
        return;
    }
    // The new version serves before the build has looked at it.
    let until = Instant::now() + dispatcher_tests::PATIENCE;
    while [String::new(), recorded.clone()].contains(&project.build_record()) {
        assert!(Instant::now() < until, "the build is not recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.stop();
    let mut again = project.develop();
    again.wait_for_line(|line| line.starts_with("unchanged; using build/"));
    again.wait_for_line(|line| line.contains("\"running\""));
    again.stop();
}

#[tokio::test]
async fn a_save_is_served_in_rust() {
    a_save_is_served("rust", "src/lib.rs").await;
}

#[tokio::test]
async fn a_save_is_served_in_javascript() {
    if toolchains::has(&["node", "npm"], "the handler in JavaScript") {
        a_save_is_served("javascript", "handler.js").await;
    }
}

#[tokio::test]
async fn a_save_is_served_in_typescript() {
    if toolchains::has(&["node", "npm"], "the handler in TypeScript") {
        a_save_is_served("typescript", "handler.ts").await;
    }
}

#[tokio::test]
async fn a_save_is_served_in_python() {
    if toolchains::has(&["python3"], "the handler in Python") {
        a_save_is_served("python", "app.py").await;
    }
}

#[tokio::test]
async fn a_save_is_served_in_go() {
    if toolchains::has(&["python3"], "the handler in Go") {
        a_save_is_served("go", "main.go").await;
    }
}

/// A process that a build has started, by the line that names it.
fn started_by_build(line: &str) -> OwnedFd {
    let (_, id) = line.rsplit_once(' ').expect("the line ends with it");
    let id = Pid::from_raw(id.parse().expect("a number")).expect("a process");
    pidfd_open(id, PidfdFlags::empty()).expect("it runs")
}

/// Waits until a process has ended.
fn wait_for_end(process: &OwnedFd) {
    let patience = Timespec::try_from(dispatcher_tests::PATIENCE).expect("it fits");
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    let count = poll(&mut ended, Some(&patience)).expect("it can be waited for");
    assert_eq!(count, 1, "it still runs");
}

#[test]
fn a_change_and_the_end_kill_all_that_a_build_has_started() {
    let project = DevProject::new();
    let compiler = project.data.path().join("kit/bin/clang");
    std::fs::create_dir_all(compiler.parent().expect("a folder")).expect("it is ours");
    // A tool that waits for its own child, which ends with nothing but a signal.
    let text = "#!/bin/sh\nsleep infinity &\necho \"compiling by $!\" >&2\nwait\n";
    std::fs::write(&compiler, text).expect("it is ours");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&compiler, mode).expect("it is ours");
    let kit = project.data.path().join("kit");
    let kit = kit.to_str().expect("paths of tests are text");
    let mut running = project.program().env("WASI_SDK_PATH", kit).start();
    let is_build = |line: &str| line.contains("compiling by ");
    let first = started_by_build(&running.wait_for_line(is_build));
    project.save("int changed;\n");
    let second = running.wait_for_lines(2, is_build).swap_remove(1);
    wait_for_end(&first);
    let second = started_by_build(&second);
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    wait_for_end(&second);
}

#[tokio::test]
async fn a_first_build_that_fails_waits_for_the_save_that_mends_it() {
    let project = DevProject::new();
    let good = project.read();
    project.save("this is no C\n");
    let mut running = project.develop();
    running.wait_for_line(|line| line.contains("waiting for a change to the sources"));
    project.save(&good);
    running.wait_for_line(|line| line.contains("\"running\""));
    project.order().await;
    wait_for_print(&running, "order o-1: 250 cents");
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    project.save("nor is this\n");
    let mut waiting = project.develop();
    waiting.wait_for_line(|line| line.contains("waiting for a change to the sources"));
    waiting.signal(Signal::INT);
    assert_eq!(waiting.wait_exit(), 0);
}

#[tokio::test]
async fn failed_message_is_seen_fixed_and_redriven_on_the_page() {
    let project = DevProject::new();
    let mut running = project.develop();
    let signs_in = running.wait_for_line(|line| line.contains("this address signs you in"));
    running.wait_for_line(|line| line.contains("\"running\""));
    let body = r#"{"id": "o-0", "amount": 0}"#;
    send(project.data.path(), NAME, [body.to_owned()]).await;
    running.wait_for_line(|line| line.contains("dead-lettered"));
    let handler = project.read();
    let check =
        "  if (amount == 0) return reject(failure, \"`amount`: wanted more than nothing\");\n";
    assert!(handler.contains(check), "{handler}");
    project.save(&handler.replace(check, ""));
    running.wait_for_line(|line| line.contains("replaced: new attempts run this version"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/languages/dev.cjs");
    if let Some(mut script) = browser::script(Path::new(script)) {
        let ended = script
            .env("SIGN_IN", field(&signs_in, "url"))
            .env("DEAD", format!("local:{NAME}.dead"))
            .env("BODY", body)
            .output()
            .expect("node starts");
        let log = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{log}");
        wait_for_print(&running, "order o-0: 0 cents");
    }
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}

/// Pastes the command that a line holds into another terminal in the project's folder: one without
/// the variables of this one.
fn paste(project: &DevProject, line: &str) {
    let (_, command) = line.split_once("try it: ").expect("a command");
    let ended = Command::new("sh")
        .args([
            "-c",
            &format!("dispatcher() {{ \"$BINARY\" \"$@\"; }}; {command}"),
        ])
        .env_clear()
        .env("BINARY", child::binary())
        .env("HOME", project.data.path())
        .current_dir(project.handler.parent().expect("a folder"))
        .output()
        .expect("a shell");
    let log = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command}: {log}");
}

#[test]
fn printed_command_works_in_another_terminal() {
    let project = DevProject::new();
    for (step, data) in [
        ("true", Some("it's data")),
        // A variable that only this terminal has.
        ("export DISPATCHER_DATA=other", None),
        // The folder that `dispatcher send` takes by itself.
        ("unset DISPATCHER_DATA", None),
    ] {
        let given = data.map(|data| ["--data", data]);
        let more = given.iter().flatten().copied().collect::<Vec<_>>();
        let home = project.data.path().display().to_string();
        let program = project.program_with(&more).env("HOME", &home).after(step);
        let mut running = program.start();
        let line = running.wait_for_line(|line| line.contains("try it: "));
        assert_eq!(
            line.contains("--data"),
            !step.starts_with("unset"),
            "{line}"
        );
        running.wait_for_line(|line| line.contains("\"running\""));
        paste(&project, &line);
        wait_for_print(&running, "order o-1: 250 cents");
        running.stop();
    }
}

#[test]
fn unchanged_project_is_not_built_again() {
    let project = DevProject::new();
    let folder = project.data.path().join(NAME);
    let unchanged = format!("unchanged; using build/{NAME}.wasm");
    for (name, change, is_made_again) in [
        ("the first start", None, true),
        ("no change", None, false),
        ("a source", Some("json.c"), true),
        ("no change since", None, false),
        ("the world", Some("wit/world.wit"), true),
        ("a package file", Some("requirements.txt"), true),
        ("a lock file", Some("package-lock.json"), true),
        ("the component", Some("build/dev-orders.wasm"), true),
        ("no change at the end", None, false),
    ] {
        if let Some(file) = change {
            let file = folder.join(file);
            let mut text = std::fs::read(&file).unwrap_or_default();
            text.extend(b"\n");
            std::fs::write(&file, text).expect("the project is ours");
            // Contents count, not times: a checkout or a copy may keep old ones.
            let old = std::time::SystemTime::UNIX_EPOCH;
            let file = std::fs::File::options().write(true).open(&file);
            let times = std::fs::FileTimes::new().set_modified(old);
            file.and_then(|file| file.set_times(times))
                .expect("it is ours");
        }
        let mut running = project.develop();
        running.wait_for_line(|line| line.contains("\"running\""));
        let built = running.lines(|line| line.starts_with("built a plugin"));
        assert_eq!(built.len(), usize::from(is_made_again), "{name}");
        let kept = running.lines(|line| line.starts_with(&unchanged));
        assert_eq!(kept.len(), usize::from(!is_made_again), "{name}");
        running.stop();
    }
    // Other tools.
    let program = project.program().env("WASI_SDK_PATH", "/nowhere");
    let running = program.start();
    running.wait_for_line(|line| line.contains("waiting for a change to the sources"));
}

#[test]
fn http_without_a_granted_host_is_told_in_one_line() {
    let project = DevProject::new();
    let is_told = |line: &str| line.contains("--allow-http HOST");
    let first = project.read();
    let call = "  dispatcher_plugin_http_request_t request = {0};\n  \
                dispatcher_plugin_http_response_t response;\n  \
                dispatcher_plugin_http_http_error_t error;\n  \
                if (amount == 1) dispatcher_plugin_http_send(&request, &response, &error);\n  \
                printf(\"order ";
    let calling = first.replace("  printf(\"order ", call);
    for (text, more, count) in [
        (&first, &[][..], 0),
        (&calling, &[], 1),
        (&calling, &["--allow-http", "example.com"], 0),
    ] {
        project.save(text);
        let mut running = project.program_with(more).start();
        running.wait_for_line(|line| line.contains("\"running\""));
        let told = running.lines(is_told);
        assert_eq!(told.len(), count, "{told:?}");
        running.stop();
    }
}

#[test]
fn missing_grant_is_named_before_anything_is_built() {
    let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    calls(&data, &["plugin", "new", "--lang", "javascript", "sends"]);
    let world = data.path().join("sends/wit/world.wit");
    let text = std::fs::read_to_string(&world).expect("a world");
    let queues = "world plugin {\n    import dispatcher:plugin/queues@0.1.0;\n";
    std::fs::write(&world, text.replace("world plugin {\n", queues)).expect("written");
    let ended = Program::new(["dev", "sends"]).sharing(&data).run();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let told =
        "wit/world.wit imports sending to queues, which nothing grants; wanted --allow-send QUEUE";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
    assert!(!data.path().join("sends/node_modules").exists());
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
        let admin = running.wait_for_line(|line| line.contains("health and metrics served"));
        let at = field(&admin, "address");
        let health = format!("http://{at}/healthz");
        assert_eq!(http::get(&health).status, 200);
        running.wait_for_line(|line| line.contains("\"running\""));
        let dashboard = format!("http://{at}/ui");
        assert_eq!(field(&admin, "dashboard"), dashboard);
        let signs_in = running.wait_for_line(|line| line.contains("this address signs you in"));
        let signs_in = field(&signs_in, "url").to_owned();
        let (page, token) = signs_in.split_once('#').expect("a token");
        assert_eq!(page, format!("{dashboard}/sign-in"));
        let operator = format!("Bearer {token}");
        let queues = format!("http://{at}/api/v1/queues");
        assert_eq!(http::get(&queues).status, 401);
        let listed = http::get_with(&queues, &[("Authorization", &operator)]);
        assert_eq!(listed.status, 200, "{listed:?}");
        assert!(listed.body.contains("local:dev-orders"), "{}", listed.body);
        let queue = format!("http://{address}/000000000000/dev-orders");
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
fn its_admin_address_can_be_chosen_and_permits_actions_with_a_token() {
    let project = DevProject::new();
    let token = project.data.path().join("token");
    std::fs::write(&token, "operator").expect("written");
    let token = token.display().to_string();
    let admin = ["--admin", "127.0.0.1:0", "--admin-token-file", &token];
    let mut running = project.program_with(&admin).start();
    let served = running.wait_for_line(|line| line.contains("health and metrics served"));
    running.wait_for_line(|line| line.contains("\"running\""));
    let at = field(&served, "address");
    let pause = format!("http://{at}/api/v1/queues/local%3Adev-orders/pause");
    let operator = ("Authorization", "Bearer operator");
    assert_eq!(http::post(&pause, &[], "").status, 401);
    assert_eq!(http::post(&pause, &[operator], "").status, 200);
    running.stop();
    let shown = running.lines(|line| line.contains("#operator"));
    assert!(
        shown.is_empty(),
        "the user's own token is logged: {shown:?}"
    );
}

#[test]
fn another_admin_address_has_a_token_too() {
    let project = DevProject::new();
    for address in ["127.0.0.1:0", "0.0.0.0:0"] {
        let mut running = project.program_with(&["--admin", address]).start();
        let signs_in = running.wait_for_line(|line| line.contains("this address signs you in"));
        let signs_in = field(&signs_in, "url").to_owned();
        let (page, token) = signs_in.split_once('#').expect("a token");
        let at = page.strip_suffix("/ui/sign-in").expect("the page");
        assert!(at.starts_with("http://127.0.0.1:"), "{at}");
        running.wait_for_line(|line| line.contains("\"running\""));
        let queues = format!("{at}/api/v1/queues");
        assert_eq!(http::get(&queues).status, 401, "{address}");
        let operator = format!("Bearer {token}");
        let listed = http::get_with(&queues, &[("Authorization", &operator)]);
        assert_eq!(listed.status, 200, "{listed:?}");
        running.stop();
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
