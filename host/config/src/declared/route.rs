//! The settings of a route: which messages it takes, in which order, and how much at once.

use super::macros::settings;
use super::{Group, PerQueue, Reload, Setting, SettingPart, Shape, Syntax, Table};
use crate::discovery::name_pattern;
use crate::problem::Problem;
use crate::section::WrittenValue;
use crate::value;
use crate::value::BareUnit;
use dispatcher_core::account::NamePattern;
use dispatcher_core::envelope::{Envelope, S3Pointers};
use dispatcher_core::filter::Filter;
use dispatcher_core::message::place::{MessageKey, MessagePlace};
use dispatcher_core::queue::VISIBILITY_CEILING;
use dispatcher_core::queue::sharing::{MOST_WEIGHT, Priority};
use dispatcher_core::scheduler::ready::Sequence;
use dispatcher_core::settlement::decide::{ShedAction, ShedPolicy, UnmatchedAction};
use std::time::Duration;

const CONCURRENCY: usize = 50;
/// Maximum concurrent attempts, of a route and of a queue.
pub(crate) const MOST_CONCURRENCY: usize = 100_000;
/// The maximum of Lambda's own event source mapping.
const MOST_BATCH: usize = 10_000;
const MOST_PREFETCH: usize = 100_000;
const LONGEST_POLL: Duration = Duration::from_secs(20);
/// The default number of queues that a pattern serves. Each is received from by itself.
const QUEUES: usize = 100;
const MOST_QUEUES: usize = 1_000;
const LONGEST_WINDOW: Duration = Duration::from_secs(300);
/// How long something may be remembered, and how old a message may be.
const AGES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(31_557_600);

