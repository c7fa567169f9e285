//! The prefix of queue names: every place that names a queue has it, addresses do not, and problems
//! quote what is written.

use super::*;

/// A file that names a queue in every place that may. Each name begins with `q`.
const EVERYWHERE: &str = "[dispatcher]\n\
    prefix = 'prod-'\nadmin = '127.0.0.1:0'\nadmin-send-queues = ['q-more, redis:q-other']\n\
    [backend.redis]\nformat.q-worqr = 'worqr'\n\
    [queue.q-declared]\nredrive = { dead-letter = 'q-given-up', max-receives = 3 }\n\
    [account.one]\nqueues = ['q-away-*', 'arn:aws:sqs:*:111122223333:*']\n\
    [plugin.p]\nfile = 'p.wasm'\nallow-send = ['q-sent', 'redis:q-sent', 'https://sqs/1/q-sent']\n\
    [[route]]\nname = 'a'\nqueues = ['q-orders:3, sqs:q-mail:2', 'q-team-*:1', 'sqs:*:1']\n\
    queue-except = ['q-old', '*-dead']\ndead-letter = 'q-rejected'\nrate.q-orders = '5/s'\n\
    queue-concurrency = { 'q-team-*' = 3, 'sqs:q-mail' = 2 }\n\
    [[route]]\nname = 'b'\nqueues = 'arn:aws:sqs:eu-west-1:111122223333:q-far'\n";

#[test]
fn every_name_has_the_prefix_and_no_address_has() {
    let (settings, problems) = from_file(EVERYWHERE, &[]);
    assert_eq!(problems, [""; 0]);
    // Whichever setting is added: no name is without the prefix, but in an address.
    let shown = format!("{settings:?}");
    let mut bare = shown.match_indices("q-").map(|(at, _)| &shown[..at]);
    let has_prefix = |before: &str| {
        let before = before.trim_end_matches("redis:");
        ["prod-", "/1/", ":111122223333:", "at: \""]
            .iter()
            .any(|end| before.ends_with(end))
    };
    let quoted = |before: &str| {
        before
            .rsplit_once("at: \"")
            .is_some_and(|(_, at)| !at.contains('"'))
    };
    assert_eq!(
        bare.find(|before| !has_prefix(before) && !quoted(before)),
        None
    );
    let of_a = &settings.routes[0];
    let queues = of_a.queues.iter();
    let queues: Vec<_> = queues
        .map(|queue| {
            (
                queue.name.to_string(),
                queue.rate,
                queue.weight.map(NonZeroU32::get),
            )
        })
        .collect();
    let wanted = [
        ("prod-q-orders".to_owned(), Some(5.0), Some(3)),
        ("prod-q-mail".to_owned(), None, Some(2)),
    ];
    assert_eq!(queues, wanted);
    let patterns: Vec<_> = settings.patterns().map(ToString::to_string).collect();
    assert_eq!(patterns, ["prod-q-team-*", "prod-*"]);
    for (queue, is_excepted) in [
        ("prod-q-old", true),
        ("prod-any-dead", true),
        ("q-old", false),
    ] {
        let queue = queue.parse().expect("a name");
        assert_eq!(of_a.excepts(&queue), is_excepted, "{queue}");
    }
    let dead_letter = of_a.dead_letter.as_ref().map(ToString::to_string);
    assert_eq!(dead_letter.as_deref(), Some("prod-q-rejected"));
    let sends = of_a.plugin.settings.allow_send.iter();
    let sends: Vec<_> = sends.map(ToString::to_string).collect();
    assert_eq!(
        sends,
        ["prod-q-sent", "redis:prod-q-sent", "https://sqs/1/q-sent"]
    );
    assert_eq!(of_a.plugin.queue_prefix.bare("redis:prod-q"), "redis:q");
    let admin = settings.admin.as_ref().expect("an address");
    let sends: Vec<_> = admin.send_queues.iter().map(ToString::to_string).collect();
    assert_eq!(sends, ["prod-q-more", "redis:prod-q-other"]);
    let redis = &settings.stores.sections["redis"];
    assert_eq!(redis["format"], ["prod-q-worqr=worqr"]);
    let declared = &settings.queues[0];
    assert_eq!(declared.name, "prod-q-declared");
    assert_eq!(declared.redrive, Some(("prod-q-given-up".into(), 3)));
    let of_account = settings.stores.accounts.declared()[0].queues.iter();
    let of_account: Vec<_> = of_account.map(ToString::to_string).collect();
    assert_eq!(
        of_account,
        ["prod-q-away-*", "arn:aws:sqs:*:111122223333:*"]
    );
}

