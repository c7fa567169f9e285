//! What calls cost at load: so many for each message, whatever the queue.

use crate::lessons::calm;
use crate::run::EndedRun;
use crate::scenario::{Flavour, HappeningKind, Mix, Scenario, SimulatedEvent, SimulatedSend};
use crate::shrink::outcome;
use crate::world::Event;
use dispatcher_core::clock::BootInstant;
use std::time::Duration;

/// How many messages wait at the start.
const MESSAGES: u64 = 2_000;
/// How many of one group.
const ONE_GROUP: u64 = 500;
/// Polls under way when the queue runs dry, and one after them.
const LAST: u64 = 16 + 1;
/// How many seeds of luck each is run with.
const LUCK: u64 = 3;

/// Many messages that take a little while each, and room for many.
fn loaded(flavour: Flavour) -> Scenario {
    let mut scenario = calm(flavour);
    let sending = |number: u64| SimulatedSend {
        at_ms: 0,
        queue: 0,
        group: (flavour == Flavour::Fifo).then_some((number % 1_000) as u16),
        tenant: None,
        priority: None,
    };
    scenario.sends = (0..MESSAGES).map(sending).collect();
    scenario.route.concurrency = 100;
    scenario.mix = Mix {
        longest_ms: 50,
        ..Mix::default()
    };
    scenario
}

fn calls(ended: &EndedRun) -> u64 {
    ended.calls.receive + ended.calls.extend + ended.calls.settle
}

/// Receives that brought nothing.
fn empty(ended: &EndedRun) -> u64 {
    let none = |event: &&Event| event.what == "receives" && event.of.is_empty();
    ended.trace.iter().filter(none).count() as u64
}

/// SQS gives ten messages to a call and takes ten deletions: 0.2 calls for each message are the
/// least, and one in a hundred may be added to that: at the start each of a queue's first polls asks
/// for two. Besides, the outstanding polls when the queue runs dry find nothing, and only those.
#[test]
fn lesson_16_message_costs_few_calls_under_load() {
    for flavour in [
        Flavour::Standard,
        Flavour::Fifo,
        Flavour::Redis,
        Flavour::Local,
    ] {
        for seed in 0..LUCK {
            let mut scenario = loaded(flavour);
            scenario.seed = seed;
            let ended = outcome(&scenario).expect("no panic");
            assert!(ended.broken.is_empty(), "{flavour:?}: {:?}", ended.broken);
            let empty = empty(&ended);
            let (calls, most) = (calls(&ended) - empty, MESSAGES * 21 / 100);
            assert!(
                calls <= most && empty <= LAST,
                "{flavour:?}: {:?}, of which {empty} brought nothing; at most {most} and {LAST}",
                ended.calls
            );
        }
    }
}

/// One group with quick handlers. While messages of it are in hand its queue gives nothing more, so
/// every wait between the last of them and its deletion is lost; and receives concurrently, for a
/// few messages each, would share what one of them brings.
#[test]
fn finding_12_single_group_is_processed_in_full_calls_without_idle_waits() {
    for flavour in [Flavour::Fifo, Flavour::Local] {
        for seed in 0..LUCK {
            let mut scenario = loaded(flavour);
            scenario.seed = seed;
            scenario.route.concurrency = 50;
            scenario.mix.longest_ms = 1;
            scenario
                .sends
                .truncate(usize::try_from(ONE_GROUP).expect("few"));
            for sending in &mut scenario.sends {
                sending.group = Some(0);
            }
            let ended = outcome(&scenario).expect("no panic");
            assert!(ended.broken.is_empty(), "{flavour:?}: {:?}", ended.broken);
            let calls = ended.calls;
            if flavour == Flavour::Local {
                // Here a receive brings one message of a group, and a call takes a millisecond.
                let deleted = ended.trace.iter().filter(|event| event.what == "deletes");
                let last = deleted.map(|event| event.at).max().expect("all were done");
                let took = last.since(BootInstant::default());
                let most = Duration::from_millis(4 * ONE_GROUP);
                assert!(took < most, "{took:?} of simulated time: {calls:?}");
                continue;
            }
            // Ten messages take longer than outcomes wait for others to share their call.
            let (receives, settles) = (ONE_GROUP * 12 / 100, ONE_GROUP * 22 / 100);
            let brought = calls.receive - empty(&ended);
            assert!(
                brought <= receives && calls.settle <= settles,
                "at most {receives} to receive and {settles} to settle: {calls:?}"
            );
        }
    }
}

/// Handlers that are done within 5 ms, on a queue whose answers take 2 to 60 ms: one receive of ten and
/// one deletion of ten for each ten messages are the least, and a quarter of that may be added.
#[test]
fn finding_11_quick_handlers_on_a_slow_server_cost_few_calls() {
    let mut found = Vec::new();
    for concurrency in [10, 50, 200] {
        for seed in 0..LUCK {
            let mut scenario = loaded(Flavour::Standard);
            scenario.seed = seed;
            scenario.route.concurrency = concurrency;
            scenario.mix.longest_ms = 5;
            // Longer than all of it takes: until then handlers take as long as the mix says.
            scenario.happenings = vec![SimulatedEvent {
                after_ms: 60_000,
                after_events: 0,
                what: HappeningKind::Faults(false),
            }];
            let ended = outcome(&scenario).expect("no panic");
            assert!(ended.broken.is_empty(), "{:?}", ended.broken);
            found.push((concurrency, calls(&ended) - empty(&ended), ended.calls));
        }
    }
    let most = MESSAGES / 4;
    assert!(
        found.iter().all(|(_, calls, _)| *calls <= most),
        "at most {most} for {MESSAGES} messages: {found:#?}"
    );
}

/// What a poll brings after the halt and must be released waits for the other polls of the stop;
/// workers that could not run anything were hired for it all the time.
#[test]
fn stop_waiting_for_its_last_poll_does_not_spin() {
    let mut scenario = calm(Flavour::Standard);
    scenario.route.concurrency = 50;
    scenario.route.attempts = Some(1);
    scenario.faults.lost_request = 300;
    let happening = |after_ms, what| SimulatedEvent {
        after_ms,
        after_events: 0,
        what,
    };
    scenario.happenings = vec![
        happening(0, HappeningKind::Faults(true)),
        happening(15, HappeningKind::Stop(0, 0)),
        happening(100_000, HappeningKind::Faults(false)),
    ];
    for seed in 0..30 {
        scenario.seed = seed;
        let ended = outcome(&scenario).expect("no panic");
        assert!(ended.broken.is_empty(), "seed {seed}: {:?}", ended.broken);
    }
}
