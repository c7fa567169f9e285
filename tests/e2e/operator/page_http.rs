//! The dashboard as a client without a browser sees it: warnings, what a look costs, and forms.

use crate::operator::admin_api::{ApiScene, until_ended};
use crate::scene::{printed, run, send, until_depth};
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::{Ask, DEAD_LETTER_REASON, Queue};
use dispatcher_dynamodb::queue::{Dynamo, Options};
use dispatcher_sqs::queue::Sqs;
use dispatcher_tests::MOST_PATIENCE;
use dispatcher_tests::child::Program;
use dispatcher_tests::dynamodb::{Dates, Tables};
use dispatcher_tests::http;
use dispatcher_tests::proxy::{Mode, Proxy};
use dispatcher_tests::queues;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::{SqsServer, configuration};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const OPERATE: (&str, &str) = ("Authorization", "Bearer operator");

fn page(scene: &ApiScene, path: &str) -> (u16, String) {
    let answer = http::get_with(&format!("{}{path}", scene.url), &[OPERATE]);
    (answer.status, answer.body)
}

/// Sends the form of an action, as the button of its page does.
fn submit(scene: &ApiScene, action: &str, fields: &[(&str, &str)]) -> (u16, String) {
    let encode = |text: &str| {
        let bytes = text.bytes().map(|byte| format!("%{byte:02X}"));
        bytes.collect::<String>()
    };
    let form = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", encode(value)));
    let headers = [
        OPERATE,
        ("Content-Type", "application/x-www-form-urlencoded"),
    ];
    let address = format!("{}/ui/act/{action}", scene.url);
    let answer = http::post(&address, &headers, &form.collect::<Vec<_>>().join("&"));
    (answer.status, answer.body)
}

