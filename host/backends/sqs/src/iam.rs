//! The IAM permissions for a queue, derived from its name alone. Makes no calls. If the name
//! contains no region or account, the permission is for all of them.

use crate::host::{AwsHost, host_in};
use dispatcher_core::backend::{Permission, Purpose};

/// The actions on queues that messages are taken from. The permissions for single calls also allow
/// the batch calls (Service Authorization Reference, "Amazon SQS").
const READ: &[&str] = &[
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:ReceiveMessage",
];
const LIST: &[&str] = &["sqs:ListQueues"];
const FIND: &[&str] = &["sqs:ListDeadLetterSourceQueues", "sqs:ListQueueTags"];
const SEND: &[&str] = &[
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:SendMessage",
];
/// The suffix of the names of FIFO queues.
const FIFO: &str = ".fifo";

/// Returns the permission for a queue, given by its name, URL or ARN.
pub(crate) fn permission(queue: &str, purpose: Purpose, partition: &str) -> Option<Permission> {
    let arn = queue_arn(queue, partition);
    let (sid, actions, resource) = match purpose {
        // The action has no resources.
        Purpose::List => ("ListQueues", LIST, "*".to_owned()),
        Purpose::Find => ("FindQueues", FIND, arn),
        Purpose::Receive => ("TakeMessages", READ, arn),
        Purpose::DeadLetter => ("SendDeadLetters", SEND, arn),
        Purpose::Redrive => ("SendToRedriveTargets", SEND, redrive_arn(&arn)?),
        Purpose::Send => ("SendMessages", SEND, arn),
        Purpose::Fleet => return None,
    };
    Some(Permission {
        sid,
        actions,
        resources: vec![resource],
    })
}

/// Returns the partition that a URL or an ARN contains.
pub(crate) fn partition(queue: &str) -> Option<&str> {
    if let Some(rest) = queue.strip_prefix("arn:") {
        return rest.split(':').next().filter(|partition| *partition != "*");
    }
    Some(AwsHost::of(host_in(queue)?)?.partition())
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
    let host = host_in(queue).and_then(AwsHost::of);
    let region = host.as_ref().map_or("*", |host| &host.region);
    format!("arn:{partition}:sqs:{region}:{account}:{name}")
}

/// Returns the ARN pattern of the queues to which the redrive policy of a FIFO queue may move
/// messages: FIFO queues of the same account and region, since the configuration does not contain
/// the name. `None` for any other queue.
fn redrive_arn(arn: &str) -> Option<String> {
    let (place, name) = arn.rsplit_once(':')?;
    name.ends_with(FIFO).then(|| format!("{place}:*{FIFO}"))
}

/// Whether the text is an AWS account number.
fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}
