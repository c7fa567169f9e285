//! What the role of a run must be allowed, as a policy document of IAM: from the settings alone, as
//! narrow as they are. Pure; where the settings leave a region or an account open, so does the
//! policy.

use super::function::{FunctionName, is_account};
use super::{Code, MetricsSink, Settings};
use crate::name::{Backend, QueueName};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The partition of everything that does not say otherwise.
const PARTITION: &str = "aws";

/// What is called on queues that messages are taken from. The calls in batches are allowed by the
/// names of the single ones (Service Authorization Reference, "Amazon SQS").
const READ: &[&str] = &[
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:ReceiveMessage",
];
const BURY: &[&str] = &[
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:SendMessage",
];
/// How the names of FIFO queues end.
const FIFO: &str = ".fifo";
/// The same of tables; conditional writes need no more (Service Authorization Reference, "Amazon
/// DynamoDB"). A transaction is allowed by the names of its parts.
const TAKE: &[&str] = &[
    "dynamodb:DescribeTable",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
];
const COPY: &[&str] = &["dynamodb:DescribeTable", "dynamodb:PutItem"];
const INVOKE: &[&str] = &["lambda:InvokeFunction"];
/// Its time-out, which attempts follow, and its reserved concurrency.
const LOOK: &[&str] = &[
    "lambda:GetFunctionConcurrency",
    "lambda:GetFunctionConfiguration",
];
const PUBLISH: &[&str] = &["cloudwatch:PutMetricData"];
/// Receiving from an encrypted queue decrypts, sending to it makes a data key as well ("Configuring KMS
/// permissions for Amazon SQS" in its developer guide).
const USE_KEY: &[&str] = &["kms:Decrypt", "kms:GenerateDataKey"];

/// The key of a queue that is encrypted with AWS KMS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueKey {
    /// A key id, `alias/NAME`, or the ARN of either.
    pub key: String,
    /// The queue's ARN, which says where a key without an ARN is.
    pub queue: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Policy {
    version: &'static str,
    statement: Vec<Statement>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Statement {
    sid: &'static str,
    effect: &'static str,
    action: &'static [&'static str],
    resource: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<Condition>,
}

type Condition = BTreeMap<&'static str, BTreeMap<&'static str, serde_json::Value>>;

/// The policy as indented JSON; the same settings give the same text. It has no statement for what
/// the settings do not use. `keys` are those of the settings' encrypted queues.
pub fn policy(settings: &Settings, keys: &[QueueKey]) -> String {
    let partition = partition(settings);
    let mut read = BTreeSet::new();
    let mut bury = BTreeSet::new();
    let mut redrive = BTreeSet::new();
    let mut take = BTreeSet::new();
    let mut copy = BTreeSet::new();
    let mut send = BTreeSet::new();
    let mut invoke = BTreeSet::new();
    let mut look = BTreeSet::new();
    for route in &settings.routes {
        let queues = route.queues.iter().map(|queue| &queue.name);
        read.extend(queues.filter_map(|name| queue_arn(name, partition)));
        let grave = route.dead_letter.as_ref();
        if grave.is_none() {
            let queues = route.queues.iter().map(|queue| &queue.name);
            redrive.extend(queues.filter_map(|name| redrive_arn(name, partition)));
        }
        bury.extend(grave.and_then(|name| queue_arn(name, partition)));
        for queue in &route.queues {
            take.extend(table_arns(&queue.name, partition));
        }
        let table = grave.and_then(|name| table_arns(name, partition).into_iter().next());
        copy.extend(table);
        let sends = route.plugin.settings.allow_send.iter();
        send.extend(sends.filter_map(|name| queue_arn(name, partition)));
        let allowed = route.plugin.settings.allow_lambda.iter();
        invoke.extend(allowed.map(|pattern| function_arn(pattern, partition)));
        if let Code::Forward(forward) = &route.plugin.code {
            let arn = function_arn(&forward.function, partition);
            // Concurrency is a property of the function, not of its versions.
            look.insert(unqualified(&forward.function, &arn));
            look.insert(arn.clone());
            invoke.insert(arn);
        }
    }
    let mut statement = vec![
        statement("TakeMessages", READ, read),
        statement("BuryDeadLetters", BURY, bury),
        statement("SendToRedriveTargets", BURY, redrive),
        statement("TakeTasks", TAKE, take),
        statement("BuryTasks", COPY, copy),
        statement("SendMessages", BURY, send),
        statement("InvokeFunctions", INVOKE, invoke),
        statement("LookAtFunctions", LOOK, look),
    ];
    statement.extend(use_keys(keys));
    statement.extend(publish(settings));
    statement.retain(|statement| !statement.resource.is_empty());
    let policy = Policy {
        version: "2012-10-17",
        statement,
    };
    serde_json::to_string_pretty(&policy).expect("texts in lists are JSON")
}

