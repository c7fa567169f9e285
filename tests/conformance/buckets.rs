//! What the port of keys and values promises, asked of each of its stores.

use dispatcher_core::error_kind::ErrorKind;
use dispatcher_core::keyvalue::{Bucket, CALL, KEYS, LONGEST_KEY, LONGEST_VALUE};
use dispatcher_local::keyvalue::Local;
use dispatcher_postgres::bucket::PostgresBucket;
use dispatcher_postgres::server::Server;
use dispatcher_redis::keyvalue::Redis;
use dispatcher_tests::redis::RedisServer;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A bucket and another of the same store, each twice, as two processes have them.
struct BucketPair {
    mine: [Arc<dyn Bucket>; 2],
    other: Arc<dyn Bucket>,
    _folder: Option<tempfile::TempDir>,
}

impl BucketPair {
    fn local() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Local::open(folder.path()).expect("opened");
        Self {
            mine: [
                Arc::new(open().bucket("mine")),
                Arc::new(open().bucket("mine")),
            ],
            other: Arc::new(open().bucket("other")),
            _folder: Some(folder),
        }
    }

    fn redis() -> Self {
        Self::on(RedisServer::shared())
    }

    fn cluster() -> Self {
        Self::on(RedisServer::cluster())
    }

    async fn postgres() -> Self {
        let server = crate::backend::postgres_server().await;
        let open = || Server::new(Some(&server.url()), 2).expect("an address");
        let name = RedisServer::fresh_name("mine");
        let other = RedisServer::fresh_name("other");
        Self {
            mine: [
                Arc::new(PostgresBucket::on(&open(), &name)),
                Arc::new(PostgresBucket::on(&open(), &name)),
            ],
            other: Arc::new(PostgresBucket::on(&open(), &other)),
            _folder: None,
        }
    }

    fn on(server: &RedisServer) -> Self {
        let open = || Redis::new(&server.url(), "dispatcher").expect("an address");
        let name = RedisServer::fresh_name("mine");
        Self {
            mine: [
                Arc::new(open().bucket(&name)),
                Arc::new(open().bucket(&name)),
            ],
            other: Arc::new(open().bucket(&RedisServer::fresh_name("other"))),
            _folder: None,
        }
    }
}

fn pair(key: &str, value: &[u8]) -> (String, Vec<u8>) {
    (key.to_owned(), value.to_vec())
}

async fn value(bucket: &dyn Bucket, key: &str) -> Option<Vec<u8>> {
    let mut values = bucket.get(&[key.to_owned()]).await.expect("read");
    assert_eq!(values.len(), 1);
    values.remove(0)
}

async fn keys(bucket: &dyn Bucket) -> (usize, BTreeSet<String>) {
    let (mut pages, mut all, mut from) = (0, BTreeSet::new(), None);
    loop {
        let page = bucket.keys(from).await.expect("a page");
        pages += 1;
        all.extend(page.keys);
        from = page.next;
        if from.is_none() {
            return (pages, all);
        }
    }
}

async fn set_values_are_visible_to_all_and_only_in_their_bucket(store: &BucketPair) {
    let [one, two] = &store.mine;
    let bytes: Vec<u8> = (0..=255).collect();
    one.set(&[pair("", b"never"), pair("a", &bytes), pair("ключ\n\0", b"")])
        .await
        .expect("set");
    assert_eq!(value(&**two, "a").await, Some(bytes));
    assert_eq!(value(&**two, "ключ\n\0").await, Some(Vec::new()));
    assert!(two.exists("a").await.expect("read") && !two.exists("b").await.expect("read"));
    assert_eq!(value(&*store.other, "a").await, None);
    assert_eq!(keys(&*store.other).await.1, BTreeSet::new());
    two.delete(&["a".into(), "nothing".into()])
        .await
        .expect("deleted");
    assert_eq!(value(&**one, "a").await, None);
    assert_eq!(keys(&**one).await.1.len(), 2);
    // Of two for one key the last counts; nothing at all is no error.
    one.set(&[pair("t", b"1"), pair("t", b"2")])
        .await
        .expect("set");
    assert_eq!(value(&**one, "t").await, Some(b"2".to_vec()));
    one.set(&[]).await.expect("set");
    one.delete(&[]).await.expect("deleted");
    assert_eq!(one.get(&[]).await.expect("read"), [None; 0]);
}

async fn largest_values_round_trip(store: &BucketPair) {
    let [one, two] = &store.mine;
    let key = |number: usize| format!("{number:0>LONGEST_KEY$}");
    let large = |number: usize| (key(number), vec![7; LONGEST_VALUE]);
    let most = CALL / LONGEST_VALUE;
    let pairs: Vec<_> = (0..most).map(large).collect();
    one.set(&pairs).await.expect("set");
    let keys: Vec<_> = (0..most).map(key).collect();
    let values = two.get(&keys).await.expect("read");
    assert!(values.iter().all(|value| {
        value
            .as_ref()
            .is_some_and(|value| value.len() == LONGEST_VALUE)
    }));
    one.set(&[large(most)]).await.expect("set");
    let more: Vec<_> = (0..=most).map(key).collect();
    let refused = two.get(&more).await.expect_err("too many bytes");
    assert_eq!(refused.kind, ErrorKind::Invalid);
}

