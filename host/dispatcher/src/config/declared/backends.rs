//! The settings of backends: where queues and schedules are, and how they are used there.

use super::macros::settings;
use super::{Group, PerQueue, Setting, SettingPart, Shape, Syntax, Table};
use crate::config::problem::Problem;
use crate::config::section::Given;
use crate::config::value;
use crate::config::value::BareUnit;
use std::ops::RangeInclusive;
use std::time::Duration;

const SHARDS: RangeInclusive<u16> = 1..=100;
const LIFE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_155_760_000);
const PAUSE: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(20);

settings! {
    /// Where this program and AWS keep messages.
    STORES of SettingPart::Program, in &[Table::Dispatcher];

    /// The DynamoDB table for scheduled messages of SQS queues
    "schedule-table" => Setting::new("TABLE").default("one table per queue, with its name")
        .flag(Group::ScheduleTable);

    /// The folder of the embedded queue
    "data" => Setting::new("FOLDER").default("this user's data folder").path()
        .tables(&[Table::Dispatcher, Table::Backend("local")]).flag(Group::Data);

    /// Use this address instead of AWS
    "endpoint-url" => Setting::new("URL")
        .tables(&[Table::Dispatcher, Table::Backend("sqs"), Table::Backend("dynamodb")])
        .flag(Group::Aws);
}

settings! {
    /// `[backend.redis]`, and its flags.
    REDIS of SettingPart::Program, in &[Table::Backend("redis")];

    /// The Redis server of queues named redis:NAME
    "redis-url" => Setting::new("URL").default("redis://127.0.0.1:6379").flag(Group::Redis);

    /// For rediss://, a file with the certificate authorities to trust, in PEM
    "redis-ca-file" => Setting::new("FILE").default("those of the system").flag(Group::Redis);

    /// For rediss://, a file with the certificate of this client, in PEM
    "redis-cert-file" => Setting::new("FILE").flag(Group::Redis);

    /// The file with the key of --redis-cert-file, in PEM
    "redis-key-file" => Setting::new("FILE").flag(Group::Redis);

    /// Prefix of all keys on Redis, in braces
    "redis-prefix" => Setting::new("WORD").default("dispatcher").flag(Group::Redis);

    /// Queues on Redis that are shared with npm worqr, by their bare names:
    /// payments=worqr,default=worqr
    "redis-format" => Setting::new("QUEUE=FORMAT").shape(Shape::Map).flag(Group::Worqr)
        .syntax(Syntax::PerQueue(PerQueue {
            map: "redis-format",
            noun: "format",
            wanted: "QUEUE=native or QUEUE=worqr",
            example: "payments=worqr",
        }));

    /// Prefix of the keys of npm worqr
    "redis-worqr-prefix" => Setting::new("WORD").default("worqr").flag(Group::Worqr);
}

settings! {
    /// `[backend.sqs]`.
    SQS of SettingPart::Program, in &[Table::Backend("sqs")];
    /// How queues of SQS are used; what is `None` is as the backend has it.
    struct SqsSettings;

    /// How messages are received, deleted and extended: each call through the AWS SDK, or by lean
    /// requests that share its credentials and connections
    "client" => Setting::new("sdk|direct").default("sdk"),
        client: Option<&'static str> = |given| {
            given.one(|given| value::choice(given, &[("sdk", "sdk"), ("direct", "direct")]))
        };
}

settings! {
    /// `[backend.dynamodb]`.
    DYNAMODB of SettingPart::Program, in &[Table::Backend("dynamodb")];
    /// How tables of DynamoDB are used as queues; what is `None` is as the backend has it.
    struct DynamoDb;

    /// The column that contains the body
    "body-attribute" => Setting::new("NAME").default("all of the task's own columns, as JSON"),
        body_attribute: Option<String> = |given| given.one(column);

    /// Number of index keys per status, 1 to 100
    "shards" => Setting::new("N").default("1"),
        shards: Option<u16> = |given| given.one(|given| value::number(given, &SHARDS));

    /// How long a sent task may live, 1s to 100 years
    "time-to-live" => Setting::new("TIME").default("4 days"),
        time_to_live: Option<Duration> = |given| {
            given.one(|given| value::duration(given, BareUnit::Refused, &LIFE))
        };

    /// The longest pause between two polls of an empty table, 50ms to 20s
    "idle-poll" => Setting::new("TIME").default("2s"),
        idle_poll: Option<Duration> = |given| {
            given.one(|given| value::duration(given, BareUnit::Refused, &PAUSE))
        };
}

/// The name of a column that belongs to the task, not to the queue.
fn column(given: &Given) -> Result<String, Problem> {
    let wanted = "the name of an attribute of the task, none of the queue's own";
    let name = value::text(given, wanted)?;
    let taken = ["taskId", "taskStatus", "taskCreated", "taskUpdated", "ttl"];
    if taken.contains(&&*name) || name.starts_with("dispatcher") {
        let found = format!("`{name}` is an attribute of the queue's own");
        return Err(Problem::new(&given.at, found, wanted));
    }
    Ok(name)
}