fn statement(
    sid: &'static str,
    action: &'static [&'static str],
    resource: BTreeSet<String>,
) -> Statement {
    Statement {
        sid,
        effect: "Allow",
        action,
        resource,
        condition: None,
    }
}

/// A statement for the keys that are known by their ids, and one for those known by an alias, which
/// is no resource of a policy and stands in a condition.
fn use_keys(keys: &[QueueKey]) -> impl Iterator<Item = Statement> {
    let (mut ids, mut places, mut aliases) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for QueueKey { key, queue } in keys {
        let arn = if key.starts_with("arn:") { key } else { queue };
        let mut parts = arn.split(':').skip(1);
        let partition = parts.next().unwrap_or(PARTITION);
        let mut place = parts
            .skip(1)
            .map(|part| if part.is_empty() { "*" } else { part });
        let (region, account) = (place.next().unwrap_or("*"), place.next().unwrap_or("*"));
        let all = format!("arn:{partition}:kms:{region}:{account}:key/");
        let name = key.rsplit(':').next().unwrap_or(key);
        if name.starts_with("alias/") {
            places.insert(format!("{all}*"));
            aliases.insert(name.to_owned());
        } else {
            let id = name.trim_start_matches("key/");
            ids.insert(format!("{all}{id}"));
        }
    }
    let aliases = BTreeMap::from([("kms:ResourceAliases", serde_json::json!(aliases))]);
    let by_alias = Statement {
        condition: Some(BTreeMap::from([("ForAnyValue:StringEquals", aliases)])),
        ..statement("UseKeysByAlias", USE_KEY, places)
    };
    [statement("UseKeys", USE_KEY, ids), by_alias].into_iter()
}

/// `PutMetricData` knows no resources; the namespace is what narrows it.
fn publish(settings: &Settings) -> Option<Statement> {
    let name = settings.program.name.as_ref()?;
    let sink = settings.metrics?.sink;
    (sink == MetricsSink::CloudWatch).then(|| {
        let namespace = format!("Dispatcher-{name}");
        let namespace = BTreeMap::from([("cloudwatch:namespace", namespace.into())]);
        Statement {
            condition: Some(BTreeMap::from([("StringEquals", namespace)])),
            ..statement("PublishMetrics", PUBLISH, BTreeSet::from(["*".to_owned()]))
        }
    })
}

/// The partition that anything in the settings names: credentials reach only one.
fn partition(settings: &Settings) -> &str {
    let mut known = settings.routes.iter().flat_map(|route| {
        let queues = route.queues.iter().map(|queue| &queue.name);
        let queues = queues.chain(&route.dead_letter);
        let queues = queues.filter_map(|name| of_queue(&name.name));
        let function = match &route.plugin.code {
            Code::Forward(forward) => of_arn(&forward.function),
            Code::Component(_) | Code::Missing => None,
        };
        let allowed = route.plugin.settings.allow_lambda.iter();
        queues
            .chain(function)
            .chain(allowed.filter_map(|pattern| of_arn(pattern)))
    });
    known.next().unwrap_or(PARTITION)
}

