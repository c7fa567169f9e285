//! A queue's attributes as SQS names them, and the settings of the embedded queue. Reads, checks
//! and shows; changes nothing itself.

use super::fault::{Fault, FaultKind};
use super::input::Texts;
use dispatcher_core::queue::Depth;
use dispatcher_local::queue::{KnownQueue, LONGEST_MESSAGE, QueueSettings, Redrive, arn, named_by};
use serde_json::{Value, json};

/// What may be set to a whole number, and from where to where (CreateQueue's page in the SQS API).
const NUMBERS: [(&str, u64, u64); 6] = [
    ("DelaySeconds", 0, 900),
    ("MaximumMessageSize", 1024, LONGEST_MESSAGE),
    ("MessageRetentionPeriod", 60, 1_209_600),
    ("ReceiveMessageWaitTimeSeconds", 0, 20),
    ("VisibilityTimeout", 0, 43_200),
    ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
];
/// What is kept and shown again and means nothing here.
const KEPT: [&str; 6] = [
    "Policy",
    "RedriveAllowPolicy",
    "KmsMasterKeyId",
    "KmsDataKeyReusePeriodSeconds",
    "SqsManagedSseEnabled",
    "FifoThroughputLimit",
];
/// What only we say.
const READ_ONLY: [&str; 6] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
];
/// What is shown of a queue that keeps everything: the most that SQS knows.
const LONGEST_RETENTION_S: u64 = 1_209_600;
/// The suffix that tells a FIFO queue.
const FIFO: &str = ".fifo";

/// Whether a queue of the name is a FIFO queue.
pub(crate) fn is_fifo(name: &str) -> bool {
    name.ends_with(FIFO)
}

/// What a new queue is set to.
pub(crate) fn new(name: &str, given: &Texts, tags: Texts) -> Result<QueueSettings, Fault> {
    let mut settings = QueueSettings {
        fifo: is_fifo(name),
        tags,
        ..QueueSettings::default()
    };
    if settings.fifo && given.get("FifoQueue").map(String::as_str) != Some("true") {
        return Err(Fault::new(
            FaultKind::InvalidParameterValue,
            "The name of a standard queue can only include alphanumeric characters, hyphens, or \
             underscores; a FIFO queue, whose name ends with .fifo, needs FifoQueue=true",
        ));
    }
    apply(&mut settings, name, given)?;
    Ok(settings)
}

/// Sets what is given; the rest stays.
pub(crate) fn apply(settings: &mut QueueSettings, name: &str, given: &Texts) -> Result<(), Fault> {
    for (attribute, value) in given {
        let bad = || {
            Fault::new(
                FaultKind::InvalidAttributeValue,
                format!("Invalid value for the parameter {attribute}."),
            )
        };
        let flag = || match value.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(bad()),
        };
        let number = match NUMBERS.iter().find(|(known, ..)| known == attribute) {
            None => 0,
            Some((_, least, most)) => {
                let number = value.parse().ok();
                let number = number.filter(|number| (least..=most).contains(&number));
                number.ok_or_else(bad)?
            }
        };
        match attribute.as_str() {
            "DelaySeconds" => settings.delay_s = number,
            "MaximumMessageSize" => settings.longest = number,
            "MessageRetentionPeriod" => settings.retention_s = Some(number),
            "ReceiveMessageWaitTimeSeconds" => settings.wait_s = number,
            "VisibilityTimeout" => settings.visibility_s = number,
            "RedrivePolicy" => settings.redrive = redrive(value, name)?,
            // True of FIFO queues alone, whose name says so, and not to be changed.
            "FifoQueue" if flag()? == is_fifo(name) => {}
            "FifoQueue" => return Err(bad()),
            "ContentBasedDeduplication" | "DeduplicationScope" | "FifoThroughputLimit"
                if !is_fifo(name) =>
            {
                return Err(unknown(attribute));
            }
            "ContentBasedDeduplication" => settings.ids_from_content = flag()?,
            "DeduplicationScope" => {
                settings.ids_by_group = match value.as_str() {
                    "messageGroup" => true,
                    "queue" => false,
                    _ => return Err(bad()),
                };
            }
            kept if KEPT.contains(&kept) => {
                if value.is_empty() {
                    settings.other.remove(kept);
                } else {
                    settings.other.insert(kept.to_owned(), value.clone());
                }
            }
            _ => return Err(unknown(attribute)),
        }
    }
    Ok(())
}

fn unknown(attribute: &str) -> Fault {
    Fault::new(
        FaultKind::InvalidAttributeName,
        format!("Unknown Attribute {attribute}."),
    )
}

