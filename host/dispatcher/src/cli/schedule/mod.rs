//! `dispatcher schedule`: scheduled and periodic messages.

mod add;
mod cancel;
mod init;
mod list;

use super::LooseArguments;
use crate::app::build::Backends;
use crate::app::build::schedule::{LaterError, Schedules};
use crate::error::{Exit, Failure};
use clap::Subcommand;
use dispatcher_config::Places;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  dispatcher schedule add local:default --in 36h --body 'remember the milk'
  dispatcher schedule add payments --at 2026-12-24T18:00:00+01:00 \\
                          --body '{\"order\":7}'
  dispatcher schedule add local:reports --cron '0 9 * * MON-FRI' \\
                          --tz Europe/Berlin --body daily
  dispatcher schedule list
  dispatcher schedule cancel local:default/0197a3b2-8f0c-7c41-b0de-2f6d3c1a9e55
  dispatcher schedule init payments

A message is sent only if a `dispatcher run` of its queue is running when it is due; for SQS, from
15 minutes before.";

/// Send messages later, once or periodically
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum Command {
    Add(add::Args),
    List(list::Args),
    Cancel(cancel::Args),
    Init(init::Args),
}

/// Runs the command.
pub(super) fn run(command: Command, typed: &LooseArguments) -> Result<(), Failure> {
    match command {
        Command::Add(args) => add::run(&args, typed),
        Command::List(args) => list::run(&args, typed),
        Command::Cancel(args) => cancel::run(&args, typed),
        Command::Init(args) => init::run(&args, typed),
    }
}

fn schedules(places: &Places) -> Schedules {
    let backends = Arc::new(Backends::new(places.stores.clone()));
    Schedules::new(backends, places.schedule_table.clone())
}

/// Returns the failure of a command.
pub(super) fn failure(at: &str, error: &LaterError) -> Failure {
    let exit = if error.passing {
        Exit::Unreachable
    } else {
        Exit::Usage
    };
    Failure::new(exit, format!("{at}: {error}"))
}
