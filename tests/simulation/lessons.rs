//! Lessons and bugs as scenarios: each with the faults that it is about, under many seeds. A name
//! that begins with `lesson_` has its row in `tests/README.md`.

use crate::circumstances::MetCircumstances;
use crate::run::EndedRun;
use crate::scenario::{
    Faults, Flavour, FleetPlan, HappeningKind, LimitFaults, LimitPlan, Mix, QueuePlan, RoutePlan,
    Scenario, SharingPlan, SimulatedEvent, SimulatedSend, TenantPlan, WeightPlan,
};
use crate::shrink::outcome;

/// How many seeds of luck each scenario is run with.
const LUCK: u64 = 40;

/// One queue of SQS with twelve messages, quick handlers and no faults.
pub(crate) fn calm(flavour: Flavour) -> Scenario {
    let queue = QueuePlan {
        flavour,
        weight: 1,
        rate: None,
        concurrency: None,
        dead_letters: true,
        redrive: None,
        visibility_s: 30,
        in_flight: 120_000,
    };
    let grouped = flavour == Flavour::Fifo;
    Scenario {
        seed: 0,
        step_us: 0,
        queues: vec![queue],
        weighted: false,
        route: RoutePlan {
            batch: 1,
            window_ms: 0,
            concurrency: 5,
            visibility_s: None,
            poll_for_s: 20,
            sleep_ms: 0,
            first_ms: 1_000,
            most_ms: 10_000,
            attempts: None,
            timeout_ms: 30_000,
            newest_first: false,
            prefetch: 0,
            max_age_ms: None,
            drops: false,
            group_by: false,
            remembers_s: None,
        },
        processes: 1,
        sends: (0..12)
            .map(|n| SimulatedSend {
                at_ms: u64::from(n) * 10,
                queue: 0,
                group: grouped.then_some(n % 3),
                tenant: None,
                priority: None,
            })
            .collect(),
        happenings: Vec::new(),
        faults: Faults::default(),
        mix: Mix {
            longest_ms: 500,
            ..Mix::default()
        },
        fleet: None,
        sharing: None,
    }
}

fn after_ms(after_ms: u64, what: HappeningKind) -> SimulatedEvent {
    SimulatedEvent {
        after_ms,
        after_events: 0,
        what,
    }
}

fn after_events(after_events: u64, what: HappeningKind) -> SimulatedEvent {
    SimulatedEvent {
        after_ms: 0,
        after_events,
        what,
    }
}

/// Runs it with many kinds of luck and gives every end to `look`; no rule may break.
fn holds(scenario: &Scenario, look: impl Fn(&EndedRun)) {
    for seed in 0..LUCK {
        let mut scenario = scenario.clone();
        scenario.seed = seed;
        let ended = outcome(&scenario).expect("no panic");
        let trace: Vec<String> = ended.trace.iter().map(ToString::to_string).collect();
        assert!(ended.broken.is_empty(), "{scenario}\n{}", trace.join("\n"));
        look(&ended);
    }
}

/// How often something happened.
fn count(ended: &EndedRun, what: &str) -> usize {
    ended
        .trace
        .iter()
        .filter(|event| event.what == what)
        .count()
}

#[test]
fn lesson_01_messages_of_polls_around_a_stop_are_not_stranded() {
    for events in 1..60 {
        let mut scenario = calm(Flavour::Standard);
        scenario.happenings = vec![
            after_events(events, HappeningKind::Stop(0, 1_000)),
            after_ms(60_000, HappeningKind::Start(0)),
        ];
        scenario.seed = events;
        let ended = outcome(&scenario).expect("no panic");
        assert!(
            ended.broken.is_empty(),
            "stop after {events} events: {:?}",
            ended.broken
        );
    }
}