/// `{"deadLetterTargetArn":"…","maxReceiveCount":5}`; nothing for an empty text.
fn redrive(value: &str, name: &str) -> Result<Option<Redrive>, Fault> {
    if value.is_empty() {
        return Ok(None);
    }
    let bad = |reason: &str| Fault::value(value, "RedrivePolicy", reason);
    let policy: Value =
        serde_json::from_str(value).map_err(|_| bad("Redrive policy is not valid JSON."))?;
    let target = policy["deadLetterTargetArn"].as_str();
    let target = target.ok_or_else(|| {
        bad("Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
    })?;
    let most = &policy["maxReceiveCount"];
    if most.is_null() {
        return Err(bad(
            "Redrive policy does not contain mandatory attribute: maxReceiveCount.",
        ));
    }
    // People write it as a text, too.
    let most = most
        .as_u64()
        .or_else(|| most.as_str()?.parse().ok())
        .filter(|most| (1..=1000).contains(most))
        .and_then(|most| u32::try_from(most).ok())
        .ok_or_else(|| bad("Invalid value for maxReceiveCount: must be between 1 and 1000."))?;
    let dead_letter_queue =
        named_by(target).ok_or_else(|| bad("Dead letter target is not an SQS ARN."))?;
    if dead_letter_queue == name {
        return Err(bad("Dead letter target owner should not be the source."));
    }
    if is_fifo(dead_letter_queue) != is_fifo(name) {
        return Err(bad(
            "Dead-letter queue must be same type of queue as the source.",
        ));
    }
    Ok(Some(Redrive {
        most_receives: most,
        dead_letter_queue: dead_letter_queue.to_owned(),
    }))
}

/// Every attribute of a queue with its value, as SQS shows it.
pub(crate) fn all(known: &KnownQueue, depth: &Depth) -> Vec<(&'static str, String)> {
    let settings = &known.settings;
    let seconds = |date: dispatcher_core::clock::Timestamp| (date.0 / 1000).to_string();
    let mut list = vec![
        ("ApproximateNumberOfMessages", depth.waiting.to_string()),
        (
            "ApproximateNumberOfMessagesNotVisible",
            depth.in_flight.to_string(),
        ),
        (
            "ApproximateNumberOfMessagesDelayed",
            depth.delayed.to_string(),
        ),
        ("CreatedTimestamp", seconds(settings.created)),
        ("LastModifiedTimestamp", seconds(settings.changed)),
        ("QueueArn", arn(&known.name)),
    ];
    list.extend(set_by_people(known));
    list
}

/// What people can set, as it is set.
fn set_by_people(known: &KnownQueue) -> Vec<(&'static str, String)> {
    let settings = &known.settings;
    let retention = settings.retention_s.unwrap_or(LONGEST_RETENTION_S);
    let mut list = vec![
        ("DelaySeconds", settings.delay_s.to_string()),
        ("MaximumMessageSize", settings.longest.to_string()),
        ("MessageRetentionPeriod", retention.to_string()),
        ("ReceiveMessageWaitTimeSeconds", settings.wait_s.to_string()),
        ("VisibilityTimeout", settings.visibility_s.to_string()),
    ];
    if let Some(redrive) = &settings.redrive {
        let policy = json!({
            "deadLetterTargetArn": arn(&redrive.dead_letter_queue),
            "maxReceiveCount": redrive.most_receives,
        });
        list.push(("RedrivePolicy", policy.to_string()));
    }
    if settings.fifo {
        let scope = match settings.ids_by_group {
            true => "messageGroup",
            false => "queue",
        };
        list.push(("FifoQueue", "true".into()));
        list.push((
            "ContentBasedDeduplication",
            settings.ids_from_content.to_string(),
        ));
        list.push(("DeduplicationScope", scope.into()));
        if !settings.other.contains_key("FifoThroughputLimit") {
            list.push(("FifoThroughputLimit", "perQueue".into()));
        }
    }
    for name in KEPT {
        if let Some(value) = settings.other.get(name) {
            list.push((name, value.clone()));
        }
    }
    list
}

/// Whether there is an attribute of the name.
pub(crate) fn is_known(name: &str) -> bool {
    let settable = [
        "RedrivePolicy",
        "FifoQueue",
        "ContentBasedDeduplication",
        "DeduplicationScope",
    ];
    NUMBERS.iter().any(|(known, ..)| *known == name)
        || KEPT.contains(&name)
        || READ_ONLY.contains(&name)
        || settable.contains(&name)
        || name == "All"
}

/// Those among the wanted names of attributes that there are none of.
pub(crate) fn check(names: &[String]) -> Result<(), Fault> {
    match names.iter().find(|name| !is_known(name)) {
        Some(strange) => Err(unknown(strange)),
        None => Ok(()),
    }
}

/// The attributes that a request to make a queue names and that the one there is differs in.
pub(crate) fn differences(known: &KnownQueue, given: &Texts) -> Result<Vec<String>, Fault> {
    let mut wished = known.clone();
    apply(&mut wished.settings, &known.name, given)?;
    let (wished, there) = (set_by_people(&wished), set_by_people(known));
    let differ = |name: &&String| {
        let value = |list: &[(&str, String)]| {
            let found = list.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone())
        };
        value(&wished) != value(&there)
    };
    Ok(given.keys().filter(differ).cloned().collect())
}

#[cfg(test)]
mod tests;
