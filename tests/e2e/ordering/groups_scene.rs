//! What the promises about order share: messages of many groups, some of which fail, a function
//! that handles them and whose every invocation goes through the checker of order.

use crate::lambda::scene::{forward_to, wait};
use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use dispatcher_tests::child::{Program, RunningProgram};
use dispatcher_tests::faulty_lambda::{FaultyLambda, Invocation, LambdaStep};
use dispatcher_tests::order::{AttemptFate, Member, OrderLog};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::SqsServer;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const GROUPS: u32 = 1_000;
pub(crate) const EACH: u32 = 3;
/// As many attempts as a message has.
pub(crate) const ATTEMPTS: &str = "3";

/// All messages in the order in which they are sent: the first of every group, then the second.
/// Every fifth fails once or twice, one of 150 always.
pub(crate) fn bodies(seed: u64) -> Vec<String> {
    let mut luck = fastrand::Rng::with_seed(seed);
    let all = (1..=EACH).flat_map(|number| (0..GROUPS).map(move |group| (group, number)));
    all.map(|(group, number)| {
        let fails = match luck.u32(0..150) {
            0 => 3,
            1..30 => luck.u32(1..3),
            _ => 0,
        };
        json!({"order": {"customer": format!("c{group}")}, "number": number, "fails": fails})
            .to_string()
    })
    .collect()
}

fn group(body: &str) -> String {
    let body: Value = serde_json::from_str(body).expect("JSON");
    body["order"]["customer"]
        .as_str()
        .expect("a group")
        .to_owned()
}

/// How each body goes to its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupSource {
    /// In a group of the queue's.
    Own,
    /// With an attribute `customer`.
    Attribute,
    /// The body says it.
    Body,
}

/// Sends to an SQS queue, in order.
pub(crate) async fn send_sqs(
    server: &SqsServer,
    url: &str,
    grouping: GroupSource,
    bodies: &[String],
) {
    for (call, chunk) in bodies.chunks(10).enumerate() {
        let entry = |(at, body): (usize, &String)| {
            let entry = SendMessageBatchRequestEntry::builder()
                .id(at.to_string())
                .message_body(body);
            match grouping {
                GroupSource::Own => entry
                    .message_group_id(group(body))
                    .message_deduplication_id(format!("{call}-{at}")),
                GroupSource::Attribute => {
                    let value = MessageAttributeValue::builder()
                        .data_type("String")
                        .string_value(group(body));
                    entry.message_attributes("customer", value.build().expect("complete"))
                }
                GroupSource::Body => entry,
            }
            .build()
            .expect("complete")
        };
        let entries = chunk.iter().enumerate().map(entry).collect();
        let call = server.client.send_message_batch().queue_url(url);
        let sent = call.set_entries(Some(entries)).send().await.expect("sent");
        assert!(sent.failed.is_empty(), "{:?}", sent.failed);
    }
}

/// Sends to a local queue, in order.
pub(crate) async fn send_local(data: &Path, name: &str, grouping: GroupSource, bodies: &[String]) {
    let store = LocalStore::open(data).expect("the store opens");
    let queue = store.queue(name, None).expect("the queue opens");
    let message = |body: &String| OutgoingMessage {
        body: body.clone(),
        group: (grouping == GroupSource::Own).then(|| group(body)),
        attributes: match grouping {
            GroupSource::Attribute => vec![Attribute::text("customer", group(body))],
            _ => Vec::new(),
        },
        ..OutgoingMessage::default()
    };
    let messages: Vec<OutgoingMessage> = bodies.iter().map(message).collect();
    for batch in messages.chunks(100) {
        for sent in queue.send(batch).await {
            sent.expect("sent");
        }
    }
}

/// A function, and the order in which it was invoked.
pub(crate) struct OrderedFunction {
    pub lambda: Arc<FaultyLambda>,
    order: Arc<Mutex<OrderLog>>,
}

