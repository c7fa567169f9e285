//! Redrives of the admin API that are killed in the middle lose nothing and go on, on the backends that
//! have servers; the embedded queue and SQS are in `letters_api`.

use crate::backends::redis::scene::RedisScene;
use crate::operator::admin_api::ApiScene;
use crate::operator::letters_api::holds_a_kill;
use crate::scene::run;
use dispatcher_core::queue::Queue;
use dispatcher_dynamodb::queue::{Dynamo, Options};
use dispatcher_redis::queue::Redis;
use dispatcher_tests::dynamodb::{Dates, Tables};
use dispatcher_tests::queues;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::configuration;
use std::sync::Arc;

fn bodies(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| number.to_string())
}

#[tokio::test]
async fn a_killed_redrive_of_the_api_loses_nothing_and_goes_on_on_redis() {
    let redis = RedisScene::plain();
    let server = Redis::new(&redis.server.url(), "dispatcher").expect("an address");
    let (dead, sink) = (
        format!("{}.dead", redis.name),
        format!("{}-sink", redis.name),
    );
    let open = async |name: &str| server.queue(name, None).await.expect("it opens");
    let (from, to) = (open(&dead).await, open(&sink).await);
    // A queue of Redis is there once something was sent to it.
    for queue in [&redis.name, &sink] {
        let queue = open(queue).await;
        queues::send(&queue, bodies(1)).await;
        queue.purge().await.expect("it is emptied");
    }
    queues::send(&from, bodies(600)).await;
    let data = Arc::new(tempfile::tempdir().expect("a folder"));
    let start = || ApiScene::of(|flags| redis.run("verdicts", flags).sharing(&data), &[]);
    let names = (&*format!("redis:{dead}"), &*format!("redis:{sink}"));
    holds_a_kill(start, names, (&from, &to), (600, 100)).await;
}

/// A process on a table of DynamoDB, with another table to redrive to.
struct TableScene {
    dynamo: Dynamo,
    url: String,
    data: Arc<tempfile::TempDir>,
    table: String,
    sink: String,
}

impl TableScene {
    async fn new() -> Self {
        let url = MiniStack::shared().url();
        let tables = Tables::at(&url);
        Self {
            dynamo: Dynamo::connect(&configuration(&url), Options::default()),
            table: tables.create("work", Dates::Number).await,
            sink: tables.create("sink", Dates::Number).await,
            data: Arc::new(tempfile::tempdir().expect("a folder")),
            url,
        }
    }

    fn start(&self, more: &[&str]) -> ApiScene {
        let queue = format!("dynamodb:{}", self.table);
        let more = [&["--queues", &*queue], more].concat();
        let program = |flags: &[&str]| run("verdicts", flags).aws(&self.url).sharing(&self.data);
        ApiScene::of(program, &more)
    }

    /// Kills a redrive from a queue of this name to the other table.
    async fn holds(&self, from: &dyn Queue, dead_letter: Option<&str>) {
        let sink = self.dynamo.open(&self.sink, None).await;
        let sink = sink.expect("it is there");
        let flags: Vec<&str> = dead_letter.map_or(Vec::new(), |table| vec!["--dead-letter", table]);
        let to = format!("dynamodb:{}", self.sink);
        let names = (&*from.identity().name, &*to);
        holds_a_kill(|| self.start(&flags), names, (from, &sink), (300, 50)).await;
    }
}

#[tokio::test]
async fn a_killed_redrive_of_the_api_loses_nothing_and_goes_on_on_dynamodb() {
    let scene = TableScene::new().await;
    let tables = Tables::at(&scene.url);
    let dead = tables.create("dead", Dates::Number).await;
    let from = scene.dynamo.open(&dead, None).await.expect("it is there");
    queues::send(&from, bodies(300)).await;
    scene.holds(&from, Some(&format!("dynamodb:{dead}"))).await;
}

#[tokio::test]
async fn a_killed_redrive_of_the_api_loses_no_failed_task_of_a_dynamodb_table() {
    let scene = TableScene::new().await;
    let table = scene.dynamo.open(&scene.table, None).await;
    let table = table.expect("it is there");
    queues::send(&table, bodies(300)).await;
    queues::fail_all(&table, "trap").await;
    let from = scene.dynamo.failed(&scene.table).await;
    scene.holds(&from.expect("it is there"), None).await;
}
