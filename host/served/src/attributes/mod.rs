//! The attributes of a queue as SQS names them, and the settings of the embedded queue. Reads,
//! checks and shows them; changes no queue.

use super::fault::{Fault, FaultKind};
use super::input::Texts;
use super::permissions;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::queue::Depth;
use dispatcher_local::queue::{KnownQueue, LONGEST_MESSAGE, QueueSettings, Redrive, arn, named_by};
use serde_json::{Value, json};

/// The attributes that are whole numbers, with minimum and maximum (CreateQueue's page in the SQS
/// API).
const NUMBERS: [(&str, u64, u64); 6] = [
    ("DelaySeconds", 0, 900),
    ("MaximumMessageSize", 1024, LONGEST_MESSAGE),
    ("MessageRetentionPeriod", 60, 1_209_600),
    ("ReceiveMessageWaitTimeSeconds", 0, 20),
    ("VisibilityTimeout", 0, 43_200),
    ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
];
/// The attributes that are stored and returned, but have no effect here.
const KEPT: [&str; 6] = [
    permissions::POLICY,
    ALLOW_POLICY,
    KEY,
    KEY_PERIOD,
    SSE,
    THROUGHPUT,
];
const ALLOW_POLICY: &str = "RedriveAllowPolicy";
/// The two kinds of encryption, of which a queue has one: with a KMS key, or SQS-managed.
const KEY: &str = "KmsMasterKeyId";
const SSE: &str = "SqsManagedSseEnabled";
const KEY_PERIOD: &str = "KmsDataKeyReusePeriodSeconds";
/// The default value, which SQS does not show.
const USUAL_KEY_PERIOD: &str = "300";
const THROUGHPUT: &str = "FifoThroughputLimit";
const PER_QUEUE: &str = "perQueue";
const PER_GROUP: &str = "perMessageGroupId";
/// The attributes that clients cannot set.
const READ_ONLY: [&str; 6] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
];
/// The retention that is shown for a queue that keeps messages forever: SQS's maximum.
const LONGEST_RETENTION_S: u64 = 1_209_600;
/// The suffix of a FIFO queue's name.
const FIFO: &str = ".fifo";

/// Whether a queue of this name is a FIFO queue.
pub(crate) fn is_fifo(name: &str) -> bool {
    name.ends_with(FIFO)
}

/// Whether the request asks for a FIFO queue.
pub(crate) fn wants_fifo(given: &Texts) -> bool {
    let flag = given.get("FifoQueue");
    flag.is_some_and(|flag| flag.eq_ignore_ascii_case("true"))
}

/// Returns the settings of a new queue. If it is to be a FIFO queue, its name must be that of one.
pub(crate) fn new(name: &str, given: &Texts, tags: Texts) -> Result<QueueSettings, Fault> {
    let mut settings = QueueSettings {
        fifo: is_fifo(name),
        tags,
        ..QueueSettings::default()
    };
    apply(&mut settings, name, given)?;
    Ok(settings)
}

/// Applies the given attributes; the rest stays.
pub(crate) fn apply(settings: &mut QueueSettings, name: &str, given: &Texts) -> Result<(), Fault> {
    for (attribute, value) in given {
        set(settings, name, attribute, value)?;
    }
    encrypt(settings, given)?;
    let by_group = settings
        .other
        .get(THROUGHPUT)
        .is_some_and(|limit| limit == PER_GROUP);
    if by_group && !settings.ids_by_group {
        return Err(Fault::new(
            FaultKind::InvalidAttributeValue,
            format!(
                "Invalid value for the parameter {THROUGHPUT}. Reason: {PER_GROUP} is allowed only when \
                 the value for DeduplicationScope is messageGroup."
            ),
        ));
    }
    Ok(())
}

