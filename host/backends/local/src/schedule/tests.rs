//! The promises of the port, kept by the file, over two handles as two processes have them.

use super::*;
use dispatcher_core::clock;
use dispatcher_core::message::Attribute;
use dispatcher_core::schedule::samples::job;
use dispatcher_core::schedule::{decide, list};

fn periodic(id: &str, due: u64) -> ScheduledJob {
    let every = Periodic::new("0 9 * * *", "Europe/Berlin").expect("a pattern");
    let mut one = job(id, Timestamp(due));
    one.message.attributes = vec![Attribute::text("k", "v")];
    one.message.group = Some("g".into());
    ScheduledJob {
        every: Some(every),
        ..one
    }
}

#[tokio::test]
async fn jobs_round_trip_through_any_handle() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (File::of(folder.path()), File::of(folder.path()));
    assert_eq!(one.due(Timestamp(9), None).await, Ok(JobPage::default()));
    assert!(
        !schema::path(folder.path()).exists(),
        "a look makes no file"
    );
    assert_eq!(
        one.cancel("a", Timestamp(9)).await,
        Ok(JobCancellation::Unknown)
    );
    assert_eq!(one.add(&periodic("a", 5)).await, Ok(true));
    assert_eq!(two.add(&periodic("a", 6)).await, Ok(false));
    assert_eq!(two.add(&job("b", Timestamp(7))).await, Ok(true));
    let found = list(&two).await.unwrap();
    assert_eq!(found, [periodic("a", 5), job("b", Timestamp(7))]);
    let due = two.due(Timestamp(5), None).await.unwrap();
    assert_eq!(due.jobs.len(), 1);
}

#[tokio::test]
async fn claim_goes_to_one_of_two_until_it_expires() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (File::of(folder.path()), File::of(folder.path()));
    one.add(&periodic("a", 5)).await.unwrap();
    let jobs = list(&one).await.unwrap();
    let now = clock::wall_clock_now();
    let mine = decide::claim("one".into(), now);
    let theirs = decide::claim("two".into(), now);
    assert_eq!(one.claim(&jobs, &mine, now).await, [Ok(true)]);
    assert_eq!(two.claim(&jobs, &theirs, now).await, [Ok(false)]);
    assert_eq!(two.cancel("a", now).await, Ok(JobCancellation::BeingSent));
    let later = mine.until + Duration::from_millis(1);
    let theirs = decide::claim("two".into(), later);
    assert_eq!(two.claim(&jobs, &theirs, later).await, [Ok(true)]);
    // Who has lost it ends nothing.
    let ending = |token: &str, next| JobOutcome {
        job: jobs[0].clone(),
        token: token.into(),
        next,
    };
    assert_eq!(one.end(&[ending("one", None)]).await, [Ok(())]);
    assert_eq!(list(&one).await.unwrap().len(), 1);
    let next = Some(Timestamp(99));
    assert_eq!(two.end(&[ending("two", next)]).await, [Ok(())]);
    let left = list(&one).await.unwrap();
    assert_eq!((left[0].due, left[0].claim.clone()), (Timestamp(99), None));
    // The tick that was read is not the one that is there now.
    assert_eq!(one.claim(&jobs, &mine, now).await, [Ok(false)]);
    assert_eq!(one.cancel("a", now).await, Ok(JobCancellation::Yes));
}

#[tokio::test]
async fn many_jobs_are_read_in_pages() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::of(folder.path());
    for n in 0..PAGE + 20 {
        let due = Timestamp(u64::try_from(n / 3).unwrap());
        file.add(&job(&n.to_string(), due)).await.unwrap();
    }
    let mut ids: Vec<String> = list(&file)
        .await
        .unwrap()
        .into_iter()
        .map(|job| job.id)
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), PAGE + 20);
}

#[test]
fn foreign_database_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let other = Connection::open(schema::path(folder.path())).unwrap();
    other.execute_batch("CREATE TABLE theirs (x)").unwrap();
    let error = schema::open(folder.path()).map(drop).unwrap_err();
    assert!(error.message.contains("another program"), "{error}");
}

#[tokio::test]
async fn finding_03_unreadable_job_stops_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::of(folder.path());
    for (id, due) in [("a", 5), ("b", 6), ("c", 7)] {
        file.add(&job(id, Timestamp(due))).await.unwrap();
    }
    let beside = Connection::open(schema::path(folder.path())).unwrap();
    let spoil = "UPDATE jobs SET attributes = '{' WHERE id = 'b'";
    assert_eq!(beside.execute(spoil, []).unwrap(), 1);
    let due = file.due(Timestamp(9), None).await.unwrap();
    let ids: Vec<&str> = due.jobs.iter().map(|job| job.id.as_str()).collect();
    assert_eq!(ids, ["a", "c"]);
}

#[tokio::test]
async fn finding_03_unreadable_job_is_set_aside_once_with_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::of(folder.path());
    for id in ["a", "b"] {
        file.add(&job(id, Timestamp(5))).await.unwrap();
    }
    let beside = Connection::open(schema::path(folder.path())).unwrap();
    let spoil = "UPDATE jobs SET body = x'ff00' WHERE id = 'b'";
    assert_eq!(beside.execute(spoil, []).unwrap(), 1);
    let page = file.due(Timestamp(9), None).await.unwrap();
    let [bad] = &page.unreadable[..] else {
        panic!("{page:?}");
    };
    assert_eq!((&*bad.id, bad.queue.as_deref()), ("b", Some("q")));
    let now = Timestamp(100);
    // Not as it was read, then as it was.
    let changed = Unreadable {
        stamp: "4".into(),
        ..bad.clone()
    };
    assert_eq!(file.set_aside(&changed, "why", now).await, Ok(false));
    assert_eq!(file.set_aside(bad, "why", now).await, Ok(true));
    assert_eq!(file.set_aside(bad, "why", now).await, Ok(false));
    let page = file.due(Timestamp(9), None).await.unwrap();
    assert_eq!((page.jobs.len(), page.unreadable), (1, vec![]));
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let kept: (Vec<u8>, String, String) = beside
        .query_row(
            "SELECT body, reason, queue FROM dead WHERE id = 'b'",
            [],
            row,
        )
        .unwrap();
    assert_eq!(kept, (vec![0xff, 0], "why".to_owned(), "q".to_owned()));
}

/// Deletes a database and its log, as somebody may while no process has it open.
fn delete(folder: &Path) {
    let at = schema::path(folder);
    for suffix in ["", "-wal", "-shm"] {
        let mut name = at.clone().into_os_string();
        name.push(suffix);
        let _ = std::fs::remove_file(name);
    }
    assert!(!at.exists());
}

#[tokio::test]
async fn finding_07_schedule_that_lost_jobs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::of(folder.path());
    for id in ["a", "b", "c"] {
        assert_eq!(file.add(&periodic(id, 5)).await, Ok(true));
    }
    assert_eq!(
        file.cancel("a", Timestamp(1)).await,
        Ok(JobCancellation::Yes)
    );
    drop(file);
    // What was only opened again has lost nothing, though a job has gone since.
    let again = File::of(folder.path());
    assert_eq!(list(&again).await.unwrap().len(), 2);
    drop(again);
    delete(folder.path());
    let lost = File::of(folder.path());
    let refusals = [
        lost.due(Timestamp(9), None).await.map(drop),
        lost.add(&periodic("d", 5)).await.map(drop),
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        let wanted = "and entry 3 was acknowledged";
        assert!(error.message.contains(wanted), "{error}");
    }
}
