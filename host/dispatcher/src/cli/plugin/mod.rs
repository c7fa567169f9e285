//! `dispatcher plugin`: creates, builds, inspects and tries a plugin.

mod bench;
pub(super) mod build;
mod check;
mod invoke;
pub(super) mod language;
mod new;
mod replay;
pub(super) mod template;
mod workbench;

use super::LooseArguments;
use crate::error::Failure;
use dispatcher_config as config;
use dispatcher_config::PluginConfig;
use dispatcher_config::section::WrittenValue;
use dispatcher_telemetry as telemetry;
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  dispatcher plugin new --lang go orders
  dispatcher plugin build orders
  dispatcher plugin check handler.wasm
  dispatcher plugin invoke handler.wasm 'hello'
  dispatcher plugin replay handler.wasm recordings/";

/// Create, build, inspect and try plugins
#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum Command {
    New(new::Args),
    Build(build::Args),
    Check(check::Args),
    Invoke(invoke::Args),
    Replay(replay::Args),
}

impl Command {
    /// Returns whether it writes files of a project, whose permissions follow the umask.
    pub(super) const fn writes_project(&self) -> bool {
        matches!(self, Self::New(_) | Self::Build(_))
    }
}

/// Runs the command.
pub(super) fn run(command: Command, typed: &LooseArguments) -> Result<(), Failure> {
    match command {
        Command::New(args) => new::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Check(args) => check::run(&args, typed),
        Command::Invoke(args) => invoke::run(&args, typed),
        Command::Replay(args) => replay::run(&args, typed),
    }
}

type Set = (
    config::Settings,
    Option<PluginConfig>,
    telemetry::log::Screen,
    Vec<config::problem::Problem>,
);

/// Returns the settings of the plugin as `run --plugin FILE` would use them. Also sets up the log.
fn settings(typed: &LooseArguments, file: &Path) -> Set {
    settings_and_log(typed, file, ShownOutput::Printed)
}

/// The output of a plugin that is shown while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShownOutput {
    /// The plugin's output.
    Printed,
    /// The plugin's output and every call to the host.
    Calls,
    /// Neither, unless the log's level names it.
    Nothing,
}

/// Returns the settings of the plugin. Also sets up the log for this output.
fn settings_and_log(typed: &LooseArguments, file: &Path, shown: ShownOutput) -> Set {
    let mut flags = super::flags::settings(&typed.matches);
    flags.take("plugin", WrittenValue::new("FILE", file.to_string_lossy()));
    let (settings, problems) = config::settings(&flags);
    let (format, level) = (settings.log.format, &settings.log.level);
    let screen = match shown {
        ShownOutput::Calls => telemetry::log::start_with_calls(format, level),
        ShownOutput::Printed => telemetry::log::start(format, level),
        ShownOutput::Nothing => telemetry::log::start(format, &format!("guest=off,{level}")),
    };
    super::flags::log_notices(&flags);
    let plugin = settings.routes.first().map(|route| route.plugin.clone());
    (settings, plugin, screen, problems)
}
