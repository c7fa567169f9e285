//! `dispatcher peek`: shows messages without receiving them.

use super::asked::RequestArgs;
use super::{LooseArguments, asked, block_on, flags, output};
use crate::app::build::Backends;
use crate::app::drain::{Signals, stop_at_signal};
use crate::error::{Exit, Failure};
use dispatcher_config::Places;
use dispatcher_config::name::QueueName;
use dispatcher_core::clock;
use dispatcher_core::message::{AttributeValue, Message};
use dispatcher_core::queue::Queue;
use dispatcher_core::queue::origin::first_id;
use dispatcher_core::telemetry::escape::escape_control_characters;
use dispatcher_operate::redrive::{
    self, LookBounds, LookEnd, LookResult, MOST_SCANNED, RedriveError, SCANNED,
};
use dispatcher_operate::select::{Select, Selection, reason_of};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  dispatcher peek local:default
  dispatcher peek local:default -n 100 --json | jq -r '.[].body'
  dispatcher peek local:default.dead --reason timeout --where /country=CH
  dispatcher peek orders-dlq --receive
  dispatcher peek orders-dlq --receive --id 0c0d6f6a-5b3e-4d0b-9e0f-4f1d9f1f5a11

`unreadable` says why the content of a message is missing or cannot be read, `reason` why it was
dead-lettered. SQS cannot show messages without receiving them: --receive receives them and gives
them back at once, which counts as a receive of each.";

/// The maximum number of characters of a body in one line.
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
    #[command(flatten)]
    pub select: RequestArgs<Select>,
    /// If the queue cannot list its messages, receive them and give them back
    #[arg(long)]
    pub receive: bool,
    /// Maximum messages to receive with --receive
    #[arg(long, value_name = "N", default_value_t = SCANNED, requires = "receive")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MOST_SCANNED))]
    pub scan: u64,
    /// Print JSON: one array of messages
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Prints the messages.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (places, _screen, mut problems) = flags::places(&typed.matches);
    let name = flags::queue(&args.queue, &mut problems);
    let select: Select = asked::read(&typed.matches, &mut problems);
    let (Some(name), true) = (name, problems.is_empty()) else {
        return Err(problems.into());
    };
    let looked = block_on(look(&places, &name, &select, args))??;
    if args.json {
        output::json(&looked.messages.iter().map(json).collect())?
    } else {
        let mut messages = looked.messages.iter();
        messages.try_for_each(|message| output::line(text(message)))?;
    }
    if looked.received > 0 {
        output::note(format!(
            "{} messages were received and given back: the receive count of each is one higher",
            looked.received
        ));
    }
    if looked.not_released > 0 {
        output::note(format!(
            "{} of them could not be given back and stay invisible for ten minutes",
            looked.not_released
        ));
    }
    match looked.end {
        LookEnd::LastReceive => output::note(
            "not all were inspected: the queue's redrive policy leaves only one receive",
        ),
        LookEnd::ReceivesSpent => output::note(
            "not all were inspected: a message has had its last receive, and the queue's redrive \
             policy moves it at the next",
        ),
        LookEnd::ScanLimit => output::note(format!(
            "not all were inspected: --scan permits {}; there may be more",
            looked.scanned
        )),
        LookEnd::Complete | LookEnd::Enough | LookEnd::Cancelled => {}
    }
    Ok(())
}

async fn look(
    places: &Places,
    name: &QueueName,
    select: &Select,
    args: &Args,
) -> Result<LookResult, Failure> {
    let selection = select.selection(Vec::new());
    let backends = Backends::new(places.stores.clone());
    let queue = match backends.open_existing(name).await {
        Ok(queue) => queue,
        Err(error) => return Err(backends.problem("QUEUE", name, &error).await.into()),
    };
    let most = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let lists = queue.facts().can_browse;
    // Without a selection, shows what a receive would return, in its order.
    let is_plain = *select == Select::default() && (lists || !args.receive);
    if is_plain || (!lists && !args.receive) {
        return match queue.peek(most).await {
            Ok(messages) => Ok(LookResult {
                messages: messages
                    .into_iter()
                    .filter(|one| selected(&selection, one))
                    .collect(),
                ..LookResult::default()
            }),
            Err(error) => {
                let problem = backends.problem("QUEUE", name, &error).await;
                Err(problem
                    .hint("--receive receives them and gives them back")
                    .into())
            }
        };
    }
    match receive(&*queue, &selection, most, args.scan).await? {
        Ok(looked) => Ok(looked),
        Err(RedriveError::Refused(why)) => Err(Failure::new(Exit::Usage, why.to_string())),
        Err(RedriveError::Source { error, .. }) => {
            Err(backends.problem("QUEUE", name, &error).await.into())
        }
    }
}

fn selected(selection: &Selection, message: &Message) -> bool {
    selection.matches(message, clock::wall_clock_now())
}

/// Receives messages until there are enough or a signal arrives. Returns all received messages to
/// the queue in any case.
async fn receive(
    queue: &dyn Queue,
    selection: &Selection,
    most: usize,
    scan: u64,
) -> Result<Result<LookResult, RedriveError>, Failure> {
    let signals = Signals::listen(true)
        .map_err(|error| Failure::new(Exit::Failed, format!("signal handlers: {error}")))?;
    let cancel = CancellationToken::new();
    let bounds = LookBounds {
        after: None,
        most,
        bytes: u64::MAX,
        scan: if queue.facts().can_browse {
            u64::MAX
        } else {
            scan
        },
        counts_on: false,
    };
    let looked = redrive::look(queue, selection, &bounds, &cancel);
    tokio::select! {
        biased; // found messages are shown
        looked = looked => Ok(looked),
        () = stop_at_signal(signals, &cancel) => Ok(Ok(LookResult::default())),
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
        "first_id": first_id(message),
        "queue": message.queue,
        "body": message.body,
        "receive_count": message.receive_count,
        "sent_at_ms": message.sent_at,
        "group": message.group,
        "attributes": attributes.collect::<Vec<_>>(),
        "unreadable": message.unreadable.as_ref().map(ToString::to_string),
        "reason": reason_of(message),
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
    let reason =
        reason_of(message).map(|reason| format!("  reason: {}", escape_control_characters(reason)));
    let error = message.unreadable.as_ref();
    let unreadable =
        error.map(|error| format!("  {}", escape_control_characters(&error.to_string())));
    let first = first_id(message).map(|id| format!(" (first {})", escape_control_characters(id)));
    format!(
        "{}{}  received {}×  {age}  {body}{}{}",
        message.id,
        first.unwrap_or_default(),
        message.receive_count,
        unreadable.unwrap_or_default(),
        reason.unwrap_or_default()
    )
}
