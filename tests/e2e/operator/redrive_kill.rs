//! A redrive that is killed in the middle loses nothing and repeats one batch at most; run again, it
//! goes on with what is left.

use crate::backends::redis::scene::RedisScene;
use dispatcher_core::message::{Attribute, Message, Outcome, OutgoingMessage};
use dispatcher_core::queue::{DEAD_LETTER_REASON, Queue};
use dispatcher_dynamodb::queue::{Dynamo, Options};
use dispatcher_local::queue::LocalStore;
use dispatcher_redis::queue::Redis;
use dispatcher_sqs::queue::Sqs;
use dispatcher_tests::MOST_PATIENCE;
use dispatcher_tests::child::{ExitedProgram, Program, Signal};
use dispatcher_tests::dynamodb::{Dates, Tables};
use dispatcher_tests::queues;
use dispatcher_tests::queues::until_depth;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::{SqsServer, configuration};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The program with these arguments.
type Start = Box<dyn Fn(&[&str]) -> Program>;

/// Two queues, and the program that moves from one to the other.
struct KillScene {
    /// Where the letters fail, if they are in `from` only because of that.
    fails_in: Option<Arc<dyn Queue>>,
    from: Arc<dyn Queue>,
    to: Arc<dyn Queue>,
    names: [String; 2],
    program: Start,
}

impl KillScene {
    async fn fill(&self, count: usize) {
        let letter = |number: usize| OutgoingMessage {
            body: number.to_string(),
            attributes: vec![Attribute::text(DEAD_LETTER_REASON, "trap")],
            ..OutgoingMessage::default()
        };
        let letters: Vec<_> = (0..count).map(letter).collect();
        let into = self.fails_in.as_ref().unwrap_or(&self.from);
        for part in letters.chunks(into.identity().batch) {
            assert!(into.send(part).await.iter().all(Result::is_ok));
        }
        if let Some(queue) = &self.fails_in {
            queues::fail_all(&**queue, "trap").await;
        }
    }

    fn redrive(&self, more: &[&str]) -> Program {
        let arguments = [
            "redrive",
            &*self.names[0],
            "--to",
            &*self.names[1],
            "--apply",
        ];
        (self.program)(&[&arguments[..], more].concat())
    }

    /// Everything in a queue, by body.
    async fn counted(&self, queue: &dyn Queue, counts: &mut BTreeMap<String, usize>) {
        loop {
            let messages = queues::received(queue).await;
            if messages.is_empty() {
                return;
            }
            let delete = |one: &Message| (one.clone(), Outcome::Delete);
            let items: Vec<_> = messages.iter().map(delete).collect();
            queue.settle(&items).await;
            for message in messages {
                *counts.entry(message.body).or_default() += 1;
            }
        }
    }

