//! The transaction and the thread that commits for many: what is written, acknowledged, rolled back,
//! and what a full disk, a lock and a lost file do.

use super::*;
use crate::{Schema, patience, unusable};
use std::path::Path;
use std::sync::mpsc::channel;

const SCHEMA: Schema = Schema {
    application: 0x7465_7374,
    version: 1,
    tables: &["CREATE TABLE rows (number INTEGER PRIMARY KEY AUTOINCREMENT, bytes BLOB);"],
    upgrades: &[],
    patience: patience::<20>,
    counter: Some("SELECT seq FROM sqlite_sequence WHERE name = 'rows'"),
    reports_locks: true,
};

fn open_as(schema: &Schema, folder: &Path) -> Database {
    let opened = schema.open::<1>(&folder.join("db"), &folder.join("lock"));
    let ([database], _) = opened.expect("the folder is ours");
    database
}

fn open(folder: &Path) -> Database {
    open_as(&SCHEMA, folder)
}

fn insert(connection: &Connection, bytes: usize) -> rusqlite::Result<()> {
    let sql = "INSERT INTO rows (bytes) VALUES (zeroblob(?1))";
    connection
        .execute(sql, [i64::try_from(bytes).unwrap_or(i64::MAX)])
        .map(drop)
}

fn count(connection: &Connection) -> i64 {
    let sql = "SELECT count(*) FROM rows";
    let count = connection.query_row(sql, [], |row| row.get(0));
    count.expect("a count")
}

fn acknowledged(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("db-acknowledged")).expect("the mark")
}

fn log_length(folder: &Path) -> u64 {
    let log = std::fs::metadata(folder.join("db-wal"));
    log.expect("the log").len()
}

#[test]
fn a_full_commit_is_acknowledged_and_a_normal_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut database = open(folder.path());
    let normal = database.transact(Synchronous::Normal, |file| insert(file, 1));
    assert!(normal.is_ok());
    assert_eq!(acknowledged(folder.path()), "");
    let full = database.transact(Synchronous::Full, |file| insert(file, 1));
    assert!(full.is_ok());
    assert_eq!(acknowledged(folder.path()), "00000000000000000002\n");
}

#[test]
fn a_step_that_fails_leaves_nothing_and_the_next_one_commits() {
    let folder = tempfile::tempdir().unwrap();
    let mut database = open(folder.path());
    let failed = database.transact(Synchronous::Full, |file| {
        insert(file, 1)?;
        file.execute_batch("no SQL")
    });
    assert!(matches!(failed, Err(CommitError::Within(_))), "{failed:?}");
    assert_eq!(count(&database), 0);
    assert_eq!(acknowledged(folder.path()), "");
    let next = database.transact(Synchronous::Full, |file| insert(file, 1));
    assert!(next.is_ok(), "{next:?}");
    assert_eq!(count(&database), 1);
}

#[test]
fn a_commit_to_a_file_that_was_replaced_meanwhile_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (file, away) = (folder.path().join("db"), folder.path().join("away"));
    let mut database = open(folder.path());
    let lost = database.transact(Synchronous::Full, |connection| {
        std::fs::rename(&file, &away).expect("renamed");
        insert(connection, 1)
    });
    assert!(matches!(lost, Err(CommitError::Lost(_))), "{lost:?}");
    assert_eq!(acknowledged(folder.path()), "");
    std::fs::rename(&away, &file).expect("renamed");
    let mut is_run = false;
    let later = database.transact(Synchronous::Full, |_| {
        is_run = true;
        Ok(())
    });
    assert!(matches!(later, Err(CommitError::Lost(_))) && !is_run);
}

#[test]
fn a_lock_of_another_process_ends_the_wait_and_counts_where_the_schema_says_so() {
    for reports_locks in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let schema = Schema {
            reports_locks,
            ..SCHEMA
        };
        let mut database = open_as(&schema, folder.path());
        let is_reported = || {
            let unusable = unusable();
            let mut paths = unusable.iter().map(|(path, _)| path);
            paths.any(|path| path.starts_with(folder.path()))
        };
        let other = open(folder.path());
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let locked = database.transact(Synchronous::Full, |file| insert(file, 1));
        assert!(matches!(locked, Err(CommitError::Begin(_))), "{locked:?}");
        assert_eq!(is_reported(), reports_locks);
        other.execute_batch("ROLLBACK").unwrap();
        let next = database.transact(Synchronous::Full, |file| insert(file, 1));
        assert!(next.is_ok(), "{next:?}");
        assert!(!is_reported());
    }
}

