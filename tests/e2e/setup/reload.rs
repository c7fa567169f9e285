//! A reload adds, removes and replaces routes while the others go on; a reload with a problem
//! changes nothing.

use crate::lambda::scene::admin;
use crate::scene::{field, guest, send, until_depth};
use dispatcher_tests::PATIENCE;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::http;
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::servers::{MiniStack, free_port};
use dispatcher_tests::service::{JobService, ServiceAnswer, ServiceStep};
use dispatcher_tests::sqs::SqsServer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const OPERATE: (&str, &str) = ("Authorization", "Bearer operator");
/// How often the settings are reloaded under load.
const RELOADS: usize = 50;
/// The messages that each queue gets between two reloads.
const EACH: usize = 4;

/// A service that holds the jobs that ask for it.
fn service() -> JobService {
    JobService::start(|request| {
        if request.body.starts_with("hold") {
            ServiceStep::Hold(ServiceAnswer::new(200))
        } else {
            ServiceStep::After(Duration::from_millis(3), ServiceAnswer::new(200))
        }
    })
}

/// A program whose file can be replaced.
struct ReloadedProgram {
    running: RunningProgram,
    url: String,
}

impl ReloadedProgram {
    fn start(service: &JobService, routes: &str) -> Self {
        Self::start_with(service, routes, |program| program)
    }

    fn start_with(service: &JobService, routes: &str, with: impl Fn(Program) -> Program) -> Self {
        let words = &["run", "--config", "d.toml", "--log-format", "json"][..];
        let admin_words = &["--admin", "127.0.0.1:0", "--admin-token-file", "token"][..];
        let program = Program::new([words, admin_words].concat());
        let program = program.file("token", "operator");
        let running = with(program.file("d.toml", &text(service, routes))).start();
        running.wait_for_line(|line| line.contains("\"running\""));
        let url = admin(&running);
        Self { running, url }
    }

    fn write(&self, service: &JobService, routes: &str) {
        let path = self.running.data().path().join("d.toml");
        std::fs::write(path, text(service, routes)).expect("written");
    }

    /// Replaces the routes of the file, and waits until they are applied.
    fn reload(&self, service: &JobService, routes: &str) {
        let before = self.running.lines(reloaded).len();
        self.write(service, routes);
        self.running.signal(Signal::HUP);
        self.running.wait_for_lines(before + 1, reloaded);
    }

    async fn send(&self, queue: &str, bodies: &[&str]) {
        let bodies = bodies.iter().map(|body| (*body).to_owned());
        send(self.running.data().path(), queue, bodies).await;
    }

    fn get(&self, path: &str) -> Value {
        let answer = http::get_with(&format!("{}/api/v1/{path}", self.url), &[OPERATE]);
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::from_str(&answer.body).expect("JSON")
    }

    fn post(&self, path: &str) -> (u16, Value) {
        let answer = http::post(&format!("{}/api/v1/{path}", self.url), &[OPERATE], "");
        let body = serde_json::from_str(&answer.body).expect("JSON");
        (answer.status, body)
    }

    /// The maximum number of attempts of the only route now.
    fn attempts_limit(&self) -> u64 {
        let limit = &self.get("routes")["items"][0]["attempts_limit"];
        limit.as_u64().expect("a number")
    }

