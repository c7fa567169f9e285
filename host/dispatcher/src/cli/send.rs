//! `dispatcher send`: send messages to a queue.

use super::input::MessageArgs;
use super::{Typed, block_on, flags, output};
use crate::app::build::Backends;
use crate::app::build::outlet::reach_of;
use crate::app::build::schedule::{Schedules, When, in_time};
use crate::app::traces;
use crate::config::Places;
use crate::config::problem::Problem;
use crate::config::section::Given;
use crate::config::value;
use crate::config::value::BareUnit;
use crate::error::{Exit, Failure};
use crate::name::QueueName;
use crate::telemetry::log::Screen;
use dispatcher_core::message::Outgoing;
use dispatcher_core::queue::send_traced;
use dispatcher_core::telemetry::trace::Tracer;
use std::sync::Arc;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  dispatcher send local:default hello
  dispatcher send payments --file order.json --attribute kind=order
  echo hello | dispatcher send local:default -
  dispatcher send local:default ping --count 1000
  dispatcher send local:default remind --delay 36h
  dispatcher send payments remind --delay 36h   waits in a table, see `schedule`

Prints the id of each message, one per line; with --count, how many were sent. A message with an id
has been stored.";

/// Send a message to a queue
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The queue: NAME, an SQS URL or ARN, local:NAME, redis:NAME or dynamodb:TABLE
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
    /// The group, whose messages are handled in order
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    #[command(flatten)]
    pub table: flags::TableArgs,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Sends, and prints ids or a summary.
pub(super) fn run(args: Args, typed: &Typed) -> Result<(), Failure> {
    let (places, screen, mut problems) = flags::places(&typed.matches);
    let queue = flags::queue(&args.queue, &mut problems);
    let message = outgoing(&args, &mut problems);
    match queue {
        Some(queue) if problems.is_empty() => {
            block_on(send(&places, &screen, &queue, &message, args.count))?
        }
        _ => Err(problems.into()),
    }
}

fn outgoing(args: &Args, problems: &mut Vec<Problem>) -> Outgoing {
    let delay = args.delay.as_ref().map(|text| {
        let given = Given::new("--delay", text);
        value::duration(&given, BareUnit::Refused, &(Duration::ZERO..=Duration::MAX))
    });
    let delay = delay.transpose().unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let attributes = args.message.attributes(problems);
    let body = args.message.body().unwrap_or_else(|problem| {
        problems.push(problem);
        String::new()
    });
    Outgoing {
        body,
        attributes,
        delay: delay.unwrap_or_default(),
        group: args.group.clone(),
        ..Outgoing::default()
    }
}

async fn send(
    places: &Places,
    screen: &Screen,
    name: &QueueName,
    message: &Outgoing,
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
    message: &Outgoing,
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

/// What the queue itself cannot delay for this long waits elsewhere.
async fn later(
    schedules: &Schedules,
    name: &QueueName,
    message: &Outgoing,
    wanted: u64,
    says_ids: bool,
) -> Result<(), Failure> {
    let due = in_time(message.delay);
    let due = due.map_err(|found| Problem::new("--delay", found, "a shorter time"))?;
    for sent in 0..wanted {
        let added = schedules.add(name, message.clone(), When::At(due)).await;
        let added = added.map_err(|error| {
            let told = super::schedule::failure(&format!("queue `{name}`"), &error);
            let line = format!("{}; {sent} of {wanted} sent", told.lines.join("; "));
            Failure::new(told.exit, line)
        })?;
        if says_ids {
            output::line(&added.id)?;
        }
    }
    match says_ids {
        true => Ok(()),
        false => output::line(format!("{wanted} scheduled for {name}")),
    }
}
