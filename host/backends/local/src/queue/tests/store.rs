//! Tests of a whole store: its thread, its file, and two of them on one folder.

use crate::queue::work::Durability;
use crate::queue::{LocalQueue, LocalStore};
use dispatcher_core::message::{Attribute, Outcome, OutgoingMessage};
use dispatcher_core::queue::{Ask, ErrorKind, ItemError, Queue};
use rusqlite::Connection;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);

fn text(body: &str) -> OutgoingMessage {
    OutgoingMessage {
        body: body.into(),
        ..OutgoingMessage::default()
    }
}

fn ask(max: usize, wait: Duration) -> Ask {
    Ask {
        max,
        visibility: 30 * SECOND,
        wait,
        newest_first: false,
        ..Ask::PLAIN
    }
}

fn open(folder: &tempfile::TempDir) -> LocalQueue {
    let store = LocalStore::open(folder.path()).unwrap();
    store.queue("q", None).unwrap()
}

async fn bodies(queue: &LocalQueue, wait: Duration) -> Vec<String> {
    let received = queue
        .receive(ask(10, wait), &CancellationToken::new())
        .await
        .unwrap();
    received.messages.into_iter().map(|m| m.body).collect()
}

#[tokio::test]
async fn queues_made_together_are_those_that_opening_would_make() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    let kept = store.queue("b", None).unwrap();
    kept.send(&[text("kept")]).await.remove(0).unwrap();
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    store.make(names.clone()).await.unwrap();
    assert_eq!(store.names().unwrap(), names);
    store.make(names.clone()).await.unwrap();
    let made = store.queue("a", None).unwrap();
    made.send(&[text("new")]).await.remove(0).unwrap();
    assert_eq!(bodies(&made, Duration::ZERO).await, ["new"]);
    assert_eq!(bodies(&kept, Duration::ZERO).await, ["kept"]);
}

#[tokio::test]
async fn sent_messages_survive_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder);
    let ids = queue.send(&[text("a"), text("b")]).await;
    drop(queue);
    let queue = open(&folder);
    let received = queue
        .receive(ask(2, Duration::ZERO), &CancellationToken::new())
        .await
        .unwrap();
    assert!(!received.drained);
    for (message, id) in received.messages.iter().zip(ids) {
        assert_eq!(Ok(message.id.clone()), id);
        assert_eq!((&*message.queue, &*message.source), ("local:q", "local:q"));
    }
    let settled: Vec<_> = received
        .messages
        .into_iter()
        .map(|message| (message, Outcome::Delete))
        .collect();
    assert_eq!(queue.settle(&settled).await, [Ok(()), Ok(())]);
    let nothing = queue
        .receive(ask(1, Duration::ZERO), &CancellationToken::new())
        .await
        .unwrap();
    assert!(nothing.drained && nothing.messages.is_empty());
}

#[tokio::test]
async fn receiver_is_woken_by_a_send_through_another_store() {
    let folder = tempfile::tempdir().unwrap();
    let (near, far) = (open(&folder), open(&folder));
    for body in ["one", "two"] {
        let outgoing = [text(body)];
        let (got, sent) = tokio::join!(bodies(&near, 20 * SECOND), far.send(&outgoing));
        assert_eq!((got, sent.len()), (vec![body.to_owned()], 1));
    }
}

/// A sender that was killed before it notified the others, which a connection that never notifies stands for.
#[tokio::test]
async fn receiver_finds_a_message_without_a_notification() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder);
    queue.send(&[text("x")]).await[0].clone().unwrap();
    assert_eq!(bodies(&queue, Duration::ZERO).await, ["x"]);
    let silent = Connection::open(folder.path().join("local.db")).unwrap();
    let (got, changed) = tokio::join!(bodies(&queue, 20 * SECOND), async {
        silent.execute("UPDATE entries SET visible_at = 0", [])
    });
    assert_eq!((got, changed), (vec!["x".to_owned()], Ok(1)));
}