impl OrderedFunction {
    pub(crate) fn start() -> Self {
        let lambda = Arc::new(FaultyLambda::start());
        let order = Arc::new(Mutex::new(OrderLog::default()));
        let shared = Arc::clone(&order);
        let mut failures: HashMap<String, u64> = HashMap::new();
        lambda.script(move |invocation| {
            let mut order = shared.lock().expect("no check panicked");
            invoked(invocation, &mut failures, &mut order)
        });
        Self { lambda, order }
    }

    /// A run that forwards to it.
    pub(crate) fn run(&self, queues: &str, more: &[&str]) -> Program {
        let more = [
            &["--concurrency", "50", "--max-attempts", ATTEMPTS],
            &["--partial-failures"][..],
            more,
        ]
        .concat();
        forward_to(&self.lambda, queues, &more)
    }

    /// Waits until all are done or dead, in order.
    pub(crate) async fn finish(&self, running: &mut RunningProgram, messages: usize) {
        let order = Arc::clone(&self.order);
        wait(&self.lambda, move |_| {
            let order = order.lock().expect("no check panicked");
            let over = order.ended >= messages || !order.problems.is_empty();
            over.then_some(())
        })
        .await;
        {
            let order = self.order.lock().expect("no check panicked");
            let some: Vec<_> = order.problems.iter().take(9).collect();
            assert!(some.is_empty(), "{some:#?}");
            assert_eq!(order.ended, messages);
            assert!(
                order.at_once > 1 && order.failed > messages / 10,
                "{} at once, {} failures",
                order.at_once,
                order.failed
            );
        }
        running.stop();
    }
}

/// What happens to an invocation, and is written into the order: a message that is told to fails so
/// often, counted only where nothing before it in its group has failed.
fn invoked(
    invocation: &Invocation,
    failures: &mut HashMap<String, u64>,
    order: &mut OrderLog,
) -> LambdaStep {
    let mut members: Vec<Member> = Vec::new();
    let mut failed = Vec::new();
    for record in &invocation.records {
        let body: Value = serde_json::from_str(&record.body).expect("JSON");
        let number = u32::try_from(body["number"].as_u64().expect("a number")).expect("small");
        let group = group(&record.body);
        let behind = members
            .iter()
            .any(|other| other.group == group && other.fate != AttemptFate::Done);
        let mut fate = AttemptFate::Done;
        let most = body["fails"].as_u64().expect("a number");
        let times = failures.entry(record.body.clone()).or_default();
        if *times < most && !behind {
            *times += 1;
            fate = match *times {
                3 => AttemptFate::DeadLettered,
                _ => AttemptFate::Failed,
            };
            failed.push(record.id.clone());
        }
        members.push(Member {
            group,
            number,
            fate,
        });
    }
    let lasts = Duration::from_millis(invocation.number as u64 % 10);
    order.began(Instant::now(), lasts, &members);
    let answer = json!({"batchItemFailures": failed.iter().map(|id| json!({"itemIdentifier": id})).collect::<Vec<_>>()});
    LambdaStep::Answer(lasts, answer.to_string())
}

/// A new FIFO or standard queue on the shared server, and one for its dead letters.
pub(crate) async fn queues(hint: &str, fifo: bool) -> (SqsServer, [(String, String); 2]) {
    let server = SqsServer::at(&MiniStack::shared().url());
    let attributes: &[(&str, &str)] = if fifo {
        &[("FifoQueue", "true"), ("VisibilityTimeout", "30")]
    } else {
        &[("VisibilityTimeout", "30")]
    };
    let end = if fifo { ".fifo" } else { "" };
    let made = [hint, "dead"].map(|hint| SqsServer::fresh_name(hint) + end);
    let [name, dead] = made;
    let urls = [
        server.create(&name, attributes).await,
        server.create(&dead, attributes).await,
    ];
    let [url, dead_url] = urls;
    (server, [(name, url), (dead, dead_url)])
}