settings! {
    /// `[[route]]`, and the flags of the only route.
    SETTINGS of SettingPart::Route, in &[Table::Route];
    /// The settings of a route that stand alone.
    struct RouteSettings;

    /// The route's name in the log and in metrics
    "name" => Setting::new("NAME").default("its plugin's name");

    /// The [plugin.NAME] that handles its messages
    "plugin" => Setting::new("NAME").default("the only plugin of the file");

    /// The queue that each message is sent to, in place of a plugin: a name, an SQS URL or ARN, or
    /// local:NAME; a message is deleted once that queue has it
    "send-to" => Setting::new("QUEUE").names_queues().flag(Group::Handler);

    /// Queues, the most urgent first; or each with a weight, as in payments:3,default:1
    "queues" => Setting::new("LIST").shape(Shape::List).names_queues().default("local:default")
        .flag(Group::Queues).syntax(Syntax::Text);

    /// The most queues that a pattern in `queues` serves, as in prod-*
    "max-queues" => Setting::new("N").default("100").applies(Reload::Live).flag(Group::Queues),
        max_queues: usize = |given| {
            given.one(|given| value::number(given, &(1..=MOST_QUEUES))).unwrap_or(QUEUES)
        };

    /// A tag that queues of patterns in `queues` must have, as in team=payments; may be repeated
    "queue-tag" => Setting::new("NAME=VALUE").shape(Shape::Map).default("none")
        .applies(Reload::Live).flag(Group::Queues).syntax(Syntax::Pairs),
        queue_tag: Vec<(String, String)> = |given| {
            given.entries(|_, given| Ok(given.text.trim().to_owned()))
        };

    /// Queues that patterns in `queues` leave out, by name or pattern, as in prod-*-dead; may be
    /// repeated
    "queue-except" => Setting::new("PATTERN").shape(Shape::List).names_queues().default("none")
        .applies(Reload::Live).flag(Group::Queues),
        queue_except: Vec<NamePattern> = |given| given.each(name_pattern);

    /// The [account.NAME] of its queues
    "account" => Setting::new("NAME").default("the account whose patterns match, else the process's own");

    /// How long one receive waits for messages, 0 to 20 seconds
    "poll-for" => Setting::new("S").default("20").flag(Group::Queues),
        poll_for: Duration = |given| {
            given.one(|given| seconds(given, LONGEST_POLL)).unwrap_or(LONGEST_POLL)
        };

    /// The pause after an empty receive, in seconds
    "sleep" => Setting::new("S").default("0").flag(Group::Queues),
        sleep: Duration = |given| {
            given.one(|given| seconds(given, Duration::MAX)).unwrap_or_default()
        };

    /// How long a received message stays invisible unless extended, 0 to 43200 seconds
    "visibility" => Setting::new("S").default("the queue's own").flag(Group::Queues),
        visibility: Option<Duration> = |given| given.one(|given| seconds(given, VISIBILITY_CEILING));

    /// The dead-letter queue, on the same backend
    "dead-letter" => Setting::new("QUEUE").names_queues().flag(Group::Queues);

    /// Dead-letter a message after this many attempts
    "retry.attempts" => Setting::new("N")
        .default("10 if there is a dead-letter queue, as every local queue has; otherwise the \
                  queue's redrive policy decides")
        .flag_named("max-attempts", Group::Queues);

    /// The pause after the first attempt, doubled after each further one, up to 12 hours
    "retry.first" => Setting::new("TIME").default("1s");

    /// The longest pause between attempts, up to 12 hours
    "retry.most" => Setting::new("TIME").default("15m");

    /// Which message to start first: the first to arrive (fifo) or the last sent (lifo). On local
    /// queues lifo is exact; on others it only chooses among the messages that --prefetch holds
    "order" => Setting::new("fifo|lifo").default("fifo").flag(Group::Queues),
        sequence: Sequence = |given| {
            let words = [("fifo", Sequence::Fifo), ("lifo", Sequence::Lifo)];
            given.one(|given| value::choice(given, &words)).unwrap_or_default()
        };

    /// Handle messages that share a group one at a time and in order: the name of an attribute, or
    /// a JSON pointer into the body, as in /order/customer; for queues that are not FIFO
    "group-by" => Setting::new("WHERE").flag(Group::Queues),
        group_by: Option<MessagePlace> = |given| given.one(message_place);

    /// Share the route out fairly among tenants, so that one with many messages does not keep the
    /// others waiting: group (each message group is a tenant, and is not kept in order), the name
    /// of an attribute, or a JSON pointer into the body, as in /customer
    "tenant" => Setting::new("WHERE").flag(Group::Queues),
        tenant: Option<MessageKey> = |given| given.one(message_key);

    /// How many times the share of another a tenant gets, as in acme=4; may be repeated
    "weight" => Setting::new("TENANT=N").shape(Shape::Map).default("1").applies(Reload::Live)
        .flag(Group::Queues).syntax(Syntax::Pairs),
        weight: Vec<(String, u32)> = |given| {
            given.entries(|_, given| value::number(given, &(1..=MOST_WEIGHT)))
        };

    /// Start messages of a lower number first: where a message has its priority, a number from 1 to
    /// 5; the name of an attribute, or a JSON pointer into the body. A message without one has 3
    "priority" => Setting::new("WHERE").flag_named("priority-by", Group::Queues),
        priority: Option<MessagePlace> = |given| given.one(message_place);

    /// How long a message of a priority waits until it goes before all others, as in 5=10m; may be
    /// repeated
    "max-wait" => Setting::new("PRIORITY=TIME").shape(Shape::Map).default("no limit")
        .flag(Group::Queues).syntax(Syntax::Pairs),
        max_wait: Vec<(Priority, Duration)> = |given| {
            let entries = given.entries(|name, given| {
                let priority = name.parse().ok().and_then(Priority::new);
                let priority = priority.ok_or_else(|| {
                    let found = format!("`{name}` is not a priority");
                    Problem::new(&given.at, found, "a number from 1 to 5")
                });
                Ok((priority?, value::duration(given, BareUnit::Refused, &AGES)?))
            });
            entries.into_iter().map(|(_, entry)| entry).collect()
        };

    /// Do not start messages sent longer ago, as in 10m
    "max-age" => Setting::new("TIME").default("no limit").flag(Group::Queues),
        max_age: Option<Duration> = |given| {
            given.one(|given| value::duration(given, BareUnit::Refused, &AGES))
        };

    /// What happens to messages older than --max-age
    "shed" => Setting::new("dead-letter|drop").default("dead-letter").flag(Group::Queues),
        shed: ShedAction = |given| {
            let words = [("dead-letter", ShedAction::DeadLetter), ("drop", ShedAction::Drop)];
            given.one(|given| value::choice(given, &words)).unwrap_or_default()
        };

    /// Handle only messages that match this pattern, as in {"body": {"kind": ["order"]}}, in the
    /// syntax of EventBridge and of Lambda's FilterCriteria; may be repeated, and then one of them
    /// must match. DISPATCHER_FILTER has one per line
    "filter" => Setting::new("PATTERN").shape(Shape::List).default("every message is handled")
        .flag(Group::Queues),
        filter: Vec<Filter> = |given| given.each_of_all(filter);

    /// What happens to messages that no --filter matches
    "unmatched" => Setting::new("delete|dead-letter").default("delete").flag(Group::Queues),
        unmatched: UnmatchedAction = |given| {
            let words = [("delete", UnmatchedAction::Delete), ("dead-letter", UnmatchedAction::DeadLetter)];
            given.one(|given| value::choice(given, &words)).unwrap_or_default()
        };

    /// What wraps the bodies: with sns, the handler, the filters and --group-by get the message
    /// inside the SNS notification
    "envelope" => Setting::new("none|sns").default("none").flag(Group::Queues),
        envelope: Envelope = |given| {
            let words = [("none", Envelope::None), ("sns", Envelope::Sns)];
            given.one(|given| value::choice(given, &words)).unwrap_or_default()
        };

    /// What happens to a message whose body an extended client library has put into S3: pass gives
    /// the handler the pointer, dead-letter dead-letters it with the location in S3 as the reason
    "s3-pointers" => Setting::new("pass|dead-letter")
        .default("dead-letter; pass for --function, --forward and --send-to").flag(Group::Queues),
        s3_pointers: Option<S3Pointers> = |given| {
            let words = [("pass", S3Pointers::Pass), ("dead-letter", S3Pointers::DeadLetter)];
            given.one(|given| value::choice(given, &words))
        };

    /// Remember handled messages for this long in the data folder: one that is redelivered, also
    /// after a restart, is deleted and not handled again
    "idempotency" => Setting::new("TIME").default("only while the process lives")
        .flag(Group::Queues),
        idempotency: Option<Duration> = |given| {
            given.one(|given| value::duration(given, BareUnit::Refused, &AGES))
        };

    /// Maximum concurrent attempts, as in 50; or those of one queue, as in payments=5; may be
    /// repeated or combined, as in 50,payments=5
    "concurrency" => Setting::new("N|QUEUE=N").default("50")
        .tables(&[Table::Route, Table::Dispatcher]).applies(Reload::Live)
        .flag(Group::Limits).syntax(Syntax::PerQueue(PerQueue {
            map: "queue-concurrency",
            noun: "number of attempts",
            wanted: "N or QUEUE=N",
            example: "50,payments=5",
        })),
        concurrency: usize = |given| {
            given.one(|given| value::number(given, &(1..=MOST_CONCURRENCY))).unwrap_or(CONCURRENCY)
        };

    /// Maximum concurrent attempts of single queues; the flag is --concurrency QUEUE=N
    "queue-concurrency" => Setting::new("N").shape(Shape::Map).names_queues().applies(Reload::Live);

    /// Maximum messages of a queue that this process starts per second, minute or hour, as in
    /// payments=100/s; may be repeated or combined with commas
    "rate" => Setting::new("QUEUE=N/s").shape(Shape::Map).names_queues().applies(Reload::Live)
        .flag(Group::Limits).syntax(Syntax::PerQueue(PerQueue {
            map: "rate",
            noun: "rate",
            wanted: "QUEUE=N/s, /m or /h",
            example: "payments=100/s",
        }));

    /// The limits that its messages keep to, by their names; all processes together keep to a limit,
    /// see [limit.NAME]. A message starts once all of them allow it
    "limits" => Setting::new("NAME").shape(Shape::List).default("none");

    /// Maximum messages per attempt, 1 to 10000
    "batch-size" => Setting::new("N").default("1; as many as the queue takes at once for --send-to")
        .flag(Group::Limits),
        batch_size: usize = |given| {
            given.one(|given| value::number(given, &(1..=MOST_BATCH))).unwrap_or(1)
        };

    /// How long a message waits for others to share its attempt, 0 to 300 seconds
    "batch-window" => Setting::new("S").default("0").applies(Reload::Live).flag(Group::Limits),
        batch_window: Duration = |given| {
            given.one(|given| seconds(given, LONGEST_WINDOW)).unwrap_or_default()
        };

    /// Maximum messages to hold in advance, beyond those that run; they stay leased while they wait
    "prefetch" => Setting::new("N").default("0").applies(Reload::Live).flag(Group::Limits),
        prefetch: usize = |given| {
            given.one(|given| value::number(given, &(0..=MOST_PREFETCH))).unwrap_or_default()
        };
}

