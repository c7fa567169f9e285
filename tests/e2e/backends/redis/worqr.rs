//! Queues of npm `worqr`, beside a peer that speaks the package's own commands: each takes what the
//! other sends, and what the other held when it died.

use crate::backends::redis::scene::{RedisScene, begins};
use crate::scene::{field, printed, prints};
use dispatcher_tests::PATIENCE;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::worqr::{Process, WorqrPeer};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The program on a queue of the package.
fn program(scene: &RedisScene, more: &[&str]) -> Program {
    let format = format!("{}=worqr", scene.name);
    let mut arguments = vec!["--redis-format", &format, "--log-level", "debug"];
    arguments.extend(more);
    scene.run("verdicts", &arguments)
}

fn keys(scene: &RedisScene, pattern: &str) -> Vec<String> {
    let answer = scene.server.connect().call(&["KEYS", pattern]);
    answer.expect("an answer").texts()
}

/// Asks again and again until there is an answer: a server tells a test nothing by itself.
fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "it never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn tasks_enqueued_by_worqr_are_handled_and_finished() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    let running = program(&scene, &[]).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    let tasks: Vec<String> = (0..20).map(|n| format!("print:{n}")).collect();
    peer.enqueue(&scene.name, &tasks);
    running.wait_for_lines(20, printed);
    until(|| keys(&scene, "worqr:processes:*").is_empty().then_some(()));
    assert!(keys(&scene, "worqr:workingProcesses:*").is_empty());
    assert!(keys(&scene, "worqr:queues:*").is_empty());
}

#[tokio::test]
async fn messages_sent_by_dispatcher_are_taken_by_worqr() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    peer.start_work(&scene.server, &scene.name);
    let format = format!("{}=worqr", scene.name);
    for body in ["first", "second"] {
        let send = ["send", &scene.full(), body, "--redis-format", &format];
        let ended = scene.command(&send);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    let peek = ["peek", &scene.full(), "--json", "--redis-format", &format];
    let seen = scene.command(&peek);
    assert!(
        seen.stdout.contains("first"),
        "{}{}",
        seen.stdout,
        seen.stderr
    );
    for body in ["first", "second"] {
        let process = peer.dequeue(&scene.name).expect("it is there");
        assert_eq!(process.task, body);
        peer.finish(&scene.name, &process);
    }
    let refused = [
        "send",
        &scene.full(),
        "x",
        "--delay",
        "5s",
        "--redis-format",
        &format,
    ];
    let ended = scene.command(&refused);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("only payloads"), "{}", ended.stderr);
}

#[tokio::test]
async fn tasks_of_a_dead_worqr_worker_move_to_dispatcher() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    peer.start_work(&scene.server, &scene.name);
    let tasks: Vec<String> = (0..3).map(|n| format!("print:{n}")).collect();
    peer.enqueue(&scene.name, &tasks);
    let held: Vec<Process> = (0..3).filter_map(|_| peer.dequeue(&scene.name)).collect();
    assert_eq!(held.len(), 3);
    let running = program(&scene, &[]).start();
    running.wait_for_line(|line| line.contains("\"running\""));
    peer.die();
    let dead = Instant::now();
    running.wait_for_lines(3, printed);
    println!(
        "handled {:.1} s after its death",
        dead.elapsed().as_secs_f64()
    );
}

#[tokio::test]
async fn messages_of_a_dead_dispatcher_move_to_worqr() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    let mut running = program(&scene, &["--timeout", "1h"]).start();
    peer.enqueue(&scene.name, &["sleep:3600000".to_owned()]);
    running.wait_for_line(begins);
    running.signal(Signal::KILL);
    assert_eq!(running.wait_exit(), 137);
    peer.start_work(&scene.server, &scene.name);
    let process = until(|| {
        peer.sweep();
        peer.dequeue(&scene.name)
    });
    assert_eq!(process.task, "sleep:3600000");
}

#[tokio::test]
async fn cancel_by_worqr_stops_the_running_attempt() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    let running = program(&scene, &["--timeout", "1h"]).start();
    let task = "sleep:3600000".to_owned();
    peer.enqueue(&scene.name, std::slice::from_ref(&task));
    running.wait_for_line(begins);
    let format = format!("{}=worqr", scene.name);
    let ended = scene.command(&["cancel", &scene.full(), &task, "--redis-format", &format]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    running.wait_for_line(|line| line.contains("message cancelled"));
    until(|| keys(&scene, "worqr:processes:*").is_empty().then_some(()));
}