#[tokio::test]
async fn receiver_wakes_when_a_delayed_message_becomes_due() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder);
    let delayed = OutgoingMessage {
        delay: Duration::from_millis(20),
        ..text("soon")
    };
    queue.send(&[delayed]).await[0].clone().unwrap();
    assert_eq!(bodies(&queue, 20 * SECOND).await, ["soon"]);
}

#[tokio::test]
async fn settling_wakes_receivers_of_the_group_the_release_and_the_dead_letter() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    let queue = store.queue("q", None).unwrap();
    let dead = store.queue("q.dead", None).unwrap();
    assert!(queue.identity().dead_letters && !dead.identity().dead_letters);
    let grouped = |body| OutgoingMessage {
        group: Some("g".into()),
        ..text(body)
    };
    queue.send(&[grouped("1"), grouped("2")]).await;
    let patience = CancellationToken::new();
    let take = || queue.receive(ask(10, 20 * SECOND), &patience);
    let first = take().await.unwrap().messages;
    let done = [(first[0].clone(), Outcome::Delete)];
    let (second, _) = tokio::join!(take(), queue.settle(&done));
    let second = second.unwrap().messages.remove(0);
    assert_eq!(second.body, "2");
    let again = [(second, Outcome::Release(Duration::ZERO))];
    let (second, _) = tokio::join!(take(), queue.settle(&again));
    let bad = [(
        second.unwrap().messages.remove(0),
        Outcome::DeadLetter("no".into()),
    )];
    let (letter, _) = tokio::join!(bodies(&dead, 20 * SECOND), queue.settle(&bad));
    assert_eq!(letter, ["2"]);
    assert_eq!(store.names().unwrap(), ["q", "q.dead"]);
}

#[tokio::test]
async fn hurried_receive_returns_early_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder);
    let hurry = CancellationToken::new();
    let waiting = queue.receive(ask(1, 20 * SECOND), &hurry);
    hurry.cancel();
    assert!(waiting.await.unwrap().messages.is_empty());
    queue.send(&[text("x")]).await[0].clone().unwrap();
    assert_eq!(queue.depth().await.unwrap().in_flight, 0);
    let at_hand = queue.receive(ask(1, 20 * SECOND), &hurry).await.unwrap();
    assert_eq!(at_hand.messages[0].receive_count, 1);
}

#[tokio::test]
async fn dropped_receive_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder);
    let patience = CancellationToken::new();
    {
        let mut waiting = std::pin::pin!(queue.receive(ask(1, 20 * SECOND), &patience));
        let polled = poll_once(waiting.as_mut()).await;
        assert!(polled.is_none());
    }
    queue.send(&[text("x")]).await[0].clone().unwrap();
    assert_eq!(bodies(&queue, Duration::ZERO).await, ["x"]);
}

async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn writer_thread_ends_with_the_last_handle() {
    let folder = tempfile::tempdir().unwrap();
    let (store, thread) = LocalStore::start(folder.path()).unwrap();
    let queue = store.queue("q", None).unwrap();
    drop(store);
    // Waiting has begun to watch the notifier, whose watcher must not keep the thread either.
    assert!(bodies(&queue, Duration::from_millis(1)).await.is_empty());
    drop(queue);
    thread.join().unwrap();
    assert!(!folder.path().join("local.db-wal").exists(), "closed");
}

#[tokio::test]
async fn full_disk_is_a_transient_error() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder);
    let limit = |pages: i64| {
        queue.handle.run_blocking(Durability::Look, move |turn| {
            turn.connection
                .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
        })
    };
    limit(1).unwrap();
    let big = text(&"x".repeat(100_000));
    let (first, second) = (vec![big.clone(), big], [text("small")]);
    let (answers, _) = tokio::join!(queue.send(&first), queue.send(&second));
    for answer in answers {
        let Err(ItemError::Transient(why)) = answer else {
            panic!("{answer:?}");
        };
        assert!(why.contains("full"), "{why}");
        assert!(why.contains(folder.path().to_str().unwrap()), "{why}");
    }
    limit(1_000_000).unwrap();
    assert!(queue.send(&first).await.iter().all(Result::is_ok));
    assert!(queue.depth().await.unwrap().waiting >= 2);
}

