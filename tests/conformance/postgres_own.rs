//! What only PostgreSQL has: transactions of producers that commit late, a fail-over that lost
//! writes, and tables that other programs write to.

use crate::backend::{Backend, Handy, LONG, bodies, plain};
use dispatcher_core::memory::Budget;
use dispatcher_core::message::{AttributeValue, ContentError, Outcome};
use dispatcher_core::queue::{ItemError, Queue};
use dispatcher_postgres::queue::{PostgresQueue, QueueOptions};
use dispatcher_postgres::server::Server;
use dispatcher_tests::postgres::{PostgresServer, Session};
use std::time::Duration;

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
    let sent = ["one", "nul\0", r#"{"a": 1e999999}"#, "two"].map(plain);
    let answers = own.queue.send(&sent).await;
    let [
        Ok(_),
        Err(ItemError::Refused(nul)),
        Err(ItemError::Refused(number)),
        Ok(_),
    ] = &answers[..]
    else {
        panic!("{answers:?}")
    };
    assert!(nul.contains("\\u0000"), "{nul}");
    assert!(number.contains("numeric"), "{number}");
    let received = own.queue().take(2, LONG).await;
    let found: Vec<&str> = received.iter().map(|one| &*one.body).collect();
    assert_eq!(found, ["one", "two"]);
}

#[tokio::test]
async fn dead_letter_is_found_by_its_new_id_and_keeps_its_headers() {
    let own = OwnQueue::open().await;
    own.sql("INSERT INTO TABLE (vt, message, headers) VALUES (now(), '7', '{\"k\": [1]}')");
    let message = own.queue().next(LONG).await;
    let dead = Outcome::DeadLetter("why".to_owned());
    own.queue().settle_one(&message, dead).await;
    let id = own.queue.dead_letter_id(&message.id).expect("it is known");
    let name = format!("{}.dead", own.name);
    let row = own.server.sql(&format!(
        "SELECT msg_id, message, headers->'k', headers->>'dispatcher-dead-letter-reason' \
         FROM pgmq.\"q_{name}\""
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
