//! Single rules.

use super::*;
use crate::queue::browse;
use crate::queue::deliver::{self, NEXT_DUE};
use crate::queue::settings::{self, QueueSettings, Redrive};
use crate::queue::sharing::assign::UNRANKED;
use crate::queue::sharing::{BY_TIME, FIRST_OF_LANE};
use dispatcher_core::memory::{Budget, LEAST};
use dispatcher_core::queue::GroupShare;
use rusqlite::types::Null;
use rusqlite::{StatementStatus, params_from_iter};
use std::collections::BTreeSet;

const NOW: Duration = Duration::ZERO;

/// Returns how often each body occurs.
fn counts(bodies: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for body in bodies {
        *counts.entry(body.as_str()).or_default() += 1;
    }
    counts
}

#[test]
fn tenants_take_turns_whatever_the_number_of_their_messages() {
    let world = SharedWorld::new(by_group());
    for _ in 0..20 {
        world.send("big", "", NOW);
    }
    for tenant in ["small", "small", "", ""] {
        world.send(tenant, "", NOW);
    }
    let first = world.bodies(6);
    assert_eq!(
        counts(&first),
        BTreeMap::from([("", 2), ("big", 2), ("small", 2)])
    );
    assert_eq!(world.bodies(100).len(), 18);
}

#[test]
fn tenants_share_by_weight_and_by_time() {
    let world = SharedWorld::new(SharingRules {
        weights: weights(&[("b", 2), ("c", 5)]),
        ..by_group()
    });
    for _ in 0..100 {
        for tenant in ["a", "b", "c"] {
            world.send(tenant, "", NOW);
        }
    }
    let mut taken: Vec<String> = (0..40).flat_map(|_| world.bodies(1)).collect();
    taken.extend(world.bodies(40));
    assert_eq!(
        counts(&taken),
        BTreeMap::from([("a", 10), ("b", 20), ("c", 50)])
    );
    let world = SharedWorld::new(SharingRules {
        times: BTreeMap::from([("slow".into(), Duration::from_millis(4))]),
        ..by_group()
    });
    for _ in 0..100 {
        world.send("slow", "", NOW);
        world.send("fast", "", NOW);
    }
    let taken = world.bodies(50);
    assert_eq!(counts(&taken), BTreeMap::from([("fast", 40), ("slow", 10)]));
}

#[test]
fn tenant_without_messages_saves_up_nothing() {
    let world = SharedWorld::new(by_group());
    for _ in 0..200 {
        world.send("a", "", NOW);
    }
    world.send("b", "", NOW);
    world.bodies(101);
    for _ in 0..50 {
        world.send("b", "", NOW);
    }
    assert!((9..=11).contains(&counts(&world.bodies(20))["b"]));
}

#[test]
fn tenant_that_sends_one_message_at_a_time_gets_its_share_only() {
    let world = SharedWorld::new(by_group());
    for _ in 0..100 {
        world.send("a", "", NOW);
    }
    let mut taken = Vec::new();
    world.send("b", "", NOW);
    for _ in 0..40 {
        let message = world.receive(1).remove(0);
        world.settle(&message, &Outcome::Delete);
        if message.body == "b" {
            world.send("b", "", NOW);
        }
        taken.push(message.body);
    }
    assert_eq!(counts(&taken), BTreeMap::from([("a", 20), ("b", 20)]));
}

#[test]
fn parked_tenant_is_left_out_and_saves_up_nothing() {
    let world = SharedWorld::new(by_group());
    for _ in 0..100 {
        world.send("a", "", NOW);
        world.send("b", "", NOW);
    }
    world.bodies(2);
    let parked = SharingRules {
        parked: BTreeSet::from(["b".to_owned()]),
        ..by_group()
    };
    world.share(parked.clone());
    assert_eq!(counts(&world.bodies(50)), BTreeMap::from([("a", 50)]));
    world.share(by_group());
    assert!((9..=11).contains(&counts(&world.bodies(20))["b"]));
    world.share(parked);
    world.bodies(100);
    assert_eq!(world.next_due(), Some(world.now + 30 * SECOND));
    assert_eq!(world.bodies(1), [""; 0]);
}

#[test]
fn urgent_messages_go_first() {
    let mut world = SharedWorld::new(by_priority());
    for priority in ["5", "", "1", "high", "2"] {
        world.send("", priority, NOW);
    }
    world.send("", "1", SECOND);
    assert_eq!(world.bodies(2), ["1", "2"]);
    world.pass(SECOND);
    assert_eq!(world.bodies(9), ["1", "", "high", "5"]);
}