#[tokio::test]
async fn mixed_fleet_with_kills_loses_nothing() {
    const TASKS: usize = 300;
    const KILLS: usize = 4;
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    let tasks: Vec<String> = (0..TASKS).map(|n| format!("print:{n}")).collect();
    peer.enqueue(&scene.name, &tasks);
    let mut handled: BTreeMap<String, usize> = BTreeMap::new();
    let start = || program(&scene, &["--concurrency", "10", "--max-attempts", "1000"]).start();
    let mut ours = start();
    for _ in 0..KILLS {
        let mut theirs = WorqrPeer::new(&scene.server);
        theirs.start_work(&scene.server, &scene.name);
        for at in 0..12 {
            let Some(process) = theirs.dequeue(&scene.name) else {
                break;
            };
            // Two of them are in its hands when it dies.
            if at < 10 {
                theirs.finish(&scene.name, &process);
                count(&mut handled, [process.task]);
            }
        }
        ours.wait_for_lines(10, printed);
        theirs.die();
        ours.signal(Signal::KILL);
        ours.wait_exit();
        count(&mut handled, spoken(&ours));
        ours = start();
    }
    until(|| keys(&scene, "worqr:processes:*").is_empty().then_some(()));
    until(|| keys(&scene, "worqr:queues:*").is_empty().then_some(()));
    until(|| {
        let printed = spoken(&ours);
        let all = printed.iter().filter(|task| !handled.contains_key(*task));
        (all.collect::<std::collections::BTreeSet<_>>().len() + handled.len() >= TASKS)
            .then_some(())
    });
    count(&mut handled, spoken(&ours));
    assert_eq!(handled.len(), TASKS, "every task is handled");
    let again: usize = handled.values().map(|times| times - 1).sum();
    println!("{again} of {TASKS} came twice");
}

/// What the server knows of workers: their sets, timers and queues.
fn registrations(scene: &RedisScene) -> Vec<String> {
    let mut server = scene.server.connect();
    let mut known = keys(scene, "worqr:workerTimers:*");
    known.extend(keys(scene, "worqr:workingQueues:*"));
    known.extend(keys(scene, "worqr:dispatcher:held:*"));
    for set in ["workers", "expiringWorkers", "permanentWorkers"] {
        let members = server.call(&["SMEMBERS", &format!("worqr:{set}")]);
        known.extend(members.expect("an answer").texts());
    }
    known
}

/// The package returns the tasks of all workers of a queue when it finds a dead one: after a stop it
/// must not find one, now or later, so that the tasks of healthy peers run once.
#[tokio::test]
async fn stop_leaves_no_worker_that_the_package_takes_for_dead() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    peer.start_work(&scene.server, &scene.name);
    peer.enqueue(&scene.name, &["healthy".to_owned()]);
    let healthy = peer.dequeue(&scene.name).expect("it is there");
    let mut running = program(&scene, &["--timeout", "1h", "--shutdown-grace", "1s"]).start();
    let tasks = ["print:done", "sleep:3600000", "retry:3600000"].map(str::to_owned);
    peer.enqueue(&scene.name, &tasks);
    running.wait_for_line(printed);
    running.wait_for_line(|line| line.contains("\"message retried\""));
    running.wait_for_lines(3, begins);
    running.stop();
    let ours: Vec<String> = registrations(&scene);
    let ours: Vec<&String> = ours
        .iter()
        .filter(|one| !one.contains(peer.worker()))
        .collect();
    assert_eq!(ours, Vec::<&String>::new());
    assert_eq!(peer.sweep(), Vec::<String>::new());
    // Its own tasks went back, that of the healthy peer did not.
    let left = keys(&scene, "worqr:processes:*");
    assert_eq!(left, [format!("worqr:processes:{}", healthy.id)]);
    let mut returned: Vec<String> = std::iter::from_fn(|| peer.dequeue(&scene.name))
        .map(|process| process.task)
        .collect();
    returned.sort();
    assert_eq!(returned, ["retry:3600000", "sleep:3600000"]);
    peer.finish(&scene.name, &healthy);
}

/// What is to come back later waits while another dispatcher lives that will bring it back.
#[tokio::test]
async fn stop_beside_another_dispatcher_leaves_delayed_tasks_to_it() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    let mut first = program(&scene, &[]).start();
    peer.enqueue(&scene.name, &["retry:3600000".to_owned()]);
    first.wait_for_line(|line| line.contains("\"message retried\""));
    let other = program(&scene, &[]).start();
    other.wait_for_line(|line| line.contains("\"running\""));
    until(|| (keys(&scene, "worqr:workerTimers:*").len() == 2).then_some(()));
    first.stop();
    assert!(keys(&scene, "worqr:queues:*").is_empty());
    assert_eq!(keys(&scene, "worqr:dispatcher:released:*").len(), 1);
    drop(other);
}

/// `stopWork` of the package returns what runs of the queue, and so does a pause; a resume begins anew.
#[tokio::test]
async fn pause_of_a_queue_returns_what_runs_here_and_nothing_of_others() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    peer.start_work(&scene.server, &scene.name);
    peer.enqueue(&scene.name, &["healthy".to_owned()]);
    let healthy = peer.dequeue(&scene.name).expect("it is there");
    let running = program(&scene, &["--timeout", "1h"]).start();
    peer.enqueue(&scene.name, &["sleep:3600000".to_owned()]);
    running.wait_for_line(begins);
    let format = format!("{}=worqr", scene.name);
    let control = |what: &str| {
        let ended = scene.command(&[what, &scene.full(), "--redis-format", &format]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    };
    control("pause");
    running.wait_for_line(|line| line.contains("\"worqr queue left\""));
    let returned = peer.dequeue(&scene.name).expect("it is back");
    assert_eq!(returned.task, "sleep:3600000");
    assert_eq!(peer.sweep(), Vec::<String>::new());
    let left = keys(&scene, &format!("worqr:processes:{}", healthy.id));
    assert_eq!(left.len(), 1, "the healthy peer's task stays with it");
    peer.finish(&scene.name, &returned);
    peer.enqueue(&scene.name, &["print:later".to_owned()]);
    control("resume");
    running.wait_for_line(printed);
    peer.finish(&scene.name, &healthy);
}

