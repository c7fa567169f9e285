//! Jobs of each kind on one Redis server, as its own producer sends them. Knows no worker.

use crate::redis_server::{Plain, RedisServer};
use dispatcher_core::clock;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::queue::Queue;
use dispatcher_redis::queue::{NativeQueue, Redis};
use serde_json::json;
use tokio::runtime::Runtime;

/// Jobs that are sent together.
const BATCH: usize = 100;

/// Whose jobs they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobKind {
    Dispatcher,
    BullMq,
    Sidekiq,
    Worqr,
}

/// A producer of one queue.
pub(crate) struct Producer<'a> {
    kind: JobKind,
    queue: String,
    connection: Plain,
    /// The library's queue, for the jobs of dispatcher.
    own: Option<(&'a Runtime, NativeQueue)>,
    sent: usize,
}

impl<'a> Producer<'a> {
    /// Connects to the server.
    pub(crate) fn connect(
        kind: JobKind,
        server: &RedisServer,
        runtime: &'a Runtime,
        queue: &str,
    ) -> Self {
        let own = (kind == JobKind::Dispatcher).then(|| {
            let opened = runtime.block_on(async {
                let redis = Redis::new(&server.url(), "dispatcher").expect("an address");
                redis.queue(queue, None).await
            });
            (runtime, opened.expect("the server answers"))
        });
        Self {
            kind,
            queue: queue.to_owned(),
            connection: server.connect(),
            own,
            sent: 0,
        }
    }

    /// Sends so many jobs.
    pub(crate) fn send(&mut self, count: usize, body: &str) {
        let numbers: Vec<usize> = (self.sent + 1..=self.sent + count).collect();
        self.sent += count;
        for batch in numbers.chunks(BATCH) {
            if let Some((runtime, queue)) = &self.own {
                let message = OutgoingMessage {
                    body: body.to_owned(),
                    ..OutgoingMessage::default()
                };
                let messages = vec![message; batch.len()];
                for sent in runtime.block_on(queue.send(&messages)) {
                    sent.expect("sent");
                }
                continue;
            }
            let commands = self.kind.commands(&self.queue, batch, body);
            for command in &commands {
                let words: Vec<&str> = command.iter().map(String::as_str).collect();
                self.connection.send(&words).expect("the server reads");
            }
            for _ in &commands {
                self.connection.receive_reply().expect("an answer");
            }
        }
    }

    /// Whether no job waits or, where its worker keeps it on the server, is handled: one `EXISTS`.
    pub(crate) fn is_drained(&mut self) -> bool {
        let keys = self.kind.keys(&self.queue);
        let words = std::iter::once("EXISTS").chain(keys.iter().map(String::as_str));
        let answer = self.connection.call(&words.collect::<Vec<_>>());
        answer.expect("an answer").number() == 0
    }
}

impl JobKind {
    /// Keys that exist while there are jobs.
    fn keys(self, queue: &str) -> Vec<String> {
        match self {
            Self::Dispatcher => vec![format!("{{dispatcher:{queue}}}:body")],
            Self::BullMq => vec![format!("bull:{queue}:wait"), format!("bull:{queue}:active")],
            Self::Sidekiq => vec![format!("queue:{queue}")],
            Self::Worqr => vec![
                format!("worqr:queues:{queue}"),
                format!("worqr:workingProcesses:{queue}"),
            ],
        }
    }

    fn commands(self, queue: &str, numbers: &[usize], body: &str) -> Vec<Vec<String>> {
        let command = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let now_ms = clock::wall_clock_now().0;
        let mut commands = Vec::new();
        let mut push = command(&["LPUSH", &self.keys(queue)[0]]);
        match self {
            Self::Dispatcher => unreachable!("sent through the library"),
            Self::BullMq => {
                let (data, now) = (json!({"order": body}).to_string(), now_ms.to_string());
                for number in numbers {
                    let mut job = command(&["HSET", &format!("bull:{queue}:{number}")]);
                    job.extend(command(&["name", "order", "data", &data, "opts", "{}"]));
                    job.extend(command(&["timestamp", &now, "delay", "0", "priority", "0"]));
                    commands.push(job);
                    push.push(number.to_string());
                }
                commands.push(push);
                commands.push(command(&[
                    "ZADD",
                    &format!("bull:{queue}:marker"),
                    "0",
                    "0",
                ]));
            }
            Self::Sidekiq => {
                let now = now_ms as f64 / 1e3;
                push.extend(numbers.iter().map(|number| {
                    let job = json!({"class": "OrderJob", "args": [body], "retry": true,
                        "queue": queue, "jid": format!("{number:024x}"),
                        "created_at": now, "enqueued_at": now});
                    job.to_string()
                }));
                commands.push(push);
            }
            Self::Worqr => {
                push.extend(numbers.iter().map(|_| body.to_owned()));
                commands.push(push);
                let (channel, count) = (format!("worqr_{queue}_work"), numbers.len().to_string());
                commands.push(command(&["PUBLISH", &channel, &count]));
            }
        }
        commands
    }
}
