//! Settings from flags and files: what wins, what is assumed, and every bad input at once.

mod accounts;
mod classic_mode;
mod discovery;
mod order;
mod prefix;
mod relay;

use super::*;
use proptest::prelude::*;
use section::WrittenValue;

fn flags(list: &[(&str, &str)]) -> Flags {
    let mut flags = Flags::default();
    for (flag, text) in list {
        assert!(
            flags.take(flag, WrittenValue::new(format!("--{flag}"), *text)),
            "{flag}"
        );
    }
    flags
}

fn from_flags(list: &[(&str, &str)]) -> (Settings, Vec<String>) {
    read(&flags(list))
}

fn read(flags: &Flags) -> (Settings, Vec<String>) {
    let (settings, problems) = settings(flags);
    (settings, problems.iter().map(ToString::to_string).collect())
}

/// The settings of a file with this text, its folder's name taken out of the problems.
pub(crate) fn from_file(text: &str, list: &[(&str, &str)]) -> (Settings, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("d.toml");
    std::fs::write(&path, text).expect("written");
    let mut flags = flags(list);
    flags.take(
        "config",
        WrittenValue::new("--config", path.to_string_lossy()),
    );
    let (settings, problems) = read(&flags);
    let prefix = format!("{}/", folder.path().display());
    let short = problems.iter().map(|line| line.replace(&prefix, ""));
    (settings, short.collect())
}

#[test]
fn plugin_alone_is_enough() {
    let (settings, problems) = from_flags(&[("plugin", "dir/handler.wasm"), ("data", "/d")]);
    assert_eq!(problems, [""; 0]);
    let route = &settings.routes[0];
    assert_eq!(
        (route.name.as_str(), route.settings.concurrency),
        ("handler", 50)
    );
    assert_eq!(route.queues[0].name.to_string(), "local:default");
    assert_eq!(
        (route.settings.batch_size, route.settings.visibility),
        (1, None)
    );
    assert_eq!(
        (route.settings.poll_for, route.settings.sleep),
        (Duration::from_secs(20), Duration::ZERO)
    );
    let retry = Retry {
        first: Duration::from_secs(1),
        most: Duration::from_secs(900),
        attempts: NonZeroU32::new(10),
    };
    assert_eq!(route.retry, retry);
    let plugin = &route.plugin;
    assert_eq!(
        (plugin.settings.timeout, plugin.max_memory()),
        (None, 64 << 20)
    );
    assert_eq!((plugin.at.as_str(), plugin.reuse), ("--plugin", None));
    assert_eq!(settings.stores.data, PathBuf::from("/d"));
    assert_eq!(settings.program.shutdown_grace, Duration::from_secs(20));
}

#[test]
fn attempts_end_only_where_there_is_a_dead_letter_queue() {
    let attempts = |list: &[(&str, &str)]| {
        let list = [list, &[("plugin", "p.wasm")]].concat();
        let (settings, problems) = from_flags(&list);
        assert_eq!(problems, [""; 0]);
        settings.routes[0].retry.attempts.map(NonZeroU32::get)
    };
    assert_eq!(attempts(&[("queues", "a")]), None);
    assert_eq!(
        attempts(&[("queues", "a"), ("dead-letter", "a-dead")]),
        Some(10)
    );
    assert_eq!(attempts(&[("queues", "local:a")]), Some(10));
    assert_eq!(attempts(&[("queues", "a"), ("max-attempts", "3")]), Some(3));
}

