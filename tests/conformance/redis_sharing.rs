//! What only Redis has: how a queue shares its messages out among tenants and priorities, when
//! messages enter and leave lanes otherwise than by a send and a claim, and how rules are replaced.

use crate::backend::{Handy, LONG, PATIENT, bodies, grouped, plain};
use dispatcher_core::message::place::MessagePlace;
use dispatcher_core::message::{Attribute, Message, Outcome, OutgoingMessage};
use dispatcher_core::queue::sharing::{SharingRules, TenantBacklog};
use dispatcher_core::queue::{Ask, Queue, ReceivedMessages};
use dispatcher_redis::queue::{NativeQueue, Redis};
use dispatcher_tests::redis::{Plain, RedisServer};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const PREFIX: &str = "sharing";
const AT_ONCE: Outcome = Outcome::Release(Duration::ZERO);

/// A queue, and the server that looks at it from outside.
pub(crate) struct SharedQueue {
    name: String,
    pub queue: NativeQueue,
    beside: Plain,
}

impl SharedQueue {
    pub(crate) async fn new() -> Self {
        let name = RedisServer::fresh_name("shared");
        Self {
            queue: open(&name).await,
            name,
            beside: RedisServer::shared().connect(),
        }
    }

    pub(crate) async fn sharing(sharing: SharingRules) -> Self {
        let scene = Self::new().await;
        scene.queue.share_out(&Arc::new(sharing));
        scene
    }

    pub(crate) fn key(&self, key: &str) -> String {
        format!("{{{PREFIX}:{}}}:{key}", self.name)
    }

    pub(crate) fn raw(&mut self, words: &[&str]) -> Vec<String> {
        self.beside.call(words).expect("an answer").texts()
    }

    fn keys(&mut self) -> BTreeSet<String> {
        let (pattern, prefix) = (self.key("*"), self.key(""));
        let pattern = pattern.replace('{', "\\{");
        let keys = self.raw(&["KEYS", &pattern]);
        keys.into_iter()
            .map(|key| key.replace(&prefix, ""))
            .collect()
    }

    pub(crate) fn handy(&self) -> &dyn Queue {
        &self.queue
    }

    pub(crate) async fn receive(&self, max: usize) -> ReceivedMessages {
        self.handy().receive_up_to(max, LONG, Duration::ZERO).await
    }

    /// Cancels a message. Returns how many there were.
    pub(crate) async fn cancel(&self, id: &str) -> u64 {
        let server = Redis::new(&RedisServer::shared().url(), PREFIX).expect("an address");
        let cancelled = server.cancel(&self.name, id).await;
        let cancelled = cancelled.expect("an answer");
        cancelled.waiting + cancelled.running
    }

    async fn bodies(&self, max: usize) -> Vec<String> {
        let received = self.receive(max).await.messages;
        received.into_iter().map(|message| message.body).collect()
    }

    async fn backlog(&self, tenant: &str) -> TenantBacklog {
        let counted = self.queue.backlogs(&[tenant.to_owned()]).await;
        counted.expect("an answer")[0]
    }
}

/// The queue as another process has it.
async fn open(name: &str) -> NativeQueue {
    let server = Redis::new(&RedisServer::shared().url(), PREFIX).expect("an address");
    server.queue(name, None).await.expect("it is there")
}

/// The queue of a scene as another process has it.
pub(crate) async fn second(scene: &SharedQueue) -> NativeQueue {
    open(&scene.name).await
}

/// The member of a message in the lanes, empty without one.
pub(crate) fn lane_of(scene: &mut SharedQueue, id: &str) -> String {
    let lanes = scene.key("lanes");
    let mut members = scene.raw(&["ZRANGE", &lanes, "0", "-1"]);
    members.retain(|member| member.ends_with(id));
    members.pop().unwrap_or_default()
}

pub(crate) fn by_group() -> SharingRules {
    SharingRules {
        by_group: true,
        ..SharingRules::default()
    }
}

pub(crate) fn by_priority() -> SharingRules {
    SharingRules {
        priority: Some(MessagePlace::Attribute("priority".into())),
        ..SharingRules::default()
    }
}

