//! Flags that several commands share, from `config::declared`, and their given values. The values
//! stay texts: `config` parses them, so that every problem is found at once.

use crate::error::Failure;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use dispatcher_config as config;
use dispatcher_config::classic;
use dispatcher_config::declared::{Group, Setting, Shape, Syntax, variable};
use dispatcher_config::flags::{Flags, unknown_variables};
use dispatcher_config::name::QueueName;
use dispatcher_config::otel;
use dispatcher_config::problem::Problem;
use dispatcher_config::section::WrittenValue;
use dispatcher_config::{AdminPlace, Places};
use dispatcher_telemetry::log;
use dispatcher_telemetry::log::Screen;

/// Defines arguments of a command from the flags of these groups, in this order. They hold no
/// values: `settings` takes them from the matches.
macro_rules! setting_args {
    ($($(#[$about:meta])* $name:ident: $($group:ident),+;)+) => {$(
        $(#[$about])*
        #[derive(Debug)]
        pub(super) struct $name;

        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                with_flags(command, &[$(Group::$group),+])
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl FromArgMatches for $name {
            fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self)
            }

            fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
                Ok(())
            }
        }
    )+};
}

setting_args! {
    /// The location of the settings.
    FileArgs: File;
    /// The location of the embedded queue.
    DataArgs: Data;
    /// The servers of backends.
    BackendArgs: Backends;
    /// The endpoint of AWS.
    AwsArgs: Aws;
    /// The locations of the program's own stores.
    StoreArgs: Data, Backends;
    /// The locations of queues.
    PlaceArgs: File, Data, Backends, BackendQueues, Aws;
    /// The table of messages whose delay exceeds the maximum of SQS.
    TableArgs: ScheduleTable;
    /// The address on which a server listens.
    #[cfg_attr(not(feature = "local"), expect(dead_code, reason = "its commands need the embedded queue"))]
    ListenArgs: Listen;
    /// The admin address of a process.
    AdminArgs: AdminAddress;
    /// The admin address that a process serves, and its access rules.
    #[cfg_attr(not(feature = "local"), expect(dead_code, reason = "its commands need the embedded queue"))]
    ServedAdminArgs: AdminAddress, AdminAccess;
    /// The log on stderr.
    LogArgs: Log;
    /// The grants of a plugin.
    GuestArgs: Guest;
    /// The settings of `dispatcher dev`.
    #[cfg_attr(not(feature = "local"), expect(dead_code, reason = "its commands need the embedded queue"))]
    DevArgs: Queues, Limits, Guest, Instances, Listen, Metrics, Traces, AdminAddress,
        AdminAccess, Data, Log;
    /// The settings of a run.
    RunArgs: Handler, Queues, Limits, Guest, Instances, Trials, ScheduleInterval, ScheduleTable,
        Metrics, Traces, AdminAddress, AdminAccess, File, Data, Backends, BackendQueues, Aws,
        Log;
}

fn with_flags(command: Command, groups: &[Group]) -> Command {
    let settings = groups.iter().flat_map(|group| group.settings());
    command.args(settings.filter_map(flag))
}

/// Returns the flag of a setting, with its environment variable.
fn flag(setting: &'static Setting) -> Option<Arg> {
    let (name, of) = (setting.flag_name()?, setting.flag?);
    let arg = Arg::new(name)
        .long(name)
        .value_name(setting.value)
        .help(setting.help_text())
        .help_heading(of.group.heading())
        .env(setting.variable()?)
        .hide_env_values(true)
        // A negative number must be reported as out of range, not as an unknown flag.
        .allow_negative_numbers(true)
        .action(match of.syntax {
            Syntax::Text => ArgAction::Set,
            Syntax::Lines | Syntax::Pairs | Syntax::PerQueue(_) => ArgAction::Append,
        });
    Some(match setting.shape {
        Shape::Switch => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        Shape::Scalar | Shape::List | Shape::Map | Shape::Tables(_) => arg,
    })
}

/// Returns the given settings, each with its flag or environment variable.
pub(super) fn settings(matches: &ArgMatches) -> Flags {
    let mut flags = Flags::default();
    for id in matches.ids() {
        let name = id.as_str();
        let at = match matches.value_source(name) {
            Some(ValueSource::CommandLine) => format!("--{name}"),
            Some(ValueSource::EnvVariable) => variable(name).unwrap_or_default().to_owned(),
            _ => continue,
        };
        // Ids of groups and of typed arguments hold no texts.
        if let Ok(Some(texts)) = matches.try_get_many::<String>(name) {
            for text in texts {
                flags.take(name, WrittenValue::new(&at, text));
            }
        }
    }
    let variables = std::env::vars_os();
    let texts =
        variables.map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
    otel::take(&mut flags, texts.flatten());
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let (problems, notices) = unknown_variables(names);
    flags.problems.extend(problems);
    flags.notices.extend(notices);
    flags
}

/// Returns the settings of a command that runs routes, with the classic tool's variables as a lower
/// layer and a notice for the log if there are any.
pub(super) fn with_classic(matches: &ArgMatches) -> Flags {
    let mut flags = settings(matches);
    let notice = classic::take(&mut flags, |name| std::env::var(name).ok());
    flags.notices.extend(notice);
    flags
}

/// Logs the notices about the sources of flags, once the log is set up.
pub(super) fn log_notices(flags: &Flags) {
    for notice in &flags.notices {
        tracing::warn!(notice, "environment variables need attention");
    }
}

/// Returns the locations of queues for commands that run no plugin. Also sets up the log.
pub(super) fn places(matches: &ArgMatches) -> (Places, Screen, Vec<Problem>) {
    let flags = settings(matches);
    let (places, problems) = config::places(&flags);
    let screen = log::start(places.log.format, &places.log.level);
    log_notices(&flags);
    (places, screen, problems)
}

/// Returns the location of a process's admin address. Does not set up the log.
pub(super) fn admin(matches: &ArgMatches) -> (AdminPlace, Vec<Problem>) {
    config::admin_place(&settings(matches))
}

/// Parses a queue name, or adds a problem.
pub(super) fn queue(text: &str, problems: &mut Vec<Problem>) -> Option<QueueName> {
    queue_at("QUEUE", text, problems)
}

/// Parses a queue name that the help calls `at`.
pub(super) fn queue_at(at: &str, text: &str, problems: &mut Vec<Problem>) -> Option<QueueName> {
    let read = text.parse();
    read.map_err(|found| problems.push(Problem::new(at, found, "")))
        .ok()
}

/// Returns `places` and the queue, for commands that need only these.
pub(super) fn place_of(matches: &ArgMatches, text: &str) -> Result<(Places, QueueName), Failure> {
    let (places, _screen, mut problems) = places(matches);
    match queue(text, &mut problems) {
        Some(name) if problems.is_empty() => Ok((places, name)),
        _ => Err(problems.into()),
    }
}

/// Returns the stores, and the queue if one is given.
pub(super) fn place_of_any(
    matches: &ArgMatches,
    text: Option<&str>,
) -> Result<(Places, Option<QueueName>), Failure> {
    let Some(text) = text else {
        let (places, _screen, problems) = places(matches);
        return if problems.is_empty() {
            Ok((places, None))
        } else {
            Err(problems.into())
        };
    };
    place_of(matches, text).map(|(places, name)| (places, Some(name)))
}
