//! `dispatcher postgres init`: makes what the PostgreSQL backend needs in a database.

use super::{LooseArguments, block_on, flags, output};
use crate::app::build::Backends;
use crate::error::Failure;
use clap::Subcommand;
use dispatcher_config::backends;
use dispatcher_config::problem::Problem;
use dispatcher_core::backend::BackendRoles;
use dispatcher_core::error_kind::ErrorKind;

const EXAMPLES: &str = "\
Examples:
  dispatcher postgres init --postgres-url postgres://owner@db/app
  dispatcher postgres init --worker-role jobs_worker --producer-role app
      with the rights of two roles: one handles messages, the other only sends
  dispatcher postgres init --worker-role jobs_worker --print > init.sql
      prints the statements for psql or a migration, and connects to nothing

Creates the schema `dispatcher`, and the schema `pgmq` where the extension is not installed. Prepares
the queues that exist. A second run changes nothing. Run it again after an update of dispatcher.";

/// Prepare a PostgreSQL database for queues named postgres:NAME
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum Command {
    Init(Args),
}

/// Create the schemas, the functions and the rights of roles
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// A role that receives and settles messages; may be given several times
    #[arg(long, value_name = "ROLE")]
    pub worker_role: Vec<String>,
    /// A role that only sends, by `dispatcher.send`; may be given several times
    #[arg(long, value_name = "ROLE")]
    pub producer_role: Vec<String>,
    /// Print the statements and exit
    #[arg(long)]
    pub print: bool,
    #[command(flatten)]
    pub file: flags::FileArgs,
    #[command(flatten)]
    pub servers: flags::BackendArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Runs the command.
pub(super) fn run(command: Command, typed: &LooseArguments) -> Result<(), Failure> {
    let Command::Init(args) = command;
    let (places, _screen, problems) = flags::places(&typed.matches);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let backend = backends::find("postgres").map_err(|absent| {
        Failure::from(vec![Problem::new("postgres init", absent.to_string(), "")])
    })?;
    let roles = BackendRoles {
        workers: args.worker_role,
        producers: args.producer_role,
    };
    if args.print {
        return output::text(&backend.installation(&roles).unwrap_or_default());
    }
    let opened = Backends::new(places.stores.clone());
    let installed = block_on(opened.install(backend, &roles))?;
    installed.map_err(|error| {
        let problem = Problem::new("postgres init", error.to_string(), "");
        Failure::from(vec![match error.kind {
            ErrorKind::Unreachable | ErrorKind::Transient => problem.unreachable(),
            _ => problem,
        }])
    })?;
    output::note("the database is ready for queues named postgres:NAME");
    Ok(())
}
