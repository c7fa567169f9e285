//! The keeper in simulated time, with a store in memory.

use super::super::limit::{LimitNeed, LimitNumbers, LimitWeight};
use super::super::{RecordChange, Snapshot};
use super::*;
use crate::clock::Timestamp;
use crate::clock::simulated::{self, Simulation};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store in memory that can be away.
#[derive(Default)]
struct MemoryStore {
    records: Mutex<HashMap<String, String>>,
    is_away: AtomicBool,
    calls: Mutex<u32>,
}

#[async_trait::async_trait]
impl FleetStore for MemoryStore {
    async fn read(&self, names: &[String]) -> Result<Snapshot, CallError> {
        if self.is_away.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        *self.calls.lock() += 1;
        let records = self.records.lock();
        let now = clock::now().since(BootInstant::default()).as_millis();
        Ok(Snapshot {
            now: u64::try_from(now).expect("a short test"),
            records: names
                .iter()
                .map(|name| records.get(name).cloned())
                .collect(),
        })
    }

    async fn replace(&self, changes: &[RecordChange]) -> Result<bool, CallError> {
        let mut records = self.records.lock();
        let stands = |change: &RecordChange| records.get(&change.name) == change.stands.as_ref();
        if !changes.iter().all(stands) {
            return Ok(false);
        }
        for change in changes {
            records.insert(change.name.clone(), change.text.clone());
        }
        Ok(true)
    }

    async fn publish(&self, _: &str, _: &str, _: Duration) -> Result<(), CallError> {
        Ok(())
    }

    async fn published(&self) -> Result<Vec<(String, String)>, CallError> {
        Ok(Vec::new())
    }
}

fn fleet(process: &str, concurrency: u32, when_away: WhenAway) -> Arc<Fleet> {
    let limit = Limit {
        name: "api".to_owned(),
        numbers: LimitNumbers {
            concurrency: Some(concurrency),
            rate: None,
        },
        key: None,
        overrides: HashMap::new(),
        weight: LimitWeight::Fixed(1),
        shadow: false,
        hides_keys: false,
    };
    Arc::new(Fleet::new(process.to_owned(), vec![limit], when_away))
}

fn one() -> Needs {
    [LimitNeed {
        limit: 0,
        key: None,
        weight: 1,
    }]
    .into()
}

/// Waits for a permit, as a message does.
async fn permit(fleet: &Arc<Fleet>) -> FleetPermit {
    let needs = one();
    let mut granted = fleet.grants();
    fleet.wait(&needs, clock::now());
    loop {
        if let Some(permit) = fleet.start(&needs, clock::now()) {
            fleet.wait_no_more(&needs);
            return permit;
        }
        granted.changed().await.expect("the fleet is there");
    }
}

/// Runs a test in simulated time.
fn simulated(test: impl Future<Output = ()>) {
    let simulation = Simulation::begin(Timestamp(1_800_000_000_000));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(|| {
            simulated::advance();
        })
        .build()
        .expect("a runtime");
    runtime.block_on(test);
    drop(runtime);
    drop(simulation);
}

async fn sleep(seconds: u64) {
    clock::sleep_until(Some(clock::now() + Duration::from_secs(seconds))).await;
}

#[test]
fn permit_is_renewed_while_its_message_runs_and_goes_to_another_process_after_it() {
    simulated(async {
        let store = Arc::new(MemoryStore::default());
        let (here, there) = (
            fleet("a", 1, WhenAway::Closed),
            fleet("b", 1, WhenAway::Closed),
        );
        let _kept = [&here, &there].map(|one| tokio::spawn(keep(one.clone(), store.clone())));
        let held = permit(&here).await;
        let waiting = tokio::spawn(async move { permit(&there).await });
        sleep(60).await;
        assert!(!waiting.is_finished());
        tokio::select! {
            biased;
            () = held.revoked() => panic!("it is renewed"),
            () = sleep(1) => {}
        }
        let began = clock::now();
        drop(held);
        waiting.await.expect("no panic");
        let waited = clock::now().since(began);
        assert!(waited < Duration::from_secs(2), "{waited:?}");
    });
}

#[test]
fn store_that_is_away_ends_permits_before_others_get_them() {
    simulated(async {
        let store = Arc::new(MemoryStore::default());
        let here = fleet("a", 1, WhenAway::Closed);
        let _keep = tokio::spawn(keep(here.clone(), store.clone()));
        let held = permit(&here).await;
        let began = clock::now();
        store.is_away.store(true, Ordering::SeqCst);
        held.revoked().await;
        let took = clock::now().since(began);
        assert!(took < Duration::from_secs(15), "{took:?}");
        drop(held);
        assert!(here.start(&one(), clock::now()).is_none());
        store.is_away.store(false, Ordering::SeqCst);
        drop(permit(&here).await);
    });
}

#[test]
fn share_goes_on_with_its_part_while_the_store_is_away() {
    simulated(async {
        let store = Arc::new(MemoryStore::default());
        let here = fleet("a", 3, WhenAway::Share);
        let there = fleet("b", 3, WhenAway::Share);
        let keepers = [&here, &there].map(|one| tokio::spawn(keep(one.clone(), store.clone())));
        let theirs = permit(&there).await;
        let held = permit(&here).await;
        store.is_away.store(true, Ordering::SeqCst);
        sleep(60).await;
        tokio::select! {
            biased;
            () = held.revoked() => panic!("it has its part"),
            () = sleep(1) => {}
        }
        assert!(here.start(&one(), clock::now()).is_none(), "half of 3 is 1");
        drop((theirs, keepers));
    });
}

#[test]
fn process_that_leaves_gives_its_permits_back_at_once() {
    simulated(async {
        let store = Arc::new(MemoryStore::default());
        let here = fleet("a", 1, WhenAway::Closed);
        let keeping = tokio::spawn(keep(here.clone(), store.clone()));
        let held = permit(&here).await;
        sleep(5).await;
        keeping.abort();
        drop(held);
        leave(&here, &*store).await;
        let records = store.records.lock().clone();
        assert!(!records["api"].contains("\"held\":1"), "{records:?}");
    });
}

#[test]
fn process_that_uses_its_permits_again_makes_few_calls() {
    simulated(async {
        let store = Arc::new(MemoryStore::default());
        let here = fleet("a", 1, WhenAway::Closed);
        let _keep = tokio::spawn(keep(here.clone(), store.clone()));
        for _ in 0..10_000 {
            let held = permit(&here).await;
            clock::sleep_until(Some(clock::now() + Duration::from_millis(1))).await;
            drop(held);
        }
        let calls = *store.calls.lock();
        assert!(calls < 20, "{calls} calls in ten seconds");
    });
}
