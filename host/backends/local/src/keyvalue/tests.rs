//! The file, judged against a map in memory; what every backend promises is tried in
//! `tests/conformance`, through a guest.

use super::steps::{self, BucketChange, BucketRead, Change, KeyRead};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn drive<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

fn pair(key: &str, value: &str) -> (String, Vec<u8>) {
    (key.to_owned(), value.as_bytes().to_vec())
}

fn all_keys(bucket: &LocalBucket) -> Vec<String> {
    let (mut keys, mut from) = (Vec::new(), None);
    loop {
        let page = drive(bucket.keys(from)).expect("a page");
        keys.extend(page.keys);
        from = page.next;
        if from.is_none() {
            keys.sort();
            return keys;
        }
    }
}

#[test]
fn written_values_are_visible_to_the_next_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Local::open(folder.path()).expect("opened");
    let bucket = store.bucket("b");
    drive(bucket.set(&[pair("a", "1"), pair("b", "2"), pair("a", "3")])).expect("set");
    drive(bucket.delete(&["b".into(), "c".into()])).expect("deleted");
    drop((store, bucket));
    let store = Local::open(folder.path()).expect("opened again");
    let keys = ["a".into(), "b".into()];
    let values = drive(store.bucket("b").get(&keys)).expect("read");
    assert_eq!(values, [Some(b"3".to_vec()), None]);
    let values = drive(store.bucket("other").get(&keys)).expect("read");
    assert_eq!(values, [None, None]);
    assert!(drive(store.bucket("b").exists("a")).expect("read"));
    assert!(!drive(store.bucket("b").exists("b")).expect("read"));
}

#[test]
fn keys_are_listed_in_pages_without_losing_any() {
    let folder = tempfile::tempdir().expect("a folder");
    let bucket = Local::open(folder.path()).expect("opened").bucket("b");
    let keys: Vec<String> = (0..2_345).map(|number| format!("{number:05}")).collect();
    for some in keys.chunks(100) {
        let pairs: Vec<_> = some.iter().map(|key| pair(key, "")).collect();
        drive(bucket.set(&pairs)).expect("set");
    }
    let first = drive(bucket.keys(None)).expect("a page");
    assert!(first.next.is_some() && first.keys.len() < keys.len());
    assert_eq!(all_keys(&bucket), keys);
    assert_eq!(drive(bucket.keys(Some(u64::MAX))), Ok(Page::default()));
}

#[test]
fn oversized_write_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let bucket = Local::open(folder.path()).expect("opened").bucket("b");
    let keys: Vec<String> = (0..9).map(|number| number.to_string()).collect();
    for key in &keys {
        drive(bucket.set(&[(key.clone(), vec![7; 1 << 20])])).expect("set");
    }
    assert_eq!(drive(bucket.get(&keys[..8])).expect("read").len(), 8);
    let refused = drive(bucket.get(&keys)).expect_err("refused");
    assert_eq!(refused.kind, ErrorKind::Invalid);
}

#[tokio::test]
async fn write_waits_while_queued_writes_fill_the_byte_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let bucket = Local::open(folder.path()).expect("opened").bucket("b");
    let all = u32::try_from(WAITING_BYTES).expect("they fit");
    let room = Arc::clone(&bucket.threads.room);
    let held = room.acquire_many(all).await.expect("room");
    let pairs = [pair("a", "1")];
    let mut set = bucket.set(&pairs);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(set.as_mut().poll(&mut context).is_pending());
    // The thread takes what it is handed in order, so this one would come after the first.
    let job = BucketWrite {
        write: BucketChange {
            bucket: "b".into(),
            change: Change::Set(vec![pair("b", "2")]),
        },
        _room: Arc::new(Semaphore::new(1))
            .acquire_owned()
            .await
            .expect("room"),
    };
    let written = bucket.threads.writes.ask(job).await;
    written.expect("answered").expect("written");
    let keys = ["a".to_owned(), "b".to_owned()];
    assert_eq!(bucket.get(&keys).await, Ok(vec![None, Some(b"2".to_vec())]));
    drop(held);
    set.await.expect("written");
    // What is written holds no room.
    drop(room.acquire_many(all).await.expect("room"));
}

