//! `dispatcher schedule init`: creates the table for scheduled messages of SQS queues.

use super::{failure, schedules};
use crate::cli::{LooseArguments, block_on, flags, output};
use crate::error::Failure;

const EXAMPLES: &str = "\
Examples:
  dispatcher schedule init payments                the table of one queue
  dispatcher schedule init --schedule-table jobs   one table for all queues

Needs dynamodb:CreateTable and dynamodb:DescribeTable. The table is billed per request. An existing
table is checked and left unchanged.";

/// Create the DynamoDB table for scheduled messages of SQS queues
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The queue that names the table; not needed with --schedule-table
    pub queue: Option<String>,
    #[command(flatten)]
    pub table: flags::TableArgs,
    #[command(flatten)]
    pub file: flags::FileArgs,
    #[command(flatten)]
    pub aws: flags::AwsArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Creates the table, unless it exists.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (places, name) = flags::place_of_any(&typed.matches, args.queue.as_deref())?;
    if name
        .as_ref()
        .is_some_and(|name| name.backend.facts().is_embedded)
    {
        output::note("embedded queues need no table");
        return Ok(());
    }
    let schedules = schedules(&places);
    let made = block_on(schedules.init(name.as_ref()))?;
    let (table, is_new) = made.map_err(|error| failure("schedule init", &error))?;
    output::line(&table)?;
    output::note(if is_new {
        format!("created table `{table}`")
    } else {
        format!("table `{table}` already exists and is valid")
    });
    Ok(())
}