#[test]
fn lesson_02_repeated_stops_dead_letter_no_untried_message() {
    let mut scenario = calm(Flavour::Standard);
    scenario.route.attempts = Some(2);
    for _ in 0..4 {
        scenario
            .happenings
            .push(after_ms(50, HappeningKind::Stop(0, 60_000)));
        scenario
            .happenings
            .push(after_ms(0, HappeningKind::Start(0)));
    }
    holds(&scenario, |ended| assert_eq!(count(ended, "buries"), 0));
}

#[test]
fn lesson_04_slow_work_is_delivered_once() {
    let mut scenario = calm(Flavour::Standard);
    scenario.route.visibility_s = Some(4);
    scenario.mix.slow = 1_000;
    holds(&scenario, |ended| assert_eq!(count(ended, "attempts"), 12));
}

#[test]
fn lesson_05_leases_survive_a_backlog_and_failing_calls() {
    let mut scenario = calm(Flavour::Standard);
    scenario.route.concurrency = 50;
    scenario.route.visibility_s = Some(8);
    scenario.mix.slow = 1_000;
    scenario.faults.throttle = 200;
    scenario.happenings = vec![
        after_ms(0, HappeningKind::Faults(true)),
        after_ms(40_000, HappeningKind::Faults(false)),
    ];
    // Of the twelve, hardly any lease may be lost: a call in five fails, and is made again.
    holds(&scenario, |ended| assert!(count(ended, "attempts") <= 15));
}

#[test]
fn lesson_06_nothing_is_extended_past_the_maximum() {
    let mut scenario = calm(Flavour::Standard);
    scenario.sends.truncate(1);
    scenario.route.visibility_s = Some(3_600);
    scenario.route.timeout_ms = 50_000_000;
    scenario.mix.stall = 1_000;
    scenario.happenings = vec![after_ms(50_000_000, HappeningKind::Crash(0))];
    let ended = outcome(&scenario).expect("no panic");
    assert!(ended.broken.is_empty(), "{:?}", ended.broken);
    assert!(
        (12..40).contains(&count(&ended, "asks to extend")),
        "{:?}",
        ended.calls
    );
    assert!(
        count(&ended, "attempts") >= 2,
        "it comes back after 12 hours"
    );
}

#[test]
fn lesson_07_any_visibility_timeout_is_safe() {
    for visibility in [0, 1, 2, 3, 4, 5, 7, 11, 29, 600] {
        let mut scenario = calm(Flavour::Standard);
        scenario.sends.truncate(4);
        scenario.route.visibility_s = Some(visibility);
        scenario.route.timeout_ms = 100_000_000;
        scenario.mix.slow = 1_000;
        scenario.seed = visibility;
        let ended = outcome(&scenario).expect("no panic");
        assert!(
            ended.broken.is_empty(),
            "visibility {visibility}: {:?}",
            ended.broken
        );
        assert_eq!(count(&ended, "attempts"), 4, "visibility {visibility}");
    }
}

#[test]
fn lesson_09_messages_waiting_for_a_slow_handler_keep_their_lease_and_are_few() {
    let mut scenario = calm(Flavour::Standard);
    scenario.route.concurrency = 1;
    scenario.route.visibility_s = Some(2);
    scenario.mix.slow = 500;
    holds(&scenario, |ended| assert_eq!(count(ended, "attempts"), 12));
}

#[test]
fn lesson_10_stops_send_nothing_again() {
    let mut scenario = calm(Flavour::Standard);
    scenario.mix.slow = 300;
    scenario.happenings = vec![
        after_ms(100, HappeningKind::Stop(0, 0)),
        after_ms(5_000, HappeningKind::Start(0)),
    ];
    holds(&scenario, |ended| assert_eq!(count(ended, "sent"), 12));
}

#[test]
fn lesson_11_duplicates_in_one_batch_fail_no_call() {
    let mut scenario = calm(Flavour::Standard);
    scenario.route.batch = 10;
    scenario.faults.duplicate = 500;
    scenario.happenings = vec![
        after_ms(0, HappeningKind::Faults(true)),
        after_ms(20_000, HappeningKind::Faults(false)),
    ];
    holds(&scenario, |_| {});
}

