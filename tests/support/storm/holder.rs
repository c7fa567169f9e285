//! A process of a storm: starts messages under limits, holds them for a while, and writes a line to its
//! log when one waits, starts and ends. A line is written before the permits go back and after they
//! were taken, so no time in the log is longer than it was.

use super::{KindNeeds, LONE, LOOPS, limits};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::error_kind::CallError;
use dispatcher_core::fleet::hand::Needs;
use dispatcher_core::fleet::keeper::{Fleet, FleetPermit, KeptLimits};
use dispatcher_core::fleet::limit::LimitNeed;
use dispatcher_core::fleet::{FleetStore, RecordChange, Snapshot, WhenAway};
use dispatcher_local::fleet::LocalFleet;
use dispatcher_redis::fleet::RedisFleet;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a message runs in milliseconds; one that has the only permit of its key, so that a kill
/// often finds it running; and one in so many, whose permits must be renewed.
const RUNS_MS: Range<u64> = 2..20;
const LONE_MS: Range<u64> = 200..1_500;
const LONG_MS: Range<u64> = 1_000..25_000;
const LONG: u32 = 1_500;

/// A store that counts calls.
struct CountedStore {
    store: Box<dyn FleetStore>,
    calls: Arc<AtomicU64>,
}

struct HolderProcess {
    fleet: Arc<Fleet>,
    log: File,
    calls: Arc<AtomicU64>,
    numbers: AtomicU64,
    stop: CancellationToken,
}

/// Runs until standard input ends. The arguments are a name, a store and the file of the log.
///
/// # Panics
/// Panics if it is not started as a process of a storm.
pub fn hold(words: &[String]) {
    let [name, store, log] = words else {
        panic!("{words:?}: wanted NAME STORE LOG");
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run(name, store, Path::new(log)));
}

async fn run(name: &str, store: &str, log: &Path) {
    let calls = Arc::new(AtomicU64::new(0));
    let store = Arc::new(CountedStore {
        store: if store.starts_with("redis:") {
            Box::new(RedisFleet::new(store, "storm", "default").expect("an address"))
        } else {
            Box::new(LocalFleet::open(Path::new(store), "default").expect("it opens"))
        },
        calls: calls.clone(),
    });
    let fleet = Arc::new(Fleet::new(name.to_owned(), limits(), WhenAway::Closed));
    let stop = CancellationToken::new();
    let running = Arc::new(HolderProcess {
        fleet: fleet.clone(),
        log: File::create(log).expect("the folder is there"),
        calls,
        numbers: AtomicU64::new(0),
        stop: stop.clone(),
    });
    std::thread::spawn(move || {
        // The storm writes nothing.
        let _ = std::io::stdin().read(&mut [0]);
        stop.cancel();
    });
    let broken = CancellationToken::new();
    let kept = KeptLimits::start(fleet, store, &broken);
    let mut loops = JoinSet::new();
    for kind in LOOPS {
        loops.spawn(running.clone().messages(kind));
    }
    loops.join_all().await;
    kept.leave().await;
    assert!(!broken.is_cancelled(), "the keeper ended");
}

impl HolderProcess {
    /// Runs messages of one kind, one after the other.
    async fn messages(self: Arc<Self>, kind: KindNeeds) {
        while !self.stop.is_cancelled() {
            let needs: Needs = kind
                .iter()
                .map(|&(limit, keys, weight)| LimitNeed {
                    limit,
                    key: (keys > 0).then(|| format!("{}", fastrand::u32(..keys)).into()),
                    weight,
                })
                .collect();
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let Some(permit) = self.permit(&needs, number).await else {
                return;
            };
            let calls = self.calls.load(Ordering::Relaxed);
            self.write(&format!("start {number} {calls} {}", text(&needs)));
            let is_long = fastrand::u32(..LONG) == 0;
            let is_lone = kind.iter().any(|need| need.0 == LONE);
            let runs = fastrand::u64(match (is_long, is_lone) {
                (true, _) => LONG_MS,
                (false, true) => LONE_MS,
                (false, false) => RUNS_MS,
            });
            let ends = clock::now() + Duration::from_millis(runs);
            let end = tokio::select! {
                () = permit.revoked() => "revoked",
                () = clock::sleep_until(Some(ends)) => "end",
                () = self.stop.cancelled() => "end",
            };
            self.write(&format!("{end} {number}"));
            drop(permit);
        }
    }

    /// Waits for the permits of a message, as a route does; `None` at the end of the storm.
    async fn permit(&self, needs: &Needs, number: u64) -> Option<FleetPermit> {
        let mut granted = self.fleet.grants();
        if let Some(permit) = self.fleet.start(needs, clock::now()) {
            return Some(permit);
        }
        self.write(&format!("wait {number} {}", text(needs)));
        self.fleet.wait(needs, clock::now());
        let permit = loop {
            if let Some(permit) = self.fleet.start(needs, clock::now()) {
                break Some(permit);
            }
            tokio::select! {
                changed = granted.changed() => changed.expect("the fleet is there"),
                () = self.stop.cancelled() => break None,
            }
        };
        self.fleet.wait_no_more(needs);
        permit
    }

    /// Writes a line with the time, in one call that a kill cannot divide.
    fn write(&self, line: &str) {
        let at = clock::now().since(BootInstant::default()).as_nanos();
        let line = format!("{at} {line}\n");
        (&self.log).write_all(line.as_bytes()).expect("it is ours");
    }
}

/// `LIMIT/KEY/WEIGHT` of each need.
fn text(needs: &Needs) -> String {
    let needs = needs.iter().map(|need| {
        let key = need.key.as_deref().unwrap_or_default();
        format!("{}/{key}/{}", need.limit, need.weight)
    });
    needs.collect::<Vec<_>>().join(" ")
}

#[async_trait::async_trait]
impl FleetStore for CountedStore {
    async fn read(&self, names: &[String]) -> Result<Snapshot, CallError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.read(names).await
    }

    async fn replace(&self, changes: &[RecordChange]) -> Result<bool, CallError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.replace(changes).await
    }

    async fn publish(
        &self,
        process: &str,
        summary: &str,
        keep_for: Duration,
    ) -> Result<(), CallError> {
        self.store.publish(process, summary, keep_for).await
    }

    async fn published(&self) -> Result<Vec<(String, String)>, CallError> {
        self.store.published().await
    }
}
