//! What the promises about order and age share: a queue on either backend, and a function that
//! answers when it is told to.

use crate::lambda::scene::{forward_to, wait};
use dispatcher_core::message::{AttributeValue, Message, OutgoingMessage};
use dispatcher_core::queue::{Ask, DEAD_LETTER_REASON, Depth, Queue};
use dispatcher_local::queue::LocalStore;
use dispatcher_sqs::queue::Sqs;
use dispatcher_tests::child::RunningProgram;
use dispatcher_tests::faulty_lambda::{FaultyLambda, InvocationRecords, LambdaStep};
use dispatcher_tests::http;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::{SqsServer, configuration};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;

/// A queue with its dead letters, and how a run is told of both.
pub(crate) struct QueuePlace {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) dead: Arc<dyn Queue>,
    pub(crate) arguments: Vec<String>,
    data: Arc<tempfile::TempDir>,
}

impl QueuePlace {
    pub(crate) fn local() -> Self {
        let data = Arc::new(tempfile::tempdir().expect("a folder"));
        let store = LocalStore::open(data.path()).expect("the store opens");
        let open = |name| store.queue(name, None).expect("the queue opens");
        Self {
            queue: Arc::new(open("default")),
            dead: Arc::new(open("default.dead")),
            arguments: vec!["local:default".into()],
            data,
        }
    }

    pub(crate) async fn sqs() -> Self {
        let url = MiniStack::shared().url();
        let server = SqsServer::at(&url);
        let sqs = Sqs::connect(&configuration(&url));
        let names = ["order", "order-dead"].map(SqsServer::fresh_name);
        let mut queues: Vec<Arc<dyn Queue>> = Vec::new();
        for name in &names {
            server.create(name, &[("VisibilityTimeout", "30")]).await;
            let queue = sqs.open(name, None).await;
            queues.push(Arc::new(queue.expect("it was just made")));
        }
        let [name, dead] = names;
        Self {
            queue: queues.remove(0),
            dead: queues.remove(0),
            arguments: vec![name, "--dead-letter".into(), dead],
            data: Arc::new(tempfile::tempdir().expect("a folder")),
        }
    }

    pub(crate) fn start(&self, lambda: &FaultyLambda, more: &[&str]) -> RunningProgram {
        let own = self.arguments[1..].iter().map(String::as_str);
        let arguments: Vec<&str> = own.chain(more.iter().copied()).collect();
        let program = forward_to(lambda, &self.arguments[0], &arguments);
        let program = program.sharing(&self.data).start();
        program.wait_for_line(|line| line.contains("running"));
        program
    }

    /// Sends one after the other, no two within the same millisecond.
    pub(crate) async fn send(&self, bodies: impl IntoIterator<Item = String>) {
        for body in bodies {
            let message = OutgoingMessage {
                body,
                ..OutgoingMessage::default()
            };
            let sent = self.queue.send(&[message]).await;
            assert!(sent[0].is_ok(), "{sent:?}");
            until_later(today() + Duration::from_millis(2)).await;
        }
    }

    /// Returns once the queue holds nothing, in flight or not.
    pub(crate) async fn until_empty(&self) {
        until(&self.queue, |depth| {
            (depth.waiting, depth.in_flight) == (0, 0)
        })
        .await;
    }

    /// The next dead letter.
    pub(crate) async fn dead_letter(&self) -> Message {
        let ask = Ask {
            max: 1,
            visibility: Duration::from_secs(600),
            wait: Duration::from_secs(20),
            newest_first: false,
            ..Ask::PLAIN
        };
        let never = CancellationToken::new();
        let received = self.dead.receive(ask, &never).await.expect("received");
        let mut letters = received.messages.into_iter();
        letters.next().expect("a dead letter comes in time")
    }
}

fn today() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("after 1970")
}

async fn until_later(date: Duration) {
    while today() < date {
        tokio::time::sleep(date.saturating_sub(today())).await;
    }
}

/// Looks again and again, since no queue tells.
pub(crate) async fn until(queue: &Arc<dyn Queue>, wanted: impl Fn(Depth) -> bool) {
    let looking = async {
        while !wanted(queue.depth().await.expect("the queue tells")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let looked = tokio::time::timeout(dispatcher_tests::PATIENCE, looking).await;
    looked.expect("the queue becomes as wanted");
}

pub(crate) fn reason(letter: &Message) -> &str {
    let mut attributes = letter.attributes.iter();
    let reason = attributes.find(|attribute| attribute.name == DEAD_LETTER_REASON);
    match &reason.expect("it says why").value {
        AttributeValue::Text(text) => text,
        AttributeValue::Binary(_) => panic!("a reason is text"),
    }
}

/// What `/metrics` counts under this name, labels aside.
pub(crate) fn counted(admin: &str, name: &str) -> u64 {
    let metrics = http::get(&format!("{admin}/metrics")).body;
    let mut lines = metrics.lines().filter(|line| !line.starts_with('#'));
    let line = lines.find(|line| line.split(['{', ' ']).next() == Some(name));
    let (_, count) = line.and_then(|line| line.rsplit_once(' ')).expect(name);
    count.parse().expect("a number")
}

/// Looks again and again, since a count tells nobody.
pub(crate) async fn until_counted(admin: &str, name: &str, wanted: u64) {
    let looking = async {
        while counted(admin, name) != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let looked = tokio::time::timeout(dispatcher_tests::PATIENCE, looking).await;
    looked.unwrap_or_else(|_| panic!("{name} is {}", counted(admin, name)));
}

/// A function that holds messages with these bodies until it is told to continue.
pub(crate) fn holding(gates: &'static [&'static str]) -> Arc<FaultyLambda> {
    let lambda = Arc::new(FaultyLambda::start());
    lambda.set_timeout(60);
    lambda.script(move |invocation| {
        if gates.contains(&invocation.body()) {
            LambdaStep::Hold("null".into())
        } else {
            LambdaStep::answer("null")
        }
    });
    lambda
}

pub(crate) async fn until_held(lambda: &Arc<FaultyLambda>, body: &'static str) {
    let begun = move |state: &InvocationRecords| {
        (state.in_flight == 1 && state.executions.last()?.body == body).then_some(())
    };
    wait(lambda, begun).await;
}

pub(crate) async fn until_executed(lambda: &Arc<FaultyLambda>, count: usize) -> Vec<String> {
    wait(lambda, move |state| {
        (state.executed() == count).then_some(())
    })
    .await;
    let executions = lambda.state().executions.into_iter();
    executions.map(|execution| execution.body).collect()
}

pub(crate) fn bodies(letter: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| format!("{letter}{n}")).collect()
}
