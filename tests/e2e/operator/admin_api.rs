//! The admin API: what it answers, who may act, and that slow clients cost others nothing.

use crate::lambda::scene::admin;
use crate::scene::{guest, run, send, until_depth};
use dispatcher_core::queue::Depth;
use dispatcher_tests::child::{ExitedProgram, Program, RunningProgram, Signal};
use dispatcher_tests::http;
use dispatcher_tests::schema;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Opening ten times as many local queues takes longer than a test should.
const MANY: usize = 1_000;
/// The header with the token for actions.
const OPERATE: (&str, &str) = ("Authorization", "Bearer operator");

/// A process with an admin address and a token for each role.
pub(crate) struct ApiScene {
    pub running: RunningProgram,
    pub url: String,
    tokens: tempfile::TempDir,
}

impl ApiScene {
    /// Of a program; `more` are flags of `run`.
    pub(crate) fn of(program: impl FnOnce(&[&str]) -> Program, more: &[&str]) -> Self {
        let tokens = tempfile::tempdir().expect("a folder");
        let file = |name: &str| {
            let path = tokens.path().join(name);
            std::fs::write(&path, name).expect("written");
            path.display().to_string()
        };
        let (operator, reader) = (file("operator"), file("reader"));
        let flags = [
            "--admin",
            "127.0.0.1:0",
            "--admin-token-file",
            &operator,
            "--admin-read-token-file",
            &reader,
        ];
        let running = program(&[&flags, more].concat()).start();
        let url = admin(&running);
        // The API answers once the routes run.
        running.wait_for_line(|line| line.contains("\"message\":\"running\""));
        let deadline = Instant::now() + dispatcher_tests::MOST_PATIENCE;
        let overview = format!("{url}/api/v1/overview");
        while http::get_with(&overview, &[OPERATE]).status == 503 {
            assert!(Instant::now() < deadline, "it does not start");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Self {
            running,
            url,
            tokens,
        }
    }

    /// Replaces the token for actions.
    pub(crate) fn replace_token(&self, token: &str) {
        std::fs::write(self.tokens.path().join("operator"), token).expect("written");
        self.running.signal(Signal::HUP);
        self.running
            .wait_for_line(|line| line.contains("admin token replaced"));
    }

    /// Of the plugin `verdicts` on local queues.
    pub(crate) fn verdicts(more: &[&str]) -> Self {
        Self::of(|flags| run("verdicts", flags), more)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = http::get_with(&format!("{}{path}", self.url), &[OPERATE]);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        serde_json::from_str(&answer.body).expect("JSON")
    }

    pub(crate) fn ask(&self, path: &str, body: &str) -> (u16, Value) {
        let answer = http::post(&format!("{}{path}", self.url), &[OPERATE], body);
        let body = serde_json::from_str(&answer.body).unwrap_or_default();
        (answer.status, body)
    }

    /// An action that is taken.
    pub(crate) fn act(&self, path: &str, body: &str) -> Value {
        let (status, answer) = self.ask(path, body);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Starts a job, and shows it once it has ended: the answer alone comes after a second at most.
    pub(crate) fn run_job(&self, path: &str, order: &str) -> Value {
        until_ended(&self.act(path, order), |path| self.get(path))
    }

    /// The attempts under way once there are so many.
    pub(crate) fn running_attempts(&self, wanted: usize) -> Vec<Value> {
        let deadline = Instant::now() + dispatcher_tests::PATIENCE;
        loop {
            let items = self.get("/api/v1/running?limit=500")["items"].clone();
            let items = items.as_array().expect("a list").clone();
            if items.len() == wanted {
                return items;
            }
            assert!(Instant::now() < deadline, "{items:?}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// A command that asks this process.
    pub(crate) fn command(&self, words: &[&str]) -> Program {
        let token = self.tokens.path().join("operator").display().to_string();
        let of = ["--admin", &self.url, "--admin-token-file", &token];
        Program::new([words, &of].concat())
    }

    /// `dispatcher cancel`, which asks this process.
    fn cancel(&self, message: &str) -> ExitedProgram {
        let cancel = self.command(&["cancel", "local:default", message]);
        cancel.sharing(self.running.data()).run()
    }

    /// Sends a message that waits for an hour; its id.
    fn send_later(&self) -> String {
        let words = ["send", "local:default", "later", "--delay", "1h"];
        let sent = Program::new(words).sharing(self.running.data()).run();
        assert_eq!(sent.code, 0, "{sent:?}");
        sent.stdout.trim().to_owned()
    }

    pub(crate) fn data(&self) -> &std::path::Path {
        self.running.data().path()
    }

    /// The audit events once there are so many. All, whatever their number, are there after the stop.
    pub(crate) fn audit(&self, event: &str, count: usize) -> Vec<Value> {
        let of = format!("\"message\":\"{event}\"");
        let lines = self
            .running
            .wait_for_lines(count, |line| line.contains(&of));
        let lines = lines.iter();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }
}

/// A job once it has ended, as `get` shows it.
pub(crate) fn until_ended(job: &Value, get: impl Fn(&str) -> Value) -> Value {
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().expect("an id"));
    let deadline = Instant::now() + dispatcher_tests::MOST_PATIENCE;
    loop {
        let shown = get(&path);
        if shown["state"] != "running" {
            return shown;
        }
        assert!(Instant::now() < deadline, "{shown}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// What to ask an endpoint for: its path with real names, and a body.
fn example(method: &str, path: &str, attempt: &str) -> (String, Value) {
    let real = path
        .replace("{queue}", "local%3Adefault")
        .replace("{route}", "verdicts")
        .replace("{id}", attempt);
    let body = match path {
        "/api/v1/queues/{queue}/limits" => {
            json!({"concurrency": 3, "rate": 1000.5, "prefetch": null})
        }
        "/api/v1/routes/{route}/limits" => json!({"concurrency": 4, "prefetch": 1}),
        "/api/v1/routes/{route}/weights" => json!({"tenant": "acme", "weight": 2}),
        "/api/v1/queues/{queue}/cancel"
        | "/api/v1/queues/{queue}/delete"
        | "/api/v1/queues/{queue}/resend" => json!({"message": "none"}),
        "/api/v1/fleet/find" | "/api/v1/fleet/cancel" => {
            json!({"message": "none", "queue": "local:default"})
        }
        "/api/v1/fleet/limits/{limit}" => json!({"concurrency": 4, "rate": 10.5, "burst": null}),
        "/api/v1/fleet/log-level" => json!({"level": "info"}),
        "/api/v1/schedules/run" | "/api/v1/schedules/cancel" => {
            json!({"schedule": "local:default/none"})
        }
        "/api/v1/queues/{queue}/move" => json!({"to": "local:default.dead"}),
        "/api/v1/queues/{queue}/redrive" => json!({
            "to": "local:default.dead", "reason": "timeout", "reason_is": "timeout", "where": ["/a=1"], "older": "1h",
            "messages": ["m"], "first": 3, "rate": 10.5, "scan": 100, "stop_at": 0.2,
            "edits": {"m": "body"}, "try": "verdicts", "apply": false,
        }),
        "/api/v1/queues/{queue}/messages" => json!({"messages": [{
            "body": "done", "attributes": {"a": "x", "n": 7, "b": {"base64": "AAE="}},
            "group": "g", "deduplication_id": "d",
        }]}),
        _ => json!({}),
    };
    let query = match path {
        _ if method == "post" => "",
        "/api/v1/queues" => "?depth=true",
        "/api/v1/schedules" => "?queue=local%3Adefault",
        "/api/v1/queues/{queue}/messages" => {
            "?reason=x&reason_is=x&where=%2Fa%3D1&older=1h&scan=100&limit=5"
        }
        _ => "",
    };
    (format!("{real}{query}"), body)
}

/// What the example names is not there: the message, the job, the limit.
fn is_absent(path: &str) -> bool {
    let of_message = ["cancel", "delete", "resend", "messages/{id}"];
    let of_message = of_message.map(|end| format!("/api/v1/queues/{{queue}}/{end}"));
    let parts = [
        "/api/v1/jobs/",
        "/api/v1/schedules/",
        "/api/v1/fleet/limits/",
    ];
    of_message.iter().any(|one| one == path) || parts.iter().any(|part| path.starts_with(part))
}

/// Answers with their names and schemas, held to these and to what was there to be shown.
fn check_answers(document: &Value, pairs: &[(String, Value, Value)]) {
    assert!(pairs.len() > 40, "{}", pairs.len());
    assert_eq!(schema::problems(&document["components"], pairs), [""; 0]);
    let named = |name: &str| pairs.iter().find(|(one, _, _)| one == name).expect(name);
    let shown = &named("get /api/v1/schedules").2["items"][0]["queue"];
    assert_eq!(shown, "local:default");
    let outcome = &named("get /api/v1/outcomes").2["items"][0];
    assert_eq!(outcome["event"], "dead-lettered");
    assert_eq!(outcome["reason"], "no");
    let content = &named("get /api/v1/running/{id}").2["messages"][0]["content"]["body"];
    assert_eq!(content, "sleep:600000");
}

#[tokio::test]
async fn every_documented_endpoint_is_routed_and_answers_as_its_schema_says() {
    let mut scene = ApiScene::verdicts(&["--admin-bodies", "--tenant", "group"]);
    let bodies = ["reject:no", "sleep:600000"].map(str::to_owned);
    send(scene.data(), "default", bodies).await;
    scene
        .running
        .wait_for_line(|line| line.contains("message dead-lettered"));
    let program = Program::new([
        "schedule",
        "add",
        "local:default",
        "--body",
        "later",
        "--in",
        "1h",
    ]);
    assert_eq!(program.sharing(scene.running.data()).run().code, 0);
    let attempt = scene.running_attempts(1)[0]["id"].clone();
    let attempt = attempt.as_str().expect("an id");
    let document = scene.get("/api/v1/openapi.json");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/docs/openapi.json");
    let file = std::fs::read_to_string(file).expect("the file");
    let file: Value = serde_json::from_str(&file).expect("JSON");
    assert_eq!(document, file, "host/docs/openapi.json");
    let mut pairs = Vec::new();
    let paths = document["paths"].as_object().expect("paths");
    // What ends things comes last.
    let mut order: Vec<(&String, &str)> = Vec::new();
    for (path, methods) in paths {
        let methods = methods.as_object().expect("methods");
        order.extend(methods.keys().map(|method| (path, method.as_str())));
    }
    let ends = |path: &str| path.ends_with("/cancel") as u8 + 2 * path.ends_with("/drain") as u8;
    order.sort_by_key(|(path, _)| ends(path));
    for (path, method) in order {
        let operation = &paths[path][method];
        let content = &operation["responses"]["200"]["content"];
        if content.get("text/event-stream").is_some() {
            continue; // see the tests of streams
        }
        let (real, body) = example(method, path, attempt);
        let url = format!("{}{real}", scene.url);
        let problem = json!({"$ref": "#/components/schemas/Problem"});
        // It is refused before the request that acts: nothing answers after `drain`.
        if method == "post" {
            let unknown = http::post(&url, &[OPERATE], r#"{"colour": "blue"}"#);
            assert_eq!(unknown.status, 422, "{real}: {unknown:?}");
            let value = serde_json::from_str(&unknown.body).expect("JSON");
            pairs.push((format!("problem of {path}"), problem.clone(), value));
        } else {
            let unknown = if real.contains('?') {
                "&colour=blue"
            } else {
                "?colour=blue"
            };
            let refused = http::get_with(&format!("{url}{unknown}"), &[OPERATE]);
            assert_eq!(refused.status, 400, "{real}: {refused:?}");
        }
        let answer = match method {
            "get" => http::get_with(&url, &[OPERATE]),
            _ => http::post(&url, &[OPERATE], &body.to_string()),
        };
        let (schema, wanted) = match path.as_str() {
            path if is_absent(path) => (problem.clone(), 404),
            // There is no canary, and no file.
            "/api/v1/routes/{route}/rollback" | "/api/v1/process/reload" => (problem.clone(), 409),
            _ => (content["application/json"]["schema"].clone(), 200),
        };
        assert_eq!(answer.status, wanted, "{method} {real}: {answer:?}");
        let value = serde_json::from_str(&answer.body).expect("JSON");
        pairs.push((format!("{method} {path}"), schema, value));
        if method == "post" {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            pairs.push((format!("request of {path}"), schema.clone(), body));
        }
    }
    check_answers(&document, &pairs);
    assert_eq!(scene.running.wait_exit(), 0, "it was drained");
}

#[test]
fn a_read_token_reads_and_does_not_act_and_each_action_is_one_audit_line() {
    let mut scene = ApiScene::verdicts(&[]);
    let pause = format!("{}/api/v1/queues/local%3Adefault/pause", scene.url);
    let queues = format!("{}/api/v1/queues", scene.url);
    // Ann, with the token for reading.
    let reader = ("Authorization", "Basic QW5uOnJlYWRlcg==");
    assert_eq!(http::get_with(&queues, &[reader]).status, 200);
    assert_eq!(http::get(&queues).status, 401);
    let refused = http::post(&pause, &[reader], "");
    assert_eq!(refused.status, 403, "{refused:?}");
    let forged = [OPERATE, ("Origin", "http://evil.example.com")];
    assert_eq!(http::post(&pause, &forged, "").status, 403);
    let strange = [OPERATE, ("Host", "evil.example.com")];
    assert_eq!(http::post(&pause, &strange, "").status, 421);
    let huge = format!("{{\"x\": \"{}\"}}", "x".repeat(100_000));
    assert_eq!(http::post(&pause, &[OPERATE], &huge).status, 413);
    assert_eq!(scene.audit("admin action", 0).len(), 0);
    // Bob, with the token for actions.
    let operator = ("Authorization", "Basic Qm9iOm9wZXJhdG9y");
    let paused = http::post(&pause, &[operator], "");
    assert_eq!(paused.status, 200, "{paused:?}");
    scene.running.stop();
    let taken = scene.audit("admin action", 1);
    assert_eq!(taken.len(), 1, "{taken:?}");
    for (name, wanted) in [
        ("user", json!("Bob")),
        ("role", json!("operate")),
        ("target_name", json!("local:default")),
        ("count", json!(1)),
        ("path", json!("/api/v1/queues/local%3Adefault/pause")),
    ] {
        assert_eq!(taken[0][name], wanted, "{name}: {taken:?}");
    }
    let refusals = scene.audit("admin action refused", 2);
    let by_ann = refusals.iter().filter(|line| line["user"] == "Ann");
    assert_eq!(by_ann.count(), 1, "{refusals:?}");
    let too_large = refusals.iter().filter(|line| line["status"] == 413);
    assert_eq!(too_large.count(), 1, "{refusals:?}");
}

#[test]
fn nothing_is_done_unless_the_whole_request_is_understood() {
    let mut scene = ApiScene::verdicts(&["--concurrency", "4"]);
    let limits = "/api/v1/queues/local%3Adefault/limits";
    let (status, problem) = scene.ask(limits, r#"{"rate": 5, "concurrency": 0, "prefech": 1}"#);
    assert_eq!(status, 422);
    let errors = problem["errors"].as_array().expect("a list");
    assert_eq!(errors.len(), 2, "{problem}");
    assert_eq!(errors[0]["field"], "concurrency");
    assert_eq!(errors[0]["wanted"], "a whole number of at least 1");
    assert_eq!(errors[1]["hint"], "did you mean `prefetch`?");
    let queue = scene.get("/api/v1/queues/local%3Adefault");
    assert_eq!(queue["queue"]["rate"]["live"], false, "{queue}");
    for (path, body, wanted) in [
        (limits, r#"{"concurrency": 5}"#, "at most 4"),
        (limits, "{}", "concurrency, rate or prefetch"),
        (
            "/api/v1/routes/verdicts/limits",
            r#"{"concurrency": 5}"#,
            "at most 4",
        ),
    ] {
        let (status, problem) = scene.ask(path, body);
        assert_eq!(status, 422, "{problem}");
        assert_eq!(problem["errors"][0]["wanted"], wanted);
    }
    let (status, problem) = scene.ask("/api/v1/queues/local%3Adefautl/pause", "");
    assert_eq!(status, 404);
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("Did you mean `local:default`?"), "{detail}");
    scene.running.stop();
}

#[tokio::test]
async fn limits_change_at_once_and_survive_sighup() {
    let mut scene = ApiScene::verdicts(&["--concurrency", "4"]);
    let limits = "/api/v1/queues/local%3Adefault/limits";
    scene.act(limits, r#"{"concurrency": 1}"#);
    send(
        scene.data(),
        "default",
        (0..3).map(|_| "sleep:600000".to_owned()),
    )
    .await;
    assert_eq!(scene.running_attempts(1).len(), 1);
    scene.running.signal(dispatcher_tests::child::Signal::HUP);
    scene
        .running
        .wait_for_line(|line| line.contains("settings reloaded"));
    let shown = scene.get("/api/v1/queues/local%3Adefault")["queue"]["concurrency"].clone();
    assert_eq!(shown, json!({"value": 1, "configured": null, "live": true}));
    scene.act(limits, r#"{"concurrency": null}"#);
    let attempts = scene.running_attempts(3);
    scene.act("/api/v1/routes/verdicts/limits", r#"{"concurrency": 2}"#);
    let route = scene.get("/api/v1/routes")["items"][0].clone();
    assert_eq!(
        route["concurrency"],
        json!({"value": 2, "configured": 4, "live": true})
    );
    for attempt in attempts {
        let id = attempt["id"].as_str().expect("an id");
        scene.act(&format!("/api/v1/running/{id}/cancel"), "");
    }
    scene
        .running
        .wait_for_lines(3, |line| line.contains("message cancelled"));
    scene.running.stop();
}

#[tokio::test]
async fn a_running_attempt_is_cancelled_and_its_message_deleted() {
    let mut scene = ApiScene::verdicts(&[]);
    let bodies = ["sleep:600000", "loop-calls"].map(str::to_owned);
    send(scene.data(), "default", bodies).await;
    let attempts = scene.running_attempts(2);
    assert!(
        attempts.iter().all(|one| one["stuck"].is_null()),
        "{attempts:?}"
    );
    assert!(
        attempts[0]["messages"][0]["content"].is_null(),
        "bodies need a grant"
    );
    let lease = attempts[0]["messages"][0]["lease_left_s"].as_f64();
    assert!(
        lease.is_some_and(|left| left > 5.0 && left <= 30.0),
        "{attempts:?}"
    );
    let version = attempts[0]["version"].as_str().expect("a version");
    assert!(version.contains("verdicts.wasm sha256:"), "{version}");
    let id = attempts[0]["id"].as_str().expect("an id");
    let done = scene.act(&format!("/api/v1/running/{id}/cancel"), "");
    assert_eq!(done, json!({"waiting": 0, "running": 1}));
    let message = attempts[1]["messages"][0]["id"].as_str().expect("an id");
    let body = json!({"message": message}).to_string();
    let done = scene.act("/api/v1/queues/local%3Adefault/cancel", &body);
    assert_eq!(done, json!({"waiting": 0, "running": 1}));
    scene
        .running
        .wait_for_lines(2, |line| line.contains("message cancelled"));
    until_depth(scene.data(), "default", |left| left == Depth::default()).await;
    let (status, _) = scene.ask(&format!("/api/v1/running/{id}/cancel"), "");
    assert_eq!(status, 404, "it has ended");
    // By command, and one that waits for its time.
    send(scene.data(), "default", ["sleep:600000".to_owned()]).await;
    let attempts = scene.running_attempts(1);
    let message = attempts[0]["messages"][0]["id"].as_str().expect("an id");
    let ended = scene.cancel(message);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("1 running stopped"), "{ended:?}");
    scene
        .running
        .wait_for_lines(3, |line| line.contains("message cancelled"));
    let later = scene.send_later();
    let body = json!({"message": later}).to_string();
    let done = scene.act("/api/v1/queues/local%3Adefault/cancel", &body);
    assert_eq!(done, json!({"waiting": 1, "running": 0}));
    let ended = scene.cancel(&later);
    assert_eq!(ended.code, 1, "it is gone: {ended:?}");
    until_depth(scene.data(), "default", |left| left == Depth::default()).await;
    let cancelled = scene.get("/api/v1/outcomes?event=cancelled");
    assert_eq!(cancelled["items"].as_array().map(Vec::len), Some(3));
    scene.running.stop();
    // Nobody is there to be asked, and the queue can be looked at without.
    let later = scene.send_later();
    let ended = scene.cancel(&later);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("1 waiting removed"), "{ended:?}");
    let ended = scene.cancel(&later);
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(
        ended.stderr.contains("no message with this id waits"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn an_attempt_far_beyond_the_usual_is_marked_as_stuck() {
    let mut scene = ApiScene::verdicts(&["--timeout", "1h"]);
    send(
        scene.data(),
        "default",
        (0..80).map(|n| format!("print:{n}")),
    )
    .await;
    scene.running.wait_for_lines(80, crate::scene::printed);
    send(scene.data(), "default", ["sleep:3600000".to_owned()]).await;
    let deadline = Instant::now() + dispatcher_tests::PATIENCE;
    let why = loop {
        let attempt = scene.running_attempts(1)[0].clone();
        if let Some(why) = attempt["stuck"].as_str() {
            assert!(attempt["age_s"].as_f64() >= Some(5.0), "{attempt}");
            break why.to_owned();
        }
        assert!(Instant::now() < deadline, "{attempt}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    assert!(why.contains("ten times the median"), "{why}");
    let id = scene.running_attempts(1)[0]["id"].clone();
    scene.act(
        &format!("/api/v1/running/{}/cancel", id.as_str().expect("an id")),
        "",
    );
    scene
        .running
        .wait_for_line(|line| line.contains("message cancelled"));
    scene.running.stop();
}

#[tokio::test]
async fn a_scheduled_message_is_run_now_and_another_is_cancelled() {
    let mut scene = ApiScene::verdicts(&[]);
    let add = |body: &str, when: &[&str]| {
        let words = ["schedule", "add", "local:default", "--body", body];
        let program = Program::new([&words, when].concat());
        assert_eq!(program.sharing(scene.running.data()).run().code, 0);
    };
    add("print:early", &["--cron", "0 3 1 1 *"]);
    add("print:never", &["--cron", "0 4 1 1 *"]);
    let listed = |at: usize| {
        let list = scene.get("/api/v1/schedules?queue=local%3Adefault");
        list["items"][at]["id"].as_str().map(str::to_owned)
    };
    let (first, second) = (listed(0).expect("an id"), listed(1).expect("an id"));
    let order = json!({"schedule": second}).to_string();
    scene.act("/api/v1/schedules/cancel", &order);
    let (status, problem) = scene.ask("/api/v1/schedules/cancel", &order);
    assert_eq!(status, 404, "{problem}");
    scene.act(
        "/api/v1/schedules/run",
        &json!({"schedule": first}).to_string(),
    );
    scene.running.wait_for_line(|line| line.contains("early"));
    assert_eq!(listed(0), Some(first), "it comes again at its own times");
    let (status, problem) = scene.ask("/api/v1/schedules/run", r#"{"schedule": "x"}"#);
    assert_eq!(status, 422, "{problem}");
    scene.running.stop();
}

/// A stream of events, once its head was read.
fn follow(url: &str) -> BufReader<TcpStream> {
    let at = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(at).expect("it listens");
    let patience = stream.set_read_timeout(Some(dispatcher_tests::PATIENCE));
    patience.expect("a time-out");
    let request = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer reader\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    BufReader::new(stream)
}

/// The next line of this beginning.
fn next_line(stream: &mut BufReader<TcpStream>, begins: &str) -> String {
    loop {
        let mut line = String::new();
        let read = stream.read_line(&mut line).expect("a line");
        assert!(read > 0, "the stream ended before `{begins}`");
        if line.starts_with(begins) {
            return line;
        }
    }
}

#[tokio::test]
async fn a_stream_tells_of_outcomes_and_of_states_that_change() {
    let mut scene = ApiScene::verdicts(&[]);
    let mut stream = follow(&scene.url);
    next_line(&mut stream, "event: hello");
    send(scene.data(), "default", ["done".to_owned()]).await;
    next_line(&mut stream, "event: outcome");
    let data = next_line(&mut stream, "data: ");
    let outcome: Value = serde_json::from_str(&data[6..]).expect("JSON");
    assert_eq!(outcome["event"], "done", "good ones are streamed too");
    scene.act("/api/v1/queues/local%3Adefault/pause", "");
    next_line(&mut stream, "event: state");
    let data = next_line(&mut stream, "data: ");
    let change: Value = serde_json::from_str(&data[6..]).expect("JSON");
    assert_eq!(change["what"], "queue paused");
    assert_eq!(change["target"], "local:default");
    scene.running.stop();
    next_line(&mut stream, "event: stopped");
}

#[tokio::test]
async fn two_hundred_slow_clients_and_streams_keep_nobody_out() {
    let mut scene = ApiScene::verdicts(&["--concurrency", "100"]);
    let mut slow: Vec<BufReader<TcpStream>> = (0..200).map(|_| follow(&scene.url)).collect();
    let deadline = Instant::now() + dispatcher_tests::PATIENCE;
    loop {
        let overview = scene.get("/api/v1/overview");
        if overview["streams"] == 32 {
            break;
        }
        assert!(Instant::now() < deadline, "{overview}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(http::get(&format!("{}{path}", scene.url)).status, 200);
    }
    // One that was chosen to make place as it asked leaves its place to another.
    let deadline = Instant::now() + dispatcher_tests::PATIENCE;
    loop {
        let mut more = follow(&scene.url);
        let mut status = String::new();
        more.read_line(&mut status).expect("an answer");
        if status.contains(" 503 ") {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
        slow.push(more);
    }
    // Whoever does not read is dropped: their buffers are full after some thousand events each.
    let store = dispatcher_local::queue::LocalStore::open(scene.data()).expect("the store opens");
    let queue = store.queue("default", None).expect("the queue opens");
    let body = |n: usize| format!("reject:{n}{}", "x".repeat(1_500));
    for round in 0..30 {
        let bodies = (0..500).map(|n| body(round * 500 + n));
        dispatcher_tests::queues::send(&queue, bodies).await;
    }
    let deadline = Instant::now() + dispatcher_tests::PATIENCE;
    loop {
        // It is answered however many do not read.
        let overview = scene.get("/api/v1/overview");
        if overview["streams"] == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{overview}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    drop(slow);
    scene.running.stop();
}

/// Begins a request whose body never comes.
fn begin(url: &str, what: &str, header: &str) -> TcpStream {
    let at = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(at).expect("it listens");
    let patience = stream.set_read_timeout(Some(dispatcher_tests::PATIENCE));
    patience.expect("a time-out");
    let request = format!("{what} HTTP/1.1\r\nHost: {at}\r\n{header}Content-Length: 100\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

fn status_line(stream: TcpStream) -> String {
    let mut line = String::new();
    let read = BufReader::new(stream).read_line(&mut line);
    read.expect("an answer");
    line
}

#[test]
fn requests_whose_bodies_never_come_keep_nobody_out() {
    let mut scene = ApiScene::verdicts(&[]);
    // Whoever signs in has no token as yet, so anybody can do this.
    let strangers: Vec<TcpStream> = (0..20)
        .map(|_| begin(&scene.url, "POST /ui/sign-in", ""))
        .collect();
    let authorized = "Authorization: Bearer operator\r\n";
    let read = begin(&scene.url, "GET /api/v1/overview", authorized);
    let line = status_line(read);
    assert!(line.contains(" 200 "), "a read waits for no body: {line}");
    let drain = begin(&scene.url, "POST /api/v1/process/drain", authorized);
    let line = status_line(drain);
    assert!(line.contains(" 408 "), "{line}");
    let first = strangers.into_iter().next().expect("one");
    let line = status_line(first);
    assert!(line.contains(" 408 "), "{line}");
    scene.running.stop();
}

#[test]
fn health_asks_the_address_of_the_settings() {
    let mut scene = ApiScene::verdicts(&[]);
    let address = scene.url.trim_start_matches("http://").to_owned();
    let health = |more: &[&str]| {
        Program::new([&["health"], more].concat())
            .env("DISPATCHER_ADMIN", &address)
            .run()
    };
    assert_eq!(health(&[]).stdout, "ok\n");
    assert_eq!(health(&["--ready"]).stdout, "ready\n");
    scene.act("/api/v1/queues/local%3Adefault/pause", "");
    assert_eq!(health(&["--ready"]).code, 0, "a pause is meant");
    let nowhere = Program::new(["health"]).run();
    assert_eq!(nowhere.code, 2, "{nowhere:?}");
    scene.running.stop();
    let gone = health(&[]);
    assert_eq!(gone.code, 1, "{gone:?}");
}

#[test]
fn many_queues_are_listed_in_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let names: Vec<String> = (0..MANY).map(|n| format!("\"local:q{n}\"")).collect();
    let plugin = guest("bench-noop");
    let text = format!(
        "[plugin.p]\nfile = {plugin:?}\n[[route]]\nname = \"many\"\nplugin = \"p\"\nqueues = [{}]\n",
        names.join(",")
    );
    let file = folder.path().join("dispatcher.toml");
    std::fs::write(&file, text).expect("written");
    let file = file.display().to_string();
    let mut scene = ApiScene::of(
        |flags| {
            let run = ["run", "--log-format", "json", "--config", &file];
            Program::new([&run, flags].concat())
        },
        &[],
    );
    let mut times: Vec<(&str, u128)> = Vec::new();
    for path in [
        "/api/v1/overview",
        "/api/v1/queues?limit=500",
        "/api/v1/queues?limit=100&cursor=900",
        "/api/v1/queues/local%3Aq999",
        "/api/v1/running",
        "/api/v1/outcomes",
    ] {
        let began = Instant::now();
        scene.get(path);
        times.push((path, began.elapsed().as_millis()));
    }
    println!("API latency with {MANY} queues, development build, ms: {times:?}");
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let page = scene.get(&format!("/api/v1/queues?limit=500{cursor}"));
        let items = page["items"].as_array().expect("a list");
        assert!(items.len() <= 500);
        seen.extend(items.iter().map(|one| one["queue"].to_string()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), MANY);
    scene.running.stop();
}
