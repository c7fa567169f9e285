//! `dispatcher schedule cancel`: cancels a scheduled message.

use super::{failure, schedules};
use crate::cli::{LooseArguments, block_on, flags, output};
use crate::error::{Exit, Failure};
use dispatcher_config::problem::Problem;
use dispatcher_core::schedule::JobCancellation;

const EXAMPLES: &str = "\
Examples:
  dispatcher schedule cancel local:default/0197a3b2-8f0c-7c41-b0de-2f6d3c1a9e55
  dispatcher schedule cancel payments/0197a3b2-8f0c-7c41-b0de-2f6d3c1a9e55

A message that has moved to its SQS queue, from 15 minutes before it is due, is no longer found.";

/// Cancel a scheduled message, or stop a periodic one
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The id as `schedule add` and `schedule list` print it: QUEUE/JOB
    pub id: String,
    #[command(flatten)]
    pub table: flags::TableArgs,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Cancels the message. Fails if it does not exist.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (places, _screen, mut problems) = flags::places(&typed.matches);
    let split = args.id.rsplit_once('/').filter(|(_, job)| !job.is_empty());
    let Some((text, job)) = split else {
        let found = format!("`{}` is not the id of a scheduled message", args.id);
        problems.push(Problem::new(
            "ID",
            found,
            "QUEUE/JOB, as `schedule list` prints it",
        ));
        return Err(problems.into());
    };
    let name = flags::queue(text, &mut problems);
    let (Some(name), true) = (name, problems.is_empty()) else {
        return Err(problems.into());
    };
    let schedules = schedules(&places);
    let cancelled = block_on(schedules.cancel(&name, job))?;
    let why = match cancelled.map_err(|error| failure(&args.id, &error))? {
        JobCancellation::Yes => {
            output::note(format!("cancelled {}", args.id));
            return Ok(());
        }
        JobCancellation::Unknown => {
            "no scheduled message with this id: it was sent, was cancelled, or never existed"
        }
        JobCancellation::BeingSent => "a dispatcher is sending it right now",
    };
    Err(Failure::new(Exit::Failed, format!("{}: {why}", args.id)))
}