#[test]
fn groups_stay_in_order_where_only_the_priority_counts() {
    let world = SharedWorld::new(by_priority());
    world.send("g", "5", NOW);
    world.send("g", "1", NOW);
    world.send("h", "3", NOW);
    let first = world.receive(10);
    let bodies: Vec<&str> = first.iter().map(|one| &*one.body).collect();
    assert_eq!(bodies, ["h3", "g5"]);
    assert_eq!(world.backlog("").waiting, 0);
    world.settle(&first[1], &Outcome::Delete);
    assert_eq!(world.backlog("").waiting, 1);
    world.send("", "2", NOW);
    assert_eq!(world.bodies(1), ["g1"]);
}

#[test]
fn messages_may_follow_the_first_of_their_group() {
    let world = SharedWorld::new(by_priority());
    for priority in ["5", "1", "3"] {
        world.send("g", priority, NOW);
    }
    let ask = Ask {
        max: 2,
        groups: GroupShare::Spread(1),
        ..Ask::PLAIN
    };
    let answer = world.receive_by(&world.terms, ask);
    let bodies: Vec<&str> = answer.messages.iter().map(|one| &*one.body).collect();
    assert_eq!(bodies, ["g5", "g1", "g3"]);
}

#[test]
fn a_failed_message_delays_none_of_its_group() {
    let mut world = SharedWorld::new(by_group());
    for priority in ["1", "2", "3"] {
        world.send("g", priority, NOW);
    }
    let first = world.receive(1).remove(0);
    assert_eq!(first.body, "g1");
    world.settle(&first, &Outcome::Release(10 * SECOND));
    assert_eq!(world.bodies(9), ["g2", "g3"]);
    world.pass(10 * SECOND);
    assert_eq!(world.bodies(9), ["g1"]);
}

#[test]
fn message_that_waited_too_long_goes_first() {
    let mut world = SharedWorld::new(SharingRules {
        longest_waits: [None, None, None, Some(9 * SECOND), Some(10 * SECOND)],
        ..by_priority()
    });
    world.send("", "5", NOW);
    world.pass(SECOND);
    world.send("", "4", NOW);
    world.pass(9 * SECOND - Duration::from_millis(1));
    world.send("", "1", NOW);
    let ask = Ask {
        max: 1,
        ..Ask::PLAIN
    };
    let early = world.receive_by(&world.terms, ask);
    assert_eq!((&*early.messages[0].body, early.overdue), ("1", 0));
    world.pass(Duration::from_millis(1));
    world.send("", "1", NOW);
    let late = world.receive_by(&world.terms, Ask { max: 9, ..ask });
    let bodies: Vec<&str> = late.messages.iter().map(|one| &*one.body).collect();
    assert_eq!((bodies, late.overdue), (vec!["5", "4", "1"], 2));
}

#[test]
fn newest_message_of_the_lane_goes_first_if_wanted() {
    let mut world = SharedWorld::new(by_group());
    for tenant in ["a", "a", "b", "b"] {
        world.send(tenant, "1", NOW);
        world.pass(SECOND);
    }
    let ask = Ask {
        max: 2,
        newest_first: true,
        ..Ask::PLAIN
    };
    let answer = world.receive_by(&world.terms, ask);
    let sent: BTreeSet<_> = answer.messages.iter().map(|one| one.sent_at).collect();
    let at = |seconds: u32| Some(world.turn().date(StoreTime(1_000_000) + SECOND * seconds));
    assert_eq!(sent, BTreeSet::from([at(1), at(3)]));
}

#[test]
fn waiting_messages_are_shared_out_when_the_rules_change() {
    let mut world = SharedWorld::new(by_group());
    let plain = DeliveryTerms::default();
    for number in 0..2_500 {
        let tenant = ["a", "b", "c"][number % 3];
        world.send(tenant, ["1", "5"][number % 2], NOW);
    }
    let some = Ask {
        max: 5,
        ..Ask::PLAIN
    };
    assert_eq!(world.receive_by(&plain, some).messages.len(), 3);
    let mut left = 2_497;
    let everything = [
        by_group(),
        by_priority(),
        SharingRules {
            by_group: true,
            ..by_priority()
        },
        by_group(),
    ];
    for (round, rules) in everything.into_iter().enumerate() {
        world.share(rules.clone());
        for step in 0..4 {
            assert_eq!(
                world.next_due() <= Some(world.now),
                step < 3 || rules.by_group
            );
            let answer = world.receive_by(&world.terms, some);
            let is_free = rules.by_group || answer.messages.is_empty();
            assert!(is_free, "the first of each group is in flight");
            for message in &answer.messages {
                world.settle(message, &Outcome::Delete);
                left -= 1;
            }
        }
        let assigned = "SELECT count(*) FROM entries WHERE priority > 0";
        let assigned: i64 = world
            .connection
            .query_row(assigned, [], |row| row.get(0))
            .unwrap();
        assert_eq!(
            assigned,
            if rules.by_group { left + 3 } else { 3 },
            "round {round}"
        );
    }
    world.pass(30 * SECOND);
    let mut bodies = Vec::new();
    loop {
        let some = world.bodies(100);
        if some.is_empty() {
            break;
        }
        bodies.extend(some);
    }
    assert_eq!(bodies.len() as i64, left + 3);
}

