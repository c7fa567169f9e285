//! The IAM permissions for a queue, from its name alone. Calls nothing; if the name leaves a region
//! or an account open, so does the permission.

use dispatcher_core::backend::{Permission, Purpose};

/// What is called on queues that messages are taken from. The calls in batches are allowed by the
/// names of the single ones (Service Authorization Reference, "Amazon SQS").
const READ: &[&str] = &[
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:ReceiveMessage",
];
const SEND: &[&str] = &[
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:SendMessage",
];
/// How the names of FIFO queues end.
const FIFO: &str = ".fifo";

/// Of a queue by its name, URL or ARN.
pub(crate) fn permission(queue: &str, purpose: Purpose, partition: &str) -> Option<Permission> {
    let arn = queue_arn(queue, partition);
    let (sid, actions, resource) = match purpose {
        Purpose::Receive => ("TakeMessages", READ, arn),
        Purpose::DeadLetter => ("SendDeadLetters", SEND, arn),
        Purpose::Redrive => ("SendToRedriveTargets", SEND, redrive_arn(&arn)?),
        Purpose::Send => ("SendMessages", SEND, arn),
    };
    Some(Permission {
        sid,
        actions,
        resources: vec![resource],
    })
}

/// The partition that a URL or an ARN tells.
pub(crate) fn partition(queue: &str) -> Option<&str> {
    if let Some(rest) = queue.strip_prefix("arn:") {
        return rest.split(':').next().filter(|partition| *partition != "*");
    }
    let region = region_in(queue)?;
    Some(if region.starts_with("cn-") {
        "aws-cn"
    } else if region.starts_with("us-gov-") {
        "aws-us-gov"
    } else {
        "aws"
    })
}

fn queue_arn(queue: &str, partition: &str) -> String {
    if queue.starts_with("arn:") {
        return queue.to_owned();
    }
    let Some((_, path)) = queue.split_once("://") else {
        return format!("arn:{partition}:sqs:*:*:{queue}");
    };
    let mut parts = path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let account = parts.next().filter(|part| is_account(part)).unwrap_or("*");
    let region = region_in(queue).unwrap_or("*");
    format!("arn:{partition}:sqs:{region}:{account}:{name}")
}

/// Where the redrive policy of a FIFO queue may move its messages: a FIFO queue of the same account
/// and region, whose name the settings do not tell. `None` for any other queue.
fn redrive_arn(arn: &str) -> Option<String> {
    let (place, name) = arn.rsplit_once(':')?;
    name.ends_with(FIFO).then(|| format!("{place}:*{FIFO}"))
}

/// Whether the text is the number of an account of AWS.
fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
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
