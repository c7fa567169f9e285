//! Flags that several commands share, and what was given of them. The texts stay texts: `config`
//! reads them, so that every problem is found at once.

use crate::config::flags::Flags;
use crate::config::problem::Problem;
use crate::config::section::Given;
use crate::config::{self, Places};
use crate::telemetry::log::{self, Screen};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};

/// Where queues are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Places")]
pub struct PlaceArgs {
    /// Read settings from this TOML file; without it no file is read
    #[arg(
        long,
        value_name = "FILE",
        env = "DISPATCHER_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<String>,
    /// The folder of the embedded queue [default: this user's data folder]
    #[arg(
        long,
        value_name = "FOLDER",
        env = "DISPATCHER_DATA",
        hide_env_values = true
    )]
    pub data: Option<String>,
    /// Speak to this address in place of AWS
    #[arg(
        long,
        value_name = "URL",
        env = "DISPATCHER_ENDPOINT_URL",
        hide_env_values = true
    )]
    pub endpoint_url: Option<String>,
}

/// What is logged, to stderr.
#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// How log lines are written: text or json [default: text]
    #[arg(
        long,
        value_name = "FORMAT",
        env = "DISPATCHER_LOG_FORMAT",
        hide_env_values = true
    )]
    pub log_format: Option<String>,
    /// What is logged: off, error, warn, info, debug or trace, or directives such as
    /// warn,guest=debug (`guest` is what plugins print) [default: info]
    #[arg(
        long,
        value_name = "LEVEL",
        env = "DISPATCHER_LOG_LEVEL",
        hide_env_values = true
    )]
    pub log_level: Option<String>,
}

/// What a plugin may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Plugin")]
pub struct GuestArgs {
    /// Stop an attempt after this long [default: 30s]
    #[arg(
        long,
        value_name = "TIME",
        env = "DISPATCHER_TIMEOUT",
        hide_env_values = true
    )]
    pub timeout: Option<String>,
    /// The most memory of one instance [default: 64MiB]
    #[arg(
        long,
        value_name = "SIZE",
        env = "DISPATCHER_MAX_MEMORY",
        hide_env_values = true
    )]
    pub max_memory: Option<String>,
    /// An environment variable for the plugin, which sees no others; may be repeated, and
    /// DISPATCHER_ENV holds one a line
    #[arg(
        long,
        value_name = "K=V",
        env = "DISPATCHER_ENV",
        hide_env_values = true
    )]
    pub env: Vec<String>,
}

/// What a run is made of.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The WebAssembly component that handles the messages
    #[arg(
        long,
        value_name = "FILE",
        env = "DISPATCHER_PLUGIN",
        hide_env_values = true
    )]
    pub plugin: Option<String>,
    /// Queues, the most urgent first; or each with a weight, as in payments:3,default:1
    /// [default: local:default]
    #[arg(
        long,
        value_name = "LIST",
        env = "DISPATCHER_QUEUES",
        hide_env_values = true
    )]
    pub queues: Option<String>,
    /// The most attempts at once [default: 50]
    #[arg(
        long,
        value_name = "N",
        env = "DISPATCHER_CONCURRENCY",
        hide_env_values = true
    )]
    pub concurrency: Option<String>,
    /// The most messages of one attempt, 1 to 10 [default: 1]
    #[arg(
        long,
        value_name = "N",
        env = "DISPATCHER_BATCH_SIZE",
        hide_env_values = true
    )]
    pub batch_size: Option<String>,
    /// How long one receive waits for messages, 0 to 20 seconds [default: 20]
    #[arg(
        long,
        value_name = "S",
        env = "DISPATCHER_POLL_FOR",
        hide_env_values = true
    )]
    #[arg(allow_negative_numbers = true)]
    pub poll_for: Option<String>,
    /// The pause after a receive that brought nothing, in seconds [default: 0]
    #[arg(
        long,
        value_name = "S",
        env = "DISPATCHER_SLEEP",
        hide_env_values = true
    )]
    #[arg(allow_negative_numbers = true)]
    pub sleep: Option<String>,
    /// How long a received message stays invisible unless extended, 0 to 43200 seconds
    /// [default: as the queue says]
    #[arg(
        long,
        value_name = "S",
        env = "DISPATCHER_VISIBILITY",
        hide_env_values = true
    )]
    #[arg(allow_negative_numbers = true)]
    pub visibility: Option<String>,
    /// Where rejected messages go: a queue on the same backend
    #[arg(
        long,
        value_name = "QUEUE",
        env = "DISPATCHER_DEAD_LETTER",
        hide_env_values = true
    )]
    pub dead_letter: Option<String>,
    /// Dead-letter a message after so many attempts [default: 10 where there is a dead-letter
    /// queue, as every local queue has; else as the queue's redrive policy says]
    #[arg(
        long,
        value_name = "N",
        env = "DISPATCHER_MAX_ATTEMPTS",
        hide_env_values = true
    )]
    pub max_attempts: Option<String>,
    /// How long running attempts may go on after SIGTERM or SIGINT [default: 30s]
    #[arg(
        long,
        value_name = "TIME",
        env = "DISPATCHER_SHUTDOWN_GRACE",
        hide_env_values = true
    )]
    pub shutdown_grace: Option<String>,
    /// Threads that run plugins [default: one per processor]
    #[arg(
        long,
        value_name = "N",
        env = "DISPATCHER_WORKERS",
        hide_env_values = true
    )]
    pub workers: Option<String>,
    #[command(flatten)]
    pub guest: GuestArgs,
    /// Use an instance for so many attempts [default: a fresh instance for each]
    #[arg(
        long,
        value_name = "N",
        env = "DISPATCHER_REUSE",
        hide_env_values = true
    )]
    pub reuse: Option<String>,
    #[command(flatten)]
    pub places: PlaceArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

/// The settings among what was given, each with the flag or the variable that it came from.
pub fn settings(matches: &ArgMatches) -> Flags {
    let mut flags = Flags::default();
    for id in matches.ids() {
        let name = id.as_str().replace('_', "-");
        let at = match matches.value_source(id.as_str()) {
            Some(ValueSource::CommandLine) => format!("--{name}"),
            Some(ValueSource::EnvVariable) => variable(&name),
            _ => continue,
        };
        // Ids of groups and of typed arguments hold no texts.
        if let Ok(Some(texts)) = matches.try_get_many::<String>(id.as_str()) {
            for text in texts {
                flags.take(&name, Given::new(&at, text));
            }
        }
    }
    flags
}

/// The environment variable of a flag.
pub fn variable(flag: &str) -> String {
    format!("DISPATCHER_{}", flag.replace('-', "_").to_uppercase())
}

/// Where queues are for commands that run no plugin; the log is set up on the way.
pub fn places(matches: &ArgMatches) -> (Places, Screen, Vec<Problem>) {
    let (places, problems) = config::places(&settings(matches));
    let screen = log::start(places.log_format, &places.log_level);
    (places, screen, problems)
}
