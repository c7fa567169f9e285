//! `dispatcher send`: sends messages to a queue.

use super::admin::{AdminClient, in_path};
use super::input::MessageArgs;
use super::{LooseArguments, block_on, flags, output};
use crate::app::build::Backends;
use crate::app::build::outlet::reach_of;
use crate::app::build::schedule::{Schedules, When, in_time};
use crate::app::traces;
use crate::error::{Exit, Failure};
use dispatcher_config::Places;
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::Problem;
use dispatcher_config::section::WrittenValue;
use dispatcher_config::value;
use dispatcher_config::value::BareUnit;
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::send_traced;
use dispatcher_core::telemetry::escape::escape_control_characters;
use dispatcher_core::telemetry::trace::Tracer;
use dispatcher_operate::request::Request;
use dispatcher_operate::verbs::send::{
    Attributes, BodyText, Delay, MOST_MESSAGES, MessageToSend, SendReport,
};
use dispatcher_telemetry::log::Screen;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The number of bytes of copies in one request to a process.
const AT_ONCE: usize = 1 << 20;

/// The attribute in which a message is sent with its priority.
const PRIORITY: &str = "priority";

const EXAMPLES: &str = "\
Examples:
  dispatcher send local:default hello
  dispatcher send payments --file order.json --attribute kind=order
  echo hello | dispatcher send local:default -
  dispatcher send local:default ping --count 1000
  dispatcher send local:default remind --delay 36h
  dispatcher send local:default urgent --priority 1 --group acme
  dispatcher send payments remind --delay 36h   waits in a table, see `schedule`
  dispatcher send redis:mail hello --admin 10.0.0.7:9090 \\
                  --admin-token-file send-token
      by a running process, without access to the queue itself

Prints the id of each message, one per line; with --count, how many were sent. A message with an id
has been stored.";

/// Send a message to a queue
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The queue: NAME, an SQS URL or ARN, local:NAME, redis:NAME, postgres:NAME or dynamodb:TABLE
    pub queue: String,
    #[command(flatten)]
    pub message: MessageArgs,
    /// Send this many copies
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// How long before the message may be received, as in 90s or 36h
    #[arg(long, value_name = "TIME")]
    pub delay: Option<String>,
    /// The group; its messages are handled in order, or are one tenant of a route with --tenant group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// The priority, from 1 (first) to 5, as the attribute `priority`; for routes with
    /// --priority-by priority
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=5))]
    pub priority: Option<u64>,
    #[command(flatten)]
    pub admin: flags::AdminArgs,
    #[command(flatten)]
    pub table: flags::TableArgs,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Sends the messages, and prints their ids or a summary.
pub(super) fn run(args: Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (places, screen, mut problems) = flags::places(&typed.matches);
    let queue = flags::queue(&args.queue, &mut problems);
    let message = outgoing(&args, &mut problems);
    let (Some(queue), true) = (queue, problems.is_empty()) else {
        return Err(problems.into());
    };
    match AdminClient::typed(typed)? {
        Some(client) => block_on(send_by(&client, &queue, &message, args.count))?,
        None => block_on(send(&places, &screen, &queue, &message, args.count))?,
    }
}

/// Sends the messages through a running process.
async fn send_by(
    client: &AdminClient,
    name: &QueueName,
    message: &OutgoingMessage,
    count: Option<u64>,
) -> Result<(), Failure> {
    let to_send = MessageToSend {
        body: Some(BodyText(message.body.clone())),
        attributes: Some(Attributes(message.attributes.clone())),
        group: message.group.clone(),
        delay: Some(message.delay)
            .filter(|delay| !delay.is_zero())
            .map(Delay),
        ..MessageToSend::default()
    };
    let one = to_send.json();
    let path = format!("/api/v1/queues/{}/messages", in_path(&name.to_string()));
    let most = (AT_ONCE / one.to_string().len()).clamp(1, MOST_MESSAGES) as u64;
    let wanted = count.unwrap_or(1);
    let mut sent = 0;
    while sent < wanted {
        let copies = usize::try_from(most.min(wanted - sent)).unwrap_or(1);
        let request = json!({ "messages": vec![&one; copies] });
        let report: SendReport = client.post(&path, &request).await?.read()?;
        sent += report.sent.0;
        let failed = report.items.iter().find_map(|item| item.error.as_deref());
        if let Some(error) = failed {
            let error = escape_control_characters(error);
            let line = format!("queue `{name}`: {error}; {sent} of {wanted} sent");
            return Err(Failure::new(Exit::Failed, line));
        }
        if count.is_none() {
            let ids = report.items.iter().filter_map(|item| item.id.as_deref());
            ids.map(|id| escape_control_characters(id).to_string())
                .try_for_each(output::line)?;
        }
    }
    match count {
        Some(_) => output::line(format!("{sent} sent to {name}")),
        None => Ok(()),
    }
}

