//! `dispatcher check`: finds every problem of a run without receiving anything.

use super::{LooseArguments, block_on, flags, output};
use crate::app;
use crate::app::build::{fleet, records};
use crate::error::Failure;
use dispatcher_config as config;
use dispatcher_telemetry::log;

const EXAMPLES: &str = "\
Examples:
  dispatcher check --config dispatcher.toml
  dispatcher check --plugin handler.wasm --queues payments:3,default:1
  dispatcher check --function my-function --queues payments

Opens every queue, loads every plugin, receives nothing. Exits with 0 if there is no problem,
2 if there are problems, 3 if a server cannot be reached.";

/// Validate everything that `run` would use, start nothing, print every problem
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    pub run: flags::RunArgs,
}

/// Prints all problems, or a summary of the valid settings.
pub(super) fn run(typed: LooseArguments) -> Result<(), Failure> {
    let flags = flags::with_classic(&typed.matches);
    let (settings, mut problems) = config::settings(&flags);
    problems.splice(0..0, typed.unknown);
    log::start(settings.log.format, &settings.log.level);
    flags::log_notices(&flags);
    problems.extend(block_on(app::check(&settings))?);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    for route in &settings.routes {
        let queues: Vec<_> = route
            .queues
            .iter()
            .map(|queue| queue.name.to_string())
            .collect();
        let plugin = &route.plugin.code;
        let remembered = records::describe(&settings, route);
        let all = remembered
            .into_iter()
            .chain(fleet::describe(&settings, route));
        let more: Vec<String> = all.map(|words| format!("; {words}")).collect();
        output::note(format!(
            "ok: route {}: {} -> {plugin}{}",
            route.name,
            queues.join(", "),
            more.concat()
        ));
    }
    Ok(())
}
