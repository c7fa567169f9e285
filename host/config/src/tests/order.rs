//! The settings of a route for the order of its messages and for those that are too old.

use super::*;
use dispatcher_core::message::place::MessagePlace;
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