fn outgoing(args: &Args, problems: &mut Vec<Problem>) -> OutgoingMessage {
    let delay = args
        .delay
        .as_ref()
        .map(|text| {
            let given = WrittenValue::new("--delay", text);
            value::duration(&given, BareUnit::Refused, &(Duration::ZERO..=Duration::MAX))
        })
        .transpose()
        .unwrap_or_else(|problem| {
            problems.push(problem);
            None
        });
    let mut attributes = args.message.attributes(problems);
    if let Some(priority) = args.priority {
        if attributes.iter().any(|known| known.name == PRIORITY) {
            let found = format!("there is an attribute `{PRIORITY}` as well");
            problems.push(Problem::new("--priority", found, "one of them"));
        }
        attributes.push(Attribute {
            data_type: "Number".to_owned(),
            ..Attribute::text(PRIORITY, priority.to_string())
        });
    }
    let body = args.message.body().unwrap_or_else(|problem| {
        problems.push(problem);
        String::new()
    });
    OutgoingMessage {
        body,
        attributes,
        delay: delay.unwrap_or_default(),
        group: args.group.clone(),
        ..OutgoingMessage::default()
    }
}

async fn send(
    places: &Places,
    screen: &Screen,
    name: &QueueName,
    message: &OutgoingMessage,
    count: Option<u64>,
) -> Result<(), Failure> {
    let (tracer, exporting) = traces::start(&places.otlp)?;
    let sent = send_traced_by(tracer, places, screen, name, message, count).await;
    exporting.finish(None).await;
    sent
}

async fn send_traced_by(
    tracer: Tracer,
    places: &Places,
    screen: &Screen,
    name: &QueueName,
    message: &OutgoingMessage,
    count: Option<u64>,
) -> Result<(), Failure> {
    let backends = Arc::new(Backends::new(places.stores.clone()));
    backends.trace(tracer.clone());
    let counts = backends.sent();
    let schedules = Schedules::new(backends, places.schedule_table.clone());
    let queue = match schedules.queue(name).await {
        Ok(queue) => queue,
        Err(error) => {
            return Err(schedules
                .backends()
                .problem("QUEUE", name, &error)
                .await
                .into());
        }
    };
    let wanted = count.unwrap_or(1);
    if message.delay > reach_of(&*queue).longest_delay {
        return later(&schedules, name, message, wanted, count.is_none()).await;
    }
    let bar = screen.bar(wanted);
    let most = queue.identity().batch.max(1);
    let mut sent = 0;
    while sent < wanted {
        let batch = usize::try_from(wanted - sent).map_or(most, |left| left.min(most));
        let mut items = vec![message.clone(); batch];
        let answers = send_traced(&*queue, &mut items, "command", &counts, &tracer).await;
        let mut refused = None;
        for answer in answers {
            match answer {
                Ok(id) => {
                    sent += 1;
                    bar.advance(1);
                    if count.is_none() {
                        output::line(id)?;
                    }
                }
                Err(error) => refused = Some(error),
            }
        }
        if let Some(error) = refused {
            drop(bar);
            let line = format!("queue `{name}`: {error}; {sent} of {wanted} sent");
            return Err(Failure::new(Exit::Failed, line));
        }
    }
    drop(bar);
    match count {
        Some(_) => output::line(format!("{sent} sent to {name}")),
        None => Ok(()),
    }
}

/// Schedules messages whose delay exceeds the maximum of the queue.
async fn later(
    schedules: &Schedules,
    name: &QueueName,
    message: &OutgoingMessage,
    wanted: u64,
    says_ids: bool,
) -> Result<(), Failure> {
    let due =
        in_time(message.delay).map_err(|found| Problem::new("--delay", found, "a shorter time"))?;
    for sent in 0..wanted {
        let added = schedules
            .add(name, message.clone(), When::At(due))
            .await
            .map_err(|error| {
                let told = super::schedule::failure(&format!("queue `{name}`"), &error);
                let line = format!("{}; {sent} of {wanted} sent", told.lines.join("; "));
                Failure::new(told.exit, line)
            })?;
        if says_ids {
            output::line(&added.id)?;
        }
    }
    if says_ids {
        Ok(())
    } else {
        output::line(format!("{wanted} scheduled for {name}"))
    }
}
