//! `dispatcher plugin`: create, build, inspect and try a plugin.

mod bench;
pub(super) mod build;
mod check;
mod invoke;
pub(super) mod language;
mod new;
mod replay;
pub(super) mod template;
mod workbench;

use super::Typed;
use crate::app::sandbox::Sandbox;
use crate::config;
use crate::config::PluginConfig;
use crate::config::flags::Flags;
use crate::config::section::Given;
use crate::error::Failure;
use crate::telemetry;
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
    /// Whether it writes files of a project, which are for whom the umask says.
    pub(super) const fn writes_project(&self) -> bool {
        matches!(self, Self::New(_) | Self::Build(_))
    }
}

/// Runs the command.
pub(super) fn run(command: Command, typed: &Typed) -> Result<(), Failure> {
    match command {
        Command::New(args) => new::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Check(args) => check::run(&args, typed),
        Command::Invoke(args) => invoke::run(&args, typed),
        Command::Replay(args) => replay::run(&args, typed),
    }
}

/// Loads a component that is granted nothing, to try messages on; `at` is what it is called in problems.
pub(super) async fn sandbox(at: &str, file: &Path, data: &Path) -> Result<Sandbox, Failure> {
    let mut flags = Flags::default();
    flags.take("plugin", Given::new(at, file.to_string_lossy()));
    flags.take("data", Given::new("--data", data.to_string_lossy()));
    let (settings, problems) = config::settings(&flags);
    let plugin = settings.routes.first().map(|route| &route.plugin);
    let (Some(plugin), true) = (plugin, problems.is_empty()) else {
        return Err(problems.into());
    };
    Ok(Sandbox::load(at, plugin, &settings).await?)
}

type Set = (
    config::Settings,
    Option<PluginConfig>,
    telemetry::log::Screen,
    Vec<config::problem::Problem>,
);

/// The plugin as flags have it, as `run --plugin FILE` would see it; the log is set up on the way.
fn settings(typed: &Typed, file: &Path) -> Set {
    settings_and_log(typed, file, Shown::Printed)
}

/// What is shown of a plugin while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// What it prints.
    Printed,
    /// And every call to the host.
    Calls,
    /// Neither, unless the log's level asks for it by name.
    Nothing,
}

/// The plugin's settings, with the log set up so.
fn settings_and_log(typed: &Typed, file: &Path, shown: Shown) -> Set {
    let mut flags = super::flags::settings(&typed.matches);
    flags.take("plugin", Given::new("FILE", file.to_string_lossy()));
    let (settings, problems) = config::settings(&flags);
    let (format, level) = (settings.log.format, &settings.log.level);
    let screen = match shown {
        Shown::Calls => telemetry::log::start_with_calls(format, level),
        Shown::Printed => telemetry::log::start(format, level),
        Shown::Nothing => telemetry::log::start(format, &format!("guest=off,{level}")),
    };
    super::flags::log_notices(&flags);
    let plugin = settings.routes.first().map(|route| route.plugin.clone());
    (settings, plugin, screen, problems)
}