/// A killed dispatcher cannot leave. One that lives finds it long before the package does, and returns
/// its tasks alone.
#[tokio::test]
async fn killed_dispatcher_is_found_by_another_one_before_the_package_finds_it() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    peer.start_work(&scene.server, &scene.name);
    peer.enqueue(&scene.name, &["healthy".to_owned()]);
    let healthy = peer.dequeue(&scene.name).expect("it is there");
    let mut killed = program(&scene, &["--timeout", "1h"]).start();
    peer.enqueue(&scene.name, &["print:once".to_owned()]);
    killed.wait_for_line(printed);
    let other = program(&scene, &[]).start();
    other.wait_for_line(|line| line.contains("\"running\""));
    until(|| (keys(&scene, "worqr:workerTimers:*").len() == 3).then_some(()));
    killed.signal(Signal::KILL);
    killed.wait_exit();
    until(|| {
        assert_eq!(peer.sweep(), Vec::<String>::new());
        (keys(&scene, "worqr:workerTimers:*").len() == 2).then_some(())
    });
    let left = keys(&scene, "worqr:processes:*");
    assert_eq!(left, [format!("worqr:processes:{}", healthy.id)]);
}

/// A command that looks at a queue by receiving is a worker while it looks, and none afterwards.
#[tokio::test]
async fn look_at_a_queue_leaves_no_worker_behind() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    peer.enqueue(&scene.name, &["first".to_owned(), "second".to_owned()]);
    let format = format!("{}=worqr", scene.name);
    let peek = [
        "peek",
        &scene.full(),
        "--receive",
        "--redis-format",
        &format,
    ];
    let ended = scene.command(&peek);
    assert!(
        ended.stdout.contains("first"),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    assert_eq!(registrations(&scene), Vec::<String>::new());
    assert_eq!(peer.sweep(), Vec::<String>::new());
}

/// It is dead-lettered without being loaded, and its lock ends with it, as when it is finished.
#[tokio::test]
async fn finding_04_task_beyond_message_memory_is_dead_lettered_and_others_handled() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    let large = format!("print:{}", "x".repeat(3_000_000));
    // The MD5 of the task.
    let lock = "worqr:uniqueTasks:b9a7e73ee910a665b51520202853392d";
    let mut server = scene.server.connect();
    server.call(&["SET", lock, "1"]).expect("an answer");
    peer.enqueue(
        &scene.name,
        &["print:a".to_owned(), large, "print:b".to_owned()],
    );
    let running = program(&scene, &["--message-memory", "2MiB"]).start();
    let line = running.wait_for_line(|line| line.contains("\"message dead-lettered\""));
    assert_eq!(field(&line, "reason_kind"), "too-large");
    running.wait_for_lines(2, printed);
    until(|| keys(&scene, "worqr:processes:*").is_empty().then_some(()));
    let mut handled = prints(&running);
    handled.sort();
    assert_eq!(handled, ["a", "b"]);
    let dead = format!("worqr:queues:{}.dead", scene.name);
    let letters = server
        .call(&["LRANGE", &dead, "0", "-1"])
        .expect("an answer");
    let lengths: Vec<_> = letters.texts().iter().map(String::len).collect();
    assert_eq!(lengths, [3_000_006], "it is whole");
    assert!(keys(&scene, "worqr:uniqueTasks:*").is_empty());
}

/// More than may be held waits in the queue, and all of it is handled in the end.
#[tokio::test]
async fn finding_04_tasks_wait_for_memory_and_all_are_handled() {
    let scene = RedisScene::plain();
    let mut peer = WorqrPeer::new(&scene.server);
    let tasks: Vec<String> = (0..20)
        .map(|number| format!("done:{number}{}", "x".repeat(700_000)))
        .collect();
    peer.enqueue(&scene.name, &tasks);
    let more = ["--message-memory", "2MiB", "--concurrency", "20"];
    let _running = program(&scene, &more).start();
    until(|| keys(&scene, "worqr:queues:*").is_empty().then_some(()));
    until(|| keys(&scene, "worqr:processes:*").is_empty().then_some(()));
}

/// What a run has printed, as the tasks that told it to.
fn spoken(running: &RunningProgram) -> Vec<String> {
    let prints = prints(running).into_iter();
    prints.map(|text| format!("print:{text}")).collect()
}

fn count(handled: &mut BTreeMap<String, usize>, tasks: impl IntoIterator<Item = String>) {
    for task in tasks {
        *handled.entry(task).or_default() += 1;
    }
}
