//! The two places where messages lie: how they are sent, counted and taken from among the dead
//! letters, past the program under test. Knows nothing of what is wanted of them.

use crate::traffic::Role;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, SendMessageBatchRequestEntry};
use dispatcher_core::message::{AttributeValue, Outcome, OutgoingMessage};
use dispatcher_core::queue::{Ask, DEAD_LETTER_REASON, Queue};
use dispatcher_local::queue::{LocalQueue, LocalStore};
use dispatcher_tests::sqs::{Counts, SqsServer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Maximum bytes of one call that we send to SQS: its own limit of 1 MiB, less the ids.
const CALL: usize = 1 << 20;

/// Where messages lie.
pub(crate) enum EnduranceBackend {
    /// In a file of this folder.
    Local {
        /// The folder.
        data: PathBuf,
        /// The queues.
        queues: BTreeMap<Role, LocalQueue>,
        /// Their dead letters.
        dead: BTreeMap<Role, LocalQueue>,
    },
    /// On a server that speaks the protocol of SQS.
    Sqs {
        /// Spoken to directly.
        server: SqsServer,
        /// The prefix of the queues' names.
        prefix: String,
        /// The queues' URLs.
        urls: BTreeMap<Role, String>,
        /// Those of their dead letters.
        dead: BTreeMap<Role, String>,
    },
}

impl EnduranceBackend {
    /// In a new file of this folder.
    pub(crate) fn local(folder: &Path) -> Self {
        let data = folder.join("local").join("data");
        let store = LocalStore::open(&data).expect("a new store opens");
        let open = |name: &str| store.queue(name, None).expect("a new queue opens");
        Self::Local {
            queues: Role::ALL.map(|role| (role, open(role.name()))).into(),
            dead: Role::ALL
                .map(|role| (role, open(&format!("{}.dead", role.name()))))
                .into(),
            data,
        }
    }

    /// In new queues of this server.
    pub(crate) async fn sqs(folder: &Path, url: &str) -> Self {
        std::fs::create_dir_all(folder.join("sqs")).expect("the folder is ours");
        let server = SqsServer::at(url);
        let prefix = SqsServer::fresh_name("endurance");
        let (mut urls, mut dead) = (BTreeMap::new(), BTreeMap::new());
        for role in Role::ALL {
            let name = format!("{prefix}-{}", role.name());
            dead.insert(role, server.create(&format!("{name}-dead"), &[]).await);
            urls.insert(role, server.create(&name, &[]).await);
        }
        Self::Sqs {
            server,
            prefix,
            urls,
            dead,
        }
    }

    /// For people, and for folders.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Local { .. } => "local",
            Self::Sqs { .. } => "sqs",
        }
    }

    /// The folder of the local queue.
    pub(crate) fn data(&self) -> Option<&Path> {
        match self {
            Self::Local { data, .. } => Some(data),
            Self::Sqs { .. } => None,
        }
    }

    /// The dispatchers' configuration: a route for each role.
    pub(crate) fn configuration(&self, lease: Duration) -> String {
        let mut text = "[dispatcher]\nlog-format = \"json\"\nadmin = \"127.0.0.1:0\"\n\
                        shutdown-grace = \"20s\"\nconcurrency = 20\n"
            .to_owned();
        for role in Role::ALL {
            let queue = match self {
                Self::Local { .. } => format!("queues = [\"local:{}\"]", role.name()),
                Self::Sqs { prefix, .. } => format!(
                    "queues = [\"{prefix}-{0}\"]\ndead-letter = \"{prefix}-{0}-dead\"",
                    role.name()
                ),
            };
            text.push_str(&format!(
                "\n[plugin.{0}]\n{1}\n\n[[route]]\nplugin = \"{0}\"\n{queue}\nvisibility = {2}\n\
                 poll-for = 2\nretry = {3}\n",
                role.name(),
                role.plugin(),
                lease.as_secs(),
                role.retry(),
            ));
        }
        text
    }

    /// Sends these bodies; the id of each.
    ///
    /// # Panics
    /// If one is not taken: the server is not the one under test.
    pub(crate) async fn send(&self, role: Role, bodies: Vec<String>) -> Vec<String> {
        match self {
            Self::Local { queues, .. } => {
                let items = bodies.into_iter().map(|body| OutgoingMessage {
                    body,
                    ..OutgoingMessage::default()
                });
                let items: Vec<OutgoingMessage> = items.collect();
                let mut ids = Vec::with_capacity(items.len());
                for items in items.chunks(100) {
                    let sent = queues[&role].send(items).await;
                    ids.extend(
                        sent.into_iter()
                            .map(|id| id.expect("the store takes messages")),
                    );
                }
                ids
            }
            Self::Sqs { server, urls, .. } => {
                let mut ids = Vec::with_capacity(bodies.len());
                for bodies in calls(bodies) {
                    ids.extend(send(server, &urls[&role], bodies).await);
                }
                ids
            }
        }
    }

    /// How many messages all queues hold, dead letters left out.
    pub(crate) async fn depth(&self) -> u64 {
        let mut all = 0;
        for role in Role::ALL {
            all += match self {
                Self::Local { queues, .. } => {
                    let depth = queues[&role].depth().await.expect("the store tells");
                    depth.waiting + depth.in_flight + depth.delayed
                }
                Self::Sqs { server, urls, .. } => {
                    let Counts {
                        waiting,
                        in_flight,
                        delayed,
                    } = server.counts(&urls[&role]).await;
                    waiting + in_flight + delayed
                }
            };
        }
        all
    }

    /// Takes all dead letters: bodies and reasons.
    pub(crate) async fn dead(&self) -> Vec<(String, String)> {
        let mut letters = Vec::new();
        for role in Role::ALL {
            match self {
                Self::Local { dead, .. } => letters.extend(take_local(&dead[&role]).await),
                Self::Sqs { server, dead, .. } => {
                    letters.extend(take_sqs(server, &dead[&role]).await);
                }
            }
        }
        letters
    }
}

