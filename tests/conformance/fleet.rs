//! What the port of a fleet's store promises, asked of each store.

use dispatcher_core::clock;
use dispatcher_core::error_kind::ErrorKind;
use dispatcher_core::fleet::exchange::exchange;
use dispatcher_core::fleet::ledger::{LimitAccount, Request, StartClaim, TokenClaim};
use dispatcher_core::fleet::limit::LimitNumbers;
use dispatcher_core::fleet::{FleetStore, MOST_BYTES, MOST_RECORDS, RecordChange};
use dispatcher_dynamodb::fleet::DynamoFleet;
use dispatcher_local::fleet::LocalFleet;
use dispatcher_postgres::fleet::PostgresFleet;
use dispatcher_postgres::server::Server;
use dispatcher_redis::fleet::RedisFleet;
use dispatcher_tests::dynamodb::Tables;
use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::configuration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A store as two processes have it.
struct FleetPair {
    stores: [Arc<dyn FleetStore>; 2],
    _folder: Option<tempfile::TempDir>,
}

impl FleetPair {
    async fn local() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Arc::new(LocalFleet::open(folder.path(), "a").expect("opened"));
        Self {
            stores: [open(), open()],
            _folder: Some(folder),
        }
    }

    async fn redis() -> Self {
        Self::on(RedisServer::shared())
    }

    async fn cluster() -> Self {
        Self::on(RedisServer::cluster())
    }

    async fn dynamodb() -> Self {
        let server = MiniStack::shared();
        let table = RedisServer::fresh_name("fleet");
        Tables::at(&server.url()).create_fleet(&table).await;
        let config = configuration(&server.url());
        let open = || Arc::new(DynamoFleet::connect(&config, &table));
        Self {
            stores: [open(), open()],
            _folder: None,
        }
    }

    async fn postgres() -> Self {
        let server = crate::backend::postgres_server().await;
        let name = RedisServer::fresh_name("fleet");
        let open = || {
            let server = Server::new(Some(&server.url()), 2).expect("an address");
            Arc::new(PostgresFleet::on(&server, &name))
        };
        Self {
            stores: [open(), open()],
            _folder: None,
        }
    }

    fn on(server: &RedisServer) -> Self {
        let prefix = RedisServer::fresh_name("fleet");
        let open = || Arc::new(RedisFleet::new(&server.url(), &prefix, "a").expect("an address"));
        Self {
            stores: [open(), open()],
            _folder: None,
        }
    }
}

fn change(name: &str, stands: Option<&str>, text: &str, keep_for: Duration) -> RecordChange {
    RecordChange {
        name: name.to_owned(),
        stands: stands.map(str::to_owned),
        text: text.to_owned(),
        keep_for,
    }
}

async fn texts(store: &dyn FleetStore, names: &[&str]) -> Vec<Option<String>> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    store.read(&names).await.expect("read").records
}

async fn replace(store: &dyn FleetStore, changes: &[RecordChange]) -> bool {
    store.replace(changes).await.expect("replaced or not")
}

async fn record_changes_only_if_it_stands(pair: &FleetPair) {
    let [one, two] = &pair.stores;
    assert_eq!(texts(&**one, &["a", "b"]).await, [None, None]);
    assert!(replace(&**one, &[change("a", None, "1", MINUTE)]).await);
    assert_eq!(texts(&**two, &["b", "a"]).await, [None, Some("1".into())]);
    assert!(!replace(&**two, &[change("a", None, "2", MINUTE)]).await);
    assert!(!replace(&**two, &[change("a", Some(""), "2", MINUTE)]).await);
    assert!(!replace(&**two, &[change("b", Some("1"), "2", MINUTE)]).await);
    assert!(replace(&**two, &[change("a", Some("1"), "", MINUTE)]).await);
    assert!(!replace(&**one, &[change("a", None, "3", MINUTE)]).await);
    assert!(replace(&**one, &[change("a", Some(""), "3", MINUTE)]).await);
    assert_eq!(texts(&**two, &["a"]).await, [Some("3".into())]);
}

async fn several_records_change_together_or_not_at_all(pair: &FleetPair) {
    let [one, two] = &pair.stores;
    let name = |number: usize| format!("r{number}/ключ ☃");
    let new = |number: usize| change(&name(number), None, &"x".repeat(500), MINUTE);
    let most: Vec<_> = (0..MOST_RECORDS).map(new).collect();
    assert!(replace(&**one, &most).await);
    let mut again = vec![new(MOST_RECORDS), new(3)];
    assert!(!replace(&**two, &again).await);
    assert_eq!(texts(&**two, &[&name(MOST_RECORDS)]).await, [None]);
    again[1] = change(&name(3), Some(&"x".repeat(500)), "y", MINUTE);
    assert!(replace(&**two, &again).await);
    let names: Vec<String> = (0..MOST_RECORDS).map(name).collect();
    let read = one.read(&names).await.expect("read").records;
    assert_eq!(read.iter().flatten().count(), MOST_RECORDS);
    assert_eq!(read[3].as_deref(), Some("y"));
    let largest = "z".repeat(MOST_BYTES);
    assert!(replace(&**one, &[change("large", None, &largest, MINUTE)]).await);
    assert_eq!(texts(&**two, &["large"]).await, [Some(largest)]);
}