impl RouteSettings {
    /// Returns the handling of messages that are too old, if there is a maximum age.
    pub fn shedding(&self) -> Option<ShedPolicy> {
        Some(ShedPolicy {
            max_age: self.max_age?,
            shed: self.shed,
        })
    }
}

/// A duration up to `longest`; a bare number is seconds.
fn seconds(given: &WrittenValue, longest: Duration) -> Result<Duration, Problem> {
    value::duration(given, BareUnit::Seconds, &(Duration::ZERO..=longest))
}

/// A pattern; or every error in it, with its place in the pattern.
fn filter(given: &WrittenValue) -> Result<Filter, Vec<Problem>> {
    Filter::read(&given.text).map_err(|errors| {
        let errors = errors.into_iter().map(|error| {
            let found = match error.at.as_str() {
                "" => format!("the pattern: {}", error.found),
                at => format!("the pattern at {at}: {}", error.found),
            };
            let problem = Problem::new(&given.at, found, error.wanted);
            match error.unknown {
                Some((name, known)) => problem.nearest(&name, known.iter().copied()),
                None => problem,
            }
        });
        errors.collect()
    })
}

/// Parses where a message names what it belongs to.
pub(crate) fn message_key(given: &WrittenValue) -> Result<MessageKey, Problem> {
    if given.text.trim() == "group" {
        return Ok(MessageKey::Group);
    }
    message_place(given).map(MessageKey::Place)
}

/// Parses a place in a message.
pub(crate) fn message_place(given: &WrittenValue) -> Result<MessagePlace, Problem> {
    let wanted =
        "the name of an attribute, or a JSON pointer into the body such as /order/customer";
    let text = value::text(given, wanted)?;
    Ok(if text.starts_with('/') {
        MessagePlace::Pointer(text)
    } else {
        MessagePlace::Attribute(text)
    })
}
