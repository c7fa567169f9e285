//! The file with its threads: several handles, reopening, and what is told when it cannot be
//! written.

use crate::idempotency::writer::RecordsWriter;
use crate::idempotency::{LocalRecords, schema};
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::idempotency::Records;
use dispatcher_sqlite::Caller;
use std::path::Path;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3_600);

fn open(folder: &Path) -> LocalRecords {
    LocalRecords::open(folder).expect("the folder is ours")
}

#[tokio::test]
async fn records_are_visible_to_other_handles_and_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()), open(folder.path()));
    let until = clock::wall_clock_now() + LONG;
    one.remember("q", &["a", "b"], until).await.unwrap();
    two.remember("q", &["c"], until).await.unwrap();
    two.remember("q", &["old"], Timestamp(1)).await.unwrap();
    let ids = ["a", "x", "c", "old"];
    let wanted = [true, false, true, false];
    assert_eq!(one.known("q", &ids).await.unwrap(), wanted);
    assert_eq!(two.known("q", &ids).await.unwrap(), wanted);
    drop((one, two));
    let next = open(folder.path());
    assert_eq!(next.known("q", &ids).await.unwrap(), wanted);
    assert_eq!(next.known("r", &ids).await.unwrap(), [false; 4]);
}

#[tokio::test]
async fn writers_of_two_handles_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let until = clock::wall_clock_now() + LONG;
    let mut tasks = Vec::new();
    for handle in 0..2 {
        let records = std::sync::Arc::new(open(folder.path()));
        for task in 0..8 {
            let records = records.clone();
            tasks.push(dispatcher_core::tasks::spawn(async move {
                for call in 0..10 {
                    let id = format!("{handle}-{task}-{call}");
                    let ids = [id.as_str()];
                    records.remember("q", &ids, until).await.unwrap();
                    assert_eq!(records.known("q", &ids).await.unwrap(), [true]);
                }
            }));
        }
    }
    for task in tasks {
        task.finished().await;
    }
}

#[tokio::test]
async fn full_disk_fails_each_waiting_write_and_later_writes_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let [connection, reader] = schema::open(folder.path()).unwrap();
    connection.pragma_update(None, "max_page_count", 7).unwrap();
    let folder_of = folder.path().to_owned();
    let (begin, both_wait) = std::sync::mpsc::channel();
    let records = LocalRecords {
        folder: folder_of.clone(),
        writes: Caller::start("writes", move |calls| {
            both_wait.recv().unwrap();
            RecordsWriter::new(folder_of, connection, calls).run();
        })
        .unwrap(),
        lookups: Caller::one_by_one("lookups", |_| Ok(Vec::new())).unwrap(),
    };
    let until = clock::wall_clock_now() + LONG;
    let long = "x".repeat(100_000);
    let (long, short) = ([long.as_str()], ["a"]);
    let (long, short, ()) = tokio::join!(
        records.remember("q", &long, until),
        records.remember("q", &short, until),
        async { begin.send(()).unwrap() },
    );
    for answer in [long, short] {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("idempotency.db"), "{error}");
        assert!(error.contains("full"), "{error}");
    }
    drop(records);
    drop(reader);
    let records = open(folder.path());
    let until = clock::wall_clock_now() + LONG;
    records.remember("q", &["a"], until).await.unwrap();
    assert_eq!(records.known("q", &["a"]).await.unwrap(), [true]);
}

#[tokio::test]
async fn expired_records_are_deleted_by_later_writes() {
    let folder = tempfile::tempdir().unwrap();
    let records = open(folder.path());
    let old: Vec<String> = (0..3_000).map(|n| format!("old-{n}")).collect();
    let old: Vec<&str> = old.iter().map(String::as_str).collect();
    records.remember("q", &old, Timestamp(1)).await.unwrap();
    let until = clock::wall_clock_now() + LONG;
    let [connection, _] = schema::open(folder.path()).unwrap();
    let left = || {
        let sql = "SELECT count(*) FROM done WHERE until = 1";
        connection.query_row(sql, [], |row| row.get::<_, u32>(0))
    };
    let mut writes = 0;
    while left().unwrap() > 0 {
        let ids = [format!("new-{writes}")];
        let ids = [ids[0].as_str()];
        records.remember("q", &ids, until).await.unwrap();
        writes += 1;
        assert!(
            writes < 3_000,
            "every write takes two that have expired with it"
        );
    }
}

#[test]
fn foreign_database_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |wanted: &str| {
        let error = LocalRecords::open(folder.path()).map(drop).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("idempotency.db`: "), "{error}");
        assert!(error.contains(wanted), "{error}");
    };
    let file = schema::path(folder.path());
    std::fs::write(
        &file,
        "not a database, but long enough to be looked at".repeat(99),
    )
    .unwrap();
    refused("not a database");
    std::fs::remove_file(&file).unwrap();
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("CREATE TABLE theirs (x)").unwrap();
    refused("another program");
    drop(other);
    std::fs::remove_file(&file).unwrap();
    let [connection, _] = schema::open(folder.path()).unwrap();
    connection.pragma_update(None, "user_version", 3).unwrap();
    refused("format 3; this one reads up to 2");
}

#[tokio::test]
async fn finding_07_lost_records_are_detected_at_open() {
    let folder = tempfile::tempdir().unwrap();
    let until = clock::wall_clock_now() + LONG;
    let records = open(folder.path());
    records.remember("q", &["a"], until).await.unwrap();
    records.remember("q", &["b"], until).await.unwrap();
    drop(records);
    dispatcher_sqlite::wait_closed(LONG);
    let at = schema::path(folder.path());
    for suffix in ["", "-wal", "-shm"] {
        let mut name = at.clone().into_os_string();
        name.push(suffix);
        let _ = std::fs::remove_file(name);
    }
    let error = LocalRecords::open(folder.path()).map(drop).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("and entry 2 was acknowledged"), "{error}");
}
