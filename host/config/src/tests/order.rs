//! The settings of a route for the order of its messages and for those that are too old.

use super::*;
use dispatcher_core::message::place::{MessageKey, MessagePlace};
use dispatcher_core::scheduler::ready::Sequence;

#[test]
fn order_age_and_memory_are_settings_of_a_route() {
    let text = "[plugin.p]\nfile = 'p.wasm'\n[[route]]\nqueues = ['a']\norder = 'lifo'\n\
                prefetch = 100\nmax-age = '10m'\nshed = 'drop'\nidempotency = '1day'\n";
    let (settings, problems) = from_file(text, &[]);
    assert_eq!(problems, [""; 0]);
    let route = &settings.routes[0];
    assert_eq!(
        (route.settings.sequence, route.settings.prefetch),
        (Sequence::Lifo, 100)
    );
    let shedding = ShedPolicy {
        max_age: Duration::from_secs(600),
        shed: ShedAction::Drop,
    };
    assert_eq!(route.settings.shedding(), Some(shedding));
    assert_eq!(
        route.settings.idempotency,
        Some(Duration::from_secs(86_400))
    );
    let by = |text| {
        let (settings, problems) = from_flags(&[("plugin", "p.wasm"), ("group-by", text)]);
        assert_eq!(problems, [""; 0]);
        settings.routes[0].settings.group_by.clone()
    };
    assert_eq!(by("tenant"), Some(MessagePlace::Attribute("tenant".into())));
    assert_eq!(by("/a/b"), Some(MessagePlace::Pointer("/a/b".into())));
}

#[test]
fn tenants_and_priorities_are_settings_of_a_route() {
    let text = "[plugin.p]\nfile = 'p.wasm'\n[[route]]\nqueues = ['local:a', 'redis:b']\n\
                tenant = 'group'\nweight.acme = 4\nweight.'b c' = 2\n\
                priority = '/urgency'\nmax-wait.5 = '10m'\nmax-wait.4 = '1m'\n";
    let (settings, problems) = from_file(text, &[]);
    assert_eq!(problems, [""; 0]);
    let route = &settings.routes[0];
    assert_eq!(route.settings.tenant, Some(MessageKey::Group));
    let weights = [("acme".to_owned(), 4), ("b c".to_owned(), 2)];
    assert_eq!(route.settings.weight, weights);
    assert_eq!(route.limits().weights, BTreeMap::from(weights));
    let pointer = MessagePlace::Pointer("/urgency".into());
    assert_eq!(route.settings.priority, Some(pointer));
    let waits = route.settings.max_wait.iter();
    let waits: Vec<_> = waits
        .map(|(priority, wait)| (priority.number(), wait.as_secs()))
        .collect();
    assert_eq!(waits, [(4, 60), (5, 600)]);
    let flags = [
        ("plugin", "p.wasm"),
        ("tenant", "customer"),
        ("weight", "acme=3"),
        ("prefetch", "50"),
    ];
    let (settings, problems) = from_flags(&flags);
    assert_eq!(problems, [""; 0]);
    let customer = MessageKey::Place(MessagePlace::Attribute("customer".into()));
    assert_eq!(settings.routes[0].settings.tenant, Some(customer));
    assert_eq!(settings.routes[0].settings.weight, [("acme".to_owned(), 3)]);
}

#[test]
fn settings_without_effect_are_refused() {
    for (list, wanted) in [
        (
            vec![("shed", "drop")],
            "--shed: `shed` without a maximum age; wanted a max-age as well",
        ),
        (
            vec![("order", "lifo"), ("queues", "a")],
            "--order: `a` has no order: `lifo` can only choose among held messages, and none are \
             held; wanted a `prefetch` as well",
        ),
        (
            vec![("order", "lifo"), ("group-by", "tenant")],
            "--order: `lifo` together with `group-by`, which keeps the order of sending; wanted \
             one of them",
        ),
        (
            vec![("order", "lifo"), ("queues", "a.fifo"), ("prefetch", "9")],
            "--order: `lifo` on `a.fifo`, which is FIFO; wanted queues that are not FIFO",
        ),
        (
            vec![("group-by", "tenant"), ("queues", "b,a.fifo")],
            "--group-by: `a.fifo` already has groups; wanted queues that are not FIFO",
        ),
        (
            vec![("max-age", "10")],
            "--max-age: `10` is not a duration; wanted 1s to 1year; did you mean `10s`?",
        ),
        (
            vec![("idempotency", "0s")],
            "--idempotency: `0s` is out of range; wanted 1s to 1year",
        ),
        (
            vec![("order", "lilo")],
            "--order: `lilo` is not known; wanted fifo or lifo; did you mean `lifo`?",
        ),
    ] {
        let (_, problems) = from_flags(&[&list[..], &[("plugin", "p.wasm")]].concat());
        assert_eq!(problems, [wanted]);
    }
}