#[tokio::test]
async fn failing_call_fails_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder);
    let broken = queue.handle.run(Durability::Full, |turn| {
        turn.connection
            .execute("INSERT INTO queues (name) VALUES ('half')", [])?;
        turn.connection
            .execute("INSERT INTO nowhere VALUES (1)", [])
    });
    let outgoing = [text("x")];
    let (sent, broken, after) = tokio::join!(queue.send(&outgoing), broken, queue.send(&outgoing));
    assert_eq!(broken.unwrap_err().kind, ErrorKind::Invalid);
    assert!(sent[0].is_ok() && after[0].is_ok());
    assert_eq!(bodies(&queue, Duration::ZERO).await, ["x", "x"]);
    let store = LocalStore::open(folder.path()).unwrap();
    assert_eq!(store.names().unwrap(), ["q"], "nothing of it was kept");
}

#[tokio::test]
async fn corrupted_file_is_an_error_and_not_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder);
    let other = Connection::open(folder.path().join("local.db")).unwrap();
    other.execute_batch("DROP TABLE payloads").unwrap();
    let answer = queue.send(&[text("x")]).await.remove(0);
    assert!(matches!(answer, Err(ItemError::Refused(_))), "{answer:?}");
    assert_eq!(queue.depth().await.unwrap().waiting, 0, "rolled back");
}

#[test]
fn open_error_names_folder_and_cause() {
    let error_of = |folder: &std::path::Path| {
        let error = LocalStore::open(folder).map(drop).unwrap_err();
        assert!(error.message.contains(folder.to_str().unwrap()), "{error}");
        error.message
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    error_of(&file.join("inside"));

    let not = tempfile::tempdir().unwrap();
    std::fs::write(
        not.path().join("local.db"),
        "plain text, not SQLite".repeat(100),
    )
    .unwrap();
    assert!(error_of(not.path()).contains("not a database"));

    let newer = tempfile::tempdir().unwrap();
    drop(LocalStore::open(newer.path()).unwrap());
    let raw = Connection::open(newer.path().join("local.db")).unwrap();
    raw.pragma_update(None, "user_version", 9).unwrap();
    assert!(error_of(newer.path()).contains("format 9; this one reads up to 4"));

    let foreign = tempfile::tempdir().unwrap();
    let raw = Connection::open(foreign.path().join("local.db")).unwrap();
    raw.execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(error_of(foreign.path()).contains("another program"));
}

#[tokio::test]
async fn calls_outside_the_contract_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path()).unwrap();
    let own = store.queue("q", Some("q")).map(drop).unwrap_err();
    assert_eq!(own.kind, ErrorKind::Invalid);
    let queue = store.queue("q", Some("dead")).unwrap();
    let long = Ask {
        visibility: 43_201 * SECOND,
        ..ask(1, Duration::ZERO)
    };
    assert_eq!(
        queue
            .receive(long, &CancellationToken::new())
            .await
            .unwrap_err()
            .kind,
        ErrorKind::Invalid
    );
    let outgoing = OutgoingMessage {
        attributes: vec![Attribute::text("a", "b")],
        ..text("x")
    };
    queue.send(&[outgoing]).await[0].clone().unwrap();
    let taken = queue
        .receive(ask(1, Duration::ZERO), &CancellationToken::new())
        .await
        .unwrap();
    let message = taken.messages[0].clone();
    let dead_lettered = [(message, Outcome::DeadLetter("r".into()))];
    assert_eq!(queue.settle(&dead_lettered).await, [Ok(())]);
    assert_eq!(queue.peek(5).await.unwrap(), []);
    let dead_letter_queues = store.queue("dead", None).unwrap();
    assert_eq!(
        dead_letter_queues.peek(5).await.unwrap()[0]
            .attributes
            .len(),
        3
    );
}

