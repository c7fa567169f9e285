//! Patterns of queues: what they may be, and the settings of the queues that they find.

use super::*;
use std::num::NonZeroU32;

/// The settings of a file with this route, with the queues that its patterns find.
fn found(route: &str, queues: &[(&str, &[&str])]) -> (Settings, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("d.toml");
    let text = format!("[plugin.p]\nfile = 'p.wasm'\n[[route]]\n{route}");
    std::fs::write(&path, text).expect("written");
    let path = path.to_string_lossy();
    let mut flags = Flags::default();
    flags.take("config", WrittenValue::new("--config", &*path));
    let queues = queues.iter().map(|(pattern, names)| {
        let names = names.iter().map(|name| name.parse().expect("a name"));
        ((*pattern).to_owned(), names.collect())
    });
    let (settings, problems) = SettingsSource::read(&flags).settings(&queues.collect());
    let problems = problems
        .iter()
        .map(|problem| problem.to_string().replace(&*path, "d.toml"));
    (settings, problems.collect())
}

#[test]
fn queues_that_a_pattern_finds_take_its_place_and_its_settings() {
    let route = "queues = ['first:4', 'sqs:prod-*:2', 'last:1']\n\
                 rate.'prod-*' = '5/s'\nqueue-concurrency.prod-b = 3\n";
    let (settings, problems) = found(route, &[("prod-*", &["prod-a", "prod-b"])]);
    assert_eq!(problems, [""; 0]);
    let queues = settings.routes[0].queues.iter();
    let seen: Vec<_> = queues
        .map(|queue| {
            let weight = queue.weight.map_or(0, NonZeroU32::get);
            (
                queue.name.to_string(),
                weight,
                queue.rate,
                queue.concurrency,
            )
        })
        .collect();
    let wanted = [
        ("first".to_owned(), 4, None, None),
        ("prod-a".to_owned(), 2, Some(5.0), None),
        ("prod-b".to_owned(), 2, Some(5.0), Some(3)),
        ("last".to_owned(), 1, None, None),
    ];
    assert_eq!(seen, wanted);
    let patterns: Vec<_> = settings.patterns().map(ToString::to_string).collect();
    assert_eq!(patterns, ["prod-*"]);
}

#[test]
fn limits_of_queues_that_are_not_there_yet_are_no_problem() {
    let route = "queues = ['prod-*']\nrate.prod-later = '5/s'\nmax-queues = 7\n\
                 queue-tag = { team = 'a', stage = 'x' }\nqueue-except = ['prod-*-old']\n";
    let (settings, problems) = found(route, &[]);
    assert_eq!(problems, [""; 0]);
    let route = &settings.routes[0];
    assert_eq!(route.queues, []);
    assert_eq!(route.settings.max_queues, 7);
    let tags = [("stage", "x"), ("team", "a")];
    assert_eq!(
        route.settings.queue_tag,
        tags.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    assert_eq!(settings.program.discovery_interval, Duration::from_secs(60));
}

#[test]
fn bad_patterns_and_tags_are_reported_together() {
    let text = "[plugin.p]\nfile = 'p.wasm'\n\
                [[route]]\nname = 'a'\nqueues = ['*', 'prod-*', 'sqs:prod-*']\n\
                [[route]]\nname = 'b'\nqueues = ['redis:x-*']\nqueue-tag = { team = 'a' }\n\
                [[route]]\nname = 'c'\nqueues = ['orders']\nqueue-tag = { team = 'a' }\n\
                queue-except = ['a']\nmax-queues = 1001\n\
                [[route]]\nname = 'd'\nqueues = ['test-*']\ndead-letter = 'local:dead'\n\
                queue-except = ['test-a*', 'local:test-b', 'test-a,test-b', 'test-c:3', '']\n[[route]]\nname = 'e'\nqueues = ['test-*']\n";
    let (_, problems) = from_file(text, &[]);
    let wanted = [
        "d.toml:5: `*` is no pattern of queue names; wanted a name in which `*` stands for any \
         characters, as in prod-* or local:jobs-*",
        "d.toml:5: `prod-*` appears twice; wanted each queue once",
        "d.toml:9: a tag of queues `redis:x-*`; wanted SQS or the embedded queue, which have tags",
        "d.toml:13: a tag without queues that are looked up; wanted a pattern such as prod-* in \
         `queues`",
        "d.toml:14: `queue-except` without queues that are looked up; wanted a pattern such as prod-* \
         in `queues`",
        "d.toml:15: `1001` is out of range; wanted 1 to 1000",
        "d.toml:19: `local:dead` is on another backend than `test-*`; wanted a dead-letter queue on \
         the same backend as every queue of the route",
        "d.toml:20: `local:test-b` names no queue of `test-*`; wanted a name or a pattern on the same \
         backend, one in each entry",
        "d.toml:20: `test-a,test-b` names no queue of `test-*`; wanted a name or a pattern on the same \
         backend, one in each entry",
        "d.toml:20: `test-c:3` names no queue of `test-*`; wanted a name or a pattern on the same \
         backend, one in each entry",
        "d.toml:20: `` names no queue of `test-*`; wanted a name or a pattern on the same backend, one \
         in each entry",
        "d.toml:23: `test-*` is in route `d` already; wanted each queue in one route",
    ];
    assert_eq!(problems, wanted);
}
