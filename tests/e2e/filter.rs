//! A route handles only messages that its filters match, and says what became of the others.

use crate::lambda_scene::queue;
use crate::scene::{depth, field, prints, run, send, until_depth};
use dispatcher_core::queue::Depth;
use dispatcher_tests::child::{Program, RunningProgram};
use dispatcher_tests::http::get;
use dispatcher_tests::servers::MiniStack;

const ORDERS: &str = r#"{"body": {"kind": ["order"], "total": [{"numeric": [">", 100]}]}}"#;

fn bodies() -> [String; 4] {
    [
        r#"{"kind":"order","total":101}"#,
        r#"{"kind":"order","total":100}"#,
        r#"{"kind":"return","total":500}"#,
        "plain text",
    ]
    .map(String::from)
}

fn is_filtered(line: &str) -> bool {
    line.contains("\"message\":\"message filtered\"")
}

/// How many messages the lines so far say were filtered, and where they went.
fn filtered(running: &RunningProgram) -> (usize, Vec<String>) {
    let lines = running.lines(is_filtered);
    let count = |line: &String| field(line, "messages").parse::<usize>().expect("a number");
    let mut to: Vec<_> = lines.iter().map(|line| field(line, "to")).collect();
    to.dedup();
    (lines.iter().map(count).sum(), to)
}

#[tokio::test]
async fn messages_that_no_filter_matches_are_deleted_and_counted() {
    let more = ["--filter", ORDERS, "--admin", "127.0.0.1:0"];
    let mut running = run("hello", &more).start();
    let data = running.data().clone();
    send(data.path(), "default", bodies()).await;
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    let metrics = format!("{}/metrics", crate::lambda_scene::admin(&running));
    let metrics = get(&metrics).body;
    assert!(
        metrics.contains("dispatcher_messages_filtered_total 3\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("dispatcher_messages_dead_lettered_total 0\n"),
        "{metrics}"
    );
    running.stop();
    assert_eq!(prints(&running), [r#"{"kind":"order","total":101}"#]);
    assert_eq!(filtered(&running), (3, vec!["deleted".to_owned()]));
    assert_eq!(depth(data.path(), "default.dead").await, Depth::default());
}

#[tokio::test]
async fn messages_that_no_filter_matches_are_dead_lettered_where_the_route_says_so() {
    let either = r#"{"messageId": [{"prefix": "never"}]}"#;
    let more = [
        "--filter",
        ORDERS,
        "--filter",
        either,
        "--unmatched",
        "dead-letter",
    ];
    let mut running = run("hello", &more).start();
    let data = running.data().clone();
    send(data.path(), "default", bodies()).await;
    until_depth(data.path(), "default", |depth| depth == Depth::default()).await;
    running.stop();
    assert_eq!(prints(&running).len(), 1);
    assert_eq!(
        filtered(&running),
        (3, vec!["local:default.dead".to_owned()])
    );
    assert_eq!(depth(data.path(), "default.dead").await.waiting, 3);
    let letters = Program::new(["peek", "local:default.dead", "--json"]).sharing(&data);
    let letters = letters.run().stdout;
    assert_eq!(
        letters
            .matches("\"reason\":\"no filter of the route matches\"")
            .count(),
        3,
        "{letters}"
    );
}

#[tokio::test]
async fn messages_of_sqs_are_filtered_by_body_and_attributes() {
    let (server, name, url) = queue("filtered", &[]).await;
    let sender = r#"{"body": {"kind": ["order"]}, "attributes": {"SenderId": [{"exists": true}]}}"#;
    let more = ["--queues", &name, "--poll-for", "1", "--filter", sender];
    server.send_many(&url, bodies()).await;
    let mut running = run("hello", &more).aws(&MiniStack::shared().url()).start();
    server.wait_until_empty(&url).await;
    running.stop();
    let mut handled = prints(&running);
    handled.sort_unstable();
    assert_eq!(handled, [bodies()[1].clone(), bodies()[0].clone()]);
    assert_eq!(filtered(&running).0, 2);
}

#[test]
fn wrong_patterns_are_refused_with_their_place() {
    let file = "[plugin.p]\nfile = \"p.wasm\"\n[[route]]\nfilter = [\n\
                '{\"body\": {\"kind\": [{\"prefx\": \"a\"}], \"total\": 7}}',\n'{\"bodi\": [\"a\"]}']\n";
    let refused = Program::new(["check", "--config", "d.toml"])
        .file("d.toml", file)
        .run();
    assert_eq!(refused.code, 2, "{refused:?}");
    for says in [
        "d.toml:5: the pattern at /body/kind/0: `prefx` is no operator",
        "did you mean `prefix`?",
        "d.toml:5: the pattern at /body/total: `7`; wanted a list of values or operators",
        "d.toml:6: the pattern: `bodi` is no part of a message; wanted body, messageId",
        "did you mean `body`?",
    ] {
        assert!(refused.stderr.contains(says), "{says}: {refused:?}");
    }
    let refused = run("hello", &["--unmatched", "delete"]).run();
    assert!(
        refused.stderr.contains("`unmatched` without a filter"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn dead_letters_of_a_filter_need_a_dead_letter_queue() {
    let (_, name, _) = queue("filter-nowhere", &[]).await;
    let more = [
        "--queues",
        &name,
        "--filter",
        ORDERS,
        "--unmatched",
        "dead-letter",
    ];
    let refused = run("hello", &more).aws(&MiniStack::shared().url()).run();
    assert_ne!(refused.code, 0);
    assert!(
        refused.stderr.contains("has no dead-letter queue for them"),
        "{refused:?}"
    );
}
