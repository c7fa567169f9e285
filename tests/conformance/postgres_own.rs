//! What only PostgreSQL has: transactions of producers that commit late, a fail-over that lost
//! writes, and tables that other programs write to.

use crate::backend::{Backend, Handy, LONG, SHORT, bodies, plain};
use dispatcher_core::clock::Timestamp;
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{AttributeValue, ContentError, Outcome, OutgoingMessage};
use dispatcher_core::queue::{Ask, ItemError, Queue, origin};
use dispatcher_core::schedule;
use dispatcher_core::schedule::{Claim, JobCancellation, JobOutcome, ScheduleStore};
use dispatcher_core::tasks;
use dispatcher_postgres::queue::{PostgresQueue, QueueOptions};
use dispatcher_postgres::schedule::PostgresSchedule;
use dispatcher_postgres::server::Server;
use dispatcher_tests::postgres::{PostgresServer, Session};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A fresh queue on the shared server.
struct OwnQueue {
    server: &'static PostgresServer,
    name: String,
    queue: PostgresQueue,
}

impl OwnQueue {
    async fn open() -> Self {
        let Backend::Postgres(server) = Backend::postgres().await else {
            unreachable!("it is one")
        };
        let name = PostgresServer::fresh_name("own");
        server.sql(&format!("SELECT dispatcher.create_queue('{name}')"));
        let connections = Server::new(Some(&server.url()), 2).expect("an address");
        let opened = PostgresQueue::open(&connections, &name, QueueOptions::default()).await;
        Self {
            server,
            queue: opened.expect("it is there"),
            name,
        }
    }

    fn queue(&self) -> &dyn Queue {
        &self.queue
    }

    /// What psql prints, with the queue's table for `TABLE`.
    fn sql(&self, statements: &str) -> String {
        let table = format!("pgmq.q_{}", self.name);
        self.server.sql(&statements.replace("TABLE", &table))
    }

    /// A transaction that has sent a message and is not committed.
    fn sending(&self, body: &str, group: &str) -> Session {
        let mut session = self.server.session("dispatcher");
        session.run("BEGIN");
        let name = &self.name;
        session.run(&format!(
            "SELECT dispatcher.send('{name}', '{body}', message_group => {group})"
        ));
        session
    }
}

#[tokio::test]
async fn group_has_one_message_in_flight_although_an_earlier_one_is_committed_later() {
    let own = OwnQueue::open().await;
    let mut first = own.sending("first", "'g'");
    own.sending("second", "'g'").run("COMMIT");
    let second = own.queue().next(LONG).await;
    assert_eq!(second.body, "second");
    first.run("COMMIT");
    own.queue().expect_nothing().await;
    own.queue().settle_one(&second, Outcome::Delete).await;
    assert_eq!(own.queue().next(LONG).await.body, "first");
}

#[tokio::test]
async fn message_is_received_although_it_was_committed_after_later_ones() {
    let own = OwnQueue::open().await;
    let mut late = own.sending("late", "NULL");
    let begun = std::time::Instant::now();
    let mut count = 0;
    // Later ones for longer than a look trusts its place.
    while begun.elapsed() < Duration::from_secs(3) {
        own.queue().send_all(&[plain("early")]).await;
        let message = own.queue().next(LONG).await;
        own.queue().settle_one(&message, Outcome::Delete).await;
        count += 1;
    }
    late.run("COMMIT");
    assert_eq!(own.queue().next(LONG).await.body, "late");
    println!("{count} messages went before");
}

#[tokio::test]
async fn producers_do_not_wait_for_each_other_and_a_rollback_sends_nothing() {
    let own = OwnQueue::open().await;
    let mut undone = own.sending("undone", "NULL");
    let mut open = own.sending("open", "NULL");
    // Returns only once it is committed.
    own.sending("committed", "NULL").run("COMMIT");
    assert_eq!(own.queue().next(LONG).await.body, "committed");
    undone.run("ROLLBACK");
    own.queue().expect_nothing().await;
    open.run("COMMIT");
    assert_eq!(own.queue().next(LONG).await.body, "open");
}