/// After a pause: a receive that is under way would take what is sent, and give it back later.
fn until_nothing_is_received(scene: &ApiScene) {
    let deadline = Instant::now() + MOST_PATIENCE;
    while scene.get("/api/v1/routes")["items"][0]["receives"] != json!(0) {
        assert!(Instant::now() < deadline, "it receives on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The overview once it says this.
fn until_overview(scene: &ApiScene, wanted: &str) -> String {
    let deadline = Instant::now() + MOST_PATIENCE;
    loop {
        let (status, text) = page(scene, "/ui");
        assert_eq!(status, 200, "{text}");
        if text.contains(wanted) {
            return text;
        }
        assert!(Instant::now() < deadline, "wanted {wanted}: {text}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[tokio::test]
async fn a_queue_with_a_backlog_that_no_route_reads_is_a_warning() {
    let data = std::sync::Arc::new(tempfile::tempdir().expect("a folder"));
    let bodies = |count: u32| (0..count).map(|n| format!("print:{n}"));
    send(data.path(), "forgotten", bodies(3)).await;
    send(data.path(), "default.dead", bodies(2)).await;
    send(data.path(), "other.dead", bodies(2)).await;
    let mut scene = ApiScene::of(|flags| run("verdicts", flags).sharing(&data), &[]);
    let text = until_overview(&scene, "No route of this process reads local:forgotten.");
    assert!(text.contains("3 messages wait."), "{text}");
    for read in ["local:default.", "local:default.dead.", "local:other.dead."] {
        let warning = format!("No route of this process reads {read} ");
        assert!(!text.contains(&warning), "{read}: {text}");
    }
    scene.running.stop();
}

#[tokio::test]
async fn a_paused_queue_with_a_backlog_is_a_warning_with_what_waits() {
    let mut scene = ApiScene::verdicts(&[]);
    scene.act("/api/v1/queues/local%3Adefault/pause", "");
    send(scene.data(), "default", ["print:x".to_owned()]).await;
    until_overview(&scene, "1 message waits.");
    let (_, text) = page(&scene, "/ui/queue?name=local%3Adefault");
    assert!(text.contains("No process receives from"), "{text}");
    scene.act("/api/v1/queues/local%3Adefault/resume", "");
    scene.running.wait_for_line(printed);
    scene.running.stop();
}

#[test]
fn run_now_sends_a_scheduled_message_and_leaves_its_times() {
    let mut scene = ApiScene::verdicts(&[]);
    let add = [
        "schedule",
        "add",
        "local:default",
        "--body",
        "print:early",
        "--cron",
        "0 3 1 1 *",
    ];
    let added = Program::new(add).sharing(scene.running.data()).run();
    assert_eq!(added.code, 0, "{added:?}");
    let (status, text) = page(&scene, "/ui/schedules?queue=local%3Adefault");
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("/ui/confirm/run-schedule"), "{text}");
    let list = scene.get("/api/v1/schedules?queue=local%3Adefault");
    let id = list["items"][0]["id"].as_str().expect("an id");
    let encoded: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let (_, asked) = page(&scene, &format!("/ui/confirm/run-schedule?part={encoded}"));
    assert!(asked.contains("1 message"), "{asked}");
    let none = page(
        &scene,
        "/ui/confirm/cancel-schedule?part=local%3Adefault%2Fnone",
    );
    assert_eq!(none.0, 404, "{none:?}");
    assert!(none.1.contains("There is no scheduled message"), "{none:?}");
    assert!(
        scene
            .running
            .lines(|line| line.contains("early"))
            .is_empty()
    );

    let (status, text) = submit(&scene, "run-schedule", &[("part", id), ("back", "/ui")]);
    assert!((200..400).contains(&status), "{status}: {text}");
    scene.running.wait_for_line(|line| line.contains("early"));
    let after = scene.get("/api/v1/schedules?queue=local%3Adefault");
    assert_eq!(after["items"][0]["id"], json!(id), "it comes again");
    let audited = scene.audit("admin action", 1);
    assert_eq!(audited[0]["path"], "/ui/act/run-schedule", "{audited:?}");
    scene.running.stop();
}

/// A process on a queue of SQS whose dead letters go to a second, which holds some.
pub(crate) async fn on_sqs(
    policy: Option<u32>,
) -> (ApiScene, dispatcher_sqs::queue::SqsQueue, String) {
    let url = MiniStack::shared().url();
    let server = SqsServer::at(&url);
    let [work, dead, last] = ["work", "work-dlq", "last"].map(SqsServer::fresh_name);
    server.create(&work, &[]).await;
    server.create(&last, &[]).await;
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{last}");
    let policy =
        policy.map(|most| json!({"deadLetterTargetArn": arn, "maxReceiveCount": most}).to_string());
    let attributes: Vec<(&str, &str)> = policy
        .iter()
        .map(|text| ("RedrivePolicy", &**text))
        .collect();
    server.create(&dead, &attributes).await;
    let sqs = Sqs::connect(&configuration(&url));
    let queue = sqs.open(&dead, None).await.expect("it is there");
    let letter = |n: u32| OutgoingMessage {
        body: format!("print:{n}"),
        attributes: vec![Attribute::text(DEAD_LETTER_REASON, "bad address")],
        ..OutgoingMessage::default()
    };
    let letters: Vec<OutgoingMessage> = (0..5).map(letter).collect();
    assert!(queue.send(&letters).await.iter().all(Result::is_ok));
    let flags = [
        "--queues",
        &work,
        "--dead-letter",
        &dead,
        "--max-attempts",
        "3",
        "--admin-bodies",
    ];
    let program = |more: &[&str]| run("verdicts", more).aws(&url);
    (ApiScene::of(program, &flags), queue, dead)
}

#[tokio::test]
async fn a_look_at_messages_of_sqs_says_that_it_costs_a_receive_and_gives_them_back() {
    let (mut scene, queue, dead) = on_sqs(None).await;
    let (status, text) = page(&scene, &format!("/ui/dead-letters?queue={dead}"));
    assert_eq!(status, 200, "{text}");
    assert!(
        text.contains("the receive count of each is then one higher"),
        "{text}"
    );
    assert!(
        !text.contains("bad address"),
        "nothing was received: {text}"
    );
    let (_, asked) = page(&scene, &format!("/ui/confirm/look?target={dead}"));
    assert!(
        asked.contains("receive count of each is then one higher") && asked.contains("billed"),
        "{asked}"
    );

    let (status, text) = submit(&scene, "look", &[("target", &dead), ("back", "/ui")]);
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("bad address") && text.contains("5"), "{text}");
    assert!(
        text.contains("<details") && text.contains("print:3"),
        "{text}"
    );
    assert!(
        !text.contains("/ui/message"),
        "none is found by its id: {text}"
    );
    let depth = queue.depth().await.expect("it tells");
    assert_eq!(
        (depth.waiting, depth.in_flight),
        (5, 0),
        "all were given back"
    );
    let ask = Ask {
        max: 10,
        ..Ask::PLAIN
    };
    let again = queue.receive(ask, &CancellationToken::new()).await;
    let again = again.expect("it answers").messages;
    assert!(
        again.iter().all(|message| message.receive_count == 2),
        "the look was a receive: {again:?}"
    );
    scene.running.stop();
}

#[tokio::test]
async fn a_look_that_would_be_the_last_receive_is_refused() {
    let (mut scene, queue, dead) = on_sqs(Some(1)).await;
    let (status, text) = submit(&scene, "look", &[("target", &dead), ("back", "/ui")]);
    assert_eq!(status, 409, "{text}");
    assert!(!text.contains("/api/v1"), "{text}");
    assert!(text.contains("inspecting it is a receive"), "{text}");
    assert_eq!(queue.depth().await.expect("it tells").waiting, 5);
    scene.running.stop();
}

#[tokio::test]
async fn a_page_of_many_dead_letters_takes_a_short_time_and_leads_to_the_rest() {
    let server = MiniStack::shared();
    let tables = Tables::at(&server.url());
    let [work, dead] = [
        tables.create("work", Dates::Number).await,
        tables.create("dead", Dates::Number).await,
    ];
    let dynamo = Dynamo::connect(&configuration(&server.url()), Options::default());
    let queue = dynamo.open(&dead, None).await.expect("it is there");
    queues::send(&queue, (0..250).map(|number| number.to_string())).await;
    let proxy = Proxy::before(server.address());
    let names = [work, dead].map(|table| format!("dynamodb:{table}"));
    let flags = ["--queues", &names[0], "--dead-letter", &names[1]];
    let mut scene = ApiScene::of(|more| run("verdicts", more).aws(&proxy.url()), &flags);
    let dead = names[1].replace(':', "%3A");
    // Each call takes longer than the page may.
    proxy.set(Mode::Delay(Duration::from_millis(300)));
    let (status, text) = page(&scene, &format!("/ui/dead-letters?queue={dead}"));
    assert_eq!(status, 200, "{text}");
    for wanted in [
        "100 messages of 100 inspected; there are more (its time limit of 0.1 s was over)",
        "after=",
    ] {
        assert!(text.contains(wanted), "wanted {wanted}: {text}");
    }
    let counted = scene.get(&format!("/api/v1/queues/{dead}/messages"));
    assert_eq!(
        (&counted["selected"], &counted["complete"]),
        (&json!(250), &json!(true)),
        "the API counts on"
    );
    proxy.set(Mode::Pass);
    scene.running.stop();
}

#[tokio::test]
async fn a_page_on_which_nothing_was_found_leads_to_what_was_not_looked_at() {
    let server = MiniStack::shared();
    let tables = Tables::at(&server.url());
    let [work, dead] = [
        tables.create("work", Dates::Number).await,
        tables.create("dead", Dates::Number).await,
    ];
    let dynamo = Dynamo::connect(&configuration(&server.url()), Options::default());
    let queue = dynamo.open(&dead, None).await.expect("it is there");
    queues::send(&queue, (0..250).map(|number| number.to_string())).await;
    let proxy = Proxy::before(server.address());
    let names = [work, dead].map(|table| format!("dynamodb:{table}"));
    let flags = ["--queues", &names[0], "--dead-letter", &names[1]];
    let mut scene = ApiScene::of(|more| run("verdicts", more).aws(&proxy.url()), &flags);
    // Each call takes longer than the page may.
    proxy.set(Mode::Delay(Duration::from_millis(300)));
    let dead = names[1].replace(':', "%3A");
    let (_, text) = page(
        &scene,
        &format!("/ui/dead-letters?queue={dead}&reason=none"),
    );
    assert!(text.contains("There are more."), "{text}");
    assert!(text.contains("0 messages of 100 inspected"), "{text}");
    assert!(!text.contains("waits here"), "{text}");
    let mut next = look_on(&text);
    assert!(next.is_some(), "{text}");
    let mut last = text;
    while let Some(path) = next {
        last = page(&scene, &path).1;
        next = look_on(&last);
    }
    assert!(
        last.contains("No message with this reason waits here."),
        "{last}"
    );
    proxy.set(Mode::Pass);
    scene.running.stop();
}

/// Where the link on a page without messages leads.
fn look_on(page: &str) -> Option<String> {
    let (before, _) = page.split_once(">Look further</a>")?;
    let (_, link) = before.rsplit_once("href=\"")?;
    Some(link.trim_end_matches('"').replace("&amp;", "&"))
}

#[tokio::test]
async fn confirmations_estimate_how_many_messages_of_sqs_they_touch() {
    let (mut scene, _queue, dead) = on_sqs(None).await;
    for (action, wanted) in [
        ("purge?", "About <b>5 messages</b> are removed."),
        ("redrive?", "About <b>5 messages</b> are sent to the queue"),
        (
            "redrive?part=bad+address&",
            "Of about <b>5 messages</b>, those with this reason are sent",
        ),
    ] {
        let (status, text) = page(&scene, &format!("/ui/confirm/{action}target={dead}"));
        assert_eq!(status, 200, "{text}");
        assert!(text.contains(wanted), "{action}: {text}");
    }
    scene.running.stop();
}

#[tokio::test]
async fn a_purge_of_sqs_says_that_what_is_in_flight_is_removed() {
    let (mut scene, queue, dead) = on_sqs(None).await;
    let ask = Ask {
        max: 2,
        ..Ask::PLAIN
    };
    let received = queue.receive(ask, &CancellationToken::new()).await;
    let received = received.expect("it answers").messages.len();
    assert!(received > 0);
    let (_, text) = page(&scene, &format!("/ui/confirm/purge?target={dead}"));
    let in_flight = if received == 1 {
        "1 message"
    } else {
        "2 messages"
    };
    let wanted = format!(
        "About <b>5 messages</b> are removed, with <b>{in_flight}</b> in flight among them."
    );
    assert!(text.contains(&wanted), "{text}");
    let (status, text) = submit(&scene, "purge", &[("target", &dead), ("back", "/ui")]);
    assert!((200..400).contains(&status), "{status}: {text}");
    let job = scene.get("/api/v1/jobs")["items"][0].clone();
    let ended = until_ended(&job, |path| scene.get(path));
    assert_eq!(ended["state"], "done", "{ended}");
    let (_, jobs) = page(&scene, "/ui/dead-letters");
    assert!(jobs.contains("about 5"), "{jobs}");
    scene.running.stop();
}

#[tokio::test]
async fn the_page_of_a_queue_shows_its_attempts_however_many_others_run() {
    let flags = [
        "--queues",
        "local:busy,local:quiet",
        "--concurrency",
        "130",
        "--timeout",
        "10m",
    ];
    let mut scene = ApiScene::verdicts(&flags);
    let sleeps = (0..120).map(|_| "sleep:600000".to_owned());
    send(scene.data(), "busy", sleeps).await;
    scene.running_attempts(120);
    send(scene.data(), "quiet", ["cancelled".to_owned()]).await;
    scene.running_attempts(121);
    let listed = scene.get("/api/v1/running?queue=local%3Aquiet");
    let of_quiet = listed["items"].as_array().expect("a list");
    assert_eq!(of_quiet.len(), 1, "{of_quiet:?}");
    let (_, text) = page(&scene, "/ui/queue?name=local%3Aquiet");
    let id = of_quiet[0]["id"].as_str().expect("an id");
    assert!(text.contains(&format!("id=\"attempt-{id}\"")), "{text}");
    let (_, text) = page(&scene, "/ui/queue?name=local%3Abusy");
    assert_eq!(text.matches("id=\"attempt-").count(), 100);
    assert!(text.contains("These are the first 100."), "{text}");
    let none = scene.get("/api/v1/running?queue=local%3Anone");
    assert_eq!(none["items"], json!([]));
    for attempts in
        ["busy", "quiet"].map(|queue| format!("/api/v1/running?limit=500&queue=local%3A{queue}"))
    {
        for attempt in scene.get(&attempts)["items"].as_array().expect("a list") {
            let id = attempt["id"].as_str().expect("an id");
            scene.act(&format!("/api/v1/running/{id}/cancel"), "");
        }
    }
    scene.running.stop();
}

#[test]
fn dead_letter_queues_beyond_the_first_page_are_found() {
    let queues: Vec<String> = (0..120).map(|number| format!("local:q{number}")).collect();
    let mut scene = ApiScene::verdicts(&["--queues", &queues.join(",")]);
    let (_, first) = page(&scene, "/ui/dead-letters");
    assert!(first.contains(">local:q0.dead</a>"), "{first}");
    assert!(!first.contains("local:q119.dead"), "{first}");
    let (before, _) = first.split_once(">Next</a>").expect("more follow");
    let (_, link) = before.rsplit_once("href=\"").expect("it is a link");
    let next = link.trim_end_matches('"').replace("&amp;", "&");
    let (_, second) = page(&scene, &next);
    assert!(second.contains(">local:q119.dead</a>"), "{second}");
    assert!(second.contains(">First</a>"), "{second}");
    let (_, found) = page(&scene, "/ui/dead-letters?q=q119");
    assert!(found.contains(">local:q119.dead</a>"), "{found}");
    let (_, none) = page(&scene, "/ui/dead-letters?q=nothing");
    assert!(none.contains("has “nothing” in its name"), "{none}");
    scene.running.stop();
}

#[test]
fn a_paused_queue_that_is_not_on_the_page_is_a_warning() {
    let queues: Vec<String> = (0..120).map(|number| format!("local:q{number}")).collect();
    let mut scene = ApiScene::verdicts(&["--queues", &queues.join(",")]);
    let pause = |queue: &str| scene.act(&format!("/api/v1/queues/local%3A{queue}/pause"), "");
    pause("q119");
    for path in ["/ui", "/ui?q=q7", "/ui?after=100"] {
        let (_, text) = page(&scene, path);
        assert!(text.contains("No process receives from"), "{path}: {text}");
    }
    (100..119).for_each(|number| drop(pause(&format!("q{number}"))));
    let (_, text) = page(&scene, "/ui");
    assert!(text.contains("20 queues are paused"), "{text}");
    scene.running.stop();
}

/// A stream of the page of the queue, by lines until it ends.
fn follow(scene: &ApiScene, header: &str) -> impl Iterator<Item = String> + use<> {
    follow_view(&scene.url, "queue&name=local%3Adefault", header)
}

/// The lines of the stream of a view.
pub(crate) fn follow_view(
    url: &str,
    view: &str,
    header: &str,
) -> impl Iterator<Item = String> + use<> {
    let at = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(at).expect("it listens");
    let patience = stream.set_read_timeout(Some(dispatcher_tests::PATIENCE));
    patience.expect("a time-out");
    let request = format!("GET /ui/live?view={view} HTTP/1.1\r\nHost: {at}\r\n{header}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let lines = BufReader::new(stream).lines();
    let mut lines = lines.map(|line| line.expect("a line"));
    assert_eq!(lines.next().as_deref(), Some("HTTP/1.1 200 OK"));
    lines
}

/// Signs in as a browser does, and returns the header with the session.
fn session(scene: &ApiScene, token: &str) -> String {
    let form = format!("token={token}&user=Ann&back=/ui");
    let at = scene.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(at).expect("it listens");
    let request = format!(
        "POST /ui/sign-in HTTP/1.1\r\nHost: {at}\r\nOrigin: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{form}",
        scene.url,
        form.len()
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let cookie = answer.lines().find_map(|line| {
        let value = line.strip_prefix("set-cookie: ")?;
        value.split(';').next()
    });
    format!("Cookie: {}", cookie.unwrap_or_else(|| panic!("{answer}")))
}

fn is_shown(line: String) -> bool {
    line.starts_with("event: parts")
}

#[test]
fn a_stream_ends_with_its_session_and_its_token() {
    let mut scene = ApiScene::verdicts(&[]);
    let own = session(&scene, "operator");
    let (mut left, mut kept) = (
        follow(&scene, &own),
        follow(&scene, &session(&scene, "operator")),
    );
    assert!(left.any(is_shown));
    let out = format!("{}/ui/sign-out", scene.url);
    let (name, value) = own.split_once(": ").expect("a header");
    let headers = [(name, value), ("Origin", &*scene.url)];
    http::post(&out, &headers, "");
    assert!(left.last().is_some(), "it was open, and has ended");
    let again = http::get_with(&format!("{}/ui/live?view=plugins", scene.url), &headers);
    assert_eq!(again.status, 401, "{again:?}");
    assert!(kept.any(is_shown));

    let mut by_token = follow(&scene, "Authorization: Bearer operator");
    let mut reader = follow(&scene, "Authorization: Bearer reader");
    assert!(by_token.any(is_shown));
    scene.replace_token("another");
    kept.for_each(drop);
    by_token.for_each(drop);
    assert!(reader.any(|line| line.starts_with("event: point")));
    drop(reader);
    scene.running.stop();
}

#[test]
fn a_script_without_a_session_is_sent_to_the_sign_in() {
    let mut scene = ApiScene::verdicts(&[]);
    let at = scene.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(at).expect("it listens");
    let request = format!(
        "GET /ui/confirm/purge?target=x HTTP/1.1\r\nHost: {at}\r\nHX-Request: true\r\n\
         Referer: {}/ui/queue?name=x\r\nConnection: close\r\n\r\n",
        scene.url
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let leads = "hx-redirect: /ui/sign-in?back=%2Fui%2Fqueue%3Fname%3Dx\r\n";
    assert!(answer.contains(leads), "{answer}");
    scene.running.stop();
}

#[test]
fn a_form_without_a_session_leads_to_the_sign_in_and_a_script_keeps_it() {
    let mut scene = ApiScene::verdicts(&[]);
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let address = format!("{}/ui/act/pause-queue", scene.url);
    let answer = http::post(&address, &[form], "target=local%3Adefault");
    assert_eq!(answer.status, 401, "{answer:?}");
    assert!(
        answer.body.contains("href=\"/ui/sign-in?back="),
        "{answer:?}"
    );
    assert!(!answer.body.contains("Bearer"), "{answer:?}");
    let script = ("HX-Request", "true");
    let answer = http::post(&address, &[form, script], "target=local%3Adefault");
    assert_eq!(answer.status, 401, "{answer:?}");
    assert!(answer.body.contains("id=\"refusal\""), "{answer:?}");
    assert!(
        answer.body.contains("href=\"/ui/sign-in?back="),
        "{answer:?}"
    );
    scene.running.stop();
}

#[tokio::test]
async fn confirmations_name_how_many_messages_they_touch() {
    let mut scene = ApiScene::verdicts(&["--timeout", "10m"]);
    send(scene.data(), "default", ["cancelled".to_owned()]).await;
    scene.running_attempts(1);
    scene.act("/api/v1/routes/verdicts/pause", "");
    until_nothing_is_received(&scene);
    let bodies = ["print:x", "print:y"].map(str::to_owned);
    send(scene.data(), "default", bodies).await;
    for (action, wanted) in [
        (
            "resume-route?target=verdicts",
            "<b>2 messages</b> wait there now.",
        ),
        ("limit-route?target=verdicts", "of <b>1 message</b> held"),
        (
            "limit-queue?target=local%3Adefault",
            "<b>1 message</b> in attempts here",
        ),
        (
            "limit-queue?target=local%3Adefault",
            "<b>2 messages</b> wait in it now.",
        ),
        ("reload-plugins?target=", "of <b>1 message</b> held"),
        ("roll-back?target=verdicts", "of <b>1 message</b> held"),
    ] {
        let (status, text) = page(&scene, &format!("/ui/confirm/{action}"));
        assert_eq!(status, 200, "{text}");
        assert!(text.contains(wanted), "{action}: {text}");
    }
    for action in ["delete-message", "resend-message"] {
        let path = format!("/ui/confirm/{action}?target=local%3Adefault.dead&part=none");
        let (status, text) = page(&scene, &path);
        assert_eq!(status, 404, "{action}: {text}");
        assert!(!text.contains("/api/v1"), "{action}: {text}");
    }
    scene.act("/api/v1/routes/verdicts/resume", "");
    scene.running.wait_for_lines(2, printed);
    let running = scene.get("/api/v1/running");
    let id = running["items"][0]["id"].as_str().expect("an id");
    scene.act(&format!("/api/v1/running/{id}/cancel"), "");
    scene.running.stop();
}

#[test]
fn a_message_is_sent_by_the_form_of_its_queue() {
    let mut scene = ApiScene::verdicts(&[]);
    let target = ("target", "local:default");
    let (status, text) = page(&scene, "/ui/queue?name=local%3Adefault");
    assert_eq!(status, 200);
    assert!(text.contains("/ui/confirm/send?"), "{text}");
    let (status, form) = page(&scene, "/ui/confirm/send?target=local%3Adefault");
    assert_eq!(status, 200);
    for wanted in ["name=\"body\"", "name=\"group\"", "name=\"delay\""] {
        assert!(form.contains(wanted), "{wanted}: {form}");
    }
    let fields = [target, ("body", "print:by hand"), ("back", "/ui")];
    let (status, text) = submit(&scene, "send", &fields);
    assert!((200..400).contains(&status), "{status}: {text}");
    scene.running.wait_for_line(|line| line.contains("by hand"));
    let (status, text) = submit(&scene, "send", &[target, ("body", "x"), ("delay", "soon")]);
    assert_eq!(status, 422, "{text}");
    assert!(text.contains("a duration as in 90s"), "{text}");
    let audited = scene.audit("admin action", 1);
    assert!(!audited[0].to_string().contains("by hand"), "{audited:?}");
    scene.running.stop();
}

#[test]
fn bad_addresses_get_pages_that_say_what_to_do() {
    let mut scene = ApiScene::verdicts(&[]);
    for (path, status, wanted) in [
        ("/ui/act/purge", 405, "Open the page, and act there."),
        ("/ui/assets/none.js", 404, "There is no such page."),
        (
            "/ui/queue?name=none",
            404,
            "This process receives from no queue `none`.",
        ),
        (
            "/ui/schedules?queue=local%3Anone",
            200,
            "This process has no queue “local:none”",
        ),
        ("/ui/dead-letters?queue=local%3Anone", 404, "local:none"),
    ] {
        let (found, text) = page(&scene, path);
        assert_eq!(found, status, "{path}: {text}");
        assert!(text.starts_with("<!DOCTYPE html>"), "{path}: {text}");
        assert!(text.contains(wanted), "{path}: {text}");
        assert!(
            !text.contains("/api/v1") && !text.contains("%2F"),
            "{path}: {text}"
        );
    }
    scene.running.stop();
}

#[tokio::test]
async fn an_edited_body_keeps_the_ends_of_its_lines() {
    let mut scene = ApiScene::verdicts(&["--admin-bodies"]);
    send(scene.data(), "default", ["reject:a\r\nb".to_owned()]).await;
    until_depth(scene.data(), "default.dead", |depth| depth.waiting == 1).await;
    let letters = scene.get("/api/v1/queues/local%3Adefault.dead/messages");
    let id = letters["items"][0]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let (_, asked) = page(
        &scene,
        &format!("/ui/confirm/edit-message?target=local%3Adefault.dead&part={id}"),
    );
    let (_, ends) = asked.split_once("name=\"ends\" value=\"").expect("it says");
    let ends = &ends[..ends.find('"').expect("the end")];
    let fields = [
        ("target", "local:default.dead"),
        ("part", &id),
        ("ends", ends),
        ("body", "print:c\r\nd"),
    ];
    scene.act("/api/v1/queues/local%3Adefault/pause", "");
    until_nothing_is_received(&scene);
    let (status, text) = submit(&scene, "edit-message", &fields);
    assert!((200..400).contains(&status), "{status}: {text}");
    let jobs = scene.get("/api/v1/jobs");
    let job = until_ended(&jobs["items"][0], |path| scene.get(path));
    assert_eq!(job["report"]["moved"], json!(1), "{job}");
    let moved = scene.get("/api/v1/queues/local%3Adefault/messages");
    assert_eq!(
        moved["items"][0]["content"]["body"], "print:c\r\nd",
        "{moved}"
    );
    scene.running.stop();
}
