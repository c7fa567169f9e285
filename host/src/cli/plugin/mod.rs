//! `dispatcher plugin`: begin a plugin, build it, look at it and try it.

mod build;
mod check;
mod invoke;
mod language;
mod new;
mod template;

use super::Typed;
use crate::config::Plugin;
use crate::config::section::Given;
use crate::error::Failure;
use crate::{config, telemetry};
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  dispatcher plugin new --lang go orders
  dispatcher plugin build orders
  dispatcher plugin check handler.wasm
  dispatcher plugin invoke handler.wasm 'hello'";

/// Begin plugins, build them, look at them and try them
#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    New(new::Args),
    Build(build::Args),
    Check(check::Args),
    Invoke(invoke::Args),
}

/// Runs the command.
pub fn run(command: Command, typed: &Typed) -> Result<(), Failure> {
    match command {
        Command::New(args) => new::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Check(args) => check::run(&args, typed),
        Command::Invoke(args) => invoke::run(&args, typed),
    }
}

/// The plugin as flags have it, as `run --plugin FILE` would see it; the log is set up on the way.
fn settings(
    typed: &Typed,
    file: &Path,
) -> (
    config::Settings,
    Option<Plugin>,
    Vec<config::problem::Problem>,
) {
    let mut flags = super::flags::settings(&typed.matches);
    flags.take("plugin", Given::new("FILE", file.to_string_lossy()));
    let (settings, problems) = config::settings(&flags);
    telemetry::log::start(settings.log_format, &settings.log_level);
    let plugin = settings.routes.first().map(|route| route.plugin.clone());
    (settings, plugin, problems)
}