pub(crate) fn urgent(priority: usize, message: OutgoingMessage) -> OutgoingMessage {
    OutgoingMessage {
        attributes: vec![Attribute::text("priority", priority.to_string())],
        ..message
    }
}

fn all(count: usize, group: &str) -> Vec<OutgoingMessage> {
    (0..count)
        .map(|at| grouped(group, &format!("{group}{at}")))
        .collect()
}

fn groups(messages: &[Message]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for message in messages {
        *counts
            .entry(message.group.as_deref().unwrap_or(""))
            .or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn backlogged_tenants_share_by_weight() {
    let weights = BTreeMap::from([("b".to_owned(), 2), ("c".to_owned(), 5)]);
    let scene = SharedQueue::sharing(SharingRules {
        weights,
        ..by_group()
    })
    .await;
    for tenant in ["a", "b", "c"] {
        for _ in 0..2 {
            scene.handy().send_all(&all(100, tenant)).await;
        }
    }
    let mut taken = scene.receive(80).await.messages;
    assert_eq!(
        groups(&taken),
        BTreeMap::from([("a", 10), ("b", 20), ("c", 50)])
    );
    // Within a tenant by the time of sending.
    taken.retain(|message| message.group.as_deref() == Some("a"));
    let order: Vec<_> = taken.iter().map(|message| &*message.body).collect();
    assert_eq!(
        order,
        (0..10).map(|at| format!("a{at}")).collect::<Vec<_>>()
    );
    // A tenant that comes later neither waits for what others had, nor catches up with it.
    scene.handy().send_all(&all(50, "late")).await;
    let taken = scene.receive(90).await.messages;
    let counts = groups(&taken);
    assert!(
        counts["late"].abs_diff(10) <= 1 && counts["c"].abs_diff(50) <= 1,
        "{counts:?}"
    );
}

#[tokio::test]
async fn urgent_messages_go_first_and_groups_stay_in_order() {
    let scene = SharedQueue::sharing(by_priority()).await;
    let wanted = [(5, "e"), (3, "c"), (1, "a"), (2, "b"), (4, "d")];
    for (priority, body) in wanted {
        scene
            .handy()
            .send_all(&[urgent(priority, plain(body))])
            .await;
    }
    assert_eq!(scene.bodies(3).await, ["a", "b", "c"]);
    // Only the first message of a group could be delivered.
    let group = [
        urgent(5, grouped("g", "first")),
        urgent(1, grouped("g", "second")),
    ];
    scene.handy().send_all(&group).await;
    assert_eq!(scene.bodies(9).await, ["d", "e", "first"]);
    assert_eq!(scene.bodies(9).await, [""; 0]);
}

#[tokio::test]
async fn newest_message_of_the_tenant_comes_first() {
    let scene = SharedQueue::sharing(by_group()).await;
    scene
        .handy()
        .send_all(&[all(3, "a"), all(3, "b")].concat())
        .await;
    let taken = scene.handy().receive_newest(4).await;
    assert_eq!(bodies(&taken), ["a1", "a2", "b1", "b2"]);
}

#[tokio::test]
async fn message_that_waited_too_long_goes_before_all_priorities() {
    let wait = Duration::from_millis(150);
    let mut sharing = SharingRules {
        by_group: true,
        ..by_priority()
    };
    sharing.longest_waits[4] = Some(wait);
    let scene = SharedQueue::sharing(sharing.clone()).await;
    let old: Vec<_> = ["parked", "x"]
        .map(|group| urgent(5, grouped(group, group)))
        .into();
    scene.handy().send_all(&old).await;
    let first: Vec<_> = (0..20).map(|_| urgent(1, grouped("y", "urgent"))).collect();
    scene.handy().send_all(&first).await;
    let taken = scene.receive(1).await;
    assert_eq!(
        (bodies(&taken.messages), taken.overdue),
        (vec!["urgent"], 0)
    );
    tokio::time::sleep(wait).await;
    sharing.parked = BTreeSet::from(["parked".to_owned()]);
    scene.queue.share_out(&Arc::new(sharing.clone()));
    let taken = scene.receive(2).await;
    assert_eq!(
        (bodies(&taken.messages), taken.overdue),
        (vec!["urgent", "x"], 1)
    );
    sharing.parked.clear();
    scene.queue.share_out(&Arc::new(sharing));
    let taken = scene.receive(2).await;
    assert_eq!(taken.messages[0].body, "parked");
    assert_eq!(taken.overdue, 1);
    // One that comes back has waited since then.
    tokio::time::sleep(wait).await;
    let x = [(taken.messages[0].clone(), AT_ONCE)];
    assert_eq!(scene.queue.settle(&x).await, [Ok(())]);
    assert_eq!(scene.receive(1).await.overdue, 0);
}

#[tokio::test]
async fn parked_tenants_get_nothing_until_rules_change() {
    let parked = BTreeSet::from(["a".to_owned()]);
    let scene = SharedQueue::sharing(SharingRules {
        parked,
        ..by_group()
    })
    .await;
    scene
        .handy()
        .send_all(&[all(3, "a"), all(2, "b")].concat())
        .await;
    assert_eq!(scene.bodies(9).await, ["b0", "b1"]);
    let ask = Ask {
        max: 9,
        wait: PATIENT,
        ..Ask::PLAIN
    };
    let hurry = CancellationToken::new();
    let begun = Instant::now();
    let (received, ()) = tokio::join!(scene.queue.receive(ask, &hurry), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        scene.queue.share_out(&Arc::new(by_group()));
    });
    assert_eq!(
        bodies(&received.expect("an answer").messages),
        ["a0", "a1", "a2"]
    );
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn messages_that_come_back_enter_their_lanes() {
    let mut scene = SharedQueue::sharing(by_group()).await;
    let delayed = OutgoingMessage {
        delay: Duration::from_millis(50),
        ..grouped("a", "delayed")
    };
    scene
        .handy()
        .send_all(&[delayed, grouped("a", "first")])
        .await;
    let first = scene.handy().next(LONG).await;
    let delayed = scene.handy().next(LONG).await;
    assert_eq!((&*first.body, &*delayed.body), ("first", "delayed"));
    scene.handy().settle_one(&first, AT_ONCE).await;
    let first = scene.handy().next(LONG).await;
    let later = Outcome::Release(Duration::from_millis(50));
    scene.handy().settle_one(&first, later).await;
    let first = scene.handy().next(Duration::from_millis(50)).await;
    let again = scene.handy().next(LONG).await;
    assert_eq!((&again.id, again.receive_count), (&first.id, 4));
    let ended = scene
        .queue
        .extend(&[(delayed.receipt.clone(), Duration::ZERO)])
        .await;
    assert_eq!(ended, [Ok(())]);
    let delayed = scene.handy().next(LONG).await;
    assert_eq!(delayed.receive_count, 2);
    // Another process takes over what a dead one has.
    let (worker, key) = (scene.key("workers"), format!("{{{PREFIX}}}:worker:"));
    let worker = scene.raw(&["SMEMBERS", &worker]).remove(0);
    let other = open(&scene.name).await;
    other.share_out(&Arc::new(by_group()));
    let none = (&other as &dyn Queue)
        .receive_up_to(9, LONG, Duration::ZERO)
        .await;
    assert_eq!(none.messages, []);
    let SharedQueue {
        name,
        queue,
        mut beside,
    } = scene;
    drop(queue);
    beside.call(&["DEL", &(key + &worker)]).expect("an answer");
    let taken = (&other as &dyn Queue).take(2, LONG).await;
    assert_eq!(bodies(&taken), ["delayed", "first"], "{name}");
}

#[tokio::test]
async fn messages_that_are_removed_leave_their_lanes() {
    let mut scene = SharedQueue::sharing(SharingRules {
        by_group: true,
        ..by_priority()
    })
    .await;
    let message = |at: usize| urgent(1 + at % 5, grouped(["a", "b"][at % 2], "m"));
    let sent: Vec<_> = (0..40).map(message).collect();
    let ids = scene.handy().send_all(&sent).await;
    assert_eq!(scene.receive(2).await.messages.len(), 2);
    let count = async |scene: &SharedQueue| {
        let counted = scene
            .queue
            .backlogs(&["a".into(), "b".into()])
            .await
            .expect("an answer");
        counted.iter().map(|one| one.waiting).sum::<u64>()
    };
    assert_eq!(count(&scene).await, 38);
    let page = scene.queue.browse(None, 5).await.expect("a page");
    let receipts: Vec<_> = page.messages.iter().map(|m| m.receipt.clone()).collect();
    let chosen = scene
        .queue
        .receive_these(&receipts, LONG)
        .await
        .expect("an answer");
    assert_eq!((chosen.len(), count(&scene).await), (5, 33));
    assert_eq!((scene.cancel(&ids[39]).await, count(&scene).await), (1, 32));
    scene.queue.purge().await.expect("an answer");
    assert_eq!(count(&scene).await, 0);
    assert_eq!(scene.receive(9).await.messages, []);
    let lanes = scene.key("lanes");
    assert_eq!(scene.raw(&["ZCARD", &lanes]), ["0"]);
    assert_eq!(scene.queue.depth().await.expect("an answer").in_flight, 7);
}

#[tokio::test]
async fn backlogs_have_count_and_age_of_each_tenant() {
    let scene = SharedQueue::sharing(by_group()).await;
    let empty = TenantBacklog::default();
    assert_eq!(scene.backlog("a").await, empty);
    scene.receive(1).await;
    scene
        .handy()
        .send_all(&[all(7, "a"), vec![plain("alone")]].concat())
        .await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    let a = scene.backlog("a").await;
    assert_eq!(a.waiting, 7);
    let oldest = a.oldest.expect("one waits");
    assert!(
        oldest >= Duration::from_millis(30) && oldest < PATIENT,
        "{oldest:?}"
    );
    assert_eq!(scene.backlog("").await.waiting, 1);
    assert_eq!(scene.backlog("b").await, empty);
    let plain = open(&scene.name).await;
    assert_eq!(plain.backlogs(&["a".into()]).await, Ok(Vec::new()));
}

/// Receives one by one without settling, each under its own group, until nothing more comes.
async fn drain(queue: &dyn Queue) -> Vec<Message> {
    let mut taken = Vec::new();
    loop {
        let received = queue.receive_up_to(100, LONG, Duration::ZERO).await;
        if received.messages.is_empty() {
            return taken;
        }
        taken.extend(received.messages);
    }
}

#[tokio::test]
async fn groups_are_in_order_again_without_the_rules() {
    let mut scene = SharedQueue::sharing(SharingRules {
        by_group: true,
        ..by_priority()
    })
    .await;
    for part in 0..20 {
        let sent: Vec<_> = (0..100)
            .map(|at| {
                urgent(
                    1 + at % 5,
                    grouped(&format!("g{}", at % 10), &format!("{part:02}-{at:02}")),
                )
            })
            .collect();
        scene.handy().send_all(&sent).await;
    }
    let later = OutgoingMessage {
        delay: Duration::from_millis(1),
        ..grouped("g0", "later")
    };
    scene.handy().send_all(&[later]).await;
    let held = scene.receive(35).await.messages;
    assert_eq!(held.len(), 35);
    let plain = open(&scene.name).await;
    let plain: &dyn Queue = &plain;
    let running: BTreeSet<_> = held.iter().filter_map(|m| m.group.clone()).collect();
    let taken = drain(plain).await;
    assert_eq!(taken.len(), 10 - running.len());
    let mut order: HashMap<String, Vec<String>> = HashMap::new();
    let mut open: Vec<Message> = held.into_iter().chain(taken).collect();
    let mut count = 0;
    while !open.is_empty() {
        let (again, done): (Vec<_>, Vec<_>) = open
            .drain(..)
            .partition(|m| m.receive_count == 1 && m.body.ends_with("7"));
        for message in done {
            count += 1;
            order
                .entry(message.group.clone().unwrap_or_default())
                .or_default()
                .push(message.body.clone());
            plain.settle_one(&message, Outcome::Delete).await;
        }
        for message in again {
            plain.settle_one(&message, AT_ONCE).await;
        }
        open = drain(plain).await;
        let mut seen = BTreeSet::new();
        assert!(
            open.iter().all(|m| seen.insert(m.group.clone())),
            "one of each group"
        );
    }
    assert_eq!(count, 2001);
    for (group, bodies) in order {
        // Those of a group that were in flight end in any order.
        let first = if running.contains(&group) { 35 } else { 0 };
        assert!(bodies[first..].is_sorted(), "{group}: {bodies:?}");
    }
    let left = scene.keys();
    let wanted = ["seq", "workers"].map(str::to_owned);
    assert!(
        left.iter()
            .all(|key| wanted.contains(key) || key.starts_with("w:")),
        "{left:?}"
    );
}

#[tokio::test]
async fn group_waits_for_a_message_that_was_in_flight_before_it_was_in_order() {
    let scene = SharedQueue::sharing(by_group()).await;
    scene.handy().send_all(&all(3, "a")).await;
    let held = scene.handy().receive_newest(1).await;
    assert_eq!(bodies(&held), ["a2"]);
    let plain = second(&scene).await;
    let plain: &dyn Queue = &plain;
    plain.expect_nothing().await;
    plain.settle_one(&held[0], Outcome::Delete).await;
    let first = plain.next(LONG).await;
    assert_eq!(first.body, "a0");
    plain.expect_nothing().await;
    plain.settle_one(&first, Outcome::Delete).await;
    assert_eq!(plain.next(LONG).await.body, "a1");
}

#[tokio::test]
async fn receive_ends_after_its_wait_while_the_queue_sorts() {
    let scene = SharedQueue::sharing(by_group()).await;
    for _ in 0..30 {
        scene.handy().send_all(&all(100, "a")).await;
    }
    assert_eq!(scene.receive(1).await.messages.len(), 1);
    let plain = second(&scene).await;
    let plain: &dyn Queue = &plain;
    // A claim puts some 500 of the group in order.
    for _ in 0..3 {
        let wait = Duration::from_nanos(1);
        let received = plain.receive_up_to(1, LONG, wait).await;
        assert!(received.messages.is_empty() && !received.drained);
    }
    let received = plain.receive_up_to(1, LONG, Duration::ZERO).await;
    assert!(received.drained, "the first of the group is in flight");
}

#[tokio::test]
async fn messages_are_shared_out_by_new_rules() {
    let scene = SharedQueue::new().await;
    // In order: most wait behind the first of their group.
    for part in 0..15 {
        let sent: Vec<_> = (0..100)
            .map(|at| {
                urgent(
                    1 + at % 5,
                    grouped(&format!("g{}", at % 3), &format!("{part}-{at}")),
                )
            })
            .collect();
        scene.handy().send_all(&sent).await;
    }
    assert_eq!(scene.receive(9).await.messages.len(), 3);
    let rules = [
        SharingRules {
            by_group: true,
            ..by_priority()
        },
        by_priority(),
        by_group(),
        SharingRules::default(),
        SharingRules {
            by_group: true,
            priority: Some(MessagePlace::Pointer("/p".into())),
            ..SharingRules::default()
        },
    ];
    let mut total = 3;
    for sharing in rules {
        scene.queue.share_out(&Arc::new(sharing.clone()));
        let taken = scene.receive(60).await.messages;
        if sharing.by_group {
            assert_eq!(taken.len(), 60, "{sharing:?}");
        }
        total += taken.len();
        let depth = scene.queue.depth().await.expect("an answer");
        assert_eq!(depth.waiting + depth.in_flight, 1500);
    }
    total += drain(scene.handy()).await.len();
    assert_eq!(total, 1500);
}

#[tokio::test]
async fn last_process_to_start_decides_the_lanes() {
    let scene = SharedQueue::sharing(by_group()).await;
    scene.handy().send_all(&all(4, "a")).await;
    assert_eq!(scene.bodies(2).await.len(), 2);
    let plain = open(&scene.name).await;
    let plain: &dyn Queue = &plain;
    // Two of the group are in flight.
    plain.expect_nothing().await;
    assert_eq!(scene.bodies(2).await, [""; 0]);
    let third = open(&scene.name).await;
    third.share_out(&Arc::new(by_group()));
    let third: &dyn Queue = &third;
    assert_eq!(
        third
            .receive_up_to(1, LONG, Duration::ZERO)
            .await
            .messages
            .len(),
        1
    );
    assert_eq!(scene.bodies(2).await.len(), 1);
}

#[tokio::test]
async fn messages_of_an_older_program_are_delivered() {
    let mut scene = SharedQueue::sharing(by_group()).await;
    let ids = scene.handy().send_all(&all(3, "busy")).await;
    assert_eq!(scene.receive(1).await.messages.len(), 1);
    // As it sends: the first of a group waits, the others wait behind it.
    let [wait, body, group, heads, behind] =
        ["wait", "body", "group", "heads", "behind"].map(|key| scene.key(key));
    let suffix = &ids[0][16..];
    let id = |at: u64| format!("{:016}{suffix}", 1_700_000_000_000_000 + at);
    for at in 0..3 {
        scene.raw(&["HSET", &body, &id(at), "old"]);
        scene.raw(&["HSET", &group, &id(at), "=old"]);
    }
    scene.raw(&["HSET", &heads, "=old", &id(0)]);
    scene.raw(&["ZADD", &wait, &id(0)[..16], &id(0)]);
    for at in 1..3 {
        scene.raw(&["ZADD", &behind, "0", &format!("4:=old:{}", id(at))]);
    }
    let taken = scene.handy().take(5, LONG).await;
    assert_eq!(bodies(&taken), ["busy1", "busy2", "old", "old", "old"]);
    // As it receives: a lane has a message that is gone. As it gives back: no lane has it.
    for message in &taken {
        scene.handy().settle_one(message, Outcome::Delete).await;
    }
    let ids = scene.handy().send_all(&all(3, "a")).await;
    let entries = scene.key("entries");
    assert_eq!(scene.backlog("a").await.waiting, 3);
    scene.raw(&["ZREM", &wait, &ids[0]]);
    assert_eq!(scene.bodies(9).await, ["a1", "a2"]);
    scene.raw(&["ZADD", &wait, &ids[0][..16], &ids[0]]);
    assert_eq!(scene.raw(&["LLEN", &entries]), ["0"]);
    assert_eq!(scene.bodies(9).await, ["a0"]);
}

#[tokio::test]
async fn bytes_of_a_receive_are_bounded() {
    let scene = SharedQueue::sharing(by_group()).await;
    let large = "x".repeat(3_000_000);
    for tenant in ["a", "b", "c"] {
        scene
            .handy()
            .send_all(&[grouped(tenant, &large), grouped(tenant, &large)])
            .await;
    }
    let mut tenants = Vec::new();
    while tenants.len() < 6 {
        let received = scene.receive(9).await;
        assert!(!received.messages.is_empty() && received.messages.len() < 6);
        tenants.extend(received.messages.into_iter().filter_map(|m| m.group));
    }
    assert_eq!(tenants, ["a", "b", "c", "a", "b", "c"]);
}

#[tokio::test]
async fn ten_thousand_tenants_leave_little_behind() {
    let mut scene = SharedQueue::sharing(by_group()).await;
    for part in 0..120 {
        let sent: Vec<_> = (0..100)
            .map(|at| grouped(&format!("t{part}-{at}"), "m"))
            .collect();
        scene.handy().send_all(&sent).await;
    }
    let mut count = 0;
    loop {
        let received = scene.receive(100).await.messages;
        if received.is_empty() {
            break;
        }
        count += received.len();
        let items: Vec<_> = received.into_iter().map(|m| (m, Outcome::Delete)).collect();
        scene.queue.settle(&items).await;
    }
    assert_eq!(count, 12_000);
    let past = scene.key("past:3");
    let past: usize = scene.raw(&["ZCARD", &past])[0].parse().expect("a number");
    assert!(past <= 10_000, "{past}");
    for key in ["lanes", "turns:3", "entries", "wait"] {
        let key = scene.key(key);
        assert_eq!(scene.raw(&["EXISTS", &key]), ["0"], "{key}");
    }
}
