//! The findings of the file's reader, and their places.

use super::*;

fn problems(text: &str) -> Vec<String> {
    let (_, problems) = read(Path::new("etc/d.toml"), text);
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn complete_file_is_read() {
    let text = r#"
[dispatcher]
concurrency = 20
data = "data"
endpoint-url = "http://a:1"
[backend.sqs]
endpoint-url = "http://b:1"
[plugin.thumbs]
file = "thumbs.wasm"
env = { MODE = "fast", LEVEL = 0x10 }
reuse = 1_000
[[route]]
queues = ["a:3", "b:1"]
retry = { first = "1s", attempts = 3 }
[[route]]
queues = "c,d"
"#;
    let (file, problems) = read(Path::new("etc/d.toml"), text);
    assert_eq!(problems, []);
    let text = |section: &Section, key: &str| section.one(key).map(|given| given.text.clone());
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(text(&file.program, "endpoint-url"), some("http://b:1"));
    assert_eq!(text(&file.program, "data"), some("etc/data"));
    let plugin = &file.plugins["thumbs"];
    assert_eq!(text(plugin, "file"), some("etc/thumbs.wasm"));
    assert_eq!(text(plugin, "env.LEVEL"), some("16"));
    assert_eq!(text(plugin, "reuse.count"), some("1000"));
    let route = &file.routes[0];
    assert_eq!(route.list("queues").map(<[WrittenValue]>::len), Some(2));
    assert_eq!(
        route.one("retry.attempts"),
        Some(&WrittenValue::new("etc/d.toml:14", "3"))
    );
    assert_eq!((route.at.as_str(), file.routes.len()), ("etc/d.toml:12", 2));
    assert_eq!(
        file.routes[1].list("queues").map(<[WrittenValue]>::len),
        Some(1)
    );
}

#[test]
fn every_problem_is_reported_with_its_line() {
    let found = problems(
        "[dispatcher]\nconcurency = 1\nworkers = true\n[backend.reddis]\n[plugin.a]\nfil = 1\n\
         env = 3\npartial-failures = \"yes\"\n[[route]]\nqueues = [\"a\", []]\n\
         retry = { frist = \"1s\" }\nrate = 5\n[rout]\nx = 1\n",
    );
    let wanted = [
        "etc/d.toml:2: unknown key `concurency` in [dispatcher]; wanted admin, admin-bodies, admin-environment, admin-host, admin-prefix, admin-proxy-audience, admin-proxy-header, admin-proxy-issuer, admin-proxy-keys, admin-proxy-name, admin-proxy-operate, admin-proxy-read, admin-read-token-file, admin-send-queues, admin-send-token-file, admin-token-file, call-price, concurrency, data,",
        "etc/d.toml:3: `workers` is true or false; wanted a string or a number",
        "etc/d.toml:4: unknown key `reddis` in [backend]; wanted ",
        "etc/d.toml:6: unknown key `fil` in [plugin.a]; wanted account, allow-connect, allow-http, allow-lambda, allow-read, allow-send, allow-spans, canary, env, env-file, file, ",
        "etc/d.toml:7: `env` is a number",
        "etc/d.toml:8: `partial-failures` is a string; wanted true or false",
        "etc/d.toml:10: `queues` is a list",
        "etc/d.toml:11: unknown key `frist` in `retry`; wanted attempts, first, most; did you mean",
        "etc/d.toml:12: `rate` is a number; wanted a table",
        "etc/d.toml:13: unknown key `rout` in the file; wanted account, backend, dispatcher, fleet, limit, plugin, queue, route",
    ];
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(found.starts_with(wanted), "{found}");
    }
    assert!(
        found[0].ends_with("did you mean `concurrency`?"),
        "{}",
        found[0]
    );
}

#[test]
fn keys_of_other_sections_and_versions_are_unknown() {
    for key in [
        "admin",
        "function",
        "metrics-interval",
        "schedule",
        "canary",
    ] {
        let found = problems(&format!("[[route]]\n{key} = 1\n"));
        assert!(
            found[0].contains(&format!("unknown key `{key}`")),
            "{found:?}"
        );
    }
}

#[test]
fn key_of_another_section_names_that_section() {
    for (text, wanted) in [
        ("[[route]]\nmax-memory = 1", "it is a key of [plugin.NAME]"),
        ("[dispatcher]\nprefetch = 1", "it is a key of [[route]]"),
        ("poll-for = 1", "it is a key of [[route]]"),
        (
            "[[route]]\nprefix = 'a'",
            "it is a key of [backend.redis] or [dispatcher]",
        ),
    ] {
        let found = problems(text);
        assert!(
            found.len() == 1 && found[0].ends_with(wanted),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn keys_of_classic_mode_are_read() {
    let text = r#"
[dispatcher]
name = "staging"
metrics = "emf"
[plugin.forward]
function = "f:live"
partial-failures = true
allow-lambda = ["img-*", "doc"]
[[route]]
queue-concurrency = { payments = 5, "local:default" = 1 }
rate = { "payments.fifo" = "100/s" }
"#;
    let (file, problems) = read(Path::new("etc/d.toml"), text);
    assert_eq!(problems, []);
    let plugin = &file.plugins["forward"];
    let switch = WrittenValue::new("etc/d.toml:7", "true");
    assert_eq!(plugin.one("partial-failures"), Some(&switch));
    assert_eq!(
        plugin.list("allow-lambda").map(<[WrittenValue]>::len),
        Some(2)
    );
    let route = &file.routes[0];
    let names = |table: &str| {
        let entries = route.entries(table);
        entries.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("queue-concurrency"), ["local:default", "payments"]);
    assert_eq!(names("rate"), ["payments.fifo"]);
}

#[test]
fn toml_errors_are_reported_with_other_problems() {
    let found = problems("[dispatcher]\nworkers = = 3\nconcurency = 1\n");
    assert!(
        found[0].starts_with("etc/d.toml:2: not TOML: "),
        "{found:#?}"
    );
    assert!(
        found.iter().any(|line| line.contains("`concurency`")),
        "{found:#?}"
    );
    assert!(found.iter().all(|line| !line.contains('\n')), "{found:#?}");
}

#[test]
fn sections_of_the_wrong_type_are_refused() {
    for (text, wanted) in [
        ("dispatcher = 1", "d.toml:1: [dispatcher] is a number"),
        (
            "plugin = 'x'",
            "d.toml:1: [plugin] is a string; wanted a table",
        ),
        ("route = 1", "wanted [[route]], in double brackets"),
        ("[route]\nname = 'x'", "d.toml:1: `route` is not a list"),
        ("plugin.a = 1", "d.toml:1: [plugin.a] is a number"),
        ("route = [1]", "d.toml:1: [[route]] is a number"),
    ] {
        let found = problems(text);
        assert!(
            found.len() == 1 && found[0].contains(wanted),
            "{text}: {found:?}"
        );
    }
}

proptest::proptest! {
    #[test]
    fn parser_panics_on_no_text(text in ".{0,200}") {
        read(Path::new("x"), &text);
    }

    #[test]
    fn parser_panics_on_no_plausible_text(
        parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "[dispatcher]", "[[route]]", "[plugin.a]", "[backend.sqs]", "queues", "retry",
                "env", "=", "[", "]", "{", "}", "\"a:1\"", "3", "1.5", ",", "\n", "'", ".", "route",
            ]),
            0..30,
        )
    ) {
        read(Path::new("x"), &parts.join(" "));
        read(Path::new("x"), &parts.concat());
    }
}