#[test]
fn flag_overrides_the_file_and_holds_for_flags() {
    let given = [
        ("prefix", "test."),
        ("queues", "redis:a:2,b.fifo:1"),
        ("concurrency", "7,b.fifo=1"),
        ("allow-send", "c"),
    ];
    let text = "[dispatcher]\nprefix = 'prod-'\n[plugin.p]\nfile = 'p.wasm'\n[[route]]\n";
    let (settings, problems) = from_file(text, &given);
    assert_eq!(problems, [""; 0]);
    let queues = settings.queue_names().map(ToString::to_string);
    let queues: Vec<_> = queues.collect();
    assert_eq!(queues, ["redis:test.a", "test.b.fifo"]);
    assert_eq!(settings.routes[0].queues[1].concurrency, Some(1));
    // An empty prefix is none.
    let (settings, problems) = from_file(text, &[("prefix", ""), ("queues", "a")]);
    assert_eq!(problems, [""; 0]);
    assert_eq!(settings.routes[0].queues[0].name.to_string(), "a");
    assert_eq!(settings.routes[0].queues[0].at, "--queues");
}

#[test]
fn default_queue_has_the_prefix() {
    let (settings, problems) = from_flags(&[("plugin", "p.wasm"), ("prefix", "prod-")]);
    assert_eq!(problems, [""; 0]);
    let queue = &settings.routes[0].queues[0];
    assert_eq!(queue.name.to_string(), "local:prod-default");
}

#[test]
fn commands_that_run_no_route_read_names_alike() {
    let flags = flags(&[("prefix", "prod-"), ("redis-format", "a=worqr")]);
    let (places, problems) = places(&flags);
    assert_eq!(problems, []);
    assert_eq!(places.stores.sections["redis"]["format"], ["prod-a=worqr"]);
}

#[test]
fn source_keeps_the_flags_as_given() {
    let given = flags(&[("plugin", "p.wasm"), ("prefix", "prod-"), ("queues", "a")]);
    let source = SettingsSource::read(&given);
    assert_eq!(source.flags(), &given);
    let again = SettingsSource::read(source.flags()).written().0;
    assert_eq!(again.routes[0].queues[0].name.to_string(), "prod-a");
}

#[test]
fn problems_quote_what_is_written() {
    let long = "n".repeat(77);
    let text = format!(
        "[dispatcher]\nprefix = 'prod-'\n[queue.{long}]\n[plugin.p]\nfile = 'p.wasm'\n\
         allow-send = ['a b']\n[[route]]\nqueues = ['orders', 'local:{long}', '', 'orders']\n\
         rate.ordrs = '1/s'\n"
    );
    let (_, problems) = from_file(&text, &[]);
    let found: Vec<_> = problems.iter().map(|one| one.replace(&long, "N")).collect();
    let too_long =
        "`local:prod-N` is not a queue name; wanted 1 to 80 letters, digits, `-`, `_` or `.`";
    let wanted = [
        format!(
            "d.toml:8: `prefix` of d.toml:2 makes `local:N` the name `local:prod-N`: {too_long}"
        ),
        format!("d.toml:3: `prefix` of d.toml:2 makes `N` the name `prod-N`: {too_long}"),
        "d.toml:6: `a b` is not a queue name; wanted a name without spaces and control characters"
            .to_owned(),
        "d.toml:8: `` is not a queue name; wanted 1 to 80 letters, digits, `-`, `_` or `.`"
            .to_owned(),
        "d.toml:8 (`orders` with the prefix `prod-`): `prod-orders` appears twice; wanted each \
         queue once"
            .to_owned(),
        "d.toml:9 (`ordrs` with the prefix `prod-`): `prod-ordrs` is not a queue of the route; \
         wanted prod-orders or local:N; did you mean `prod-orders`?"
            .to_owned(),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn text_that_begins_no_name_is_one_problem() {
    let given = [("plugin", "p.wasm"), ("prefix", "prod/"), ("queues", "a,b")];
    let (_, problems) = from_flags(&given);
    let wanted = "--prefix: `prefix` is `prod/`, and no queue name begins so; wanted letters, digits, \
                  `-`, `_` or `.`";
    assert_eq!(problems, [wanted]);
}
