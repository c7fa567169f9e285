//! Messages in queues by the admin API: they are looked at, moved, sent again and removed; jobs that
//! are cut lose nothing.

use crate::operator::admin_api::{ApiScene, until_ended};
use crate::scene::{depth, run, send, until_depth};
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::{DEAD_LETTER_REASON, DEAD_LETTER_SOURCE, Queue};
use dispatcher_local::queue::LocalStore;
use dispatcher_sqs::queue::Sqs;
use dispatcher_tests::MOST_PATIENCE;
use dispatcher_tests::child::{Program, Signal};
use dispatcher_tests::http;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::{SqsServer, configuration};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const DEAD: &str = "/api/v1/queues/local%3Aq.dead";

fn folder() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().expect("a folder"))
}

pub(crate) fn letter(body: &str, reason: &str) -> OutgoingMessage {
    OutgoingMessage {
        body: body.to_owned(),
        attributes: vec![
            Attribute::text(DEAD_LETTER_REASON, reason),
            Attribute::text(DEAD_LETTER_SOURCE, "local:q"),
            Attribute::text("token", "secret"),
        ],
        ..OutgoingMessage::default()
    }
}

/// Puts letters into `q.dead` of a folder, and makes `q` and `sink`.
async fn with_letters(data: &Path, letters: &[OutgoingMessage]) -> Vec<String> {
    let store = LocalStore::open(data).expect("the store opens");
    for name in ["q", "sink"] {
        drop(store.queue(name, None).expect("the queue opens"));
    }
    let dead = store.queue("q.dead", None).expect("the queue opens");
    let mut ids = Vec::new();
    for part in letters.chunks(dead.identity().batch) {
        ids.extend(
            dead.send(part)
                .await
                .into_iter()
                .map(|one| one.expect("sent")),
        );
    }
    ids
}

/// A process that handles `local:q`, with these letters in `q.dead`.
pub(crate) async fn scene_with(
    letters: &[OutgoingMessage],
    more: &[&str],
) -> (ApiScene, Vec<String>) {
    let data = folder();
    let ids = with_letters(data.path(), letters).await;
    (scene_on(&data, more), ids)
}

fn scene_on(data: &Arc<tempfile::TempDir>, more: &[&str]) -> ApiScene {
    let more = [&["--queues", "local:q"], more].concat();
    ApiScene::of(|flags| run("verdicts", flags).sharing(data), &more)
}

/// Pauses `q` before a process starts, so that none of its receives takes what is sent there.
fn pause(data: &Arc<tempfile::TempDir>) {
    let paused = Program::new(["pause", "local:q"]).sharing(data).run();
    assert_eq!(paused.code, 0, "{paused:?}");
}