#[test]
fn first_of_a_group_alone_is_delivered_while_lanes_are_of_earlier_rules() {
    let parked = ["a", "b"].map(str::to_owned);
    let world = SharedWorld::new(SharingRules {
        parked: BTreeSet::from(parked),
        ..by_group()
    });
    for number in 0..2_100 {
        world.send(["a", "b"][number % 2], "", NOW);
    }
    for _ in 0..3 {
        assert_eq!(world.bodies(9), [""; 0]);
    }
    world.share(by_priority());
    let taken: Vec<String> = (0..4).flat_map(|_| world.bodies(9)).collect();
    assert_eq!(taken, ["a", "b"]);
}

#[test]
fn process_without_rules_keeps_groups_in_order() {
    let world = SharedWorld::new(by_group());
    for priority in ["1", "2", "3"] {
        world.send("g", priority, NOW);
    }
    let first = world.receive(1);
    let plain = DeliveryTerms::default();
    let all = Ask {
        max: 9,
        ..Ask::PLAIN
    };
    assert_eq!(world.receive_by(&plain, all).messages, []);
    world.settle(&first[0], &Outcome::Delete);
    let next = world.receive_by(&plain, all).messages;
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].body, "g2");
    assert_eq!(world.bodies(9), ["g3"]);
}

#[test]
fn the_last_process_to_start_decides_the_lanes() {
    let world = SharedWorld::new(by_group());
    for _ in 0..3 {
        world.send("g", "", NOW);
    }
    assert_eq!(world.bodies(1).len(), 1);
    let other: Arc<SharingSlot> = Arc::default();
    other.set(&Arc::new(by_priority()));
    let terms = DeliveryTerms {
        sharing: Some(other),
        ..DeliveryTerms::default()
    };
    let one = Ask::PLAIN;
    assert_eq!(world.receive_by(&terms, one).messages, [], "kept in order");
    assert_eq!(world.bodies(1).len(), 0, "also by the first process");
    world.share(SharingRules {
        weights: weights(&[("g", 2)]),
        ..by_group()
    });
    assert_eq!(world.bodies(1).len(), 0, "weights are no other rules");
}

#[test]
fn backlog_counts_messages_that_can_be_received() {
    let mut world = SharedWorld::new(SharingRules {
        by_group: true,
        ..by_priority()
    });
    world.send("a", "1", NOW);
    assert_eq!(
        world.backlog("a"),
        TenantBacklog::default(),
        "not shared out yet"
    );
    world.bodies(1);
    world.send("a", "1", NOW);
    world.pass(SECOND);
    world.send("a", "5", NOW);
    world.send("a", "5", SECOND);
    world.send("b", "1", NOW);
    let wanted = TenantBacklog {
        waiting: 2,
        oldest: Some(SECOND),
    };
    assert_eq!(world.backlog("a"), wanted);
    assert_eq!(world.backlog("b").waiting, 1);
    assert_eq!(world.backlog("c"), TenantBacklog::default());
}

#[test]
fn deleted_queue_forgets_its_rules() {
    let world = SharedWorld::new(by_group());
    world.send("g", "", NOW);
    world.bodies(1);
    crate::queue::registry::delete(&mut world.turn(), "q").unwrap();
    for table in ["lane_rules", "lanes", "lane_times"] {
        let count = format!("SELECT count(*) FROM {table}");
        let count: i64 = world
            .connection
            .query_row(&count, [], |row| row.get(0))
            .unwrap();
        assert_eq!(count, 0, "{table}");
    }
    queue_id(&world.connection, "q").unwrap();
    world.send("g", "", NOW);
    assert_eq!(world.bodies(1), ["g"]);
}