/// Bodies in calls of at most ten and at most 1 MiB.
fn calls(bodies: Vec<String>) -> Vec<Vec<String>> {
    let mut calls: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for body in bodies {
        let fits = bytes + body.len() <= CALL && calls.last().is_some_and(|call| call.len() < 10);
        if !fits {
            calls.push(Vec::new());
            bytes = 0;
        }
        bytes += body.len();
        if let Some(call) = calls.last_mut() {
            call.push(body);
        }
    }
    calls
}

async fn send(server: &SqsServer, url: &str, bodies: Vec<String>) -> Vec<String> {
    let count = bodies.len();
    let entries = bodies.into_iter().enumerate().map(|(at, body)| {
        SendMessageBatchRequestEntry::builder()
            .id(at.to_string())
            .message_body(body)
            .build()
            .expect("id and body are set")
    });
    let call = server.client.send_message_batch().queue_url(url);
    let answer = call.set_entries(Some(entries.collect())).send().await;
    let answer = answer.expect("the server takes messages");
    assert!(answer.failed.is_empty(), "{:?}", answer.failed);
    let mut ids = vec![String::new(); count];
    for sent in answer.successful {
        let at: usize = sent.id.parse().expect("as we wrote it");
        ids[at] = sent.message_id;
    }
    ids
}

async fn take_local(queue: &LocalQueue) -> Vec<(String, String)> {
    let mut letters = Vec::new();
    let ask = Ask {
        max: 100,
        visibility: Duration::from_secs(60),
        wait: Duration::ZERO,
        newest_first: false,
        ..Ask::PLAIN
    };
    loop {
        let hurry = CancellationToken::new();
        let received = queue.receive(ask, &hurry).await.expect("the store gives");
        if received.messages.is_empty() {
            return letters;
        }
        let mut outcomes = Vec::new();
        for message in received.messages {
            let mut attributes = message.attributes.iter();
            let reason = attributes.find(|one| one.name == DEAD_LETTER_REASON);
            let reason = match reason.map(|one| &one.value) {
                Some(AttributeValue::Text(text)) => text.clone(),
                _ => "no reason".into(),
            };
            letters.push((message.body.clone(), reason));
            outcomes.push((message, Outcome::Delete));
        }
        for settled in queue.settle(&outcomes).await {
            settled.expect("it was just received");
        }
    }
}

async fn take_sqs(server: &SqsServer, url: &str) -> Vec<(String, String)> {
    let mut letters = Vec::new();
    loop {
        let call = server.client.receive_message().queue_url(url);
        let call = call.max_number_of_messages(10).wait_time_seconds(1);
        let answer = call.message_attribute_names("All").send().await;
        let messages = answer
            .expect("the queue exists")
            .messages
            .unwrap_or_default();
        if messages.is_empty() {
            return letters;
        }
        let mut entries = Vec::new();
        for (at, message) in messages.into_iter().enumerate() {
            let attributes = message.message_attributes.unwrap_or_default();
            let reason = attributes.get(DEAD_LETTER_REASON);
            let reason = reason.and_then(|reason| reason.string_value.clone());
            letters.push((
                message.body.unwrap_or_default(),
                reason.unwrap_or_else(|| "no reason".into()),
            ));
            entries.push(
                DeleteMessageBatchRequestEntry::builder()
                    .id(at.to_string())
                    .receipt_handle(message.receipt_handle.unwrap_or_default())
                    .build()
                    .expect("id and receipt are set"),
            );
        }
        let call = server.client.delete_message_batch().queue_url(url);
        let deleted = call.set_entries(Some(entries)).send().await;
        deleted.expect("they were just received");
    }
}
