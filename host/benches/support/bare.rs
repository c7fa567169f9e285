//! The loop that people write on the AWS SDK: receive ten, delete ten. Knows no server.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, MessageSystemAttributeName, QueueAttributeName,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// What the loops do.
pub(crate) struct BareLoop<'a> {
    pub endpoint: &'a str,
    pub queue: &'a str,
    pub loops: usize,
    /// Whether they ask for all attributes, as the program does.
    pub attributes: bool,
    pub wait_s: i32,
    /// Is given each body.
    pub handle: fn(&str),
}

/// Runs the loops until SIGTERM; each then ends what it has begun.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn run(asked: &BareLoop<'_>) {
    let config = dispatcher_aws::configuration(Some(asked.endpoint)).await;
    let client = Client::new(&dispatcher_aws::for_long_polls(&config));
    let url = format!("{}/000000000000/{}", asked.endpoint, asked.queue);
    let stopped = stopped();
    let (attributes, wait_s, handle) = (asked.attributes, asked.wait_s, asked.handle);
    let loops = (0..asked.loops).map(|_| {
        let (client, url, stopped) = (client.clone(), url.clone(), stopped.clone());
        tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                receive_and_delete(&client, &url, (attributes, wait_s), handle).await;
            }
        })
    });
    for each in loops.collect::<Vec<_>>() {
        each.await.expect("it ends by itself");
    }
}

/// Whether SIGTERM has come, from now on.
pub(crate) fn stopped() -> Arc<AtomicBool> {
    let stopped = Arc::new(AtomicBool::new(false));
    let mut signal = signal(SignalKind::terminate()).expect("a handler");
    let asked = stopped.clone();
    tokio::spawn(async move {
        signal.recv().await;
        asked.store(true, Ordering::Relaxed);
    });
    stopped
}

async fn receive_and_delete(
    client: &Client,
    url: &str,
    (attributes, wait_s): (bool, i32),
    handle: fn(&str),
) {
    let mut receive = client
        .receive_message()
        .queue_url(url)
        .max_number_of_messages(10)
        .wait_time_seconds(wait_s);
    if attributes {
        receive = receive
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names(QueueAttributeName::All.as_str());
    }
    let answer = receive.send().await.expect("messages");
    let mut entries = Vec::new();
    for (at, message) in answer.messages.unwrap_or_default().into_iter().enumerate() {
        handle(message.body.as_deref().unwrap_or_default());
        let entry = DeleteMessageBatchRequestEntry::builder()
            .id(at.to_string())
            .receipt_handle(message.receipt_handle.expect("a receipt"));
        entries.push(entry.build().expect("id and receipt are set"));
    }
    if entries.is_empty() {
        return;
    }
    let delete = client.delete_message_batch().queue_url(url);
    let answer = delete.set_entries(Some(entries)).send().await;
    assert!(answer.expect("an answer").failed.is_empty(), "not deleted");
}