#[test]
fn tenant_does_not_pay_for_a_message_without_room() {
    let world = SharedWorld::new(by_group());
    for tenant in ["a", "b", "a", "b"] {
        world.send(tenant, "", NOW);
    }
    let sql = "UPDATE payloads SET body = ?1 WHERE body = 'b'";
    let large = "b".repeat(usize::try_from(LEAST).unwrap());
    world.connection.execute(sql, [large]).unwrap();
    let terms = DeliveryTerms {
        budget: Some(Budget::new(LEAST)),
        ..world.terms.clone()
    };
    let ask = Ask {
        max: 4,
        ..Ask::PLAIN
    };
    assert_eq!(world.receive_by(&terms, ask).messages.len(), 1);
    let pass = "SELECT pass FROM lanes WHERE tenant = ?1";
    let pass = |tenant| -> i64 {
        let mut find = world.connection.prepare(pass).unwrap();
        find.query_row([tenant], |row| row.get(0)).unwrap()
    };
    let price = i64::try_from(by_group().price("a")).unwrap();
    assert_eq!((pass("a"), pass("b")), (price, 0));
}

#[test]
fn message_received_too_often_leaves_its_lane() {
    let mut world = SharedWorld::new(by_group());
    let settings = QueueSettings {
        redrive: Some(Redrive {
            most_receives: 1,
            dead_letter_queue: "q.dead".into(),
        }),
        ..QueueSettings::default()
    };
    settings::write(&world.turn(), world.origin.id, &settings).unwrap();
    for tenant in ["a", "a", "b"] {
        world.send(tenant, "", NOW);
    }
    assert_eq!(world.bodies(2).len(), 2);
    world.pass(30 * SECOND);
    assert_eq!(world.bodies(9), ["a"]);
    world.pass(30 * SECOND);
    assert_eq!(world.bodies(9), [""; 0]);
    assert_eq!(world.next_due(), None);
}

