//! Limits hold while processes are killed and lose the store. `cargo bench --bench fleet -- storm` has
//! longer storms.

use dispatcher_tests::redis::RedisServer;
use dispatcher_tests::storm::{StormPlan, StormStore};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn weather(store: StormStore, logs: &Path) {
    let plan = StormPlan {
        processes: 8,
        lasts: Duration::from_secs(6),
        store,
        logs: logs.to_owned(),
    };
    let report = plan.run(&|| Command::new(env!("CARGO_BIN_EXE_storm-holder")));
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.kills >= 6, "{report}");
}

#[test]
fn limits_on_redis_hold_in_a_storm() {
    let server = RedisServer::start(&[]);
    let logs = tempfile::tempdir().expect("a folder");
    weather(StormStore::Redis(server.address()), logs.path());
}

#[test]
fn limits_of_a_data_folder_hold_in_a_storm() {
    let folder = tempfile::tempdir().expect("a folder");
    weather(StormStore::Local(folder.path().to_owned()), folder.path());
}