/// Sets one attribute.
fn set(
    settings: &mut QueueSettings,
    name: &str,
    attribute: &str,
    value: &str,
) -> Result<(), Fault> {
    let number = match NUMBERS.iter().find(|(known, ..)| *known == attribute) {
        None => 0,
        Some((_, least, most)) => {
            let number = value
                .parse()
                .ok()
                .filter(|number| (least..=most).contains(&number));
            number.ok_or_else(|| Fault::attribute_value(attribute))?
        }
    };
    if !is_fifo(name) {
        check_standard(attribute)?;
    }
    match attribute {
        "DelaySeconds" => settings.delay_s = number,
        "MaximumMessageSize" => settings.longest = number,
        "MessageRetentionPeriod" => settings.retention_s = Some(number),
        "ReceiveMessageWaitTimeSeconds" => settings.wait_s = number,
        "VisibilityTimeout" => settings.visibility_s = number,
        "RedrivePolicy" => settings.redrive = redrive(value, name)?,
        "FifoQueue" if flag(attribute, value)? => {}
        "FifoQueue" => {
            return Err(Fault::new(
                FaultKind::InvalidAttributeValue,
                "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not \
                 supported.",
            ));
        }
        "ContentBasedDeduplication" => settings.ids_from_content = flag(attribute, value)?,
        "DeduplicationScope" => {
            settings.ids_by_group = match value {
                "messageGroup" => true,
                "queue" => false,
                _ => return Err(Fault::attribute_value(attribute)),
            };
        }
        THROUGHPUT if ![PER_QUEUE, PER_GROUP].contains(&value) => {
            return Err(Fault::attribute_value(attribute));
        }
        permissions::POLICY if !value.is_empty() && !permissions::is_policy(value) => {
            return Err(Fault::attribute_value(attribute));
        }
        ALLOW_POLICY if !value.is_empty() => {
            check_allow_policy(value)?;
            settings
                .other
                .insert(attribute.to_owned(), value.to_owned());
        }
        SSE => {
            let enabled = flag(attribute, value)?;
            settings.other.insert(SSE.to_owned(), enabled.to_string());
        }
        kept if KEPT.contains(&kept) && value.is_empty() => drop(settings.other.remove(kept)),
        kept if KEPT.contains(&kept) => {
            settings.other.insert(kept.to_owned(), value.to_owned());
        }
        _ => return Err(Fault::unknown_attribute(attribute)),
    }
    Ok(())
}

/// Parses `true` or `false`, in any case: `str(True)` of Python is `True`.
fn flag(attribute: &str, value: &str) -> Result<bool, Fault> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Fault::attribute_value(attribute)),
    }
}

/// Rejects attributes that only FIFO queues have, in the words of SQS.
fn check_standard(attribute: &str) -> Result<(), Fault> {
    match attribute {
        "FifoQueue" | "ContentBasedDeduplication" => Err(Fault::unknown_attribute(attribute)),
        "DeduplicationScope" | THROUGHPUT => Err(Fault::new(
            FaultKind::InvalidAttributeName,
            format!("You can specify the {attribute} only when FifoQueue is set to true."),
        )),
        _ => Ok(()),
    }
}

/// Keeps one kind of encryption per queue: a KMS key turns SQS-managed encryption off, and the
/// latter removes the key. Once the key is removed, a queue has none until SQS-managed encryption
/// is set.
fn encrypt(settings: &mut QueueSettings, given: &Texts) -> Result<(), Fault> {
    let sse = given.get(SSE).map(|value| flag(SSE, value)).transpose()?;
    match given.get(KEY).map(|key| !key.is_empty()) {
        Some(true) if sse == Some(true) => Err(Fault::new(
            FaultKind::InvalidAttributeName,
            "You can use one type of server-side encryption (SSE) at one time. You can either \
             enable KMS SSE or SQS SSE.",
        )),
        Some(true) => {
            settings.other.insert(SSE.to_owned(), "false".to_owned());
            Ok(())
        }
        _ => {
            if sse == Some(true) {
                settings.other.remove(KEY);
            }
            Ok(())
        }
    }
}

/// Whether SQS-managed encryption is on, which is the default.
fn managed_encryption(settings: &QueueSettings) -> bool {
    match settings.other.get(SSE) {
        Some(set) => set.eq_ignore_ascii_case("true"),
        None => !settings.other.contains_key(KEY),
    }
}

