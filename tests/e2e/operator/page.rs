//! The dashboard, in a real browser: `page.cjs` has what is done there, one function for each test.

use crate::backends::sqs::queue;
use crate::operator::admin_api::ApiScene;
use crate::operator::page_http::on_sqs;
use crate::scene::{guest, run};
use dispatcher_tests::browser;
use dispatcher_tests::child::{Program, binary};
use dispatcher_tests::proxy::Proxy;
use dispatcher_tests::servers::MiniStack;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

const PICTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/docs/pictures");

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/operator"))
}

/// Does one case against a program; `more` are variables. False where there is no browser.
fn browse(scene: &ApiScene, case: &str, more: &[(&str, &str)]) -> bool {
    let Some(mut script) = browser::script(&folder().join("page.cjs")) else {
        return false;
    };
    let output = script
        .arg(case)
        .env("PAGE_URL", &scene.url)
        .env("DISPATCHER", binary())
        .env("DATA", scene.running.data().path())
        .env("PROGRAM", scene.running.id().to_string())
        .envs(more.iter().copied())
        .output()
        .expect("node starts");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {log}");
    true
}

fn passes(case: &str, flags: &[&str]) {
    let mut scene = ApiScene::verdicts(flags);
    browse(&scene, case, &[]);
    scene.running.stop();
}

#[test]
fn pages_are_accessible_in_both_themes_and_on_a_phone() {
    let flags = [
        "--admin-environment",
        "production",
        "--admin-bodies",
        "--timeout",
        "10m",
    ];
    passes("accessible", &flags);
}

#[tokio::test]
async fn pages_of_sqs_are_accessible_and_show_what_a_look_found() {
    let (mut scene, _queue, dead) = on_sqs(None).await;
    browse(&scene, "accessible_on_sqs", &[("DEAD", &dead)]);
    scene.running.stop();
}

#[test]
fn a_canary_and_a_shadow_are_accessible() {
    let file = guest("verdicts");
    let trial = [
        "--canary",
        &file,
        "--canary-share",
        "50%",
        "--shadow",
        &file,
    ];
    let mut scene = ApiScene::of(|flags| run("hello", flags), &trial);
    browse(&scene, "accessible_trials", &[]);
    scene.running.stop();
}

#[test]
fn a_page_that_cannot_follow_says_why_and_follows_later() {
    passes("crowded", &[]);
}

#[test]
fn operators_pause_limit_cancel_redrive_restart_and_stop_from_pages() {
    let mut scene = ApiScene::verdicts(&["--timeout", "10m"]);
    if !browse(&scene, "operations", &[]) {
        return scene.running.stop();
    }
    assert_eq!(scene.running.wait_exit(), 0, "the page has stopped it");
    let audited = scene.audit("admin action", 1);
    for action in [
        "limit-route",
        "pause-route",
        "resume-route",
        "reload-plugins",
        "cancel-message",
        "cancel-schedule",
        "resend-message",
        "cancel-job",
        "restart-job",
        "drain",
    ] {
        let path = format!("/ui/act/{action}");
        assert!(
            audited.iter().any(|line| line["path"] == path),
            "{action}: {audited:?}"
        );
    }
}

#[test]
fn pages_follow_what_happens_and_say_when_they_no_longer_do() {
    let mut scene = ApiScene::verdicts(&[]);
    if browse(&scene, "live", &[]) {
        assert_eq!(scene.running.wait_exit(), 137, "the case has killed it");
    } else {
        scene.running.stop();
    }
}

#[test]
fn actions_ask_first_name_how_many_messages_they_touch_and_need_the_role() {
    let mut scene = ApiScene::verdicts(&[]);
    let browsed = browse(&scene, "actions", &[]);
    scene.running.stop();
    if browsed {
        let audited = scene.audit("admin action", 4);
        let paths: Vec<&str> = audited
            .iter()
            .filter_map(|line| line["path"].as_str())
            .collect();
        for action in [
            "pause-queue",
            "resume-queue",
            "limit-queue",
            "cancel-attempt",
        ] {
            assert!(
                paths.contains(&&*format!("/ui/act/{action}")),
                "{action}: {audited:?}"
            );
        }
        assert!(
            audited.iter().any(|line| line["user"] == "Ann"),
            "{audited:?}"
        );
    }
}

