//! What the schedule's port promises, kept by a table of DynamoDB behind a network that loses
//! answers: the SDK asks again, and meets what its first try has done.

use dispatcher_core::clock;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::schedule;
use dispatcher_core::schedule::{JobCancellation, ScheduleStore, ScheduledJob, decide};
use dispatcher_dynamodb::schedule::{DynamoDb, Table};
use dispatcher_tests::proxy::Proxy;
use dispatcher_tests::relay::Relay;
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::{SqsServer, configuration};

/// What every answer begins with that says that a call was carried out.
const DONE: &str = "HTTP/1.1 200";

struct TableFaultScene {
    relay: Relay,
    /// Through the relay.
    table: Table,
    /// Around it.
    direct: Table,
}

fn reach(url: &str, name: &str) -> Table {
    DynamoDb::connect(&configuration(url)).table(name, None)
}

async fn scene() -> TableFaultScene {
    let server = MiniStack::shared();
    let name = SqsServer::fresh_name("schedule");
    let direct = reach(&server.url(), &name);
    direct.make().await.expect("it can be made");
    let relay = Relay::before(server.address());
    let table = reach(&format!("http://{}", relay.address()), &name);
    TableFaultScene {
        relay,
        table,
        direct,
    }
}

fn job() -> ScheduledJob {
    let message = OutgoingMessage {
        body: "x".into(),
        ..OutgoingMessage::default()
    };
    schedule::job("payments", clock::wall_clock_now(), message, None)
}

async fn only(table: &Table) -> ScheduledJob {
    let mut jobs = schedule::list(table).await.expect("it answers");
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs.remove(0)
}

#[tokio::test]
async fn add_with_a_lost_answer_is_recognised_as_added() {
    let scene = scene().await;
    let job = job();
    scene.relay.swallow_answer_with(DONE);
    assert_eq!(scene.table.add(&job).await, Ok(true));
    // To add the same once more is another matter.
    assert_eq!(scene.table.add(&job).await, Ok(false));
    assert_eq!(only(&scene.direct).await.id, job.id);
}

#[tokio::test]
async fn claim_with_a_lost_answer_is_recognised_as_own() {
    let scene = scene().await;
    scene.direct.add(&job()).await.expect("added");
    let job = only(&scene.direct).await;
    let now = clock::wall_clock_now();
    let claim = decide::claim("ours".into(), now);
    scene.relay.swallow_answer_with(DONE);
    let jobs = [job];
    assert_eq!(scene.table.claim(&jobs, &claim, now).await, [Ok(true)]);
    let other = decide::claim("another".into(), now);
    assert_eq!(scene.table.claim(&jobs, &other, now).await, [Ok(false)]);
    assert_eq!(only(&scene.direct).await.claim, Some(claim));
}

#[tokio::test]
async fn cancel_with_a_lost_answer_is_cancelled() {
    let scene = scene().await;
    let now = clock::wall_clock_now();
    let first = job();
    scene.direct.add(&first).await.expect("added");
    // The answer to the claim is lost.
    scene.relay.swallow_answer_with(DONE);
    assert_eq!(
        scene.table.cancel(&first.id, now).await,
        Ok(JobCancellation::Yes)
    );
    assert_eq!(schedule::list(&scene.direct).await, Ok(Vec::new()));
    let again = scene.table.cancel(&first.id, now).await;
    assert_eq!(again, Ok(JobCancellation::Unknown));
}

#[tokio::test]
async fn claimed_job_found_missing_counts_as_deleted() {
    let server = MiniStack::shared();
    let name = SqsServer::fresh_name("schedule");
    let proxy = Proxy::before(server.address());
    let table = reach(&proxy.url(), &name);
    table.make().await.expect("it can be made");
    let job = job();
    table.add(&job).await.expect("added");
    // As a second try is answered whose first was carried out.
    let gone = r#"{"__type":"ConditionalCheckFailedException","message":"it does not hold"}"#;
    proxy.answer_next(1, "DeleteItem", 400, gone);
    let cancelled = table.cancel(&job.id, clock::wall_clock_now()).await;
    assert_eq!(cancelled, Ok(JobCancellation::Yes));
}