#[test]
fn tenants_and_priorities_that_cannot_work_are_refused() {
    for (list, wanted) in [
        (
            vec![("tenant", "group"), ("queues", "b,a.fifo")],
            "--tenant: `tenant` on `a.fifo`, which keeps its groups in order; wanted queues that \
             are not FIFO",
        ),
        (
            vec![
                ("priority-by", "urgency"),
                ("queues", "a.fifo"),
                ("prefetch", "9"),
            ],
            "--priority-by: `priority` on `a.fifo`, which keeps its groups in order; wanted queues \
             that are not FIFO",
        ),
        (
            vec![("tenant", "group"), ("queues", "local:a.fifo")],
            "--tenant: `tenant` on `local:a.fifo`, which keeps its groups in order; wanted queues \
             that are not FIFO",
        ),
        (
            vec![("tenant", "group"), ("group-by", "customer")],
            "--tenant: `tenant` together with `group-by`, which keeps the order of sending; \
             wanted one of them",
        ),
        (
            vec![
                ("tenant", "group"),
                ("queues", "dynamodb:Tasks"),
                ("prefetch", "9"),
            ],
            "--tenant: messages of `dynamodb:Tasks` have no groups; wanted the name of an \
             attribute, or a JSON pointer such as /customer",
        ),
        (
            vec![("tenant", "group"), ("queues", "a")],
            "--tenant: `a` does not deliver by this `tenant`, which can only choose among held \
             messages, and none are held; wanted a `prefetch` as well",
        ),
        (
            vec![("tenant", "customer"), ("queues", "local:a")],
            "--tenant: `local:a` does not deliver by this `tenant`, which can only choose among \
             held messages, and none are held; wanted a `prefetch` as well",
        ),
        (
            vec![
                ("priority-by", "/u"),
                ("envelope", "sns"),
                ("queues", "redis:a"),
            ],
            "--priority-by: `redis:a` does not deliver by this `priority`, which can only choose \
             among held messages, and none are held; wanted a `prefetch` as well",
        ),
        (
            vec![("weight", "acme=4")],
            "--weight: weights without tenants; wanted a `tenant` as well",
        ),
        (
            vec![("max-wait", "5=10m")],
            "--max-wait: longest waits without priorities; wanted a `priority` as well",
        ),
        (
            vec![("priority-by", "u"), ("max-wait", "6=10m")],
            "--max-wait: `6` is not a priority; wanted a number from 1 to 5",
        ),
        (
            vec![("tenant", "group"), ("weight", "acme=0")],
            "--weight: `0` is out of range; wanted 1 to 1000",
        ),
    ] {
        let (_, problems) = from_flags(&[&list[..], &[("plugin", "p.wasm")]].concat());
        assert_eq!(problems, [wanted]);
    }
}

#[test]
fn queue_of_npm_worqr_shares_only_among_held_messages_by_their_bodies() {
    fn check(settings: &str) -> Vec<String> {
        let text = format!(
            "[backend.redis]\nformat = {{ tasks = 'worqr' }}\n[plugin.p]\nfile = 'p.wasm'\n\
             [[route]]\nqueues = ['redis:tasks']\n{settings}\n"
        );
        from_file(&text, &[]).1
    }
    for (settings, wanted) in [
        (
            "tenant = 'group'\nprefetch = 9",
            "d.toml:7: messages of `redis:tasks` have no groups; wanted a JSON pointer such as \
             /customer",
        ),
        (
            "priority = 'urgency'\nprefetch = 9",
            "d.toml:7: messages of `redis:tasks` have no attributes; wanted a JSON pointer such as \
             /customer",
        ),
        (
            "priority = '/urgency'",
            "d.toml:7: `redis:tasks` does not deliver by this `priority`, which can only choose \
             among held messages, and none are held; wanted a `prefetch` as well",
        ),
    ] {
        assert_eq!(check(settings), [wanted]);
    }
    let held = "tenant = '/customer'\npriority = '/urgency'\nprefetch = 9";
    assert_eq!(check(held), [""; 0]);
}