/// Checks `{"redrivePermission":"byQueue","sourceQueueArns":[…]}`.
fn check_allow_policy(value: &str) -> Result<(), Fault> {
    let policy: Option<Value> = serde_json::from_str(value).ok();
    let permission = policy
        .as_ref()
        .and_then(|policy| policy["redrivePermission"].as_str());
    let sources = policy
        .as_ref()
        .map(|policy| &policy["sourceQueueArns"])
        .filter(|sources| !sources.is_null());
    let is_good = match permission {
        Some("allowAll" | "denyAll") => sources.is_none(),
        Some("byQueue") => sources.is_some_and(|sources: &Value| {
            let list = sources.as_array();
            list.is_some_and(|list| {
                (1..=10).contains(&list.len()) && list.iter().all(Value::is_string)
            })
        }),
        _ => false,
    };
    if is_good {
        return Ok(());
    }
    let reason =
        "Amazon SQS can't create the redrive allow policy, as it's in an unsupported format.";
    Err(Fault::value(value, ALLOW_POLICY, reason))
}

/// Parses `{"deadLetterTargetArn":"…","maxReceiveCount":5}`; `None` for an empty text.
fn redrive(value: &str, name: &str) -> Result<Option<Redrive>, Fault> {
    if value.is_empty() {
        return Ok(None);
    }
    let bad = |reason: &str| Fault::value(value, "RedrivePolicy", reason);
    let policy = serde_json::from_str::<Value>(value)
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| bad("Redrive policy is not a valid JSON map."))?;
    let target = policy["deadLetterTargetArn"].as_str().ok_or_else(|| {
        bad("Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
    })?;
    let given = &policy["maxReceiveCount"];
    if given.is_null() {
        return Err(bad(
            "Redrive policy does not contain mandatory attribute: maxReceiveCount.",
        ));
    }
    // Some clients write it as text.
    let most = given
        .as_u64()
        .or_else(|| given.as_str()?.parse().ok())
        .filter(|most| (1..=1000).contains(most))
        .and_then(|most| u32::try_from(most).ok())
        .ok_or_else(|| {
            let given = given
                .as_str()
                .map_or_else(|| given.to_string(), str::to_owned);
            bad(&format!(
                "Invalid value for maxReceiveCount: {given}, valid values are from 1 to 1000 both \
                 inclusive."
            ))
        })?;
    let dead_letter_queue =
        named_by(target).ok_or_else(|| bad("Invalid value for deadLetterTargetArn."))?;
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

/// Returns every attribute of a queue with its value, as SQS shows it.
pub(crate) fn all(known: &KnownQueue, depth: &Depth) -> Vec<(&'static str, String)> {
    let settings = &known.settings;
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

fn seconds(date: Timestamp) -> String {
    (date.0 / 1000).to_string()
}

/// Returns the attributes that clients can set, with their values.
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
        let scope = if settings.ids_by_group {
            "messageGroup"
        } else {
            "queue"
        };
        list.push(("FifoQueue", "true".into()));
        list.push((
            "ContentBasedDeduplication",
            settings.ids_from_content.to_string(),
        ));
        list.push(("DeduplicationScope", scope.into()));
        if !settings.other.contains_key(THROUGHPUT) {
            list.push((THROUGHPUT, PER_QUEUE.into()));
        }
    }
    list.push((SSE, managed_encryption(settings).to_string()));
    for name in KEPT {
        if let Some(value) = settings.other.get(name)
            && !(name == KEY_PERIOD && value == USUAL_KEY_PERIOD)
            && name != SSE
        {
            list.push((name, value.clone()));
        }
    }
    list
}

/// Whether there is an attribute of this name.
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

/// Checks that the requested attributes exist.
pub(crate) fn check(names: &[String]) -> Result<(), Fault> {
    match names.iter().find(|name| !is_known(name)) {
        Some(strange) => Err(Fault::unknown_attribute(strange)),
        None => Ok(()),
    }
}

/// Returns the attributes of a CreateQueue request that differ from those of the existing queue.
pub(crate) fn differences(known: &KnownQueue, given: &Texts) -> Result<Vec<String>, Fault> {
    let mut wished = known.clone();
    apply(&mut wished.settings, &known.name, given)?;
    let (wished, there) = (set_by_people(&wished), set_by_people(known));
    Ok(given
        .keys()
        .filter(|name: &&String| value_of(&wished, name) != value_of(&there, name))
        .cloned()
        .collect())
}

fn value_of<'a>(list: &'a [(&str, String)], name: &str) -> Option<&'a str> {
    let found = list.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests;