    /// Waits until the only route has this many receives under way.
    fn wait_for_receives(&self, count: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.get("routes")["items"][0]["receives"] != count {
            assert!(Instant::now() < deadline, "{}", self.get("routes"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The values of one field of a list.
    fn list(&self, path: &str, name: &str) -> Vec<String> {
        let listed = self.get(path);
        let items = listed["items"].as_array().expect("items");
        let values = items.iter().map(|item| item[name].as_str());
        values
            .map(|value| value.expect("text").to_owned())
            .collect()
    }

    /// Waits until the list has these values.
    fn wait_for_list(&self, path: &str, name: &str, wanted: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        while self.list(path, name) != wanted {
            assert!(Instant::now() < deadline, "{:?}", self.list(path, name));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn text(service: &JobService, routes: &str) -> String {
    format!("[plugin.p]\nforward = \"{}\"\n\n{routes}", service.url())
}

fn route(name: &str, more: &str) -> String {
    format!("[[route]]\nname = \"{name}\"\nqueues = [\"local:{name}\"]\nplugin = \"p\"\n{more}\n")
}

fn reloaded(line: &str) -> bool {
    line.contains("\"settings reloaded: ")
}

#[tokio::test]
async fn routes_come_and_go_while_others_run() {
    let service = service();
    let (a, b, c) = (route("a", ""), route("b", ""), route("c", ""));
    let mut program = ReloadedProgram::start(&service, &format!("{a}{b}"));
    program.send("a", &["hold-a"]).await;
    program.send("b", &["hold-b"]).await;
    service.wait_for(2);
    let before = program.list("running", "id");
    program.reload(&service, &format!("{c}{b}"));
    // What runs goes on, that of the removed route as well.
    assert_eq!(program.list("running", "id"), before);
    assert_eq!(program.list("routes", "route"), ["c", "b"]);
    assert_eq!(program.list("queues", "queue"), ["local:c", "local:b"]);
    program.send("c", &["new"]).await;
    service.wait_for(3);
    // Nothing is received for the removed route any more.
    program.send("a", &["left"]).await;
    service.release();
    let finished = |line: &str| line.contains("removed route has finished");
    let line = program.running.wait_for_line(finished);
    assert_eq!(field(&line, "route"), "a");
    program.wait_for_list("running", "id", &[]);
    let data = program.running.data().path();
    until_depth(data, "b", |depth| depth == Default::default()).await;
    until_depth(data, "a", |depth| {
        (depth.waiting, depth.in_flight) == (1, 0)
    })
    .await;
    let metrics = http::get(&format!("{}/metrics", program.url)).body;
    assert!(!metrics.contains("\"local:a\""), "{metrics}");
    assert!(metrics.contains("route_attempts{route=\"c\"}"), "{metrics}");
    // It comes back with what was left.
    program.reload(&service, &format!("{a}{b}{c}"));
    let record = service.wait_for(4);
    assert_eq!(record[3].body, "left");
    assert_eq!(program.list("routes", "route"), ["a", "b", "c"]);
    program.running.stop();
}

#[tokio::test]
async fn new_version_leaves_attempts_to_the_earlier_one() {
    let service = service();
    let with = |poll_for: u32, concurrency: u32| {
        let more = format!("poll-for = {poll_for}\nconcurrency = {concurrency}\n");
        route("r", &more)
    };
    let mut program = ReloadedProgram::start(&service, &with(20, 2));
    program.send("r", &["hold-1"]).await;
    service.wait_for(1);
    program.reload(&service, &with(19, 2));
    let line = program
        .running
        .wait_for_line(|line| line.contains("route replaced by a new version"));
    assert_eq!(field(&line, "settings"), "poll-for");
    program
        .running
        .wait_for_lines(2, |line| line.contains("\"message\":\"running\""));
    assert_eq!(program.attempts_limit(), 1, "the other one still runs");
    program.send("r", &["hold-2", "hold-3"]).await;
    service.wait_for(2);
    let attempts = program.list("running", "id");
    // Both attempts are taken, and so a third version does not start.
    program.reload(&service, &with(18, 2));
    assert_eq!(program.list("running", "id"), attempts);
    // With more attempts it does.
    program.reload(&service, &with(18, 3));
    program
        .running
        .wait_for_lines(3, |line| line.contains("\"message\":\"running\""));
    assert_eq!(program.attempts_limit(), 1);
    service.wait_for(3);
    service.release();
    let data = program.running.data().path();
    until_depth(data, "r", |depth| depth == Default::default()).await;
    let record = service.record();
    assert_eq!((record.requests.len(), record.most_in_flight), (3, 3));
    let deadline = Instant::now() + PATIENCE;
    while program.attempts_limit() != 3 {
        assert!(Instant::now() < deadline, "it has all attempts in the end");
        std::thread::sleep(Duration::from_millis(20));
    }
    program.running.stop();
}

#[tokio::test]
async fn route_with_groups_in_order_is_replaced_once_it_has_finished() {
    let service = service();
    let with = |poll_for: u32| {
        let more = format!("poll-for = {poll_for}\ngroup-by = \"/group\"\n");
        route("r", &more)
    };
    let mut program = ReloadedProgram::start(&service, &with(20));
    program.send("r", &["hold"]).await;
    service.wait_for(1);
    program.reload(&service, &with(19));
    program.send("r", &["after"]).await;
    // Another name does not change that. The other route shows that the process receives.
    let (r, s) = (with(18), route("s", ""));
    let renamed = r.replace("name = \"r\"", "name = \"renamed\"");
    program.reload(&service, &format!("{renamed}{s}"));
    assert_eq!(program.list("routes", "route"), ["s"]);
    program.send("s", &["other"]).await;
    assert_eq!(service.wait_for(2)[1].body, "other");
    assert_eq!(service.record().requests.len(), 2);
    service.release();
    assert_eq!(service.wait_for(3)[2].body, "after");
    program.running.stop();
}

#[tokio::test]
async fn pause_of_an_operator_outlasts_a_new_version() {
    let service = service();
    let with = |poll_for: u32| route("r", &format!("poll-for = {poll_for}\n"));
    let mut program = ReloadedProgram::start(&service, &with(20));
    assert_eq!(program.post("queues/local%3Ar/pause").0, 200);
    program.reload(&service, &with(19));
    program
        .running
        .wait_for_lines(2, |line| line.contains("\"message\":\"running\""));
    assert_eq!(program.get("queues/local%3Ar")["queue"]["paused"], true);
    program.send("r", &["waits"]).await;
    let (r, s) = (with(19), route("s", ""));
    let renamed = r.replace("name = \"r\"", "name = \"renamed\"");
    program.reload(&service, &format!("{renamed}{s}"));
    assert_eq!(program.get("queues/local%3Ar")["queue"]["paused"], true);
    program.send("s", &["other"]).await;
    assert_eq!(service.wait_for(1)[0].body, "other");
    assert_eq!(program.post("queues/local%3Ar/resume").0, 200);
    assert_eq!(service.wait_for(2)[1].body, "waits");
    program.running.stop();
}

#[tokio::test]
async fn reload_with_problems_changes_nothing_and_names_them_all() {
    let service = service();
    let away = format!(
        "[backend.redis]\nurl = \"redis://127.0.0.1:{}\"\n",
        free_port()
    );
    let r = away.clone() + &route("r", "");
    let mut program = ReloadedProgram::start(&service, &r);
    // Once its receive is open, no figure of an idle route changes.
    program.wait_for_receives(1);
    let before = program.get("routes");
    let bad = format!(
        "{away}[limit.l]\nconcurrency = 1\n[plugin.gone]\nfile = \"gone.wasm\"\n[plugin.hello]\nfile = \"{}\"\n\
         [[route]]\nname = \"r\"\nqueues = [\"local:r\"]\nplugin = \"p\"\npoll-for = 3\n\
         [[route]]\nname = \"s\"\nqueues = [\"redis:q\"]\nplugin = \"hello\"\n\
         [[route]]\nname = \"t\"\nqueues = [\"local:t\"]\nplugin = \"gone\"\n",
        guest("hello")
    );
    program.write(&service, &bad);
    program.running.signal(Signal::HUP);
    program
        .running
        .wait_for_line(|line| line.contains("settings not reloaded"));
    let refused = program
        .running
        .lines(|line| line.contains("setting refused"));
    for part in ["gone.wasm", "redis"] {
        let named = refused.iter().filter(|line| line.contains(part)).count();
        assert_eq!(named, 1, "{part} in {refused:?}");
    }
    assert_eq!(program.get("routes"), before);
    // A limit of all processes is no part of a reload.
    let limited = format!(
        "{away}[limit.l]\nconcurrency = 1\n{}",
        route("r", "limits = [\"l\"]\n")
    );
    program.write(&service, &limited);
    program.running.signal(Signal::HUP);
    program
        .running
        .wait_for_lines(2, |line| line.contains("settings not reloaded"));
    let refused = program.running.lines(|line| line.contains("limit `l`"));
    assert_eq!(refused.len(), 1, "{refused:?}");
    // The API says the same, and what a reload without problems has changed.
    let (status, problem) = program.post("process/reload");
    assert_eq!(status, 422, "{problem}");
    let problems = problem["problems"].as_array().expect("problems");
    assert_eq!(problems.len(), 1, "{problem}");
    program.write(
        &service,
        &(away + &route("r", "poll-for = 7") + &route("s", "")),
    );
    let wanted = json!({
        "added": ["s"], "replaced": [{"route": "r", "settings": ["poll-for"]}],
        "removed": [], "needs_restart": [],
    });
    assert_eq!(program.post("process/reload"), (200, wanted));
    program.send("r", &["works"]).await;
    service.wait_for(1);
    program.running.stop();
}

/// Nothing is lost and nothing is handled twice, and the attempts of an unchanged route go on.
#[tokio::test]
async fn fifty_reloads_under_load_lose_and_repeat_nothing() {
    let service = service();
    let routes = |number: usize| {
        let poll_for = 1 + number % 3;
        let changing = format!("poll-for = {poll_for}\nconcurrency = 5\nprefetch = 3\n");
        let mut text = route("steady", "") + &route("changing", &changing);
        if number.is_multiple_of(2) {
            text.push_str(&route("coming", ""));
        }
        text
    };
    let mut program = ReloadedProgram::start(&service, &routes(0));
    program.send("steady", &["hold"]).await;
    service.wait_for(1);
    let held = program.list("running", "id");
    let mut sent = 1;
    for number in 1..=RELOADS {
        for queue in ["steady", "changing", "coming"] {
            let bodies: Vec<String> = (0..EACH)
                .map(|one| format!("{queue}-{number}-{one}"))
                .collect();
            let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
            program.send(queue, &bodies).await;
            sent += EACH;
        }
        program.reload(&service, &routes(number));
    }
    assert!(program.list("running", "id").contains(&held[0]));
    service.wait(|record| record.requests.len() >= sent);
    service.release();
    let data = program.running.data().path().to_owned();
    for queue in ["steady", "changing", "coming"] {
        until_depth(&data, queue, |depth| depth == Default::default()).await;
    }
    let mut handled: BTreeMap<String, usize> = BTreeMap::new();
    for request in service.record().requests {
        *handled.entry(request.body).or_default() += 1;
    }
    let repeated: Vec<_> = handled.iter().filter(|(_, times)| **times != 1).collect();
    assert_eq!((handled.len(), repeated.len()), (sent, 0), "{repeated:?}");
    for wrong in ["lease lost", "\"ERROR\"", "not left"] {
        assert_eq!(program.running.lines(|line| line.contains(wrong)), [""; 0]);
    }
    program.running.stop();
}

/// The long poll of another queue is still under way when the new version handles a message.
#[tokio::test]
async fn messages_do_not_wait_for_the_receives_of_an_earlier_version() {
    let server = MiniStack::shared();
    let sqs = SqsServer::at(&server.url());
    let (busy, idle) = (SqsServer::fresh_name("busy"), SqsServer::fresh_name("idle"));
    let url = sqs.create(&busy, &[]).await;
    sqs.create(&idle, &[]).await;
    let service = service();
    let with = |poll_for: u32| {
        format!(
            "[[route]]\nname = \"r\"\nplugin = \"p\"\nqueues = [\"{busy}\", \"{idle}\"]\npoll-for = {poll_for}\n"
        )
    };
    let aws = |program: Program| program.aws(&server.url());
    let program = ReloadedProgram::start_with(&service, &with(20), aws);
    program.wait_for_receives(2);
    program.reload(&service, &with(19));
    sqs.send_many(&url, ["now".to_owned()]).await;
    service.wait_for(1);
    let answered = |line: &str| line.contains("\"outstanding receives answered\"");
    assert_eq!(program.running.lines(answered), [""; 0]);
}

/// A version that leaves a queue takes nothing from the next one.
#[tokio::test]
async fn route_of_a_remote_queue_is_replaced_and_loses_and_repeats_nothing() {
    let (redis, server) = (RedisServer::start(&[]), MiniStack::shared());
    let plain = SqsServer::fresh_name("reloaded");
    SqsServer::at(&server.url()).create(&plain, &[]).await;
    let url = redis.url();
    let with = |program: Program| {
        let program = program.env("DISPATCHER_REDIS_URL", &url);
        let program = program.env("DISPATCHER_REDIS_FORMAT", "tasks=worqr");
        program.aws(&server.url())
    };
    for queue in ["redis:jobs", "redis:tasks", &plain] {
        let service = service();
        let route = |number: u32| {
            format!(
                "[[route]]\nname = \"r\"\nplugin = \"p\"\nqueues = [\"{queue}\"]\npoll-for = {}\n",
                1 + number % 2
            )
        };
        let mut program = ReloadedProgram::start_with(&service, &route(0), with);
        let mut bodies = Vec::new();
        for number in 1..6 {
            for one in 0..3 {
                let body = format!("{number}-{one}");
                let sent = with(Program::new(["send", queue, &body])).run();
                assert_eq!(sent.code, 0, "{sent:?}");
                bodies.push(body);
            }
            program.reload(&service, &route(number));
        }
        service.wait(|record| record.requests.len() >= bodies.len());
        program.running.stop();
        let mut handled: Vec<String> = Vec::new();
        for request in service.record().requests {
            handled.push(request.body);
        }
        handled.sort();
        assert_eq!(handled, bodies, "{queue}");
    }
}