async fn ended_record_is_as_none(pair: &FleetPair) {
    let [one, two] = &pair.stores;
    let short = Duration::from_millis(1_200);
    assert!(replace(&**one, &[change("a", None, "1", short)]).await);
    let begun = one.read(&["a".into()]).await.expect("read");
    assert_eq!(begun.records, [Some("1".into())]);
    let mut ended = begun.clone();
    // Two processes may see the time of one store a little apart.
    for store in [two, one] {
        while ended.records[0].is_some()
            || store.read(&["a".into()]).await.expect("read").records[0].is_some()
        {
            clock::sleep_until(Some(clock::now() + Duration::from_millis(100))).await;
            ended = store.read(&["a".into()]).await.expect("read");
            assert!(ended.now <= begun.now + 10_000, "it does not end");
        }
    }
    assert!(ended.now >= begun.now + 500, "{} {}", begun.now, ended.now);
    assert!(!replace(&**one, &[change("a", Some("1"), "2", MINUTE)]).await);
    assert!(replace(&**one, &[change("a", None, "2", MINUTE)]).await);
}

async fn summaries_are_seen_by_all_until_they_end(pair: &FleetPair) {
    let [one, two] = &pair.stores;
    assert_eq!(two.published().await.expect("read"), []);
    one.publish("p1", "a", MINUTE).await.expect("published");
    one.publish("p1", "b", MINUTE).await.expect("published");
    let short = Duration::from_millis(1_200);
    two.publish("p2", "c", short).await.expect("published");
    let mut seen = one.published().await.expect("read");
    seen.sort();
    let of = |process: &str, text: &str| (process.to_owned(), text.to_owned());
    assert_eq!(seen, [of("p1", "b"), of("p2", "c")]);
    let begun = clock::now();
    while seen.len() == 2 {
        clock::sleep_until(Some(clock::now() + Duration::from_millis(100))).await;
        seen = one.published().await.expect("read");
        assert!(clock::now().since(begun) < Duration::from_secs(10));
    }
    assert_eq!(seen, [of("p1", "b")]);
}

fn request(holder: &str, keep: u32, count: u32) -> Request {
    Request {
        holder: holder.to_owned(),
        lease: MINUTE,
        accounts: vec![LimitAccount {
            record: "limit".to_owned(),
            numbers: LimitNumbers {
                concurrency: Some(10),
                rate: None,
            },
            keep,
            tokens: TokenClaim::default(),
            shadow: false,
        }],
        claims: vec![StartClaim {
            permits: vec![(0, 1)],
            tokens: Vec::new(),
            count,
        }],
    }
}

async fn processes_together_never_have_more_than_the_limit(pair: &FleetPair) {
    let used = Arc::new(AtomicU32::new(0));
    let mut running = tokio::task::JoinSet::new();
    for number in 0..6 {
        let store = pair.stores[number % 2].clone();
        let used = used.clone();
        running.spawn(async move {
            let holder = format!("p{number}");
            let (mut has, mut granted) = (0, 0);
            for turn in 0..25 {
                // Gives back before it asks: the others may have it from then on.
                let keep = if turn % 3 == 2 { 0 } else { has };
                used.fetch_sub(has - keep, Ordering::AcqRel);
                has = keep;
                let Ok(grant) = exchange(&*store, &request(&holder, keep, 2)).await else {
                    continue;
                };
                has += grant.claims[0];
                granted += grant.claims[0];
                let all = used.fetch_add(grant.claims[0], Ordering::AcqRel) + grant.claims[0];
                assert!(all <= 10, "{all} permits of 10");
            }
            let _ = exchange(&*store, &request(&holder, 0, 0)).await;
            used.fetch_sub(has, Ordering::AcqRel);
            granted
        });
    }
    let granted: u32 = running.join_all().await.into_iter().sum();
    assert!(granted > 60, "{granted} permits in all");
}

async fn record_of_a_newer_version_is_refused(pair: &FleetPair) {
    let [one, two] = &pair.stores;
    let newer = r#"{"format":2,"holders":[]}"#;
    assert!(replace(&**one, &[change("limit", None, newer, MINUTE)]).await);
    let refused = exchange(&**two, &request("p", 0, 1)).await;
    let refused = refused.expect_err("it grants itself nothing");
    assert_eq!(refused.kind, ErrorKind::Invalid);
    assert!(
        refused.message.contains("newer version"),
        "{}",
        refused.message
    );
}

/// Every check as a test of one store.
macro_rules! fleet_store {
    ($name:ident, $($check:ident),* $(,)?) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $check() {
                    super::$check(&super::FleetPair::$name().await).await;
                }
            )*
        }
    };
}

macro_rules! fleet_stores {
    ($($name:ident),*) => {
        $(fleet_store!(
            $name,
            record_changes_only_if_it_stands,
            several_records_change_together_or_not_at_all,
            ended_record_is_as_none,
            summaries_are_seen_by_all_until_they_end,
            processes_together_never_have_more_than_the_limit,
            record_of_a_newer_version_is_refused,
        );)*
    };
}

fleet_stores!(local, redis, cluster, postgres, dynamodb);

#[tokio::test]
async fn fleets_of_different_names_share_nothing() {
    let (server, prefix) = (RedisServer::shared(), RedisServer::fresh_name("fleet"));
    let [one, other] =
        ["a", "b"].map(|name| RedisFleet::new(&server.url(), &prefix, name).expect("an address"));
    assert!(replace(&one, &[change("l", None, "1", MINUTE)]).await);
    assert_eq!(texts(&other, &["l"]).await, [None]);
    one.publish("p", "a", MINUTE).await.expect("published");
    assert_eq!(other.published().await.expect("read"), []);
}

#[tokio::test]
async fn missing_table_is_reported_with_the_commands_that_create_it() {
    let table = RedisServer::fresh_name("fleet");
    let fleet = DynamoFleet::connect(&configuration(&MiniStack::shared().url()), &table);
    let error = fleet.read(&["l".into()]).await.expect_err("no table");
    assert_eq!(error.kind, ErrorKind::NotFound);
    for command in ["create-table", "update-time-to-live"] {
        let command = format!("aws dynamodb {command} --table-name {table}");
        assert!(error.message.contains(&command), "{}", error.message);
    }
}