#[test]
fn lesson_12_failed_entries_are_retried_and_nothing_done_runs_twice() {
    let mut scenario = calm(Flavour::Standard);
    scenario.faults.entry = 400;
    scenario.happenings = vec![
        after_ms(0, HappeningKind::Faults(true)),
        after_ms(60_000, HappeningKind::Faults(false)),
    ];
    holds(&scenario, |ended| assert_eq!(count(ended, "attempts"), 12));
}

#[test]
fn lesson_13_slow_settlement_delays_no_attempt() {
    let mut scenario = calm(Flavour::Standard);
    scenario.route.concurrency = 5;
    let template = scenario.sends[0];
    scenario.sends = vec![template; 150];
    scenario.faults.slow_settle = 1_000;
    scenario.happenings = vec![
        after_ms(0, HappeningKind::Faults(true)),
        after_ms(60_000, HappeningKind::Faults(false)),
    ];
    holds(&scenario, |ended| {
        let mut events = ended.trace.iter();
        let asked = events.position(|event| event.what == "asks to settle");
        assert!(asked.is_some(), "nothing is told");
        let meanwhile = events.take_while(|event| event.what != "deletes");
        let begun = meanwhile.filter(|event| event.what == "attempts").count();
        // Five at a time take half a second at most each, and the first call two seconds at least.
        assert!(
            begun >= 20,
            "{begun} attempts while the first call was under way"
        );
    });
}

#[test]
fn lesson_15_strict_is_strict_while_calls_fail_and_queues_look_empty() {
    let mut scenario = calm(Flavour::Standard);
    scenario.queues.push(scenario.queues[0].clone());
    for sending in scenario.sends.iter_mut().step_by(2) {
        sending.queue = 1;
    }
    scenario.mix.busy = 200;
    scenario.faults = Faults {
        throttle: 200,
        lost_answer: 50,
        disorder: 500,
        ..Faults::default()
    };
    scenario.happenings = vec![
        after_ms(0, HappeningKind::Faults(true)),
        after_ms(60_000, HappeningKind::Faults(false)),
    ];
    holds(&scenario, |_| {});
}

#[test]
fn lesson_17_minutes_of_busy_answers_spend_no_receive() {
    let mut scenario = calm(Flavour::Standard);
    scenario.route.attempts = Some(1);
    scenario.route.visibility_s = Some(4);
    scenario.mix.busy = 900;
    scenario.happenings = vec![after_ms(300_000, HappeningKind::Faults(false))];
    holds(&scenario, |ended| {
        assert_eq!((count(ended, "buries"), count(ended, "deletes")), (0, 12));
    });
}

#[test]
fn lesson_19_groups_keep_their_order_whatever_fails() {
    let mut scenario = calm(Flavour::Fifo);
    scenario.route.batch = 5;
    scenario.mix = Mix {
        retry: 200,
        busy: 200,
        panic: 50,
        slow: 100,
        longest_ms: 500,
        ..Mix::default()
    };
    scenario.route.visibility_s = Some(4);
    scenario.faults.entry = 200;
    scenario.happenings = vec![
        after_ms(0, HappeningKind::Faults(true)),
        after_ms(1_000, HappeningKind::Crash(0)),
        after_ms(10, HappeningKind::Start(0)),
        after_ms(60_000, HappeningKind::Faults(false)),
    ];
    holds(&scenario, |_| {});
}

#[test]
fn stop_with_only_held_messages_ends_within_its_grace() {
    let mut scenario = calm(Flavour::Local);
    scenario.mix.busy = 1_000;
    scenario.mix.longest_ms = 1;
    scenario.mix.stall = 300;
    for grace in [0, 100, 1_000] {
        scenario.happenings = vec![
            after_ms(150, HappeningKind::Stop(0, grace)),
            after_ms(500, HappeningKind::Start(0)),
        ];
        holds(&scenario, |_| {});
    }
}

