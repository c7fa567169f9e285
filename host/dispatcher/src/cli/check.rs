//! `dispatcher check`: finds every problem of a run without receiving anything.

use super::{LooseArguments, block_on, flags, output};
use crate::app;
use crate::app::build::{fleet, records};
use crate::error::Failure;
use dispatcher_config::discovery::QueuePattern;
use dispatcher_config::{Route, Settings, SettingsSource};
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
    let source = SettingsSource::read(&flags);
    let (mut settings, mut problems) = source.written();
    problems.splice(0..0, typed.unknown);
    log::start(settings.log.format, &settings.log.level);
    flags::log_notices(&flags);
    if problems.is_empty() {
        (settings, problems) = block_on(app::with_found_queues(source, settings))?;
    }
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
        let found = route
            .patterns
            .iter()
            .map(|pattern| describe(&settings, route, pattern));
        let more: Vec<String> = all.chain(found).map(|words| format!("; {words}")).collect();
        output::note(format!(
            "ok: route {}: {} -> {plugin}{}",
            route.name,
            queues.join(", "),
            more.concat()
        ));
    }
    Ok(())
}

/// Describes what a pattern matches today.
fn describe(settings: &Settings, route: &Route, pattern: &QueuePattern) -> String {
    let text = pattern.to_string();
    let queues = route.queues.iter();
    let matching = queues.filter(|queue| queue.found_by.as_ref() == Some(&text));
    let found = matching.count();
    let queues = if found == 1 { "queue" } else { "queues" };
    let most = route.settings.max_queues;
    let every = settings.program.discovery_interval.as_secs();
    format!("{text} matches {found} {queues} now, at most {most}, looked up every {every} s")
}
