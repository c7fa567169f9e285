//! `dispatcher schedule add`: schedules a message, once or periodically.

use super::{failure, schedules};
use crate::app::build::schedule::{AddedJob, When, in_time};
use crate::cli::input::MessageArgs;
use crate::cli::{LooseArguments, block_on, flags, output};
use crate::error::Failure;
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::Problem;
use dispatcher_config::section::WrittenValue;
use dispatcher_config::value;
use dispatcher_config::value::BareUnit;
use dispatcher_core::clock;
use dispatcher_core::message::OutgoingMessage;
use dispatcher_core::schedule::cron::Periodic;
use dispatcher_core::schedule::when;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  dispatcher schedule add local:default --in 36h --body 'remember the milk'
  dispatcher schedule add payments --at 2026-12-24T18:00:00Z --file order.json
  dispatcher schedule add reports --cron '0 9 * * MON-FRI' \\
                          --tz Europe/Berlin --body daily

A pattern has five fields: minute, hour, day, month, weekday; an optional sixth before them is for
seconds. Prints the id, which `schedule cancel` takes, and when the message is due.";

/// Schedule a message, once or periodically
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The queue: NAME, an SQS URL or ARN, local:NAME, redis:NAME or postgres:NAME
    pub queue: String,
    /// How long from now, as in 90s or 36h
    #[arg(id = "in", long = "in", value_name = "TIME")]
    #[arg(conflicts_with_all = ["at", "cron"])]
    pub within: Option<String>,
    /// When, as a date with its offset: 2026-12-24T18:00:00+01:00
    #[arg(long, value_name = "DATE")]
    #[arg(conflicts_with = "cron")]
    pub at: Option<String>,
    /// Periodically, by a pattern such as '0 9 * * MON-FRI' or @daily
    #[arg(long, value_name = "PATTERN")]
    pub cron: Option<String>,
    /// The time zone of --cron [default: UTC]
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// The body; `-` reads all of stdin as one body
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    #[arg(allow_hyphen_values = true)]
    pub body: Option<String>,
    /// Take the body from a file
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// An attribute of the message; may be repeated
    #[arg(long, value_name = "K=V")]
    pub attribute: Vec<String>,
    /// The group; messages of a group are handled in order
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    #[command(flatten)]
    pub table: flags::TableArgs,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Adds the message, and prints when it is due.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (places, _screen, mut problems) = flags::places(&typed.matches);
    let name = flags::queue(&args.queue, &mut problems);
    let message = MessageArgs {
        body: args.body.clone(),
        file: args.file.clone(),
        attribute: args.attribute.clone(),
    };
    let attributes = message.attributes(&mut problems);
    let body = message.body().unwrap_or_else(|problem| {
        let wanted = "--body TEXT, --file FILE, or --body - for stdin";
        problems.push(if problem.at == "BODY" {
            Problem::new("--body", "there is none", wanted)
        } else {
            problem
        });
        String::new()
    });
    let due = due(args).map_err(|problem| problems.push(problem)).ok();
    let (Some(name), Some(when), true) = (name, due, problems.is_empty()) else {
        return Err(problems.into());
    };
    let message = OutgoingMessage {
        body,
        attributes,
        delay: Duration::ZERO,
        group: args.group.clone(),
        ..OutgoingMessage::default()
    };
    let schedules = schedules(&places);
    let answer = block_on(schedules.add(&name, message, when))?;
    let added = answer.map_err(|error| failure(&format!("queue `{name}`"), &error))?;
    output::line(&added.id)?;
    output::note(confirmation(args, &name, &added));
    Ok(())
}

fn due(args: &Args) -> Result<When, Problem> {
    if let (Some(zone), None) = (&args.tz, &args.cron) {
        let found = format!("`{zone}` without a pattern");
        return Err(Problem::new("--tz", found, "--cron as well"));
    }
    if let Some(text) = &args.within {
        let range = Duration::ZERO..=Duration::MAX;
        let delay = value::duration(&WrittenValue::new("--in", text), BareUnit::Refused, &range)?;
        return in_time(delay)
            .map(When::At)
            .map_err(|found| Problem::new("--in", found, "a shorter time"));
    }
    if let Some(text) = &args.at {
        return when::read(text)
            .map(When::At)
            .map_err(|found| Problem::new("--at", found, ""));
    }
    let Some(pattern) = &args.cron else {
        let problem = Problem::new("--in", "no time is given", "--in, --at or --cron");
        return Err(problem.hint("written like --in 36h"));
    };
    let zone = args.tz.as_deref().unwrap_or("UTC");
    Periodic::new(pattern, zone)
        .map(When::Every)
        .map_err(|found| Problem::new("--cron", found, ""))
}

/// Describes the scheduled message in the words of the request.
fn confirmation(args: &Args, name: &QueueName, added: &AddedJob) -> String {
    let date = when::write(added.due, args.tz.as_deref());
    let distance = when::distance(clock::wall_clock_now(), added.due);
    let when = match (&args.within, &args.at, &args.cron) {
        (Some(within), ..) => format!("in {}, at {date}", within.trim()),
        (_, Some(at), _) => format!("at {}, {distance}", at.trim()),
        (.., Some(pattern)) => {
            let zone = args.tz.as_deref().unwrap_or("UTC");
            format!(
                "at {date}, {distance}, and then by `{}` in {zone}",
                pattern.trim()
            )
        }
        _ => date,
    };
    if added.waits {
        format!("due {when}")
    } else {
        format!("due {when}; it is already in `{name}` and can no longer be cancelled")
    }
}