async fn concurrent_increments_are_all_counted(store: &BucketPair) {
    let [one, two] = &store.mine;
    let count = |bucket: &Arc<dyn Bucket>| {
        let bucket = Arc::clone(bucket);
        tokio::spawn(async move {
            for _ in 0..100 {
                bucket.increment("n", 3).await.expect("counted");
            }
        })
    };
    for task in [count(one), count(two), count(one)] {
        task.await.expect("it ends");
    }
    assert_eq!(value(&**one, "n").await, Some(b"900".to_vec()));
    assert_eq!(one.increment("n", -901).await, Ok(-1));
    assert_eq!(one.increment("n", 1).await, Ok(0));
    assert!(keys(&**one).await.1.contains("n"));
    for (stands, by) in [
        ("", 1),
        ("x", 1),
        ("+5", 1),
        (" 5", 1),
        ("007", 1),
        ("-0", 1),
        ("1.5", 1),
        ("9223372036854775807", 1),
        ("-9223372036854775808", -1),
        ("9223372036854775808", 0),
    ] {
        one.set(&[pair("odd", stands.as_bytes())])
            .await
            .expect("set");
        let refused = one.increment("odd", by).await.expect_err(stands);
        assert_eq!(refused.kind, ErrorKind::Invalid, "{refused}");
        assert_eq!(value(&**one, "odd").await, Some(stands.as_bytes().to_vec()));
    }
    // Beyond what a number of floating point tells apart.
    one.set(&[pair("long", b"9007199254740993")])
        .await
        .expect("set");
    assert_eq!(one.increment("long", 1).await, Ok(9_007_199_254_740_994));
}

async fn compare_and_swap_succeeds_only_on_the_value_seen(store: &BucketPair) {
    let [one, two] = &store.mine;
    assert_eq!(one.swap("s", Some(b""), b"1").await, Ok(false));
    assert_eq!(one.swap("s", None, b"").await, Ok(true));
    assert_eq!(two.swap("s", None, b"1").await, Ok(false));
    assert_eq!(two.swap("s", Some(b""), b"1").await, Ok(true));
    assert_eq!(value(&**one, "s").await, Some(b"1".to_vec()));
    assert!(keys(&**one).await.1.contains("s"));
    // Many who each add one by it lose nothing.
    let add = |bucket: &Arc<dyn Bucket>| {
        let bucket = Arc::clone(bucket);
        tokio::spawn(async move {
            for _ in 0..20 {
                loop {
                    let stands = value(&*bucket, "s").await.expect("it is there");
                    let number: u32 = String::from_utf8_lossy(&stands).parse().expect("a number");
                    let next = (number + 1).to_string();
                    if bucket
                        .swap("s", Some(&stands), next.as_bytes())
                        .await
                        .expect("answered")
                    {
                        break;
                    }
                }
            }
        })
    };
    for task in [add(one), add(two), add(one)] {
        task.await.expect("it ends");
    }
    assert_eq!(value(&**one, "s").await, Some(b"61".to_vec()));
}

async fn keys_are_listed_in_pages(store: &BucketPair) {
    let [one, two] = &store.mine;
    assert_eq!(keys(&**one).await, (1, BTreeSet::new()));
    let all: Vec<String> = (0..3_000).map(|number| format!("key-{number}")).collect();
    for some in all.chunks(KEYS) {
        let pairs: Vec<_> = some.iter().map(|key| pair(key, b"")).collect();
        one.set(&pairs).await.expect("set");
    }
    let (pages, found) = keys(&**two).await;
    assert!(pages > 1, "{pages}");
    assert_eq!(found, all.into_iter().collect());
}

#[tokio::test]
async fn unavailable_store_is_reported() {
    let mut server = RedisServer::start(&[]);
    let bucket = Redis::new(&server.url(), "dispatcher")
        .expect("an address")
        .bucket("b");
    bucket.set(&[pair("a", b"1")]).await.expect("set");
    server.kill();
    let away = bucket.set(&[pair("a", b"2")]).await.expect_err("away");
    assert_eq!(away.kind, ErrorKind::Unreachable);
}

/// Every check as a test of every store.
macro_rules! stores {
    ($($name:ident: $store:expr),* $(,)?) => {
        $(stores! { one $name: $store, [
            set_values_are_visible_to_all_and_only_in_their_bucket,
            largest_values_round_trip,
            concurrent_increments_are_all_counted,
            compare_and_swap_succeeds_only_on_the_value_seen,
            keys_are_listed_in_pages,
        ] })*
    };
    (one $name:ident: $store:expr, [$($check:ident),* $(,)?]) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $check() {
                    super::$check(&$store).await;
                }
            )*
        }
    };
}

stores!(
    local: super::BucketPair::local(),
    redis: super::BucketPair::redis(),
    cluster: super::BucketPair::cluster(),
    postgres: super::BucketPair::postgres().await,
);