pub(crate) fn mixed() -> Vec<OutgoingMessage> {
    vec![
        letter(r#"{"country":"CH","n":1}"#, "timeout"),
        letter(r#"{"country":"DE","n":2}"#, "timeout"),
        letter(r#"{"country":"CH","n":3}"#, "trap"),
        letter("no JSON", "timeout"),
    ]
}

#[tokio::test]
async fn letters_are_listed_by_reason_in_pages_and_filtered() {
    let (mut scene, ids) = scene_with(&mixed(), &[]).await;
    let all = scene.get(&format!("{DEAD}/messages"));
    assert_eq!(all["reasons"][0]["reason"], "timeout");
    assert_eq!(all["reasons"][0]["messages"], 3);
    assert_eq!(
        (&all["scanned"], &all["complete"]),
        (&json!(4), &json!(true))
    );
    assert_eq!(all["items"][0]["id"], json!(ids[0]));
    assert_eq!(all["items"][0]["source"], "local:q");
    assert!(all["items"][0]["content"].is_null(), "bodies need a grant");
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = scene.get(&format!("{DEAD}/messages?limit=3{cursor}"));
        let items = page["items"].as_array().expect("a list").clone();
        seen.extend(
            items
                .iter()
                .map(|one| one["id"].as_str().expect("an id").to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    let exact = scene.get(&format!("{DEAD}/messages?reason_is=time"));
    assert_eq!(exact["items"], json!([]), "no reason is just that");
    let exact = scene.get(&format!("{DEAD}/messages?reason_is=timeout"));
    let chosen = scene.get(&format!("{DEAD}/messages?reason=time"));
    assert_eq!(exact["selected"], chosen["selected"]);
    assert_eq!(chosen["selected"], 3);
    let by_body = format!("{DEAD}/messages?where=%2Fcountry%3DCH");
    let (status, refused) = problem(&scene, &by_body);
    assert_eq!(status, 403, "it tells what is in bodies: {refused}");
    let order = json!({"where": ["/country=CH"]}).to_string();
    for action in ["scan", "redrive"] {
        let (status, refused) = scene.ask(&format!("{DEAD}/{action}"), &order);
        assert_eq!(status, 403, "{action}: {refused}");
    }
    let scanned = scene.get(&format!("{DEAD}/messages?scan=2"));
    assert_eq!(
        (&scanned["scanned"], &scanned["complete"]),
        (&json!(2), &json!(false))
    );
    let one = scene.get(&format!("{DEAD}/messages/{}", ids[2]));
    assert_eq!(one["reason"], "trap");
    let (status, problem) = problem(&scene, &format!("{DEAD}/messages/none"));
    assert_eq!(status, 404, "{problem}");
    for bad in ["reason=(", "where=a", "older=soon", "cursor=x", "scan=0"] {
        let (status, problem) = self::problem(&scene, &format!("{DEAD}/messages?{bad}"));
        assert_eq!(status, 400, "{bad}: {problem}");
        let field = bad.split('=').next().expect("a name");
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
    }
    let (status, problem) = self::problem(&scene, "/api/v1/queues/local%3Aother/messages");
    assert_eq!(status, 404, "only queues of the process: {problem}");
    assert_eq!(
        depth(scene.data(), "q.dead").await.waiting,
        4,
        "nothing was taken"
    );
    scene.running.stop();
}

fn problem(scene: &ApiScene, path: &str) -> (u16, Value) {
    let operate = ("Authorization", "Bearer operator");
    let answer = http::get_with(&format!("{}{path}", scene.url), &[operate]);
    (
        answer.status,
        serde_json::from_str(&answer.body).unwrap_or_default(),
    )
}

#[tokio::test]
async fn bodies_are_shown_with_the_grant_and_without_what_is_redacted() {
    let data = folder();
    let ids = with_letters(data.path(), &[letter(r#"{"email":"a@b","n":1}"#, "trap")]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dispatcher.toml");
    let records = folder.path().join("records");
    let text = format!(
        "[plugin.p]\nfile = {:?}\nrecord.folder = {records:?}\nrecord.share = \"100%\"\n\
         record.redact = [\"/email\", \"attribute:token\"]\n\
         [[route]]\nname = \"r\"\nplugin = \"p\"\nqueues = [\"local:q\"]\n",
        crate::scene::guest("verdicts")
    );
    std::fs::write(&file, text).expect("written");
    let file = file.display().to_string();
    let start = |flags: &[&str]| {
        let run = [
            "run",
            "--log-format",
            "json",
            "--config",
            &file,
            "--admin-bodies",
        ];
        Program::new([&run, flags].concat()).sharing(&data)
    };
    let mut scene = ApiScene::of(start, &[]);
    let shown = scene.get(&format!("{DEAD}/messages/{}", ids[0]));
    assert_eq!(shown["content"]["body"], r#"{"email":"[redacted]","n":1}"#);
    let text = shown.to_string();
    assert!(!text.contains("a@b") && !text.contains("secret"), "{text}");
    for (condition, selected) in [("%2Fn%3D1", 1), ("%2Femail%3Da@b", 0)] {
        let guessed = scene.get(&format!("{DEAD}/messages?where={condition}"));
        assert_eq!(guessed["selected"], selected, "{condition}");
    }
    // What people were shown is not what the message says: it must not be sent in its place.
    let edited = json!({"message": ids[0], "body": shown["content"]["body"]}).to_string();
    let job = scene.run_job(&format!("{DEAD}/resend"), &edited);
    assert_eq!(
        (&job["report"]["moved"], &job["report"]["left"]),
        (&json!(0), &json!(1))
    );
    let error = job["report"]["failures"][0]["error"]
        .as_str()
        .expect("a text");
    assert!(error.contains("[redacted]"), "{error}");
    assert_eq!(depth(data.path(), "q.dead").await.waiting, 1);
    scene.running.stop();
}

#[tokio::test]
async fn a_redrive_counts_first_and_moves_what_was_selected_as_one_audited_action() {
    let data = folder();
    with_letters(data.path(), &mixed()).await;
    pause(&data);
    let mut scene = scene_on(&data, &["--admin-bodies"]);
    let order = json!({"reason": "^time", "where": ["/country=CH"]});
    let counted = scene.run_job(&format!("{DEAD}/redrive"), &order.to_string());
    assert_eq!(counted["state"], "done", "{counted}");
    let report = &counted["report"];
    assert_eq!(
        (&report["selected"], &report["moved"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(report["messages"][0]["to"], "local:q");
    assert_eq!(depth(scene.data(), "q.dead").await.waiting, 4);
    let order = json!({"reason": "^time", "where": ["/country=CH"], "apply": true});
    let moved = scene.run_job(&format!("{DEAD}/redrive"), &order.to_string());
    assert_eq!(
        (&moved["state"], &moved["report"]["moved"]),
        (&json!("done"), &json!(1))
    );
    assert_eq!(depth(scene.data(), "q.dead").await.waiting, 3);
    assert_eq!(depth(scene.data(), "q").await.waiting, 1);
    let jobs = scene.get("/api/v1/jobs");
    assert_eq!(jobs["items"][0]["id"], moved["id"], "the newest first");
    scene.running.stop();
    let actions = scene.audit("admin action", 2);
    assert_eq!(actions.len(), 2, "{actions:?}");
    let of_job = |job: &Value| {
        let id = job["id"].clone();
        let lines = actions.iter().filter(move |line| line["job"] == id);
        lines.cloned().collect::<Vec<_>>()
    };
    let (dry, wet) = (of_job(&counted), of_job(&moved));
    assert_eq!((dry.len(), wet.len()), (1, 1), "{actions:?}");
    assert_eq!((&dry[0]["count"], &wet[0]["count"]), (&json!(0), &json!(1)));
    for (name, wanted) in [
        ("target_name", "local:q.dead"),
        ("role", "operate"),
        ("user", "token"),
        ("state", "done"),
        ("path", "/api/v1/queues/local%3Aq.dead/redrive"),
    ] {
        assert_eq!(wet[0][name], wanted, "{wet:?}");
    }
    assert_eq!(scene.audit("admin job started", 2).len(), 2);
}

#[tokio::test]
async fn nothing_moves_unless_the_whole_order_is_understood() {
    let (mut scene, ids) = scene_with(&mixed(), &[]).await;
    for (action, order, field) in [
        ("redrive", json!({"reason": "(", "apply": true}), "reason"),
        ("redrive", json!({"where": ["x"], "apply": true}), "where"),
        (
            "redrive",
            json!({"to": "local:nowhere", "apply": true}),
            "to",
        ),
        ("redrive", json!({"to": "kafka:x", "apply": true}), "to"),
        (
            "redrive",
            json!({"try": "/tmp/any.wasm", "apply": true}),
            "try",
        ),
        (
            "redrive",
            json!({"edits": {"m": 1}, "apply": true}),
            "edits",
        ),
        (
            "redrive",
            json!({"edits": {"m": "x"}, "apply": true}),
            "edits",
        ),
        (
            "redrive",
            json!({"messages": [ids[0]], "edits": {"m": "x"}, "apply": true}),
            "edits",
        ),
        ("redrive", json!({"stop_at": 2, "apply": true}), "stop_at"),
        (
            "redrive",
            json!({"edit": "rm -rf /", "apply": true}),
            "edit",
        ),
        ("move", json!({"apply": true}), "to"),
        ("purge", json!({"aply": true}), "aply"),
        ("resend", json!({"body": "x"}), "message"),
        ("delete", json!({}), "message"),
    ] {
        let (found, problem) = scene.ask(&format!("{DEAD}/{action}"), &order.to_string());
        assert_eq!(found, 422, "{order}: {problem}");
        assert_eq!(problem["errors"][0]["field"], field, "{order}: {problem}");
    }
    let twice = r#"{"to": "local:sink", "first": 1, "first": 4, "apply": true}"#;
    let (status, problem) = scene.ask(&format!("{DEAD}/redrive"), twice);
    assert_eq!(status, 422, "{problem}");
    let unknown = json!({"message": "none", "body": "x"}).to_string();
    let (status, problem) = scene.ask(&format!("{DEAD}/resend"), &unknown);
    assert_eq!(status, 404, "{problem}");
    let same = json!({"to": "local:q.dead", "apply": true}).to_string();
    for action in ["redrive", "move"] {
        let (status, problem) = scene.ask(&format!("{DEAD}/{action}"), &same);
        assert_eq!(status, 409, "{problem}");
        let error = &problem["errors"][0];
        assert_eq!(
            (&error["field"], &error["wanted"]),
            (&json!("to"), &json!("another queue"))
        );
    }
    let all =
        r#"{"first": 0, "rate": -1, "stop_at": 2, "reason": "(", "where": ["x"], "bogus": 1}"#;
    let (status, problem) = scene.ask(&format!("{DEAD}/redrive"), all);
    assert_eq!(status, 422, "{problem}");
    let errors = problem["errors"].as_array().expect("a list").iter();
    let fields: Vec<&Value> = errors.map(|error| &error["field"]).collect();
    assert_eq!(
        fields,
        ["first", "rate", "stop_at", "reason", "where", "bogus"]
    );
    assert_eq!(scene.get("/api/v1/jobs")["items"], json!([]));
    let left = scene.get(&format!("{DEAD}/messages"));
    assert_eq!(left["items"].as_array().map(Vec::len), Some(ids.len()));
    scene.running.stop();
}

#[tokio::test]
async fn a_letter_whose_sender_names_a_queue_of_nobody_stays() {
    let mut forged = letter("print:never", "trap");
    forged.attributes[1] = Attribute::text(DEAD_LETTER_SOURCE, "local:sink");
    let (mut scene, _) = scene_with(&[forged], &[]).await;
    let order = json!({"apply": true}).to_string();
    let job = scene.run_job(&format!("{DEAD}/redrive"), &order);
    assert_eq!(
        (&job["report"]["moved"], &job["report"]["left"]),
        (&json!(0), &json!(1))
    );
    let why = job["report"]["failures"][0]["error"].as_str();
    assert!(why.expect("a text").contains("give `to`"), "{job}");
    assert_eq!(depth(scene.data(), "sink").await, Default::default());
    let order = json!({"to": "local:sink", "apply": true}).to_string();
    let job = scene.run_job(&format!("{DEAD}/redrive"), &order);
    assert_eq!(job["report"]["moved"], 1, "an operator may: {job}");
    scene.running.stop();
}

#[tokio::test]
async fn a_message_is_corrected_and_sent_again_and_another_is_deleted() {
    let letters = [letter("print:wrong", "trap"), letter("print:never", "trap")];
    let (mut scene, ids) = scene_with(&letters, &[]).await;
    let order = json!({"message": ids[0], "body": "print:corrected"}).to_string();
    let job = scene.run_job(&format!("{DEAD}/resend"), &order);
    assert_eq!(
        (&job["report"]["moved"], &job["can_restart"]),
        (&json!(1), &json!(false))
    );
    scene
        .running
        .wait_for_line(|line| line.contains("corrected"));
    let order = json!({"message": ids[1]}).to_string();
    let deleted = scene.act(&format!("{DEAD}/delete"), &order);
    assert_eq!(deleted["message"], json!(ids[1]));
    let (status, problem) = scene.ask(&format!("{DEAD}/delete"), &order);
    assert_eq!(status, 404, "{problem}");
    assert_eq!(depth(scene.data(), "q.dead").await, Default::default());
    assert_eq!(scene.running.lines(|line| line.contains("never")).len(), 0);
    let deletes = scene.audit("admin action", 2);
    let delete = deletes.iter().find(|line| {
        let path = line["path"].as_str().unwrap_or_default();
        path.ends_with("/delete")
    });
    assert_eq!(delete.expect("one line")["count"], 1);
    scene.running.stop();
}

#[tokio::test]
async fn a_message_that_waits_is_cancelled_where_it_can_be_listed() {
    let data = folder();
    with_letters(data.path(), &[]).await;
    pause(&data);
    let mut scene = scene_on(&data, &[]);
    send(scene.data(), "q", ["print:cancelled".to_owned()]).await;
    let listed = scene.get("/api/v1/queues/local%3Aq/messages");
    let waiting = &listed["items"][0]["id"];
    let order = json!({"message": waiting}).to_string();
    let done = scene.act("/api/v1/queues/local%3Aq/cancel", &order);
    assert_eq!(done, json!({"waiting": 1, "running": 0}));
    assert_eq!(depth(scene.data(), "q").await, Default::default());
    scene.running.stop();
}

#[tokio::test]
async fn a_message_that_waits_is_cancelled_by_the_command() {
    let data = folder();
    let letters = [letter("first", "trap"), letter("second", "trap")];
    let ids = with_letters(data.path(), &letters).await;
    // An address that is configured for other commands is not asked.
    let cancel = |id: &str| {
        Program::new(["cancel", "local:q.dead", id])
            .env("DISPATCHER_ADMIN", "127.0.0.1:1")
            .sharing(&data)
            .run()
    };
    let done = cancel(&ids[1]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout, "1 waiting removed, 0 running stopped\n");
    assert_eq!(depth(data.path(), "q.dead").await.waiting, 1);
    let again = cancel(&ids[1]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(
        again.stderr.contains("no message with this id"),
        "{again:?}"
    );
    let delayed = ["send", "local:q", "later", "--delay", "1h"];
    let sent = Program::new(delayed).sharing(&data).run();
    assert_eq!(sent.code, 0, "{sent:?}");
    let cancelled = Program::new(["cancel", "local:q", sent.stdout.trim()]);
    let cancelled = cancelled.sharing(&data).run();
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    assert_eq!(depth(data.path(), "q").await, Default::default());
}

#[tokio::test]
async fn letters_are_tried_on_a_plugin_of_the_process_first() {
    let letters = [
        letter("print:good", "trap"),
        letter("reject:still bad", "trap"),
    ];
    let (mut scene, _) = scene_with(&letters, &[]).await;
    let order = json!({"try": "verdicts", "to": "local:sink", "apply": true}).to_string();
    let job = scene.run_job(&format!("{DEAD}/redrive"), &order);
    assert_eq!(
        (&job["report"]["moved"], &job["report"]["left"]),
        (&json!(1), &json!(1)),
        "{job}"
    );
    let error = job["report"]["failures"][0]["error"]
        .as_str()
        .expect("a text");
    assert!(error.contains("still bad"), "{error}");
    assert_eq!(depth(scene.data(), "sink").await.waiting, 1);
    scene.running.stop();
}

#[tokio::test]
async fn messages_are_moved_and_purged_once_somebody_says_apply() {
    let (mut scene, _) = scene_with(&mixed(), &[]).await;
    let counted = scene.run_job(&format!("{DEAD}/move"), r#"{"to": "local:sink"}"#);
    assert_eq!(
        (&counted["state"], &counted["waiting"]),
        (&json!("done"), &json!(4))
    );
    let order = r#"{"to": "local:sink", "first": 1, "apply": true}"#;
    let moved = scene.run_job(&format!("{DEAD}/move"), order);
    assert_eq!(moved["report"]["moved"], 1);
    let counted = scene.run_job(&format!("{DEAD}/purge"), "");
    assert_eq!(
        (&counted["applied"], &counted["waiting"]),
        (&json!(false), &json!(3))
    );
    let purged = scene.run_job(&format!("{DEAD}/purge"), r#"{"apply": true}"#);
    assert_eq!(purged["report"]["removed"], 3, "{purged}");
    assert_eq!(depth(scene.data(), "q.dead").await.waiting, 0);
    scene.running.stop();
    let counts: Vec<Value> = scene
        .audit("admin action", 4)
        .iter()
        .map(|line| line["count"].clone())
        .collect();
    assert_eq!(counts, [0, 1, 0, 3].map(|count| json!(count)));
}

#[tokio::test]
async fn a_job_is_cancelled_started_again_and_is_the_only_one_of_its_queue() {
    let letters: Vec<OutgoingMessage> = (0..40).map(|n| letter(&n.to_string(), "trap")).collect();
    let (mut scene, _) = scene_with(&letters, &[]).await;
    let order = json!({"to": "local:sink", "rate": 2, "first": 30, "apply": true}).to_string();
    let job = scene.act(&format!("{DEAD}/redrive"), &order);
    assert_eq!(job["state"], "running", "{job}");
    let (status, problem) = scene.ask(&format!("{DEAD}/purge"), r#"{"apply": true}"#);
    assert_eq!(status, 409, "{problem}");
    until_depth(scene.data(), "sink", |depth| depth.waiting >= 2).await;
    let id = job["id"].as_str().expect("an id");
    scene.act(&format!("/api/v1/jobs/{id}/cancel"), "");
    let cancelled = until_ended(&job, |path| scene.get(path));
    assert_eq!(
        (&cancelled["state"], &cancelled["can_restart"]),
        (&json!("cancelled"), &json!(true))
    );
    let moved = cancelled["report"]["moved"].as_u64().expect("a number");
    assert_eq!(
        depth(scene.data(), "q.dead").await.waiting,
        40 - moved,
        "leases are given back"
    );
    // Another process of the folder knows the job as well.
    let mut beside = scene_on(scene.running.data(), &[]);
    // It goes on with what is left of its 30; the rate is slow, so it is only seen to begin.
    let again = scene.act(&format!("/api/v1/jobs/{id}/restart"), "");
    until_depth(scene.data(), "sink", |depth| depth.waiting > moved).await;
    let other = again["id"].as_str().expect("an id");
    assert_ne!(other, id);
    let first = scene.get(&format!("/api/v1/jobs/{id}"));
    assert_eq!(
        (&first["restarted_as"], &first["can_restart"]),
        (&again["id"], &json!(false))
    );
    let (status, problem) = scene.ask(&format!("/api/v1/jobs/{id}/restart"), "");
    assert_eq!(status, 409, "another goes on with it: {problem}");
    for (path, order) in [
        (format!("/api/v1/jobs/{id}/restart"), String::new()),
        (
            format!("{DEAD}/redrive"),
            json!({"apply": true}).to_string(),
        ),
    ] {
        let (status, problem) = beside.ask(&path, &order);
        assert_eq!(status, 409, "{path}: {problem}");
        assert!(problem["detail"].to_string().contains(other), "{problem}");
    }
    beside.running.stop();
    scene.running.stop();
    // The stop cut the second; the next process knows both.
    let data = scene.running.data().clone();
    let mut later = scene_on(&data, &[]);
    let jobs = later.get("/api/v1/jobs");
    let states: Vec<&Value> = jobs["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|job| &job["state"])
        .collect();
    assert_eq!(states, ["cut", "cancelled"], "{jobs}");
    assert_eq!(jobs["items"][1]["can_restart"], false, "{jobs}");
    assert_eq!(depth(data.path(), "q.dead").await.in_flight, 0);
    later.running.stop();
}

/// Kills a process in the middle of a redrive, starts another, has the job go on, and counts.
pub(crate) async fn holds_a_kill(
    start: impl Fn() -> ApiScene,
    (dead, to): (&str, &str),
    (from, sink): (&dyn Queue, &dyn Queue),
    (count, rate): (usize, u64),
) {
    let mut scene = start();
    let name = dead.replace(':', "%3A").replace('/', "%2F");
    let order = json!({"to": to, "rate": rate, "apply": true}).to_string();
    let job = scene.act(&format!("/api/v1/queues/{name}/redrive"), &order);
    let some = count as u64 / 10;
    dispatcher_tests::queues::until_depth(sink, |depth| depth.waiting > some).await;
    scene.running.signal(Signal::KILL);
    scene.running.wait_exit();
    assert!(
        sink.depth().await.expect("it tells").waiting < count as u64,
        "it was killed in the middle"
    );
    let mut scene = start();
    let id = job["id"].as_str().expect("an id");
    let mut job = scene.get(&format!("/api/v1/jobs/{id}"));
    assert_eq!(
        (&job["state"], &job["can_restart"]),
        (&json!("cut"), &json!(true)),
        "{job}"
    );
    let cut = scene.audit("admin action", 1);
    assert_eq!(cut.len(), 1, "{cut:?}");
    assert_eq!(
        (&cut[0]["state"], &cut[0]["user"]),
        (&json!("cut"), &json!("token"))
    );
    let deadline = Instant::now() + MOST_PATIENCE;
    loop {
        let left = from.depth().await.expect("it tells");
        if left.waiting + left.in_flight + left.delayed == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{left:?}");
        if left.waiting == 0 {
            // What the killed process had leased comes back, in DynamoDB to whoever walks again.
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        let again = if job["can_restart"] == true {
            let id = job["id"].as_str().expect("an id");
            scene.act(&format!("/api/v1/jobs/{id}/restart"), "")
        } else {
            let order = json!({"to": to, "apply": true}).to_string();
            scene.act(&format!("/api/v1/queues/{name}/redrive"), &order)
        };
        job = until_ended(&again, |path| scene.get(path));
        assert_eq!(job["state"], "done", "{job}");
    }
    let copies = usize::try_from(sink.depth().await.expect("it tells").waiting).expect("few");
    let batch = from.identity().batch;
    assert!(
        (count..=count + batch).contains(&copies),
        "{copies} of {count}"
    );
    scene.running.stop();
}

#[tokio::test]
async fn a_killed_redrive_of_the_api_loses_nothing_and_goes_on_on_local() {
    let data = folder();
    let letters: Vec<OutgoingMessage> = (0..600).map(|n| letter(&n.to_string(), "trap")).collect();
    with_letters(data.path(), &letters).await;
    let store = LocalStore::open(data.path()).expect("the store opens");
    let open = |name: &str| store.queue(name, None).expect("the queue opens");
    let names = ("local:q.dead", "local:sink");
    holds_a_kill(
        || scene_on(&data, &[]),
        names,
        (&open("q.dead"), &open("sink")),
        (600, 100),
    )
    .await;
}

#[tokio::test]
async fn a_list_cuts_long_bodies_and_one_message_is_shown_whole() {
    let long = format!("print:{}", "x".repeat(100_000));
    let (mut scene, ids) = scene_with(&[letter(&long, "trap")], &["--admin-bodies"]).await;
    let listed = scene.get(&format!("{DEAD}/messages"))["items"][0].clone();
    assert_eq!(listed["content"]["cut"], true);
    assert_eq!(
        listed["content"]["body"].as_str().map(str::len),
        Some(4_096)
    );
    assert!(listed["bytes"].as_u64() > Some(100_000), "{listed}");
    let whole = scene.get(&format!("{DEAD}/messages/{}", ids[0]));
    assert_eq!(whole["content"]["body"], json!(long));
    // A body that is longer than most requests may be is sent again.
    let edited = format!("print:{}", "y".repeat(500_000));
    let order = json!({"message": ids[0], "body": edited, "to": "local:sink"}).to_string();
    let job = scene.run_job(&format!("{DEAD}/resend"), &order);
    assert_eq!(job["report"]["moved"], 1, "{job}");
    scene.running.stop();
}

/// Two queues of SQS with letters in the first, and a process whose dead letters go there.
struct SqsScene {
    names: [String; 3],
    url: String,
    data: Arc<tempfile::TempDir>,
}

impl SqsScene {
    async fn with(count: usize) -> Self {
        let url = MiniStack::shared().url();
        let server = SqsServer::at(&url);
        let names = ["work", "work-dlq", "sink"].map(SqsServer::fresh_name);
        for name in &names {
            server.create(name, &[]).await;
        }
        let scene = Self {
            names,
            url,
            data: folder(),
        };
        let letters: Vec<OutgoingMessage> =
            (0..count).map(|n| letter(&n.to_string(), "trap")).collect();
        let dead = scene.open(1).await;
        for part in letters.chunks(10) {
            assert!(dead.send(part).await.iter().all(Result::is_ok));
        }
        scene
    }

    async fn open(&self, at: usize) -> dispatcher_sqs::queue::SqsQueue {
        let sqs = Sqs::connect(&configuration(&self.url));
        sqs.open(&self.names[at], None).await.expect("it is there")
    }

    fn start(&self) -> ApiScene {
        let more = [
            "--queues",
            &*self.names[0],
            "--dead-letter",
            &*self.names[1],
            "--max-attempts",
            "3",
        ];
        let program = |flags: &[&str]| run("verdicts", flags).aws(&self.url).sharing(&self.data);
        ApiScene::of(program, &more)
    }
}

#[tokio::test]
async fn a_killed_redrive_of_the_api_loses_nothing_and_goes_on_on_sqs() {
    let sqs = SqsScene::with(400).await;
    let (dead, sink) = (sqs.open(1).await, sqs.open(2).await);
    let names = (&*sqs.names[1], &*sqs.names[2]);
    holds_a_kill(|| sqs.start(), names, (&dead, &sink), (400, 100)).await;
}

#[tokio::test]
async fn sqs_says_what_a_look_costs_and_what_it_cannot_do() {
    let sqs = SqsScene::with(25).await;
    let mut scene = sqs.start();
    let dead = format!("/api/v1/queues/{}", sqs.names[1]);
    for path in [format!("{dead}/messages"), format!("{dead}/messages/x")] {
        let (status, refused) = problem(&scene, &path);
        assert_eq!(status, 409, "{refused}");
        let detail = refused["detail"].as_str().expect("a text");
        assert!(
            detail.contains("/scan")
                && detail.contains(
                    "the receive count of each is then one \
                             higher"
                ),
            "{detail}"
        );
    }
    let (status, refused) = scene.ask(&format!("{dead}/delete"), r#"{"message": "x"}"#);
    assert_eq!(status, 409, "{refused}");
    let looked = scene.act(&format!("{dead}/scan"), r#"{"limit": 5}"#);
    assert_eq!(looked["items"].as_array().map(Vec::len), Some(5));
    assert_eq!(
        (&looked["scanned"], &looked["received"]),
        (&json!(25), &json!(25)),
        "{looked}"
    );
    assert!(looked["receive_calls"].as_u64() >= Some(3), "{looked}");
    assert_eq!(looked["reasons"][0]["messages"], 25);
    let queue = sqs.open(1).await;
    let left = queue.depth().await.expect("it tells");
    assert_eq!(
        (left.waiting, left.in_flight),
        (25, 0),
        "all were given back"
    );
    // One message can be sent again all the same: by a scan.
    let order = json!({"message": looked["items"][0]["id"], "to": sqs.names[2]}).to_string();
    let job = scene.run_job(&format!("{dead}/resend"), &order);
    assert_eq!(job["report"]["moved"], 1, "{job}");
    assert_eq!(queue.depth().await.expect("it tells").waiting, 24);
    scene.running.stop();
}
