//! `dispatcher peek`: show messages without receiving them.

use super::{Typed, block_on, flags, output};
use crate::app::build::Backends;
use crate::config::Places;
use crate::error::Failure;
use crate::name::QueueName;
use dispatcher_core::clock;
use dispatcher_core::message::{AttributeValue, Message};
use dispatcher_core::queue::DEAD_LETTER_REASON;
use dispatcher_core::telemetry::escape::escape_control_characters;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  dispatcher peek local:default
  dispatcher peek local:default -n 100 --json | jq -r '.[].body'

`unreadable` is the reason why the content of a message is missing or cannot be read, `reason` why
it was dead-lettered. Backends that cannot peek without receiving, such as SQS, return an error.";

/// How much of a body one line shows, in characters.
const SHOWN: usize = 120;

/// Show the next messages of a queue without receiving them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The queue
    pub queue: String,
    /// Maximum messages to show
    #[arg(short = 'n', long, value_name = "N", default_value = "10")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Print JSON: one array of messages
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Prints the messages.
pub(super) fn run(args: Args, typed: &Typed) -> Result<(), Failure> {
    let (places, name) = flags::place_of(&typed.matches, &args.queue)?;
    let most = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let messages = block_on(look(&places, &name, most))??;
    match args.json {
        true => output::json(&messages.iter().map(json).collect()),
        false => messages
            .iter()
            .try_for_each(|message| output::line(text(message))),
    }
}

async fn look(places: &Places, name: &QueueName, most: usize) -> Result<Vec<Message>, Failure> {
    let backends = Backends::new(places.stores.clone());
    let messages = match backends.open_existing(name).await {
        Ok(queue) => queue.peek(most).await,
        Err(error) => Err(error),
    };
    match messages {
        Ok(messages) => Ok(messages),
        Err(error) => Err(backends.problem("QUEUE", name, &error).await.into()),
    }
}

fn json(message: &Message) -> serde_json::Value {
    let attributes = message.attributes.iter().map(|attribute| {
        let value = match &attribute.value {
            AttributeValue::Text(text) => serde_json::json!(text),
            AttributeValue::Binary(bytes) => serde_json::json!(bytes),
        };
        serde_json::json!({
            "name": attribute.name, "data_type": attribute.data_type, "value": value,
        })
    });
    serde_json::json!({
        "id": message.id,
        "queue": message.queue,
        "body": message.body,
        "receive_count": message.receive_count,
        "sent_at_ms": message.sent_at,
        "group": message.group,
        "attributes": attributes.collect::<Vec<_>>(),
        "unreadable": message.unreadable.as_ref().map(ToString::to_string),
    })
}

fn text(message: &Message) -> String {
    let age = message.sent_at.map(|sent| {
        let age = Duration::from_secs(clock::wall_clock_now().since(sent).as_secs());
        format!("{} old", humantime::format_duration(age))
    });
    let mut body: String = message.body.chars().take(SHOWN).collect();
    if body.len() < message.body.len() {
        body.push('…');
    }
    let body = escape_control_characters(&body);
    let age = age.unwrap_or_default();
    let reason = message.attributes.iter().find_map(|attribute| {
        let AttributeValue::Text(text) = &attribute.value else {
            return None;
        };
        (attribute.name == DEAD_LETTER_REASON)
            .then(|| format!("  reason: {}", escape_control_characters(text)))
    });
    let unreadable = message.unreadable.as_ref();
    let unreadable =
        unreadable.map(|error| format!("  {}", escape_control_characters(&error.to_string())));
    format!(
        "{}  received {}×  {age}  {body}{}{}",
        message.id,
        message.receive_count,
        unreadable.unwrap_or_default(),
        reason.unwrap_or_default()
    )
}