#[tokio::test]
async fn receipt_from_before_a_fail_over_that_lost_writes_ends_nothing() {
    let own = OwnQueue::open().await;
    own.queue().send_all(&[plain("twice")]).await;
    let old = own.queue().next(LONG).await;
    own.sql("UPDATE TABLE SET read_ct = 0, last_read_at = NULL, vt = now()");
    let new = own.queue().next(LONG).await;
    assert_eq!((new.receive_count, &new.id), (1, &old.id));
    for outcome in [Outcome::Delete, Outcome::Release(Duration::ZERO)] {
        let answers = own.queue.settle(&[(old.clone(), outcome)]).await;
        assert!(
            matches!(answers[..], [Err(ItemError::Gone(_))]),
            "{answers:?}"
        );
    }
    let answers = own.queue.extend(&[(old.receipt, LONG)]).await;
    assert!(
        matches!(answers[..], [Err(ItemError::Gone(_))]),
        "{answers:?}"
    );
    own.queue().settle_one(&new, Outcome::Delete).await;
}

#[tokio::test]
async fn messages_behind_thousands_that_wait_for_their_group_are_received() {
    let own = OwnQueue::open().await;
    let group = "jsonb_build_object('x-pgmq-group', 'busy')";
    own.sql(&format!(
        "INSERT INTO TABLE (vt, message, headers) \
         SELECT now() - interval '1 minute', to_jsonb(n), {group} FROM generate_series(1, 3000) n"
    ));
    let head = own.queue().next(LONG).await;
    assert_eq!((&*head.body, head.group.as_deref()), ("1", Some("busy")));
    own.queue().expect_nothing().await;
    own.sql(
        "INSERT INTO TABLE (vt, message, headers) VALUES \
         (now(), '\"alone\"', NULL), (now(), '\"other\"', '{\"x-pgmq-group\": \"zzz\"}')",
    );
    let both = own.queue().take(2, LONG).await;
    assert_eq!(bodies(&both), ["alone", "other"]);
    own.queue().expect_nothing().await;
    own.queue().settle_one(&head, Outcome::Delete).await;
    assert_eq!(own.queue().next(LONG).await.body, "2");
}

/// Receives without waiting until a receive brings nothing. Returns the numbers in the bodies.
async fn received_at_once(queue: &dyn Queue, newest_first: bool) -> Vec<u64> {
    let ask = Ask {
        max: 100,
        visibility: LONG,
        newest_first,
        ..Ask::PLAIN
    };
    let mut numbers = Vec::new();
    loop {
        let received = queue.receive(ask, &CancellationToken::new()).await;
        let messages = received.expect("an open queue answers").messages;
        if messages.is_empty() {
            return numbers;
        }
        numbers.extend(
            messages
                .iter()
                .map(|one| one.body.parse::<u64>().expect("a number")),
        );
    }
}

#[tokio::test]
async fn backlog_of_many_groups_is_received_without_a_pause() {
    let own = OwnQueue::open().await;
    own.sql(
        "INSERT INTO TABLE (vt, message, headers) \
         SELECT now() - interval '1 hour' + n * interval '1 second', to_jsonb(n), \
         jsonb_build_object('x-pgmq-group', 'g' || n) FROM generate_series(1, 2500) n",
    );
    let mut numbers = received_at_once(own.queue(), false).await;
    assert_eq!(
        numbers[..500],
        (1..=500).collect::<Vec<_>>()[..],
        "in their order"
    );
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=2500).collect::<Vec<_>>());
}

#[tokio::test]
async fn newest_messages_of_an_old_backlog_are_received_without_a_pause() {
    let own = OwnQueue::open().await;
    own.sql(
        "INSERT INTO TABLE (vt, message) \
         SELECT now() - interval '1 day' + n * interval '3 seconds', to_jsonb(n) \
         FROM generate_series(1, 1000) n",
    );
    let numbers = received_at_once(own.queue(), true).await;
    assert_eq!(numbers, (1..=1000).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn messages_without_a_group_stay_in_order_beside_a_group_in_flight() {
    let own = OwnQueue::open().await;
    own.sql(
        "INSERT INTO TABLE (vt, message, headers) VALUES (now(), '0', '{\"x-pgmq-group\": 1}')",
    );
    assert_eq!(own.queue().next(LONG).await.group.as_deref(), Some("1"));
    own.sql(
        "INSERT INTO TABLE (vt, message) \
         SELECT now() - interval '1 hour' + n * interval '1 second', to_jsonb(n) \
         FROM generate_series(1, 2500) n",
    );
    let numbers = received_at_once(own.queue(), false).await;
    assert_eq!(numbers, (1..=2500).collect::<Vec<_>>());
}

#[tokio::test]
async fn receives_at_once_find_what_lies_between_thousands_that_wait() {
    let own = OwnQueue::open().await;
    own.sql(
        "INSERT INTO TABLE (vt, message, headers) \
         SELECT now() - interval '2 hours' + n * interval '1 second', to_jsonb(n), \
         CASE WHEN n % 700 > 0 THEN '{\"x-pgmq-group\": \"busy\"}'::jsonb END \
         FROM generate_series(1, 4900) n",
    );
    let receives = (0..4).map(|_| received_at_once(own.queue(), false));
    let mut numbers = tasks::all(receives.collect()).await.concat();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 700, 1400, 2100, 2800, 3500, 4200, 4900]);
}

