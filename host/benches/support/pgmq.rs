//! A bare loop on pgmq's functions: reads ten, handles them, deletes ten. Knows no server.

use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_postgres::{Client, NoTls};

/// Runs so many loops, each on its own connection, until SIGTERM.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn run(url: &str, queue: &str, loops: usize) {
    let stopped: Arc<AtomicBool> = Arc::default();
    let mut all = Vec::new();
    for _ in 0..loops {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a server");
        tokio::spawn(connection);
        all.push(tokio::spawn(one_loop(
            client,
            queue.to_owned(),
            stopped.clone(),
        )));
    }
    let mut ends = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .expect("a handler");
    ends.recv().await;
    stopped.store(true, Ordering::SeqCst);
    for each in all {
        each.await.expect("it ends by itself");
    }
}

async fn one_loop(client: Client, queue: String, stopped: Arc<AtomicBool>) {
    // It polls every 100 ms within the statement, for a second at most, so that a stop is short.
    let read = "SELECT msg_id, message::text FROM pgmq.read_with_poll($1, 30, 10, 1, 100)";
    let read = client.prepare(read).await.expect("pgmq is installed");
    let delete = "SELECT pgmq.delete($1, $2::bigint[])";
    let delete = client.prepare(delete).await.expect("pgmq is installed");
    while !stopped.load(Ordering::SeqCst) {
        let rows = client.query(&read, &[&queue]).await.expect("read");
        for row in &rows {
            let order: Value = serde_json::from_str(row.get(1)).expect("JSON");
            if order["id"].as_str().expect("a string") == "wake" {
                println!("order wake");
            }
        }
        if !rows.is_empty() {
            let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            let deleted = client.query(&delete, &[&queue, &ids]).await;
            deleted.expect("deleted");
        }
    }
}
