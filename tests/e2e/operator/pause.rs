//! Queues that are paused, resumed and limited while processes run: by all that read them where they
//! share it, by the fleet of a process on SQS.

use crate::backends::dynamodb;
use crate::backends::redis::scene::RedisScene;
use crate::lambda::scene::queue;
use crate::operator::admin_api::ApiScene;
use crate::scene::{printed, prints, run, send};
use dispatcher_tests::child::{ExitedProgram, Program, RunningProgram};
use dispatcher_tests::servers::MiniStack;

fn paused(line: &str) -> bool {
    line.contains("\"message\":\"queue paused\"")
}

fn resumed(line: &str) -> bool {
    line.contains("\"message\":\"queue resumed\"")
}

/// Two processes that read a queue obey a pause by the command line, also one that starts later, and
/// handle what was sent meanwhile once it is resumed.
async fn pauses_for_all<S: Future<Output = ()>>(
    start: impl Fn() -> RunningProgram,
    command: impl Fn(&[&str]) -> ExitedProgram,
    send: impl FnOnce() -> S,
) {
    let mut two = [start(), start()];
    for one in &two {
        one.wait_for_line(|line| line.contains("\"message\":\"running\""));
    }
    let said = command(&["pause"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.stdout
            .contains("for all processes that read it, within 2 s"),
        "{said:?}"
    );
    two.iter().for_each(|one| drop(one.wait_for_line(paused)));
    let mut late = start();
    let warning = late.wait_for_line(|line| line.contains("live control in force at start"));
    assert!(warning.contains("\"level\":\"WARN\""), "{warning}");
    late.wait_for_line(|line| line.contains("\"message\":\"running\""));
    send().await;
    let listed = command(&["queues"]);
    let row = listed.stdout.lines().nth(1).unwrap_or_default();
    assert!(row.ends_with("paused"), "{listed:?}");
    let said = command(&["limit", "--rate", "1000"]);
    assert_eq!(said.code, 0, "{said:?}");
    for one in two.iter().chain([&late]) {
        one.wait_for_line(|line| line.contains("queue limits changed"));
        assert_eq!(
            prints(one),
            [""; 0],
            "nothing is received while it is paused"
        );
    }
    let said = command(&["resume"]);
    assert!(
        said.stdout.contains("resumed for all processes"),
        "{said:?}"
    );
    let listed = command(&["queues", "--json"]);
    assert!(listed.stdout.contains("\"paused\":false"), "{listed:?}");
    let all = |two: &[RunningProgram; 2], late: &RunningProgram| {
        prints(&two[0]).len() + prints(&two[1]).len() + prints(late).len()
    };
    two.iter().for_each(|one| drop(one.wait_for_line(resumed)));
    late.wait_for_line(resumed);
    let deadline = std::time::Instant::now() + dispatcher_tests::PATIENCE;
    while all(&two, &late) < 20 {
        assert!(std::time::Instant::now() < deadline, "{}", all(&two, &late));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    two.iter_mut().for_each(RunningProgram::stop);
    late.stop();
    assert_eq!(all(&two, &late), 20, "each once");
}

fn bodies() -> impl Iterator<Item = String> {
    (0..20).map(|number| format!("print:{number}"))
}

#[tokio::test]
async fn a_local_queue_is_paused_for_all_processes_of_its_folder() {
    let first = run("verdicts", &[]).start();
    let data = first.data().clone();
    first.wait_for_line(|line| line.contains("\"message\":\"running\""));
    drop(first);
    pauses_for_all(
        || run("verdicts", &[]).sharing(&data).start(),
        |words| {
            let words = [&words[..1], &["local:default"], &words[1..]].concat();
            Program::new(words).sharing(&data).run()
        },
        || send(data.path(), "default", bodies()),
    )
    .await;
}

#[tokio::test]
async fn a_redis_queue_is_paused_for_all_processes() {
    let scene = RedisScene::plain();
    scene.send(["print:first".to_owned()]).await;
    let mut first = scene.run("verdicts", &[]).start();
    first.wait_for_line(printed);
    first.stop();
    pauses_for_all(
        || scene.run("verdicts", &[]).start(),
        |words| {
            let queue = scene.full();
            scene.command(&[&words[..1], &[queue.as_str()], &words[1..]].concat())
        },
        || async { drop(scene.send(bodies()).await) },
    )
    .await;
}

#[tokio::test]
async fn a_dynamodb_queue_is_paused_for_all_processes() {
    let (_tables, table, queue) = dynamodb::table("pause").await;
    pauses_for_all(
        || dynamodb::start(&queue, "verdicts", &[]),
        |words| {
            let words = [&words[..1], &[queue.as_str()], &words[1..]].concat();
            Program::new(words).aws(&MiniStack::shared().url()).run()
        },
        || dynamodb::send(&table, bodies()),
    )
    .await;
}

#[tokio::test]
async fn an_sqs_queue_is_paused_for_the_fleet_of_a_process_that_must_be_named() {
    let (server, name, url) = queue("pause", &[]).await;
    let endpoint = MiniStack::shared().url();
    let start = |flags: &[&str]| {
        let more = ["--queues", &name, "--poll-for", "1"];
        run("verdicts", &[&more, flags].concat()).aws(&endpoint)
    };
    let mut scene = ApiScene::of(start, &[]);
    let mut other = start(&[]).sharing(scene.running.data()).start();
    other.wait_for_line(|line| line.contains("\"message\":\"running\""));
    let command = |words: &[&str]| {
        let words = [&words[..1], &[name.as_str()], &words[1..]].concat();
        Program::new(words).aws(&endpoint)
    };
    let unnamed = command(&["pause"]).run();
    assert_eq!(unnamed.code, 2, "{unnamed:?}");
    assert!(unnamed.stderr.contains("--admin"), "{unnamed:?}");
    let by_itself = |words: &[&str]| command(words).sharing(scene.running.data()).run();
    let said = by_itself(&["pause"]);
    assert_eq!(
        said.code, 0,
        "a process of its data folder reads it: {said:?}"
    );
    scene.running.wait_for_line(paused);
    other.wait_for_line(paused);
    let said = by_itself(&["resume"]);
    assert_eq!(said.code, 0, "{said:?}");
    scene.running.wait_for_line(resumed);
    other.wait_for_line(resumed);
    let token = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(token.path(), "operator").expect("written");
    let token = token.path().display().to_string();
    let named = ["--admin", &scene.url, "--admin-token-file", &token];
    let said = command(&[&["pause"], &named[..]].concat()).run();
    assert_eq!(said.code, 0, "{said:?}");
    let wanted = "for the processes of this machine only";
    assert!(said.stdout.contains(wanted), "{said:?}");
    scene.running.wait_for_lines(2, paused);
    other.wait_for_lines(2, paused);
    // A poll that was under way at the pause gives back what it brings.
    server.send_many(&url, bodies()).await;
    let shown = scene.get(&format!("/api/v1/queues/{name}"));
    assert_eq!(shown["queue"]["paused_by"], "queue", "{shown}");
    assert_eq!(shown["queue"]["shared"], false, "{shown}");
    let metrics = dispatcher_tests::http::get(&format!("{}/metrics", scene.url)).body;
    let gauge = format!("dispatcher_queue_paused{{queue=\"{name}\"}} 1");
    assert!(metrics.contains(&gauge), "{metrics}");
    assert_eq!(prints(&scene.running), [""; 0]);
    assert_eq!(prints(&other), [""; 0]);
    let said = command(&[&["resume"], &named[..]].concat()).run();
    assert_eq!(said.code, 0, "{said:?}");
    other.wait_for_lines(2, resumed);
    let deadline = std::time::Instant::now() + dispatcher_tests::PATIENCE;
    while prints(&scene.running).len() + prints(&other).len() < 20 {
        assert!(std::time::Instant::now() < deadline, "not all are handled");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    other.stop();
    scene.running.stop();
    let left = server.counts(&url).await;
    assert_eq!((left.waiting, left.in_flight), (0, 0));
}
