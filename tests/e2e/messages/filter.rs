//! A route handles only messages that its filters match, and says what became of the others.

use crate::lambda::scene::queue;
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
    let metrics = format!("{}/metrics", crate::lambda::scene::admin(&running));
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

/// A pattern of the body, bodies that AWS delivers and bodies that it deletes.
type Decisions = (&'static str, Vec<String>, Vec<String>);

fn decisions() -> Vec<Decisions> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let deep = format!(
        "{{\"kind\":\"book\",\"x\":{}{}}}",
        "[".repeat(500),
        "]".repeat(500)
    );
    vec![
        (
            r#"{"order.kind":["book"]}"#,
            texts(&[r#"{"order":{"kind":"book"}}"#, r#"{"order.kind":"book"}"#]),
            texts(&[r#"{"order":{"kind":"pen"}}"#]),
        ),
        (
            r#"{"kind":["book"]}"#,
            vec![
                r#"{"kind":"book","x":"\ud83d"}"#.to_owned(),
                r#"{"kind":"book","x":1e400}"#.to_owned(),
                deep,
            ],
            texts(&[r#"{"kind":"pen","x":"\ud83d"}"#]),
        ),
        (
            r#"{"id":[{"anything-but":123456789012345678901234567890}]}"#,
            texts(&[r#"{"id":123456789012345678901234567891}"#]),
            texts(&[r#"{"id":123456789012345678901234567890}"#]),
        ),
        (
            r#"{"test":[{"exists":false}]}"#,
            texts(&[r#"{"a":1}"#]),
            texts(&["plain text", "not {json", r#"[{"test":1},{"a":1}]"#]),
        ),
        (
            r#"["hello"]"#,
            texts(&["hello"]),
            texts(&[r#"["hello"]"#, r#"{"hello":1}"#]),
        ),
    ]
}

#[tokio::test]
async fn messages_that_aws_would_deliver_are_handled_and_only_others_deleted() {
    let mut file = format!("[plugin.p]\nfile = \"{}\"\n", crate::scene::guest("hello"));
    for (index, (pattern, _, _)) in decisions().iter().enumerate() {
        let route = format!(
            "[[route]]\nqueues = [\"local:q{index}\"]\nfilter = ['{{\"body\":{pattern}}}']\n"
        );
        file.push_str(&route);
    }
    let mut running = Program::new(["run", "--config", "d.toml", "--log-format", "json"])
        .file("d.toml", &file)
        .start();
    let data = running.data().clone();
    let (mut delivered, mut deleted) = (Vec::new(), 0);
    for (index, (_, does, does_not)) in decisions().into_iter().enumerate() {
        let name = format!("q{index}");
        delivered.extend(does.clone());
        deleted += does_not.len();
        send(data.path(), &name, does.into_iter().chain(does_not)).await;
        until_depth(data.path(), &name, |depth| depth == Depth::default()).await;
    }
    running.stop();
    let mut handled = prints(&running);
    handled.sort_unstable();
    delivered.sort_unstable();
    assert_eq!(handled, delivered);
    assert_eq!(filtered(&running), (deleted, vec!["deleted".to_owned()]));
}

#[test]
fn patterns_that_can_match_nothing_are_refused() {
    for pattern in [
        r#"{"f":[{"anything-but":{"prefix":""}}]}"#,
        r#"{"f":[{"anything-but":{"suffix":""}}]}"#,
        r#"{"n":[{"numeric":[">",100,"<",10]}]}"#,
        r#"{"n":[{"numeric":["=",1,"=",2]}]}"#,
        r#"{"a":[1],"$or":[{"a":[2]},{"b":[1]}]}"#,
    ] {
        let pattern = format!("{{\"body\":{pattern}}}");
        let arguments = ["check", "--plugin", "p.wasm", "--filter", &pattern];
        let refused = Program::new(arguments).run();
        assert_eq!(refused.code, 2, "{pattern}: {refused:?}");
        assert!(
            refused.stderr.contains("the pattern at /body/"),
            "{refused:?}"
        );
    }
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
        "d.toml:5: the pattern at /body/kind/0: `prefx` is not an operator",
        "did you mean `prefix`?",
        "d.toml:5: the pattern at /body/total: `7`; wanted a list of values or operators",
        "d.toml:6: the pattern: `bodi` is not a part of a message; wanted body, messageId",
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