#[test]
fn every_invalid_flag_is_reported_at_once() {
    let (_, problems) = from_flags(&[
        ("queues", "payments:0,b,b"),
        ("batch-size", "10001"),
        ("batch-window", "301"),
        ("poll-for", "21"),
        ("sleep", "-1"),
        ("visibility", "13h"),
        ("timeout", "0s"),
        ("max-memory", "64"),
        ("env", "NOVALUE"),
        ("reuse", "0"),
        ("dead-letter", "local:dead"),
        ("max-attempts", "0"),
        ("concurrency", "0,b=none"),
        ("rate", "b=fast"),
        ("name", "my app"),
        ("metrics", "cloud"),
        ("metrics-interval", "0"),
        ("admin", ":9090"),
        ("allow-lambda", "a b"),
        ("instance-concurrency", "10001"),
        ("shutdown-grace", "30"),
        ("workers", "0"),
        ("log-format", "jsn"),
        ("log-level", "infoo"),
        ("endpoint-url", "localhost:9324"),
        ("data", ""),
    ]);
    for wanted in [
        "--env: `NOVALUE` is not a name and a value; wanted NAME=VALUE",
        "--data: it is empty; wanted a folder",
        "--endpoint-url: `localhost:9324` is not the address of a service",
        "--log-format: `jsn` is not known; wanted text or json; did you mean `json`?",
        "--log-level: `infoo` is not a log level",
        "--shutdown-grace: `30` is not a duration; wanted a duration of at least 0s; did you mean `30s`?",
        "--workers: `0` is out of range; wanted 1 to 1024",
        "--queues: `0` is not a weight for the queue `payments`; wanted a whole number from 1 to 1,000,000",
        "--queues: `b` appears twice",
        "--queues: `payments:0` has a weight and `b` has none",
        "--dead-letter: `local:dead` is on another backend than `payments`",
        "--plugin: it is missing; wanted a component to run",
        "--max-memory: `64` is 64 B, which is out of range",
        "--timeout: `0s` is out of range",
        "--reuse: `0` is out of range",
        "--batch-size: `10001` is out of range; wanted 1 to 10000",
        "--batch-window: `301` is out of range; wanted 0s to 5m",
        "--rate: `fast` is not a rate; wanted a number and /s, /m or /h",
        "--concurrency: `none` is not a whole number; wanted 1 to 100000",
        "--name: `my app` cannot name a namespace of metrics",
        "--metrics: `cloud` is not known; wanted cloudwatch or emf or none; did you mean `cloudwatch`?",
        "--metrics-interval: `0` is out of range; wanted 1s to 1h",
        "--admin: `:9090` is not a socket address; wanted an IP address and a port; did you mean `127.0.0.1:9090`?",
        "--allow-lambda: `a b` is not a pattern of Lambda functions",
        "--instance-concurrency: `10001` is out of range; wanted 1 to 10000",
        "--concurrency: `0` is out of range",
        "--visibility: `13h` is out of range; wanted 0s to 12h",
        "--poll-for: `21` is out of range; wanted 0s to 20s",
        "--sleep: `-1` is not a duration",
        "--max-attempts: `0` is out of range",
    ] {
        let found = problems
            .iter()
            .filter(|line| line.starts_with(wanted))
            .count();
        assert_eq!(found, 1, "{wanted}\n{problems:#?}");
    }
    assert_eq!(problems.len(), 30, "{problems:#?}");
}

#[test]
fn flags_override_the_file_key_by_key() {
    let text = "[dispatcher]\nconcurrency = 7\ndata = 'data'\n[plugin.thumbs]\nfile = 't.wasm'\n\
                timeout = '5s'\nenv = { A = '1', B = '2' }\nreuse = { count = 5, age = '1m' }\nwarm = 3\n\
                [[route]]\nqueues = ['a:3', 'b:1']\npoll-for = 5\n";
    let (settings, problems) = from_file(text, &[("timeout", "9s"), ("env", "B=3")]);
    assert_eq!(problems, [""; 0]);
    let route = &settings.routes[0];
    assert_eq!(
        (route.name.as_str(), route.settings.concurrency),
        ("thumbs", 7)
    );
    assert_eq!(route.queues[0].weight, NonZeroU32::new(3));
    assert_eq!(route.settings.poll_for, Duration::from_secs(5));
    let plugin = &route.plugin;
    assert_eq!(plugin.settings.timeout, Some(Duration::from_secs(9)));
    assert_eq!(
        plugin.settings.env,
        [("A".into(), "1".into()), ("B".into(), "3".into())]
    );
    let reuse = Reuse {
        count: 5,
        age: Duration::from_secs(60),
        memory: 32 << 20,
    };
    assert_eq!((plugin.reuse, plugin.settings.warm), (Some(reuse), Some(3)));
    assert!(matches!(&plugin.code, Code::Component(Source::File(file)) if file.is_absolute()));
    assert!(settings.stores.data.is_absolute());

    let list = [
        ("queues", "local:c"),
        ("plugin", "o.wasm"),
        ("concurrency", "2"),
        ("data", "d"),
    ];
    let (settings, problems) = from_file(text, &list);
    assert_eq!(problems, [""; 0]);
    let route = &settings.routes[0];
    assert_eq!((route.queues.len(), route.settings.concurrency), (1, 2));
    assert_eq!(
        (&route.plugin.code, route.plugin.name.as_str()),
        (&Code::Component(Source::File("o.wasm".into())), "thumbs")
    );
    let data = std::path::absolute("d").expect("a working folder");
    assert_eq!(settings.stores.data, data);
}

#[test]
fn flags_of_one_route_are_refused_with_several_routes() {
    let text =
        "[plugin.p]\nfile = 'p.wasm'\n[[route]]\nqueues = ['a']\n[[route]]\nqueues = ['b']\n";
    let (settings, problems) = from_file(text, &[("workers", "2")]);
    assert_eq!(problems, [""; 0]);
    let names: Vec<_> = settings
        .routes
        .iter()
        .map(|route| route.name.as_str())
        .collect();
    assert_eq!(names, ["p", "p-2"]);
    let (_, problems) = from_file(text, &[("queues", "a,b"), ("timeout", "1s")]);
    assert_eq!(
        problems,
        ["--queues", "--timeout"].map(|flag| format!(
            "{flag}: it applies to one route, and the file has 2; wanted the setting in the file's route"
        ))
    );
}

