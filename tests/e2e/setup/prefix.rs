//! One configuration for several environments: their queues differ by the prefix of their names.

use super::accounts::{metric, send_by, service, until};
use crate::lambda::scene::admin;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use dispatcher_tests::guests::guest;
use dispatcher_tests::http;
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::service::JobService;

const RUN: [&str; 7] = [
    "run",
    "--config",
    "d.toml",
    "--log-format",
    "json",
    "--admin",
    "127.0.0.1:0",
];

/// A handler that sends what it gets to the queue that it is told, and a service that gets it.
fn file(service: &JobService, backend: &str, more: &str) -> String {
    format!(
        "{more}[plugin.sends]\nfile = '{}'\nallow-send = ['{backend}:out']\n\
         [plugin.ends]\nforward = '{}'\n\
         [[route]]\nplugin = 'sends'\nqueues = ['{backend}:in']\n\
         [[route]]\nplugin = 'ends'\nqueues = ['{backend}:ou*']\nqueue-except = ['{backend}:ou']\n",
        guest("contract-sends"),
        service.url()
    )
}

fn done(running: &RunningProgram, queue: &str) -> String {
    let name = format!("dispatcher_queue_messages_done_total{{queue=\"{queue}\"}}");
    metric(&admin(running), &name)
}

#[tokio::test]
async fn one_configuration_serves_two_environments_on_one_server() {
    let (redis, service) = (RedisServer::shared().url(), service());
    let file = file(&service, "redis", "[dispatcher]\ndiscovery-interval = 1\n");
    let places = ["--redis-url", &redis];
    let environments = ["prod-", "test-"].map(RedisServer::fresh_name);
    let words = [&RUN[..], &places].concat();
    let by_variable = Program::new(&words).env("DISPATCHER_PREFIX", &environments[0]);
    let by_flag = Program::new([&words[..], &["--prefix", &environments[1]]].concat());
    let mut running = [by_variable, by_flag].map(|program| program.file("d.toml", &file).start());
    for (running, prefix) in running.iter().zip(&environments) {
        running.wait_for_line(|line| line.contains("\"running\"") && line.contains("sends"));
        // The handler names the queue as the configuration does.
        let queue = format!("redis:{prefix}in");
        let words = [&["send", &queue, "redis:out done"], &places[..]].concat();
        send_by(Program::new(words), running);
    }
    let requests = service.wait_for(2);
    for request in &requests {
        assert_eq!(request.header("x-dispatcher-queue"), Some("redis:out"));
    }
    for (running, prefix) in running.iter().zip(&environments) {
        let full = format!("redis:{prefix}out");
        until(|| done(running, &full) == "1");
        let words = ["check", "--config", "d.toml", "--prefix", prefix];
        let checked = Program::new([&words[..], &places].concat());
        let checked = checked.sharing(running.data()).run();
        let pattern = format!("redis:{prefix}ou* matches 1 queue now");
        assert_eq!(checked.code, 0, "{checked:?}");
        let said = checked.stdout + &checked.stderr;
        for name in [&pattern, &full, &format!("redis:{prefix}in")] {
            assert!(said.contains(name), "{said}");
        }
        let metrics = http::get(&format!("{}/metrics", admin(running))).body;
        let others = environments.iter().filter(|other| *other != prefix);
        for other in others {
            assert!(!metrics.contains(other), "{metrics}");
        }
    }
    running.iter_mut().for_each(RunningProgram::stop);
}

#[tokio::test]
async fn reload_changes_the_prefix() {
    let service = service();
    let with = |prefix: &str| {
        let lines = format!("[dispatcher]\ndiscovery-interval = 1\nprefix = '{prefix}'\n");
        file(&service, "local", &lines)
    };
    let mut running = Program::new(RUN).file("d.toml", &with("blue-")).start();
    running.wait_for_line(|line| line.contains("\"running\"") && line.contains("sends"));
    let path = running.data().path().join("d.toml");
    std::fs::write(path, with("green-")).expect("written");
    running.signal(Signal::HUP);
    running.wait_for_line(|line| line.contains("\"running\"") && line.contains("local:green-in"));
    for prefix in ["blue-", "green-"] {
        let queue = format!("local:{prefix}in");
        send_by(Program::new(["send", &queue, "local:out done"]), &running);
    }
    let request = service.wait_for(1).remove(0);
    assert_eq!(request.header("x-dispatcher-queue"), Some("local:out"));
    until(|| done(&running, "local:green-out") == "1");
    running.stop();
}