#[tokio::test]
async fn finding_03_unreadable_row_affects_only_its_own_message() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder);
    let good = OutgoingMessage {
        attributes: vec![Attribute::text("tenant", "7")],
        ..text("good")
    };
    let sent = [good, text("text"), text("blob"), text("json"), text("row")];
    queue.send(&sent).await;
    let beside = Connection::open(folder.path().join("local.db")).unwrap();
    for spoil in [
        "UPDATE payloads SET body = CAST(X'61ff' AS TEXT) WHERE body = 'text'",
        "UPDATE payloads SET body = X'61' WHERE body = 'blob'",
        "UPDATE payloads SET attributes = '{' WHERE body = 'json'",
        "DELETE FROM payloads WHERE body = 'row'",
    ] {
        assert_eq!(beside.execute(spoil, []).unwrap(), 1, "{spoil}");
    }
    let received = queue
        .receive(ask(10, Duration::ZERO), &CancellationToken::new())
        .await
        .unwrap();
    let read = |message: &dispatcher_core::message::Message| {
        let error = message.unreadable.as_ref();
        error.map(ToString::to_string).unwrap_or_default()
    };
    let whys: Vec<String> = received.messages.iter().map(read).collect();
    let [first, rest @ ..] = &whys[..] else {
        panic!("five messages");
    };
    assert_eq!(first, "");
    for (why, says) in rest.iter().zip([
        "its body cannot be read",
        "its body cannot be read",
        "its attributes cannot be read",
        "no body in the file",
    ]) {
        assert!(why.contains(says), "{why}");
    }
    let ends: Vec<_> = received
        .messages
        .into_iter()
        .skip(1)
        .map(|message| (message, Outcome::DeadLetter("why".into())))
        .collect();
    assert_eq!(queue.settle(&ends).await, [const { Ok(()) }; 4]);
    let store = LocalStore::open(folder.path()).unwrap();
    let dead = store.queue("q.dead", None).unwrap().peek(10).await.unwrap();
    let bodies: Vec<&str> = dead.iter().map(|letter| letter.body.as_str()).collect();
    assert_eq!(bodies, ["", "", "json", ""]);
    // A dead letter's body stays where it is, as it is.
    let unreadable = dead.iter().map(|letter| letter.unreadable.is_some());
    assert_eq!(unreadable.collect::<Vec<_>>(), [true, true, false, true]);
}

/// What a kill would leave of an open store, in its own folder.
fn crashed(folder: &tempfile::TempDir) -> tempfile::TempDir {
    let image = tempfile::tempdir().unwrap();
    for name in ["local.db", "local.db-wal", "local.db-acknowledged"] {
        std::fs::copy(folder.path().join(name), image.path().join(name)).unwrap();
    }
    image
}

/// An open store with 500 messages, which are in the log alone as long as the reader is there.
async fn with_500() -> (tempfile::TempDir, LocalQueue, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder);
    let reader = reader(&folder);
    for _ in 0..500 {
        queue.send(&[text("x")]).await[0].clone().unwrap();
    }
    (folder, queue, reader)
}

fn reader(folder: &tempfile::TempDir) -> Connection {
    let reader = Connection::open(folder.path().join("local.db")).unwrap();
    let begin = "BEGIN; SELECT count(*) FROM entries";
    reader.execute_batch(begin).unwrap();
    reader
}

/// What somebody does to a file.
type Harm = fn(&std::path::Path);

#[tokio::test]
async fn finding_07_store_that_lost_acknowledged_messages_is_refused() {
    let (folder, _queue, _reader) = with_500().await;
    let ways: [(&str, Harm, &str); 7] = [
        ("local.db-wal", overwrite_all, "has been overwritten"),
        ("local.db-wal", overwrite_a_page, "entries were lost"),
        ("local.db-wal", |path| cut(path, 4), "entries were lost"),
        ("local.db-wal", remove, "lost"),
        ("local.db", |path| cut(path, 0), "it is empty or missing"),
        ("local.db", remove, "it is empty or missing"),
        (
            "local.db",
            remove_with_log,
            "and entry 500 was acknowledged",
        ),
    ];
    for (file, harm, wanted) in ways {
        let image = crashed(&folder);
        harm(&image.path().join(file));
        let log = std::fs::read(image.path().join("local.db-wal")).ok();
        let error = LocalStore::open(image.path()).map(drop).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert!(error.message.contains(wanted), "{file}: {error}");
        // And the refusal loses nothing more.
        let left = std::fs::read(image.path().join("local.db-wal")).ok();
        assert_eq!(left.filter(|log| !log.is_empty()), log, "{file}");
    }
}