#[tokio::test]
async fn old_receipt_in_one_call_with_the_new_one_has_its_own_answer() {
    let own = OwnQueue::open().await;
    own.queue().send_all(&[plain("twice")]).await;
    let old = own.queue().next(SHORT).await;
    let new = own.queue().next(LONG).await;
    assert_eq!(new.id, old.id);
    let both = [(old.receipt.clone(), LONG), (new.receipt.clone(), LONG)];
    let answers = own.queue.extend(&both).await;
    assert!(
        matches!(answers[..], [Err(ItemError::Gone(_)), Ok(())]),
        "{answers:?}"
    );
    let both = [(old, Outcome::Delete), (new, Outcome::Delete)];
    let answers = own.queue.settle(&both).await;
    assert!(
        matches!(answers[..], [Err(ItemError::Gone(_)), Ok(())]),
        "{answers:?}"
    );
}

#[tokio::test]
async fn ended_delivery_is_not_kept_once_its_group_has_gone_on() {
    let own = OwnQueue::open().await;
    let mut first = own.sending("first", "'g'");
    own.sending("second", "'g'").run("COMMIT");
    let second = own.queue().next(SHORT).await;
    first.run("COMMIT");
    // It comes once the delivery of the second has ended.
    let first = own.queue().next(LONG).await;
    assert_eq!((&*second.body, &*first.body), ("second", "first"));
    let answers = own.queue.extend(&[(second.receipt, LONG)]).await;
    assert!(
        matches!(answers[..], [Err(ItemError::Gone(_))]),
        "{answers:?}"
    );
}

#[tokio::test]
async fn name_that_is_too_long_or_has_capital_letters_is_refused() {
    let own = OwnQueue::open().await;
    let server = Server::new(Some(&own.server.url()), 2).expect("an address");
    let open = async |name: &str, dead_letter| {
        let options = QueueOptions {
            dead_letter,
            ..QueueOptions::default()
        };
        PostgresQueue::open(&server, name, options).await
    };
    let long = "x".repeat(48);
    for (name, dead_letter, says) in [
        ("Jobs", None, "wanted `jobs`"),
        (&*long, None, "more than 47 characters"),
        ("jobs", Some(&*long), "more than 47 characters"),
        ("jobs", Some("jobs"), "its own dead-letter queue"),
    ] {
        let Err(error) = open(name, dead_letter).await else {
            panic!("{name} was opened")
        };
        assert!(error.message.contains(says), "{error}");
    }
    let longest = PostgresServer::fresh_name(&"y".repeat(30));
    let longest = format!("{longest:z<47}");
    let opened = open(&longest, None).await.expect("it fits");
    assert!(
        !opened.identity().dead_letters,
        "there is no room for a default"
    );
    let message = opened.send(&[plain("x")]).await;
    assert!(message[0].is_ok(), "{message:?}");
}

