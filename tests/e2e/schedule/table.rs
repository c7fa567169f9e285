//! What the schedule's port promises, kept by a table of DynamoDB on a real server.

use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::schedule;
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::{
    ErrorKind, JobCancellation, JobOutcome, ScheduleStore, ScheduledJob, decide,
};
use dispatcher_dynamodb::schedule::{DynamoDb, Table};
use dispatcher_tests::servers::MiniStack;
use dispatcher_tests::sqs::{SqsServer, configuration};
use dispatcher_tests::waiting::WaitingTable;
use std::time::Duration;

async fn table() -> Table {
    let dynamodb = DynamoDb::connect(&configuration(&MiniStack::shared().url()));
    let table = dynamodb.table(&SqsServer::fresh_name("schedule"), None);
    let missing = table
        .due(Timestamp(9), None)
        .await
        .expect_err("there is none");
    assert_eq!(missing.kind, ErrorKind::NotFound, "{missing}");
    table.make().await.expect("it can be made");
    table
}

fn job(body: &str, due: Timestamp) -> ScheduledJob {
    let message = OutgoingMessage {
        body: body.into(),
        attributes: vec![Attribute::text("k", "v")],
        delay: Duration::ZERO,
        group: Some("g".into()),
        ..OutgoingMessage::default()
    };
    schedule::job("payments", due, message, None)
}

#[tokio::test]
async fn jobs_round_trip_soonest_first() {
    let table = table().await;
    let now = clock::wall_clock_now();
    let every = Periodic::new("0 9 * * *", "Europe/Berlin").expect("a pattern");
    let later = ScheduledJob {
        every: Some(every),
        ..job("later", now + Duration::from_secs(60))
    };
    let sooner = job("sooner", now);
    for one in [&later, &sooner] {
        assert_eq!(table.add(one).await, Ok(true));
        assert_eq!(table.add(one).await, Ok(false));
    }
    let found = schedule::list(&table).await.expect("it answers");
    let plain = |one: &ScheduledJob| ScheduledJob {
        stamp: String::new(),
        ..one.clone()
    };
    assert_eq!(found.iter().map(plain).collect::<Vec<_>>(), [sooner, later]);
    let mut after = None;
    let mut due = Vec::new();
    loop {
        let page = table.due(now, after.as_deref()).await.expect("it answers");
        due.extend(page.jobs);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(due.len(), 1);
}

#[tokio::test]
async fn claim_goes_to_one_of_many_until_it_expires() {
    let table = table().await;
    let now = clock::wall_clock_now();
    table.add(&job("one", now)).await.expect("added");
    let jobs = schedule::list(&table).await.expect("it answers");
    let mut winners = 0;
    for n in 0..5 {
        let claim = decide::claim(format!("token-{n}"), now);
        let answers = table.claim(&jobs, &claim, now).await;
        winners += usize::from(answers == [Ok(true)]);
    }
    assert_eq!(winners, 1);
    let id = &jobs[0].id;
    assert_eq!(table.cancel(id, now).await, Ok(JobCancellation::BeingSent));
    let later = now + decide::LEASE + Duration::from_millis(1);
    let claim = decide::claim("late".into(), later);
    assert_eq!(table.claim(&jobs, &claim, later).await, [Ok(true)]);
    let ending = |token: &str, next| JobOutcome {
        job: jobs[0].clone(),
        token: token.into(),
        next,
    };
    // Who has lost it ends nothing.
    assert_eq!(table.end(&[ending("token-0", None)]).await, [Ok(())]);
    assert_eq!(schedule::list(&table).await.expect("it answers").len(), 1);
    let next = Timestamp(now.0 + 5_000);
    assert_eq!(table.end(&[ending("late", Some(next))]).await, [Ok(())]);
    let left = schedule::list(&table).await.expect("it answers");
    assert_eq!((left[0].due, &left[0].claim), (next, &None));
    // The time that was read is not the one that is there now.
    let stale = decide::claim("stale".into(), later);
    assert_eq!(table.claim(&jobs, &stale, later).await, [Ok(false)]);
    assert_eq!(table.cancel(id, now).await, Ok(JobCancellation::Yes));
    assert_eq!(table.cancel(id, now).await, Ok(JobCancellation::Unknown));
}

#[tokio::test]
async fn table_with_another_schema_is_refused() {
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    };
    let config = configuration(&MiniStack::shared().url());
    let name = SqsServer::fresh_name("other");
    let key = KeySchemaElement::builder()
        .attribute_name("id")
        .key_type(KeyType::Hash);
    let kind = AttributeDefinition::builder().attribute_name("id");
    let kind = kind.attribute_type(ScalarAttributeType::S);
    aws_sdk_dynamodb::Client::new(&config)
        .create_table()
        .table_name(&name)
        .key_schema(key.build().expect("complete"))
        .attribute_definitions(kind.build().expect("complete"))
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .expect("made");
    let error = DynamoDb::connect(&config).table(&name, None).make().await;
    let error = error.expect_err("it is another").to_string();
    for wanted in ["its key is id", "no local index scheduler-perform_at-index"] {
        assert!(error.contains(wanted), "{error}");
    }
}

#[tokio::test]
async fn finding_03_item_without_a_body_is_set_aside_once_and_keeps_its_columns() {
    let endpoint = MiniStack::shared().url();
    let name = SqsServer::fresh_name("schedule");
    let table = DynamoDb::connect(&configuration(&endpoint)).table(&name, None);
    table.make().await.expect("it can be made");
    let now = clock::wall_clock_now();
    table.add(&job("whole", now)).await.expect("added");
    let items = WaitingTable::at(&endpoint, &name);
    let mut item = items.items().await.remove(0);
    item.remove("sqs_message_body");
    items.put(vec![item.clone()]).await;
    let (mut bad, mut after) = (Vec::new(), None);
    loop {
        let page = table.due(now, after.as_deref()).await.expect("it answers");
        assert_eq!(page.jobs, []);
        bad.extend(page.unreadable);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let [bad] = &bad[..] else {
        panic!("{bad:?}");
    };
    assert_eq!(bad.queue.as_deref(), Some("payments"));
    assert!(bad.why.contains("no sqs_message_body"), "{}", bad.why);
    assert_eq!(table.set_aside(bad, "why", now).await, Ok(true));
    assert_eq!(table.set_aside(bad, "why", now).await, Ok(false));
    assert_eq!(schedule::list(&table).await, Ok(Vec::new()));
    let left = items.items().await.remove(0);
    assert_eq!(left["dispatcher_dead_reason"].as_s(), Ok(&"why".to_owned()));
    assert_eq!(left["dispatcher_dead_perform_at"], item["perform_at"]);
    assert_eq!(
        left["sqs_message_attributes"],
        item["sqs_message_attributes"]
    );
}