#[test]
fn poll_that_is_never_answered_does_not_block_a_stop() {
    let mut scenario = calm(Flavour::Standard);
    scenario.faults.lost_answer = 1_000;
    scenario.happenings = vec![
        after_ms(5_000, HappeningKind::Faults(true)),
        after_ms(100, HappeningKind::Stop(0, 100)),
        after_ms(100_000, HappeningKind::Faults(false)),
    ];
    holds(&scenario, |_| {});
}

#[test]
fn lost_answer_of_a_fifo_receive_is_recovered() {
    let mut scenario = calm(Flavour::Fifo);
    scenario.route.visibility_s = Some(120);
    scenario.faults.lost_answer = 300;
    scenario.happenings = vec![
        after_ms(0, HappeningKind::Faults(true)),
        after_ms(120_000, HappeningKind::Faults(false)),
    ];
    let mut again = 0;
    for seed in 0..LUCK {
        scenario.seed = seed;
        let ended = outcome(&scenario).expect("no panic");
        assert!(ended.broken.is_empty(), "seed {seed}: {:?}", ended.broken);
        again += count(&ended, "hands out again");
    }
    assert!(again > 0, "no receive was asked for again");
}

#[test]
fn wall_clock_jump_affects_no_queue() {
    for flavour in [
        Flavour::Standard,
        Flavour::Fifo,
        Flavour::Redis,
        Flavour::Local,
    ] {
        for hour in [3_600_000, -3_600_000] {
            let mut scenario = calm(flavour);
            scenario.mix.slow = 300;
            scenario.route.visibility_s = Some(8);
            scenario.happenings = vec![after_ms(200, HappeningKind::Date(hour))];
            holds(&scenario, |ended| assert_eq!(count(ended, "attempts"), 12));
        }
    }
}

#[test]
fn urgent_messages_go_first_among_those_that_need_the_same_of_a_limit() {
    let mut scenario = calm(Flavour::Local);
    scenario.route.prefetch = 100;
    scenario.route.concurrency = 3;
    scenario.sends = (0..60)
        .map(|n| SimulatedSend {
            at_ms: n * 37,
            queue: 0,
            group: None,
            tenant: None,
            priority: Some(5 - (n % 5) as u8),
        })
        .collect();
    scenario.sharing = Some(SharingPlan {
        tenants: TenantPlan::Nowhere,
        weights: Vec::new(),
        priorities: true,
        max_wait: None,
        slow_ms: 0,
        by_lists: false,
        one_tenant: false,
    });
    scenario.fleet = Some(FleetPlan {
        limits: vec![LimitPlan {
            concurrency: Some(1),
            rate: None,
            keys: Some(4),
            by_tenant: false,
            weight: WeightPlan::Fixed(1),
        }],
        most_waiting: 1_000,
        longest_wait_s: 300,
        date_ms: 0,
        faults: LimitFaults::default(),
    });
    holds(&scenario, |ended| {
        let met = MetCircumstances::FirstOfTheSameNeed;
        assert!(ended.met.contains(&met));
    });
}

/// The receives of earlier versions bring messages at their last receive while the new one works.
#[test]
fn versions_of_a_route_together_keep_its_limits() {
    for of_queue in [None, Some(2)] {
        let mut scenario = calm(Flavour::Fifo);
        scenario.weighted = true;
        scenario.route.concurrency = 4;
        scenario.queues[0].concurrency = of_queue;
        scenario.queues[0].redrive = Some(1);
        scenario.queues.push(scenario.queues[0].clone());
        scenario.mix.slow = 1_000;
        for (number, send) in scenario.sends.iter_mut().enumerate() {
            // The long poll of each version is under way.
            send.at_ms = 12_000;
            send.queue = number % 2;
            send.group = u16::try_from(number).ok();
        }
        scenario.happenings = vec![
            after_ms(5_000, HappeningKind::Reload(0)),
            after_ms(3_000, HappeningKind::Reload(0)),
        ];
        holds(&scenario, |ended| {
            assert!(count(ended, "attempts") >= 12);
        });
    }
}
