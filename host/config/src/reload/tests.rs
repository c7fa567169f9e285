//! The effects of a changed file.

use super::*;
use crate::flags::Flags;
use crate::section::WrittenValue;
use dispatcher_core::scheduler::lane::LaneLimits;
use std::collections::BTreeMap;
use std::time::Duration;

const TEXT: &str = "[dispatcher]\nworkers = 2\nname = 'a'\n[plugin.f]\nfunction = 'f'\n\
                    [[route]]\nname = 'r'\nqueues = ['a', 'b']\nconcurrency = 50\n\
                    rate = { a = '10/s' }\n[[route]]\nname = 's'\nqueues = ['c']\n";

/// The settings of the text with some of it replaced.
fn settings(replace: &[(&str, &str)]) -> Settings {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("d.toml");
    let mut text = TEXT.to_owned();
    for (from, to) in replace {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    std::fs::write(&path, text).expect("written");
    let mut flags = Flags::default();
    flags.take(
        "config",
        WrittenValue::new("--config", path.to_string_lossy()),
    );
    let (settings, problems) = crate::settings(&flags);
    assert_eq!(problems, []);
    settings
}

fn change(replace: &[(&str, &str)]) -> Changes {
    changes(&settings(&[]), &settings(replace), &[])
}

fn limits(rate: Option<f64>, attempts: Option<usize>) -> LaneLimits {
    LaneLimits {
        rate,
        attempts,
        paused: false,
    }
}

#[test]
fn limits_apply_to_running_routes() {
    let same = change(&[]);
    assert_eq!(same.needs_restart, [""; 0]);
    let wanted = SchedulerLimits {
        attempts: 50,
        prefetch: 0,
        window: Duration::ZERO,
        lanes: vec![limits(Some(10.0), None), limits(None, None)],
        weights: BTreeMap::new(),
    };
    assert_eq!((same.limits.len(), &same.limits[0].limits), (2, &wanted));

    let new = change(&[
        (
            "concurrency = 50",
            "concurrency = 20\nprefetch = 7\nqueue-concurrency = { b = 3 }",
        ),
        ("rate = { a = '10/s' }", "rate = { b = '5/s' }"),
    ]);
    assert_eq!(
        (&new.replaced[..], &new.needs_restart[..]),
        (&[][..], &[][..])
    );
    let wanted = SchedulerLimits {
        attempts: 20,
        prefetch: 7,
        lanes: vec![limits(None, None), limits(Some(5.0), Some(3))],
        ..wanted
    };
    assert_eq!(
        (new.limits[0].route.as_str(), &new.limits[0].limits),
        ("r", &wanted)
    );
}

#[test]
fn what_a_running_route_cannot_apply_replaces_it() {
    let replaced = |replace: &[(&str, &str)]| {
        let changes = change(replace);
        assert_eq!(changes.needs_restart, [""; 0]);
        assert_eq!(changes.limits.len() + changes.replaced.len(), 2);
        let keys = changes.replaced.into_iter();
        keys.flat_map(|(_, keys)| keys).collect::<Vec<_>>()
    };
    assert_eq!(
        replaced(&[
            (
                "queues = ['a', 'b']",
                "queues = ['b', 'x']\npoll-for = 1\nretry = { first = '2s' }",
            ),
            ("rate = { a = '10/s' }", "batch-size = 10\nbatch-window = 3"),
        ]),
        ["queues", "poll-for", "retry.first", "batch-size"]
    );
    // The plugin has no room for more attempts, and it has for fewer.
    assert_eq!(
        replaced(&[("concurrency = 50", "concurrency = 80")]),
        ["concurrency"]
    );
    assert_eq!(
        replaced(&[("concurrency = 50", "concurrency = 8")]),
        [""; 0]
    );
    // Both routes have the plugin.
    assert_eq!(
        replaced(&[(
            "function = 'f'",
            "function = 'g'\ninvocation = 'async'\nmax-memory = '8MiB'",
        )]),
        [["function", "invocation", "max-memory"]; 2].concat()
    );
    assert_eq!(
        replaced(&[("function = 'f'", "file = 'p.wasm'")]),
        ["file", "file"]
    );
}

#[test]
fn another_target_replaces_the_route() {
    let sends = |target: &str| {
        let text = format!("name = 's'\nsend-to = '{target}'");
        settings(&[("name = 's'", &text)])
    };
    let replaced = |old: &Settings, new: &Settings| changes(old, new, &[]).replaced;
    let (plain, one, other) = (settings(&[]), sends("x"), sends("y"));
    assert_eq!(replaced(&one, &one.clone()), []);
    let keys = vec!["plugin", "send-to"];
    assert_eq!(replaced(&one, &other), [("s".to_owned(), keys)]);
    let (route, keys) = replaced(&plain, &one).remove(0);
    assert_eq!(route, "s");
    assert!(keys.contains(&"send-to"), "{keys:?}");
}

#[test]
fn a_component_is_replaced_in_its_running_route() {
    let component = ("function = 'f'", "file = 'p.wasm'");
    let old = settings(&[component]);
    let new = changes(
        &old,
        &settings(&[("function = 'f'", "file = 'q.wasm'\nwarm = 3")]),
        &[],
    );
    assert_eq!((new.replaced.len(), new.plugins.len()), (0, 2));
    let new = changes(
        &old,
        &settings(&[("function = 'f'", "file = 'p.wasm'\ntimeout = '9s'")]),
        &[],
    );
    let wanted = [
        ("r".to_owned(), vec!["timeout"]),
        ("s".to_owned(), vec!["timeout"]),
    ];
    assert_eq!((&new.replaced[..], new.plugins.len()), (&wanted[..], 0));
}

#[test]
fn any_change_of_a_route_that_waits_replaces_it() {
    let waiting = ["r".to_owned()];
    let keys = |replace: &[(&str, &str)]| {
        let changes = changes(&settings(&[]), &settings(replace), &waiting);
        changes.replaced.into_iter().next()
    };
    assert_eq!(keys(&[]), None);
    let wanted = ("r".to_owned(), vec!["limits of the route"]);
    assert_eq!(
        keys(&[("concurrency = 50", "concurrency = 8")]),
        Some(wanted)
    );
}

#[test]
fn routes_come_and_go() {
    let new = change(&[("name = 's'", "name = 't'")]);
    assert_eq!(
        (&new.started[..], &new.ended[..]),
        (&["t".to_owned()][..], &["s".to_owned()][..])
    );
    assert_eq!((new.limits.len(), new.replaced.len()), (1, 0));
    assert_eq!(new.needs_restart, [""; 0]);
}

#[test]
fn changes_that_need_a_restart_are_listed() {
    let new = change(&[(
        "workers = 2",
        "workers = 3\nlog-level = 'warn'\nmetrics-interval = 5",
    )]);
    assert_eq!(
        new.needs_restart,
        [
            "`workers` of [dispatcher] has changed",
            "`metrics-interval` of [dispatcher] has changed",
        ]
    );
    let declared = |visibility: &str| {
        let queue = format!("[queue.q]\nvisibility = {visibility}\n[plugin.f]");
        settings(&[("[plugin.f]", &queue)])
    };
    let lines = changes(&declared("30"), &declared("60"), &[]).needs_restart;
    assert_eq!(lines, ["[queue.q] has changed"]);
    let new = changes(&settings(&[]), &declared("60"), &[]);
    assert_eq!(new.needs_restart, [""; 0]);
    assert_eq!(new.declared.len(), 1, "it is made");
    let used = ("'a', 'b'", "'local:q', 'b'");
    let limits = ("{ a = '10/s' }", "{ 'local:q' = '10/s' }");
    let declared = ("[plugin.f]", "[queue.q]\nvisibility = 60\n[plugin.f]");
    let old = settings(&[used, limits]);
    let new = changes(&old, &settings(&[used, limits, declared]), &[]);
    assert_eq!(new.needs_restart, ["[queue.q] has changed"]);
    assert_eq!(new.declared, [], "it is in use");
}

#[test]
fn limits_of_all_processes_need_a_restart() {
    let one = ("[plugin.f]", "[limit.b]\nrate = '1/s'\n[plugin.f]");
    let other = "[limit.a]\nconcurrency = 1\n[limit.b]\nrate = '1/s'\n[plugin.f]";
    let limited = ("name = 'r'", "name = 'r'\nlimits = ['b']");
    let compare = |new: &[(&str, &str)]| {
        let old = settings(&[one, limited]);
        changes(&old, &settings(new), &[])
    };
    assert_eq!(compare(&[one, limited]).needs_restart, [""; 0]);
    let changed = compare(&[("[plugin.f]", other), limited]);
    assert_eq!(changed.needs_restart, ["[limit.…] has changed"]);
    assert_eq!(changed.replaced, [], "the route's limit has the same name");
    let changed = compare(&[one]);
    assert_eq!(changed.needs_restart, [""; 0]);
    assert_eq!(changed.replaced, [("r".to_owned(), vec!["limits"])]);
    let fleet = "[fleet]\nstore = 'redis:'\n[limit.b]\nrate = '1/s'\n[plugin.f]";
    assert_eq!(
        compare(&[("[plugin.f]", fleet), limited]).needs_restart,
        ["`store` of [fleet] has changed"]
    );
}

/// A forgotten setting would be neither applied nor named.
#[test]
fn every_setting_that_does_not_apply_at_once_is_compared() {
    let settings = settings(&[]);
    let route = &settings.routes[0];
    for (part, compared) in [
        (SettingPart::Program, compare_program(&settings, &settings)),
        (
            SettingPart::Route,
            compare_route((&settings, route), (&settings, route)),
        ),
        (
            SettingPart::Plugin,
            compare_plugin(&route.plugin, &route.plugin),
        ),
    ] {
        for setting in declared::all().filter(|setting| setting.part == part) {
            // Settings of the command line alone cannot change, and another name is another route.
            let excused =
                setting.tables.is_empty() || (part, setting.key) == (SettingPart::Route, "name");
            let found = compared.iter().any(|(key, _)| *key == setting.key);
            let waits = matches!(setting.reload(), Reload::Restart | Reload::Route);
            assert!(found || excused || !waits, "{part:?} {}", setting.key);
        }
        for (key, differs) in compared {
            assert!(declared::of_key(part, key).is_some(), "{part:?} {key}");
            assert!(!differs, "{key}");
        }
    }
}

#[test]
fn route_whose_account_changes_is_replaced() {
    let with = |account: &str| {
        let text = format!("{account}\n[plugin.f]");
        settings(&[("[plugin.f]", &text)])
    };
    let role = |name: &str| format!("role = 'arn:aws:iam::111122223333:role/{name}'");
    let of_queue = format!("[account.x]\nqueues = ['c*']\n{}", role("a"));
    let of_function = format!("[account.x]\nfunctions = ['f']\n{}", role("a"));
    let (plain, queue, function) = (settings(&[]), with(&of_queue), with(&of_function));
    let replaced = |old: &Settings, new: &Settings| changes(old, new, &[]).replaced;
    let route = |name: &str| (name.to_owned(), vec!["account"]);
    assert_eq!(replaced(&plain, &queue), [route("s")]);
    assert_eq!(replaced(&queue, &queue.clone()), []);
    assert_eq!(replaced(&plain, &function), [route("r"), route("s")]);
    let other = with(&of_queue.replace("role/a", "role/b"));
    assert_eq!(replaced(&queue, &other), [route("s")]);
    // Another pattern for the same queues changes nothing.
    let same = with(&of_queue.replace("'c*'", "'c', 'd*'"));
    assert_eq!(replaced(&queue, &same), []);
}