fn overwrite_all(path: &std::path::Path) {
    let length = std::fs::metadata(path).unwrap().len();
    std::fs::write(path, vec![0x5a; usize::try_from(length).unwrap()]).unwrap();
}

/// Past the header, in the middle: SQLite reads no further than the page before.
fn overwrite_a_page(path: &std::path::Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0x5a);
    std::fs::write(path, bytes).unwrap();
}

/// To one part in so many.
fn cut(path: &std::path::Path, parts: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length.checked_div(parts).unwrap_or(0))
        .unwrap();
}

fn remove(path: &std::path::Path) {
    std::fs::remove_file(path).unwrap();
}

fn remove_with_log(path: &std::path::Path) {
    remove(path);
    remove(&path.with_file_name("local.db-wal"));
}

/// What a crash leaves by itself: pages of a commit that never ended, or half a page.
#[tokio::test]
async fn finding_07_log_torn_by_a_crash_opens_with_all_acknowledged_messages() {
    let (folder, _queue, _reader) = with_500().await;
    for more in [1, 24, 4_120, 10_000] {
        let image = crashed(&folder);
        let path = image.path().join("local.db-wal");
        let mut bytes = std::fs::read(&path).unwrap();
        let torn: Vec<u8> = bytes.iter().skip(32).copied().take(more).collect();
        bytes.extend(torn);
        std::fs::write(&path, bytes).unwrap();
        let queue = open(&image);
        assert_eq!(queue.depth().await.unwrap().waiting, 500);
    }
    // A header that was not written to its end, beside a database that has everything.
    let image = crashed(&folder);
    let (store, thread) = LocalStore::start(image.path()).unwrap();
    drop(store);
    thread.join().unwrap();
    assert!(!image.path().join("local.db-wal").exists(), "closed");
    std::fs::write(image.path().join("local.db-wal"), [0; 32]).unwrap();
    assert_eq!(open(&image).depth().await.unwrap().waiting, 500);
}

#[tokio::test]
async fn finding_07_log_truncated_in_use_fails_the_next_send() {
    for parts in [0, 2] {
        let (folder, queue, _reader) = with_500().await;
        cut(&folder.path().join("local.db-wal"), parts);
        let answer = queue.send(&[text("z")]).await.remove(0);
        let Err(ItemError::Refused(why)) = answer else {
            panic!("{answer:?}");
        };
        assert!(
            why.contains("local.db-wal") && why.contains("truncated"),
            "{why}"
        );
        // For good, and those who look are told as well.
        assert!(
            queue
                .depth()
                .await
                .unwrap_err()
                .message
                .contains("truncated")
        );
        let patience = CancellationToken::new();
        let waiting = queue.receive(ask(1, 20 * SECOND), &patience);
        assert!(waiting.await.unwrap_err().message.contains("truncated"));
    }
}

#[test]
fn finding_20_log_is_truncated_when_nobody_reads_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("local.db-wal");
    let length = || std::fs::metadata(&log).unwrap().len();
    let mut database = crate::queue::schema::open(folder.path()).unwrap().1;
    let reader = reader(&folder);
    let add = "INSERT INTO queues (name) VALUES ('q')";
    database.execute(add, []).unwrap();
    assert!(!database.tidy() && length() > 0);
    reader.execute_batch("COMMIT").unwrap();
    assert!(database.tidy());
    assert_eq!(length(), 0);
    let queues = "SELECT count(*) FROM queues";
    let queues: i64 = reader.query_row(queues, [], |row| row.get(0)).unwrap();
    assert_eq!(queues, 1);
}
