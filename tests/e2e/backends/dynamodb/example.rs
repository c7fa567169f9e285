//! The example `host/docs/examples/newest-first`, as it stands but for the table's name and shorter
//! times.

use crate::backends::dynamodb::{send, table};
use crate::lambda::scene::admin;
use crate::ordering::age_scene::until_counted;
use crate::scene::prints;
use dispatcher_tests::child::Program;
use dispatcher_tests::dynamodb::text;
use dispatcher_tests::servers::MiniStack;
use std::path::Path;

const ORDERS: usize = 60;

#[tokio::test]
async fn newest_tasks_are_handled_and_expired_ones_are_dropped_and_counted() {
    let (tables, table, _) = table("orders").await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/docs/examples/newest-first");
    let settings = std::fs::read_to_string(folder.join("dispatcher.toml")).expect("it is there");
    let prebuilt = folder
        .join("../../../../plugins/prebuilt")
        .display()
        .to_string();
    let settings = settings
        .replace("dynamodb:Orders", &format!("dynamodb:{table}"))
        .replace("max-age = \"30s\"", "max-age = \"3s\"")
        .replace("../../../../plugins/prebuilt", &prebuilt);
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("dispatcher.toml");
    std::fs::write(&file, settings).expect("written");
    let file = file.display().to_string();
    let words = [
        "run",
        "--log-format",
        "json",
        "--config",
        &file,
        "--admin",
        "127.0.0.1:0",
    ];
    let mut running = Program::new(words).aws(&MiniStack::shared().url()).start();
    let admin = admin(&running);
    running.wait_for_line(|line| line.contains("\"running\""));
    let order = |n: usize| format!(r#"{{"amount":250,"id":"o-{n}"}}"#);
    send(&table, (0..ORDERS).map(order)).await;
    let ended = tables
        .until(&table, |statuses| {
            let of = |status: &str| statuses.get(status).copied().unwrap_or_default();
            of("SUCCESS") + of("FAILURE") == ORDERS
        })
        .await;
    // A new one is handled at once, whatever was shed.
    send(&table, [order(1_000)]).await;
    running.wait_for_line(|line| line.contains("order o-1000: 250 cents"));
    until_counted(
        &admin,
        "dispatcher_messages_shed_total",
        ended["FAILURE"] as u64,
    )
    .await;
    running.stop();
    assert!(ended["SUCCESS"] >= 2 && ended["FAILURE"] >= 2, "{ended:?}");
    for item in tables.all(&table).await {
        let failed = text(&item, "taskStatus") == "FAILURE";
        let reason = text(&item, "dispatcherReason");
        assert_eq!(reason, if failed { "older than 3s" } else { "" });
    }
    assert_eq!(prints(&running).len(), ended["SUCCESS"] + 1);
}