/// How often the step is run where the disk is full, with a log of so many bytes.
fn tries_on_a_full_disk(log: usize) -> u32 {
    let folder = tempfile::tempdir().unwrap();
    let mut database = open(folder.path());
    let written = database.transact(Synchronous::Full, |file| insert(file, log));
    written.expect("there is room");
    let pages: i64 = database
        .query_row("PRAGMA page_count", [], |row| row.get(0))
        .unwrap();
    database
        .pragma_update(None, "max_page_count", pages)
        .unwrap();
    let mut tries = 0;
    let full = database.transact(Synchronous::Full, |file| {
        tries += 1;
        insert(file, 1 << 20)
    });
    assert!(matches!(full, Err(CommitError::Within(_))), "{full:?}");
    assert_eq!(count(&database), 1);
    tries
}

#[test]
fn on_a_full_disk_a_long_log_is_emptied_and_all_is_tried_once_more() {
    assert_eq!(tries_on_a_full_disk(2 << 20), 2);
    assert_eq!(tries_on_a_full_disk(1), 1);
}

#[test]
fn what_waits_together_is_one_group_of_a_bounded_size() {
    let folder = tempfile::tempdir().unwrap();
    let (sender, jobs) = channel();
    let mut writer = GroupWriter::new(open(folder.path()), jobs, 4);
    for job in 0..6 {
        sender.send(job).unwrap();
    }
    assert_eq!(writer.gather(None), Some(vec![0, 1, 2, 3]));
    assert_eq!(writer.gather(None), Some(vec![4, 5]));
    assert_eq!(writer.gather(Some(Duration::ZERO)), Some(Vec::new()));
    drop(sender);
    assert_eq!(writer.gather(None), None);
}

#[test]
fn the_log_is_emptied_at_rest_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (sender, jobs) = channel::<()>();
    let mut writer = GroupWriter::new(open(folder.path()), jobs, 4);
    let write = |writer: &mut GroupWriter<()>| {
        let written = writer.transact(Synchronous::Full, |file| insert(file, 1));
        written.expect("written");
        assert!(log_length(folder.path()) > 0);
    };
    write(&mut writer);
    // Once the rest has passed the log is emptied before anything is waited for.
    std::thread::sleep(IDLE);
    assert_eq!(writer.gather(Some(Duration::ZERO)), Some(Vec::new()));
    assert_eq!(log_length(folder.path()), 0);
    write(&mut writer);
    drop(sender);
    assert_eq!(writer.gather(None), None);
    assert_eq!(log_length(folder.path()), 0);
}

#[tokio::test]
async fn calls_are_answered_by_their_thread_and_not_after_its_end() {
    let doubled = Caller::one_by_one("doubles", |number: &u32| number * 2).unwrap();
    let (one, two) = tokio::join!(doubled.ask(1), doubled.ask(2));
    assert_eq!((one, two), (Ok(2), Ok(4)));
    let ended = Caller::<u32, u32>::start("ended", drop).unwrap();
    assert_eq!(ended.ask(1).await, Err(CallFailure::Ended));
}

#[tokio::test]
async fn more_calls_than_may_wait_are_turned_away() {
    let (end, is_over) = channel::<()>();
    let hanging = Caller::<usize, ()>::start("hangs", move |calls| {
        let _ = is_over.recv();
        drop(calls);
    });
    let hanging = hanging.unwrap();
    let mut waiting: Vec<_> = (0..=WAITING)
        .map(|number| Box::pin(hanging.ask(number)))
        .collect();
    let mut turned_away = 0;
    for call in &mut waiting {
        let now = polled_once(call.as_mut()).await;
        turned_away += usize::from(now == Some(Err(CallFailure::TooMany)));
    }
    assert_eq!(turned_away, 1);
    drop(end);
}

/// What a future answers when it is polled once.
async fn polled_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