    /// Kills a run once some messages have arrived, runs again until nothing is left, and counts.
    async fn holds(&self, count: usize, rate: &str) {
        self.fill(count).await;
        let mut running = self.redrive(&["--rate", rate]).start();
        let some = count as u64 / 10;
        until_depth(&*self.to, |depth| depth.waiting > some).await;
        running.signal(Signal::KILL);
        running.wait_exit();
        let arrived = self.to.depth().await.expect("it tells").waiting;
        assert!(
            arrived < count as u64,
            "it was killed in the middle, after {arrived}"
        );
        let rest = async {
            loop {
                let ended: ExitedProgram = self.redrive(&[]).run();
                assert_eq!(ended.code, 0, "{ended:?}");
                let depth = self.from.depth().await.expect("it tells");
                if depth.waiting + depth.in_flight + depth.delayed == 0 {
                    return;
                }
                // What the killed one had leased comes back when its lease ends, in DynamoDB when
                // somebody receives or runs a redrive after that.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(MOST_PATIENCE, rest)
            .await
            .expect("all are moved");
        let mut counts = BTreeMap::new();
        self.counted(&*self.to, &mut counts).await;
        assert_eq!(counts.len(), count, "none is lost");
        let copies: usize = counts.values().sum();
        let batch = self.to.identity().batch;
        assert!(copies - count <= batch, "{} came twice", copies - count);
    }
}

#[tokio::test]
async fn a_killed_redrive_on_local_loses_nothing() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let store = LocalStore::open(folder.path()).expect("it opens");
    let open = |name: &str| Arc::new(store.queue(name, None).expect("it opens"));
    let shared = folder.clone();
    let scene = KillScene {
        fails_in: None,
        from: open("q.dead"),
        to: open("q"),
        names: ["local:q.dead".into(), "local:q".into()],
        program: Box::new(move |arguments| Program::new(arguments).sharing(&shared)),
    };
    scene.holds(3_000, "1500/s").await;
}

#[tokio::test]
async fn a_killed_redrive_on_redis_loses_nothing() {
    let redis = RedisScene::plain();
    let server = Redis::new(&redis.server.url(), "dispatcher").expect("an address");
    let dead = format!("{}.dead", redis.name);
    let url = redis.server.url();
    let scene = KillScene {
        fails_in: None,
        from: Arc::new(server.queue(&dead, None).await.expect("it is there")),
        to: Arc::new(server.queue(&redis.name, None).await.expect("it is there")),
        names: [format!("redis:{dead}"), redis.full()],
        program: Box::new(move |arguments| {
            Program::new(arguments).env("DISPATCHER_REDIS_URL", &url)
        }),
    };
    scene
        .to
        .send(&[OutgoingMessage {
            body: "0".into(),
            ..OutgoingMessage::default()
        }])
        .await;
    let mut made = BTreeMap::new();
    scene.counted(&*scene.to, &mut made).await;
    scene.holds(3_000, "1500/s").await;
}

#[tokio::test]
async fn a_killed_redrive_on_sqs_loses_nothing() {
    let url = MiniStack::shared().url();
    let server = SqsServer::at(&url);
    let names = ["orders-dlq", "orders"].map(SqsServer::fresh_name);
    for name in &names {
        server.create(name, &[]).await;
    }
    let sqs = Sqs::connect(&configuration(&url));
    let scene = KillScene {
        fails_in: None,
        from: Arc::new(sqs.open(&names[0], None).await.expect("it is there")),
        to: Arc::new(sqs.open(&names[1], None).await.expect("it is there")),
        names,
        program: Box::new(move |arguments| Program::new(arguments).aws(&url)),
    };
    scene.holds(2_000, "500/s").await;
}

#[tokio::test]
async fn a_killed_redrive_on_dynamodb_loses_nothing() {
    let url = MiniStack::shared().url();
    let tables = Tables::at(&url);
    let names = [
        tables.create("dead", Dates::Number).await,
        tables.create("tasks", Dates::Number).await,
    ];
    let dynamo = Dynamo::connect(&configuration(&url), Options::default());
    let scene = KillScene {
        fails_in: None,
        from: Arc::new(dynamo.open(&names[0], None).await.expect("it is there")),
        to: Arc::new(dynamo.open(&names[1], None).await.expect("it is there")),
        names: names.map(|name| format!("dynamodb:{name}")),
        program: Box::new(move |arguments| Program::new(arguments).aws(&url)),
    };
    scene.holds(300, "100/s").await;
}

#[tokio::test]
async fn a_killed_redrive_of_the_failed_tasks_of_a_dynamodb_table_loses_nothing() {
    let url = MiniStack::shared().url();
    let tables = Tables::at(&url);
    let table = tables.create("failed", Dates::Number).await;
    let other = tables.create("again", Dates::Number).await;
    let dynamo = Dynamo::connect(&configuration(&url), Options::default());
    let scene = KillScene {
        fails_in: Some(Arc::new(
            dynamo.open(&table, None).await.expect("it is there"),
        )),
        from: Arc::new(dynamo.failed(&table).await.expect("it is there")),
        to: Arc::new(dynamo.open(&other, None).await.expect("it is there")),
        names: [
            format!("dynamodb:{table}/FAILURE"),
            format!("dynamodb:{other}"),
        ],
        program: Box::new(move |arguments| Program::new(arguments).aws(&url)),
    };
    scene.holds(300, "100/s").await;
}