#[tokio::test]
async fn contents_of_other_programs_are_read() {
    let own = OwnQueue::open().await;
    own.sql(
        "INSERT INTO TABLE (vt, message, headers) VALUES \
         (now(), '{\"b\": 1, \"a\": [true]}', '{\"n\": 1.5, \"o\": {\"x\": 1}}'), \
         (now(), '5', '[1]'), (now(), '\"text\"', 'null'), (now(), 'null', NULL), (now(), NULL, '\"odd\"')",
    );
    let messages = own.queue().take(5, LONG).await;
    let found: Vec<&str> = messages.iter().map(|one| &*one.body).collect();
    assert_eq!(
        found,
        [r#"{"a": [true], "b": 1}"#, "5", "text", "null", "null"]
    );
    let attributes = &messages[0].attributes;
    let value = |at: usize| (&*attributes[at].data_type, &attributes[at].value);
    let text = |text: &str| AttributeValue::Text(text.to_owned());
    assert_eq!(value(0), ("Number", &text("1.5")));
    assert_eq!(value(1), ("String", &text(r#"{"x":1}"#)));
    // None of their headers stands in the way of a second receive.
    for message in &messages {
        let release = Outcome::Release(Duration::ZERO);
        own.queue().settle_one(message, release).await;
    }
    let again = own.queue().take(5, LONG).await;
    assert!(again.iter().all(|one| one.receive_count == 2));
    let first = |one: &[dispatcher_core::message::Message]| one[0].first_received_at;
    assert_eq!(first(&again), first(&messages));
}

#[tokio::test]
async fn message_that_cannot_be_stored_is_refused_and_holds_up_no_other() {
    let own = OwnQueue::open().await;
    let odd = [r#"{"a": 1e999999}"#, r#"{"a": "\ud800"}"#];
    let sent = ["one", "nul\0", r#"{"a": "\u0000"}"#, odd[0], odd[1], "two"].map(plain);
    let answers = own.queue.send(&sent).await;
    let refused: Vec<_> = answers.iter().map(Result::is_err).collect();
    assert_eq!(
        refused,
        [false, true, true, false, false, false],
        "{answers:?}"
    );
    for answer in &answers[1..3] {
        let Err(ItemError::Refused(why)) = answer else {
            panic!("{answer:?}")
        };
        assert!(why.contains("\\u0000"), "{why}");
    }
    let received = own.queue().take(4, LONG).await;
    let found: Vec<&str> = received.iter().map(|one| &*one.body).collect();
    assert_eq!(found, ["one", odd[0], odd[1], "two"]);
}

#[tokio::test]
async fn dead_letter_is_found_by_its_new_id_and_keeps_its_headers() {
    let own = OwnQueue::open().await;
    own.sql("INSERT INTO TABLE (vt, message, headers) VALUES (now(), '7', '{\"k\": [1]}')");
    let message = own.queue().next(LONG).await;
    let dead = Outcome::DeadLetter("why".to_owned());
    own.queue().settle_one(&message, dead).await;
    let id = own.queue.dead_letter_id(&message.id).expect("it is known");
    let connections = Server::new(Some(&own.server.url()), 2).expect("an address");
    let letters = format!("{}.dead", own.name);
    let letters = PostgresQueue::open(&connections, &letters, QueueOptions::default()).await;
    let letters: &dyn Queue = &letters.expect("it is there");
    // Ids are small numbers: another letter has the id that this one had.
    letters.send_all(&[plain("a"), plain("b")]).await;
    let found = letters.find_waiting(&message.id).await.expect("an answer");
    let found = found.expect("it waits");
    assert_eq!((&*found.id, &*found.body), (&*id, "7"));
    let first = origin::text_of(&found, origin::FIRST_RECEIVED);
    let received = message.first_received_at.map(|at| at.to_string());
    assert_eq!(first, received.as_deref());
    let name = format!("{}.dead", own.name);
    let row = own.server.sql(&format!(
        "SELECT msg_id, message, headers->'k', headers->>'dispatcher-dead-letter-reason' \
         FROM pgmq.\"q_{name}\" WHERE msg_id = {id}"
    ));
    assert_eq!(row, format!("{id}|7|[1]|why"));
}

#[tokio::test]
async fn body_that_can_never_be_held_is_not_loaded() {
    let own = OwnQueue::open().await;
    let budget = Budget::new(0);
    let largest = usize::try_from(budget.capacity()).expect("a size");
    let body = "x".repeat(largest + 1);
    own.queue().send_all(&[plain(&body), plain("short")]).await;
    let connections = Server::new(Some(&own.server.url()), 2).expect("an address");
    let options = QueueOptions {
        budget: Some(budget),
        ..QueueOptions::default()
    };
    let bounded = PostgresQueue::open(&connections, &own.name, options).await;
    let bounded: &dyn Queue = &bounded.expect("it is there");
    let messages = bounded.take(2, LONG).await;
    assert_eq!(messages[1].body, "short");
    assert!(
        matches!(messages[0].unreadable, Some(ContentError::TooLarge { .. })),
        "{:?}",
        messages[0].unreadable
    );
}

#[tokio::test]
async fn done_messages_move_to_the_archive_on_request() {
    let own = OwnQueue::open().await;
    let connections = Server::new(Some(&own.server.url()), 2).expect("an address");
    let options = QueueOptions {
        archive: true,
        ..QueueOptions::default()
    };
    let kept = PostgresQueue::open(&connections, &own.name, options).await;
    let kept: &dyn Queue = &kept.expect("it is there");
    kept.send_all(&[plain("done")]).await;
    let message = kept.next(LONG).await;
    kept.settle_one(&message, Outcome::Delete).await;
    assert_eq!(own.sql("SELECT count(*) FROM TABLE"), "0");
    let archived = format!("SELECT message, read_ct FROM pgmq.a_{}", own.name);
    assert_eq!(own.server.sql(&archived), "\"done\"|1");
}

#[tokio::test]
async fn scheduled_job_is_claimed_by_one_process_at_a_time() {
    let own = OwnQueue::open().await;
    let open = || {
        let server = Server::new(Some(&own.server.url()), 2).expect("an address");
        PostgresSchedule::on(&server)
    };
    let (one, other) = (open(), open());
    let message = OutgoingMessage {
        group: Some("g".to_owned()),
        trace_header: Some("Root=1".to_owned()),
        ..plain("later")
    };
    let job = schedule::job(&own.name, Timestamp(1_000), message, None);
    assert_eq!(one.add(&job).await, Ok(true));
    assert_eq!(other.add(&job).await, Ok(false), "it is there");
    let due = async |until: u64| {
        let page = other.due(Timestamp(until), None).await.expect("a page");
        let mut own_jobs = page.jobs.into_iter().filter(|one| one.id == job.id);
        own_jobs.next()
    };
    assert_eq!(due(999).await, None);
    let read = due(1_000).await.expect("it is due");
    assert_eq!(
        (&*read.message.body, read.message.group.as_deref()),
        ("later", Some("g"))
    );
    assert_eq!(read.message.attributes.len(), 1, "the trace header");
    let claim = |token: &str, until| Claim {
        token: token.to_owned(),
        until: Timestamp(until),
    };
    let jobs = [read.clone()];
    let mine = one
        .claim(&jobs, &claim("mine", 2_000), Timestamp(1_000))
        .await;
    assert_eq!(mine, [Ok(true)]);
    let theirs = claim("theirs", 3_000);
    let theirs = other.claim(&jobs, &theirs, Timestamp(1_500)).await;
    assert_eq!(theirs, [Ok(false)]);
    let cancelled = other.cancel(&job.id, Timestamp(1_500)).await;
    assert_eq!(cancelled, Ok(JobCancellation::BeingSent));
    let late = claim("late", 4_000);
    let late = other.claim(&jobs, &late, Timestamp(2_500)).await;
    assert_eq!(late, [Ok(true)], "the first claim has ended");
    let end = |token: &str, next| JobOutcome {
        job: read.clone(),
        token: token.to_owned(),
        next,
    };
    assert_eq!(one.end(&[end("mine", None)]).await, [Ok(())]);
    assert!(due(1_000).await.is_some(), "it is no longer its job");
    let again = Some(Timestamp(5_000));
    assert_eq!(other.end(&[end("late", again)]).await, [Ok(())]);
    assert_eq!(due(4_999).await, None);
    assert_eq!(due(5_000).await.and_then(|one| one.claim), None);
    let cancelled = one.cancel(&job.id, Timestamp(5_000)).await;
    assert_eq!(cancelled, Ok(JobCancellation::Yes));
    let unknown = one.cancel(&job.id, Timestamp(5_000)).await;
    assert_eq!(unknown, Ok(JobCancellation::Unknown));
}

#[tokio::test]
async fn scheduled_job_that_cannot_be_read_is_set_aside() {
    let own = OwnQueue::open().await;
    let id = PostgresServer::fresh_name("job");
    own.server.sql(&format!(
        "INSERT INTO dispatcher.jobs (id, queue, due, body, attributes) \
         VALUES ('{id}', 'q', -7, 'x', 'no JSON')"
    ));
    let server = Server::new(Some(&own.server.url()), 2).expect("an address");
    let store = PostgresSchedule::on(&server);
    let page = store.due(Timestamp(0), None).await.expect("a page");
    let [found] = &page.unreadable[..] else {
        panic!("{page:?}")
    };
    assert_eq!((&found.id, found.queue.as_deref()), (&id, Some("q")));
    let aside = store.set_aside(found, &found.why, Timestamp(0)).await;
    assert_eq!(aside, Ok(true));
    let again = store.set_aside(found, &found.why, Timestamp(0)).await;
    assert_eq!(again, Ok(false));
    let kept = format!("SELECT job->>'body' FROM dispatcher.dead_jobs WHERE id = '{id}'");
    assert_eq!(own.server.sql(&kept), "x");
}
