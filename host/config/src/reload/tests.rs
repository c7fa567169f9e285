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
    changes(&settings(&[]), &settings(replace))
}

fn limits(rate: Option<f64>, attempts: Option<usize>) -> LaneLimits {
    LaneLimits {
        rate,
        attempts,
        paused: false,
    }
}

#[test]
fn limits_are_applied_at_run_time() {
    let same = change(&[]);
    assert_eq!(same.needs_restart, [""; 0]);
    let wanted = SchedulerLimits {
        attempts: 50,
        prefetch: 0,
        window: Duration::ZERO,
        lanes: vec![limits(Some(10.0), None), limits(None, None)],
        weights: BTreeMap::new(),
    };
    assert_eq!((same.routes.len(), &same.routes[0].limits), (2, &wanted));

    let new = change(&[
        (
            "concurrency = 50",
            "concurrency = 20\nprefetch = 7\nqueue-concurrency = { b = 3 }",
        ),
        ("rate = { a = '10/s' }", "rate = { b = '5/s' }"),
    ]);
    assert_eq!(new.needs_restart, [""; 0]);
    let wanted = SchedulerLimits {
        attempts: 20,
        prefetch: 7,
        lanes: vec![limits(None, None), limits(Some(5.0), Some(3))],
        ..wanted
    };
    assert_eq!(
        (new.routes[0].route.as_str(), &new.routes[0].limits),
        ("r", &wanted)
    );
}

#[test]
fn concurrency_above_the_start_value_is_capped_and_reported() {
    let new = change(&[("concurrency = 50", "concurrency = 80")]);
    assert_eq!(new.routes[0].limits.attempts, 50);
    assert_eq!(
        new.needs_restart,
        ["`concurrency` of route `r` is now 80, and stays at 50, its value at the start"]
    );
}

#[test]
fn changes_that_need_a_restart_are_listed() {
    let new = change(&[
        (
            "workers = 2",
            "workers = 3\nlog-level = 'warn'\nmetrics-interval = 5",
        ),
        (
            "function = 'f'",
            "function = 'g'\ninvocation = 'async'\nmax-memory = '8MiB'",
        ),
        (
            "queues = ['a', 'b']",
            "queues = ['b', 'x']\npoll-for = 1\nretry = { first = '2s' }",
        ),
        ("rate = { a = '10/s' }", "batch-size = 10\nbatch-window = 3"),
        ("name = 's'", "name = 't'"),
    ]);
    assert_eq!(
        new.needs_restart,
        [
            "`workers` of [dispatcher] has changed",
            "`metrics-interval` of [dispatcher] has changed",
            "`queues` of route `r` has changed",
            "`poll-for` of route `r` has changed",
            "`retry.first` of route `r` has changed",
            "`batch-size` of route `r` has changed",
            "`function` of the plugin of route `r` has changed",
            "`invocation` of the plugin of route `r` has changed",
            "`max-memory` of the plugin of route `r` has changed",
            "route `s` is gone",
            "route `t` is new",
        ]
    );
    // `a` is gone from the list and is read on as before.
    let wanted = vec![limits(Some(10.0), None), limits(None, None)];
    assert_eq!(
        (new.routes.len(), &new.routes[0].limits.lanes),
        (1, &wanted)
    );
    assert_eq!(new.routes[0].limits.window, Duration::from_secs(3));
}

#[test]
fn limits_of_all_processes_need_a_restart() {
    let one = ("[plugin.f]", "[limit.b]\nrate = '1/s'\n[plugin.f]");
    let other = "[limit.a]\nconcurrency = 1\n[limit.b]\nrate = '1/s'\n[plugin.f]";
    let limited = ("name = 'r'", "name = 'r'\nlimits = ['b']");
    let compare = |new: &[(&str, &str)]| {
        let old = settings(&[one, limited]);
        changes(&old, &settings(new)).needs_restart
    };
    assert_eq!(compare(&[one, limited]), [""; 0]);
    assert_eq!(
        compare(&[("[plugin.f]", other), limited]),
        ["[limit.…] has changed"]
    );
    assert_eq!(compare(&[one]), ["`limits` of route `r` has changed"]);
    let fleet = "[fleet]\nstore = 'redis:'\n[limit.b]\nrate = '1/s'\n[plugin.f]";
    assert_eq!(
        compare(&[("[plugin.f]", fleet), limited]),
        ["`store` of [fleet] has changed"]
    );
}

#[test]
fn changed_plugin_kind_is_reported_as_a_changed_file() {
    let new = change(&[("function = 'f'", "file = 'p.wasm'")]);
    let lines: Vec<_> = new
        .needs_restart
        .iter()
        .filter(|line| line.contains("`r`"))
        .collect();
    assert_eq!(lines, ["`file` of the plugin of route `r` has changed",]);
}

/// A forgotten setting would be neither applied nor named.
#[test]
fn every_setting_that_needs_a_restart_is_compared() {
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
            let waits = setting.reload == Reload::Restart;
            assert!(found || excused || !waits, "{part:?} {}", setting.key);
        }
        for (key, differs) in compared {
            assert!(declared::of_key(part, key).is_some(), "{part:?} {key}");
            assert!(!differs, "{key}");
        }
    }
}