#[test]
fn problems_across_routes_and_plugins_are_reported() {
    for (text, wanted) in [
        (
            "[[route]]\nqueues=['a']",
            "d.toml:1: the route has no plugin; wanted a component",
        ),
        (
            "[[route]]\nplugin='thums'\n[plugin.thumbs]\nfile='x'",
            "d.toml:2: no plugin `thums`; wanted the name of a [plugin.NAME] of the file; did you mean `thumbs`?",
        ),
        (
            "[plugin.p]\ntimeout='1s'",
            "d.toml:1: plugin `p` has no file; wanted a component",
        ),
        (
            "[plugin.p]\nfile=''",
            "d.toml:2: it is empty; wanted a component's file",
        ),
        (
            "[plugin.p]\nfile='x'\n[[route]]\nqueues=['a']\n[[route]]\nqueues=['a']\nname='q'",
            "d.toml:6: `a` is in route `p` already",
        ),
        (
            "[plugin.p]\nfile='x'\n[[route]]\nname='q'\nqueues=['a']\n[[route]]\nqueues=['b']\nname='q'",
            "d.toml:8: route `q` already exists, at d.toml:4",
        ),
        (
            "[plugin.p]\nfile='x'\n[[route]]\nqueues=['a']\n[[route]]\nname='q'",
            "d.toml:5: the route has no queues",
        ),
        (
            "[plugin.p]\nfile='x'\n[[route]]\nqueues=[]",
            "d.toml:3: the route has no queues",
        ),
        (
            "[plugin.p]\nfile='x'\n[[route]]\nretry={first='1m',most='1s'}",
            "d.toml:4: `most` is 1s and `first` is 60s",
        ),
        (
            "[plugin.p]\nfile='x'\n[[route]]\ndead-letter='local:default'",
            "d.toml:4: `local:default` is one of the route's queues too",
        ),
        (
            "[plugin.p]\nfile='x'\nreuse={memory='65MiB'}",
            "d.toml:3: `65MiB` is 65.0 MiB, which is out of range",
        ),
        (
            "[plugin.p]\nfile='x'\nwarm=1001",
            "d.toml:3: `1001` is out of range; wanted 0 to 1000",
        ),
        (
            "[plugin.p]\nfile='x'\ninstance-concurrency=2\nwarm=1",
            "d.toml:4: 1 prewarmed instances, and many attempts share an instance; wanted either `warm` or",
        ),
        (
            "[plugin.p]\nfunction='f'\nwarm=1",
            "d.toml:3: 1 prewarmed instances, and many attempts share an instance",
        ),
        (
            "[plugin.p]\nfile='x'\nenv={\"A=B\"='1'}",
            "d.toml:3: `A=B` cannot be a variable",
        ),
    ] {
        let (_, problems) = from_file(text, &[]);
        assert_eq!(problems.len(), 1, "{text}: {problems:#?}");
        assert!(problems[0].starts_with(wanted), "{text}: {problems:#?}");
    }
}

#[test]
fn missing_file_is_reported() {
    let (_, problems) = from_flags(&[
        ("config", "/nowhere/d.toml"),
        ("plugin", "p"),
        ("workers", "0"),
    ]);
    assert_eq!(problems.len(), 2, "{problems:?}");
    let (settings, only) = from_flags(&[("config", "/nowhere/d.toml")]);
    assert_eq!(
        (only.len(), &settings.routes[0].plugin.code),
        (1, &Code::Missing)
    );
    assert!(problems[0].starts_with("--config: cannot read `/nowhere/d.toml`: no such file"));
}

#[test]
fn file_without_a_route_uses_the_only_plugin() {
    let (settings, problems) = from_file("[plugin.p]\nfile='x.wasm'", &[("queues", "q")]);
    assert_eq!(problems, [""; 0]);
    assert_eq!(settings.routes[0].plugin.name, "p");
}

#[test]
fn store_locations_need_no_plugin() {
    let (places, problems) = places(&flags(&[("data", "/d"), ("endpoint-url", "http://h:1")]));
    assert_eq!(problems, []);
    assert_eq!(
        (places.stores.data, places.stores.endpoint_url),
        ("/d".into(), Some("http://h:1".into()))
    );
}

proptest! {
    #[test]
    fn flag_parser_never_panics(values in proptest::collection::vec((0_usize..10, ".{0,12}|[0-9]{1,20}[a-zA-Z]{0,3}"), 0..12)) {
        const NAMES: [&str; 10] = [
            "queues", "timeout", "max-memory", "env", "reuse", "dead-letter", "max-attempts",
            "visibility", "endpoint-url", "log-level",
        ];
        let list: Vec<_> = values.iter().map(|(at, text)| (NAMES[*at], text.as_str())).collect();
        settings(&flags(&list));
    }
}
