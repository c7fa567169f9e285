//! Flags that several commands share, from `config::declared`, and their given values. The values
//! stay texts: `config` parses them, so that every problem is found at once.

use crate::config;
use crate::config::classic;
use crate::config::declared::{Group, Setting, Shape, Syntax, variable};
use crate::config::flags::{Flags, unknown_variables};
use crate::config::otel;
use crate::config::problem::Problem;
use crate::config::section::Given;
use crate::config::{AdminPlace, Places};
use crate::error::Failure;
use crate::name::QueueName;
use crate::telemetry::log;
use crate::telemetry::log::Screen;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// Arguments of a command that are the flags of these groups, in this order. They hold nothing:
/// `settings` takes what was given out of the matches.
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
    /// Where settings are.
    FileArgs: File;
    /// Where the embedded queue is.
    DataArgs: Data;
    /// Where the servers of backends are.
    BackendArgs: Backends;
    /// Where AWS is.
    AwsArgs: Aws;
    /// Where the program itself keeps something.
    StoreArgs: Data, Backends;
    /// Where queues are.
    PlaceArgs: File, Data, Backends, BackendQueues, Aws;
    /// Where messages wait that SQS itself cannot delay for this long.
    TableArgs: ScheduleTable;
    /// Where a server listens.
    #[cfg_attr(not(feature = "local"), expect(dead_code, reason = "its commands need the embedded queue"))]
    ListenArgs: Listen;
    /// The admin address of a process.
    AdminArgs: AdminAddress;
    /// The admin address of a process that serves one, and who may use it.
    #[cfg_attr(not(feature = "local"), expect(dead_code, reason = "its commands need the embedded queue"))]
    ServedAdminArgs: AdminAddress, AdminAccess;
    /// What is logged, to stderr.
    LogArgs: Log;
    /// What a plugin may use.
    GuestArgs: Guest;
    /// What a run of the handler that is being written is made of.
    #[cfg_attr(not(feature = "local"), expect(dead_code, reason = "its commands need the embedded queue"))]
    DevArgs: Queues, Limits, Guest, Instances, Listen, Metrics, Traces, AdminAddress,
        AdminAccess, Data, Log;
    /// What a run is made of.
    RunArgs: Handler, Queues, Limits, Guest, Instances, Trials, ScheduleInterval, ScheduleTable,
        Metrics, Traces, AdminAddress, AdminAccess, File, Data, Backends, BackendQueues, Aws,
        Log;
}

fn with_flags(command: Command, groups: &[Group]) -> Command {
    let settings = groups.iter().flat_map(|group| group.settings());
    command.args(settings.filter_map(flag))
}

/// The flag of a setting, with its variable.
fn flag(setting: &'static Setting) -> Option<Arg> {
    let (name, of) = (setting.flag_name()?, setting.flag?);
    let arg = Arg::new(name)
        .long(name)
        .value_name(setting.value)
        .help(setting.help_text())
        .help_heading(of.group.heading())
        .env(setting.variable()?)
        .hide_env_values(true)
        // Out of range is what they are, not unknown flags.
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
        Shape::Scalar | Shape::List | Shape::Map => arg,
    })
}

/// The settings among what was given, each with the flag or the variable that it came from.
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
                flags.take(name, Given::new(&at, text));
            }
        }
    }
    let variables = std::env::vars_os();
    let variables =
        variables.map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
    otel::take(&mut flags, variables.flatten());
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let (problems, notices) = unknown_variables(names);
    flags.problems.extend(problems);
    flags.notices.extend(notices);
    flags
}

/// The settings of a command that runs routes: with the classic tool's variables as a lower layer,
/// and a notice for the log if there are any.
pub(super) fn with_classic(matches: &ArgMatches) -> Flags {
    let mut flags = settings(matches);
    let notice = classic::take(&mut flags, |name| std::env::var(name).ok());
    flags.notices.extend(notice);
    flags
}

/// Logs what flags have to say about where they came from; once the log is set up.
pub(super) fn log_notices(flags: &Flags) {
    for notice in &flags.notices {
        tracing::warn!(notice, "environment variables need attention");
    }
}

/// Where queues are for commands that run no plugin; the log is set up on the way.
pub(super) fn places(matches: &ArgMatches) -> (Places, Screen, Vec<Problem>) {
    let flags = settings(matches);
    let (places, problems) = config::places(&flags);
    let screen = log::start(places.log.format, &places.log.level);
    log_notices(&flags);
    (places, screen, problems)
}

/// Where the admin address of a process is; the log is as it was set up.
pub(super) fn admin(matches: &ArgMatches) -> (AdminPlace, Vec<Problem>) {
    config::admin_place(&settings(matches))
}

/// A queue as it is typed, unless it is none.
pub(super) fn queue(text: &str, problems: &mut Vec<Problem>) -> Option<QueueName> {
    let read = text.parse();
    read.map_err(|found| problems.push(Problem::new("QUEUE", found, "")))
        .ok()
}

/// `places` and the queue, for commands that are about one and need nothing else.
pub(super) fn place_of(matches: &ArgMatches, text: &str) -> Result<(Places, QueueName), Failure> {
    let (places, _screen, mut problems) = places(matches);
    match queue(text, &mut problems) {
        Some(name) if problems.is_empty() => Ok((places, name)),
        _ => Err(problems.into()),
    }
}

/// The queue and its stores, if a queue is given.
pub(super) fn place_of_any(
    matches: &ArgMatches,
    text: Option<&str>,
) -> Result<(Places, Option<QueueName>), Failure> {
    let Some(text) = text else {
        let (places, _screen, problems) = places(matches);
        return match problems.is_empty() {
            true => Ok((places, None)),
            false => Err(problems.into()),
        };
    };
    place_of(matches, text).map(|(places, name)| (places, Some(name)))
}