fn of_arn(text: &str) -> Option<&str> {
    let partition = text.strip_prefix("arn:")?.split(':').next()?;
    (partition != "*").then_some(partition)
}

fn of_queue(name: &str) -> Option<&str> {
    of_arn(name).or_else(|| {
        let region = region_in(name)?;
        Some(if region.starts_with("cn-") {
            "aws-cn"
        } else if region.starts_with("us-gov-") {
            "aws-us-gov"
        } else {
            PARTITION
        })
    })
}

/// `None` for a queue that is not on SQS.
fn queue_arn(name: &QueueName, partition: &str) -> Option<String> {
    if name.backend != Backend::Sqs {
        return None;
    }
    let text = name.name.as_str();
    if text.starts_with("arn:") {
        return Some(text.to_owned());
    }
    let Some((_, path)) = text.split_once("://") else {
        return Some(format!("arn:{partition}:sqs:*:*:{text}"));
    };
    let mut parts = path.rsplit('/');
    let queue = parts.next().unwrap_or_default();
    let account = parts.next().filter(|part| is_account(part)).unwrap_or("*");
    let region = region_in(text).unwrap_or("*");
    Some(format!("arn:{partition}:sqs:{region}:{account}:{queue}"))
}

/// Where the redrive policy of a FIFO queue may move its messages: a FIFO queue of the same account
/// and region, whose name the settings do not tell. `None` for any other queue.
fn redrive_arn(name: &QueueName, partition: &str) -> Option<String> {
    let arn = queue_arn(name, partition).filter(|arn| arn.ends_with(FIFO))?;
    let (place, _) = arn.rsplit_once(':')?;
    Some(format!("{place}:*{FIFO}"))
}

/// A table and its indices; nothing for a queue that is no table.
fn table_arns(name: &QueueName, partition: &str) -> Vec<String> {
    if name.backend != Backend::DynamoDb {
        return Vec::new();
    }
    let table = format!("arn:{partition}:dynamodb:*:*:table/{}", name.name);
    let indices = format!("{table}/index/*");
    vec![table, indices]
}

/// The region in the host of a queue's URL at AWS: `sqs.REGION.amazonaws.com`, inside a VPC
/// `….sqs.REGION.vpce.amazonaws.com`, or the old `REGION.queue.amazonaws.com`.
fn region_in(url: &str) -> Option<&str> {
    let host = url.split_once("://")?.1.split(['/', ':']).next()?;
    if !host.ends_with(".amazonaws.com") && !host.ends_with(".amazonaws.com.cn") {
        return None;
    }
    let labels: Vec<&str> = host.split('.').collect();
    match labels
        .iter()
        .position(|label| ["sqs", "sqs-fips"].contains(label))
    {
        Some(at) => labels.get(at + 1).copied(),
        None => match labels[..] {
            ["queue", ..] => Some("us-east-1"),
            [region, "queue", ..] => Some(region),
            _ => None,
        },
    }
}

/// Of a function or a pattern; stars mean the same in both.
fn function_arn(text: &str, partition: &str) -> String {
    match text.split_once(":function:") {
        Some((before, _)) if before.starts_with("arn:") => text.to_owned(),
        Some((account, name)) => format!("arn:{partition}:lambda:*:{account}:function:{name}"),
        None if text.starts_with("arn:") => text.to_owned(),
        None => format!("arn:{partition}:lambda:*:*:function:{text}"),
    }
}

/// The ARN without the qualifier that the function was named with.
fn unqualified(function: &str, arn: &str) -> String {
    let qualifier = FunctionName::parse(function).and_then(|function| function.qualifier);
    let length = qualifier.map_or(0, |qualifier| qualifier.len() + 1);
    arn[..arn.len() - length].to_owned()
}

#[cfg(test)]
mod tests;