#[test]
fn failed_increment_fails_no_other_call() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Local::open(folder.path()).expect("opened");
    let bucket = store.bucket("b");
    for (stands, by, sum) in [
        ("", 1, None),
        ("x", 1, None),
        ("-5", 6, Some(1)),
        ("5", -6, Some(-1)),
        ("-0", 1, None),
        ("-9223372036854775808", -1, None),
        ("+5", 1, None),
        ("007", 1, None),
        ("9223372036854775807", 1, None),
        ("9223372036854775806", 1, Some(i64::MAX)),
        ("41", 1, Some(42)),
        ("41", i64::MAX, None),
    ] {
        drive(bucket.set(&[pair("n", stands)])).expect("set");
        assert_eq!(drive(bucket.increment("n", by)).ok(), sum, "{stands} {by}");
    }
    assert_eq!(drive(bucket.increment("new", 5)), Ok(5));
    assert_eq!(drive(bucket.increment("new", 5)), Ok(10));
}

#[derive(Debug, Clone)]
enum BucketStep {
    Set(Vec<(u8, Vec<u8>)>),
    Delete(Vec<u8>),
    Increment(u8, i64),
    Swap(u8, Option<Vec<u8>>, Vec<u8>),
}

fn step() -> impl Strategy<Value = BucketStep> {
    let key = 0..4_u8;
    let value = || {
        prop_oneof![
            Just(b"41".to_vec()),
            Just(b"9223372036854775807".to_vec()),
            prop::collection::vec(any::<u8>(), 0..3),
        ]
    };
    prop_oneof![
        prop::collection::vec((key.clone(), value()), 0..3).prop_map(BucketStep::Set),
        prop::collection::vec(key.clone(), 0..3).prop_map(BucketStep::Delete),
        (key.clone(), prop_oneof![-9..9_i64, any::<i64>()])
            .prop_map(|(key, by)| BucketStep::Increment(key, by)),
        (key, prop::option::of(value()), value())
            .prop_map(|(key, stands, value)| BucketStep::Swap(key, stands, value)),
    ]
}

proptest! {
    #[test]
    fn store_matches_a_map_model(script in prop::collection::vec((0..2_u8, step()), 0..40)) {
        let connection = schema::in_memory();
        let mut model: BTreeMap<(u8, String), Vec<u8>> = BTreeMap::new();
        for (bucket, step) in script {
            let change = match &step {
                BucketStep::Set(pairs) => Change::Set(
                    pairs.iter().map(|(key, value)| (key.to_string(), value.clone())).collect(),
                ),
                BucketStep::Delete(keys) => Change::Delete(keys.iter().map(u8::to_string).collect()),
                BucketStep::Increment(key, by) => Change::Increment(key.to_string(), *by),
                BucketStep::Swap(key, stands, value) => Change::Swap {
                    key: key.to_string(),
                    stands: stands.clone(),
                    value: value.clone(),
                },
            };
            let write = BucketChange { bucket: bucket.to_string(), change: change.clone() };
            let answer = steps::write(&connection, &write).expect("SQLite");
            match change {
                Change::Set(pairs) => {
                    model.extend(pairs.into_iter().map(|(key, value)| ((bucket, key), value)));
                }
                Change::Delete(keys) => {
                    keys.into_iter().for_each(|key| drop(model.remove(&(bucket, key))));
                }
                Change::Swap { key, stands, value } => {
                    let is = model.get(&(bucket, key.clone())) == stands.as_ref();
                    prop_assert_eq!(answer.ok(), Some(i64::from(is)));
                    if is {
                        model.insert((bucket, key), value);
                    }
                }
                Change::Increment(key, by) => {
                    let stands = model.get(&(bucket, key.clone())).map(Vec::as_slice);
                    let sum = dispatcher_core::keyvalue::sum(stands, by);
                    prop_assert_eq!(answer.ok(), sum);
                    if let Some(sum) = sum {
                        model.insert((bucket, key), sum.to_string().into_bytes());
                    }
                }
            }
        }
        for bucket in 0..2_u8 {
            let look = |what| KeyRead { bucket: bucket.to_string(), what };
            let keys: Vec<String> = (0..4_u8).map(|key| key.to_string()).collect();
            let seen = steps::read(&connection, &look(BucketRead::Values(keys.clone()))).expect("read");
            let wanted: Vec<_> = keys.iter().map(|key| model.get(&(bucket, key.clone())).cloned()).collect();
            prop_assert_eq!(seen.values, wanted);
            let mut listed = steps::read(&connection, &look(BucketRead::Keys(None))).expect("read").page.keys;
            listed.sort();
            let wanted: Vec<_> = model.keys().filter(|(of, _)| *of == bucket).map(|(_, key)| key.clone()).collect();
            prop_assert_eq!(listed, wanted);
        }
    }
}