#[test]
fn tenants_of_a_queue_are_shown_followed_and_weighed() {
    let text = format!(
        "[limit.each]\nkey = \"group\"\nconcurrency = 1\n\
         [plugin.verdicts]\nfile = \"{}\"\ntimeout = \"10m\"\n\
         [[route]]\nqueues = [\"local:default\"]\nplugin = \"verdicts\"\ntenant = \"group\"\n\
         weight.acme = 4\nlimits = [\"each\"]\nconcurrency = 8\n",
        guest("verdicts")
    );
    let words = ["run", "--log-format", "json", "--config", "d.toml"];
    let program = |flags: &[&str]| Program::new([&words[..], flags].concat()).file("d.toml", &text);
    let mut scene = ApiScene::of(program, &[]);
    let pictures = std::env::var_os("UPDATE").map(|_| ("PICTURES", PICTURES));
    let browsed = browse(&scene, "tenants", pictures.as_slice());
    scene.running.stop();
    if browsed {
        let audited = scene.audit("admin action", 2);
        let mut paths = audited.iter().map(|line| &line["path"]);
        assert!(
            paths.any(|path| path == "/ui/act/weigh-tenant"),
            "{audited:?}"
        );
    }
}

#[test]
fn dead_letters_are_redriven_by_reason_edited_deleted_and_purged() {
    let mut scene = ApiScene::verdicts(&["--admin-bodies"]);
    let browsed = browse(&scene, "dead_letters", &[]);
    if browsed {
        scene
            .running
            .wait_for_line(|line| line.contains("corrected"));
    }
    scene.running.stop();
    if browsed {
        let audited = scene.audit("admin action", 4);
        let counted = |action: &str| {
            let line = audited
                .iter()
                .find(|line| line["path"] == format!("/ui/act/{action}"));
            line.map(|line| line["count"].clone())
        };
        for (action, count) in [
            ("redrive", 2),
            ("edit-message", 1),
            ("delete-message", 1),
            ("purge", 1),
        ] {
            assert_eq!(counted(action), Some(count.into()), "{action}: {audited:?}");
        }
    }
}

#[test]
fn pages_work_without_javascript() {
    passes("without_javascript", &[]);
}

#[test]
fn text_of_others_is_text_everywhere() {
    let environment = "<img src=x onerror=hacked=1>";
    passes(
        "text_is_text",
        &["--admin-bodies", "--admin-environment", environment],
    );
}

#[test]
fn pages_work_behind_a_proxy_with_a_prefix() {
    passes("behind_a_proxy", &["--admin-prefix", "/ops"]);
}

#[test]
fn forged_requests_do_nothing() {
    passes("forged", &[]);
}

/// Follows the page of a queue as a tab does.
fn tab(url: &str, queue: &str) -> impl Iterator<Item = String> {
    let at = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(at).expect("it listens");
    let patience = stream.set_read_timeout(Some(dispatcher_tests::PATIENCE));
    patience.expect("a time-out");
    let request = format!(
        "GET /ui/live?view=queue&name={queue} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer reader\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut lines = BufReader::new(stream)
        .lines()
        .map(|line| line.expect("a line"));
    assert_eq!(lines.next().as_deref(), Some("HTTP/1.1 200 OK"));
    lines
}

/// How many calls for depths come to SQS until the page says that there were two.
async fn calls_with(tabs: usize) -> usize {
    let (_, name, _) = queue("tabs", &[]).await;
    let proxy = Proxy::before(MiniStack::shared().address());
    let program = |flags: &[&str]| {
        let flags = [flags, &["--queues", &name]].concat();
        run("verdicts", &flags).aws(&proxy.url())
    };
    let mut scene = ApiScene::of(program, &[]);
    let before = proxy.seen("GetQueueAttributes");
    let mut all: Vec<_> = (0..tabs).map(|_| tab(&scene.url, &name)).collect();
    let shown = all[0].find(|line| line.contains("1 call the last time, 2 since the start"));
    let shown = shown.expect("depths are asked again");
    assert!(
        shown.contains("While a page is open that costs $0.0023 a day"),
        "{shown}"
    );
    let calls = proxy.seen("GetQueueAttributes") - before;
    // Nobody looks any more.
    drop(all);
    scene.running.stop();
    calls
}

#[tokio::test]
async fn two_hundred_tabs_cost_the_same_calls_as_one() {
    assert_eq!(calls_with(1).await, 2);
    assert_eq!(calls_with(200).await, 2);
}

/// Writes the pictures of the documents, with UPDATE=1.
#[test]
fn pictures_are_taken_when_asked_for() {
    if std::env::var_os("UPDATE").is_none() {
        return;
    }
    let flags = [
        "--admin-environment",
        "staging",
        "--admin-bodies",
        "--queues",
        "local:orders,local:invoices,local:emails,local:webhooks",
        "--max-attempts",
        "2",
    ];
    let mut scene = ApiScene::verdicts(&flags);
    browse(&scene, "pictures", &[("PICTURES", PICTURES)]);
    scene.running.stop();
}
