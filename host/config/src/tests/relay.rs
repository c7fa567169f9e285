//! The settings of a route that sends its messages to another queue.

use super::{from_file, from_flags};
use crate::Code;
use std::time::Duration;

const ROUTE: &str = "[[route]]\nqueues = ['redis:outbox']\nsend-to = 'payments'\n";

#[test]
fn route_that_sends_needs_no_plugin_and_has_the_name_of_its_target() {
    let from_flags = from_flags(&[("queues", "redis:outbox"), ("send-to", "payments")]);
    for (settings, problems) in [from_flags, from_file(ROUTE, &[])] {
        assert_eq!(problems, [""; 0]);
        let route = &settings.routes[0];
        let name = "payments".parse().expect("a name");
        assert_eq!(route.plugin.code, Code::Relay(name));
        assert_eq!(route.plugin.code.to_string(), "queue payments");
        assert_eq!((&*route.name, route.settings.batch_size), ("payments", 100));
    }
    let url = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo";
    let text = format!(
        "{ROUTE}batch-size = 7\n[[route]]\nname = 'b'\nqueues = ['local:b']\nsend-to = '{url}'\n\
         batch-window = 2\n[[route]]\nqueues = ['local:c']\nplugin = 'p'\n[plugin.p]\nfile = 'p.wasm'\n"
    );
    let (settings, problems) = from_file(&text, &[]);
    assert_eq!(problems, [""; 0]);
    let routes = settings.routes.iter();
    let found: Vec<_> = routes
        .map(|route| (&*route.name, &*route.plugin.name, route.settings.batch_size))
        .collect();
    let wanted = [
        ("payments", "payments", 7),
        ("b", "orders.fifo", 100),
        ("p", "p", 1),
    ];
    assert_eq!(found, wanted);
    let window = settings.routes[1].settings.batch_window;
    assert_eq!(window, Duration::from_secs(2));
}

#[test]
fn flag_that_sends_wins_over_the_plugin_of_the_file() {
    let text =
        "[plugin.p]\nfile = 'p.wasm'\ntimeout = '5s'\n[[route]]\nplugin = 'p'\nqueues = ['a']\n";
    let (settings, problems) = from_file(text, &[("send-to", "b")]);
    assert_eq!(problems, [""; 0]);
    assert!(settings.routes[0].plugin.code.target().is_some());
}

#[test]
fn target_that_is_read_and_settings_of_plugins_are_refused() {
    for (list, wanted) in [
        (
            &[("queues", "a,b"), ("send-to", "sqs:b")][..],
            "--send-to: `b` is one of the route's queues too; wanted a queue that the route does \
             not read: its messages would never leave it",
        ),
        (
            &[("send-to", "dynamodb:Tasks/FAILURE")],
            "--send-to: nothing is sent to `dynamodb:Tasks/FAILURE`; wanted the name of one queue",
        ),
        (
            &[("send-to", "a b")],
            "--send-to: `a b` is not a queue name",
        ),
        (
            &[("send-to", "b"), ("plugin", "p.wasm")],
            "--plugin: a setting of a plugin, and the route sends its messages to `b` (--send-to); \
             wanted either a plugin or `send-to`",
        ),
        (
            &[("send-to", "b"), ("timeout", "5s")],
            "--timeout: a setting of a plugin, and the route sends",
        ),
        (
            &[("send-to", "b"), ("allow-send", "c")],
            "--allow-send: a setting of a plugin, and the route sends",
        ),
    ] {
        let (_, problems) = from_flags(list);
        assert_eq!(problems.len(), 1, "{list:?}: {problems:#?}");
        assert!(problems[0].starts_with(wanted), "{problems:#?}");
    }
    let both = format!("[plugin.p]\nfile = 'p.wasm'\n{ROUTE}plugin = 'p'\n");
    let (_, problems) = from_file(&both, &[]);
    assert_eq!(problems.len(), 1, "{problems:#?}");
    let wanted = "d.toml:6: a setting of a plugin, and the route sends its messages to `payments`";
    assert!(problems[0].starts_with(wanted), "{problems:#?}");
}