#[test]
fn priority_may_be_in_the_body_and_may_be_missing() {
    let world = SharedWorld::new(SharingRules {
        priority: Some(MessagePlace::Pointer("/p".into())),
        ..SharingRules::default()
    });
    for body in [r#"{"p":4}"#, "{", r#"{"p":"2"}"#] {
        let item = OutgoingMessage {
            body: body.into(),
            ..OutgoingMessage::default()
        };
        send(&mut world.turn(), world.origin.id, &[item]).unwrap()[0]
            .as_ref()
            .unwrap();
    }
    world
        .connection
        .execute("DELETE FROM payloads WHERE body = '{'", [])
        .unwrap();
    assert_eq!(world.bodies(9), [r#"{"p":"2"}"#, "", r#"{"p":4}"#]);
}

#[test]
fn large_messages_are_assigned_a_few_at_a_time() {
    let world = SharedWorld::new(SharingRules {
        priority: Some(MessagePlace::Pointer("/p".into())),
        ..SharingRules::default()
    });
    for (priority, bytes) in [(5, 5 << 20), (4, 5 << 20), (3, 5 << 20), (1, 9 << 20)] {
        let item = OutgoingMessage {
            body: format!("{{\"p\":{priority},\"x\":\"{}\"}}", "x".repeat(bytes)),
            ..OutgoingMessage::default()
        };
        drop(send(&mut world.turn(), world.origin.id, &[item]).unwrap());
    }
    let ask = Ask {
        max: 9,
        ..Ask::PLAIN
    };
    let mut bodies = Vec::new();
    for is_all in [false, true] {
        let answer = world.receive_by(&world.terms, ask);
        assert_eq!(answer.drained, is_all);
        bodies.extend(answer.messages.into_iter().map(|one| one.body));
    }
    let starts: Vec<&str> = bodies.iter().map(|body| &body[..6]).collect();
    let wanted = [r#"{"p":4"#, r#"{"p":5"#, r#"{"p":3"#, r#"{"p":1"#];
    assert_eq!(starts, wanted, "the last is too long to be read");
}

#[test]
fn sums_are_reduced_before_they_overflow() {
    let world = SharedWorld::new(by_group());
    for _ in 0..10 {
        world.send("a", "", NOW);
        world.send("b", "", NOW);
    }
    world.bodies(2);
    for table in ["lanes", "lane_times"] {
        let late = format!("UPDATE {table} SET pass = pass + (1 << 61)");
        world.connection.execute(&late, []).unwrap();
    }
    assert_eq!(
        counts(&world.bodies(8)),
        BTreeMap::from([("a", 4), ("b", 4)])
    );
    let most = "SELECT max(pass) FROM lanes";
    let most: i64 = world
        .connection
        .query_row(most, [], |row| row.get(0))
        .unwrap();
    assert!(most < 1 << 40, "{most}");
    assert_eq!(
        counts(&world.bodies(8)),
        BTreeMap::from([("a", 4), ("b", 4)])
    );
}

#[test]
fn lanes_that_are_not_used_for_a_day_are_deleted() {
    let mut world = SharedWorld::new(by_group());
    let count = |world: &SharedWorld, table: &str| {
        let count = format!("SELECT count(*) FROM {table}");
        let count = world.connection.query_row(&count, [], |row| row.get(0));
        count.unwrap()
    };
    for tenant in 0..1_500 {
        world.send(&tenant.to_string(), "", NOW);
    }
    world.bodies(1);
    world.bodies(1);
    let plain = DeliveryTerms::default();
    world.pass(23 * 3_600 * SECOND);
    world.receive_by(&plain, Ask::PLAIN);
    assert_eq!(count(&world, "lanes"), 1_500);
    world.bodies(1);
    world.pass(23 * 3_600 * SECOND);
    world.receive_by(&plain, Ask::PLAIN);
    assert_eq!(count(&world, "lanes"), 1_500, "they were in use");
    world.pass(2 * 3_600 * SECOND);
    world.receive_by(&plain, Ask::PLAIN);
    assert_eq!(
        (count(&world, "lanes"), count(&world, "lane_rules")),
        (500, 1)
    );
    let mut bodies = world.bodies(100);
    while bodies.len() < 1_499 {
        bodies.extend(world.bodies(100));
    }
    world.pass(25 * 3_600 * SECOND);
    for _ in 0..2 {
        world.receive_by(&plain, Ask::PLAIN);
    }
    assert_eq!(
        (count(&world, "lanes"), count(&world, "lane_rules")),
        (0, 0)
    );
    world.pass(SECOND * 30);
    assert_eq!(world.bodies(100).len(), 100);
}

#[test]
fn chosen_messages_of_a_shared_group_are_received_together() {
    let world = SharedWorld::new(by_group());
    for priority in ["1", "2", "3"] {
        world.send("g", priority, NOW);
    }
    world.bodies(1);
    let mut turn = world.turn();
    let listed = browse::page(&turn, (world.origin.id, "q"), 0, 9).unwrap();
    let chosen: Vec<_> = listed
        .messages
        .iter()
        .map(|one| one.receipt.clone())
        .collect();
    let queue = world.origin.id;
    let taken = browse::take_chosen(&mut turn, queue, &chosen, SECOND, false).unwrap();
    assert_eq!(taken.len(), 2);
    assert_eq!(world.bodies(9), [""; 0]);
}

/// Each lane goes straight to its rows, and nothing is sorted.
#[test]
fn every_query_uses_its_index() {
    let world = SharedWorld::new(by_group());
    world.bodies(1);
    for (sql, wanted) in [
        (
            BY_TIME,
            "COVERING INDEX lanes_by_time (queue=? AND is_due=? AND priority=? AND next_at<?)",
        ),
        (
            FIRST_OF_LANE,
            "COVERING INDEX lane_messages (queue=? AND priority=? AND tenant=?)",
        ),
        (UNRANKED, "INDEX unranked (queue=?)"),
        (NEXT_DUE, "COVERING INDEX ready (queue=? AND head=?)"),
        (
            deliver::READY,
            "INDEX ready (queue=? AND head=? AND visible_at<?)",
        ),
    ] {
        let mut plan = world
            .connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let nothing = params_from_iter(vec![Null; plan.parameter_count()]);
        let steps: Vec<String> = plan
            .query_map(nothing, |row| row.get(3))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(steps[0].contains(wanted), "{sql}: {steps:?}");
        assert!(
            !steps.iter().any(|step| step.contains("TEMP B-TREE")),
            "{steps:?}"
        );
    }
}

#[test]
fn a_receive_costs_the_same_with_many_tenants() {
    let work = |tenants: usize| {
        let world = SharedWorld::new(by_group());
        for tenant in 0..tenants {
            world.send(&format!("t{tenant}"), "", NOW);
            world.send(&format!("t{tenant}"), "", NOW);
        }
        while world.next_due().is_some_and(|_| world.bodies(1).is_empty()) {}
        for _ in 0..20 {
            world.bodies(1);
        }
        let sql = super::super::search::BY_PASS;
        let read = world.connection.prepare_cached(sql).unwrap();
        read.reset_status(StatementStatus::VmStep);
        drop(read);
        for _ in 0..20 {
            assert_eq!(world.bodies(5).len(), 5);
        }
        let read = world.connection.prepare_cached(sql).unwrap();
        read.get_status(StatementStatus::VmStep)
    };
    let (few, many) = (work(100), work(900));
    assert!(many < few * 2, "{few} steps, then {many}");
}
