//! Flags that several commands share, and what was given of them. The texts stay texts: `config`
//! reads them, so that every problem is found at once.

mod run;

use crate::config::classic;
use crate::config::flags::Flags;
use crate::config::problem::Problem;
use crate::config::section::Given;
use crate::config::{self, Places};
use crate::error::Failure;
use crate::queue::name::QueueName;
use crate::telemetry::log::{self, Screen};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
pub use run::RunArgs;

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
    #[command(flatten)]
    pub stores: StoreArgs,
    /// Queues there that are npm worqr's, by their bare names: payments=worqr,default=worqr
    #[arg(
        long,
        value_name = "QUEUE=FORMAT",
        env = "DISPATCHER_REDIS_FORMAT",
        hide_env_values = true
    )]
    pub redis_format: Option<String>,
    /// What that package's keys begin with [default: worqr]
    #[arg(
        long,
        value_name = "WORD",
        env = "DISPATCHER_REDIS_WORQR_PREFIX",
        hide_env_values = true
    )]
    pub redis_worqr_prefix: Option<String>,
    /// Speak to this address in place of AWS
    #[arg(
        long,
        value_name = "URL",
        env = "DISPATCHER_ENDPOINT_URL",
        hide_env_values = true
    )]
    pub endpoint_url: Option<String>,
}

/// Where the program itself keeps something.
#[derive(Debug, Args)]
#[command(next_help_heading = "Places")]
pub struct StoreArgs {
    /// The folder of the embedded queue [default: this user's data folder]
    #[arg(
        long,
        value_name = "FOLDER",
        env = "DISPATCHER_DATA",
        hide_env_values = true
    )]
    pub data: Option<String>,
    /// The Redis server of queues written redis:NAME [default: redis://127.0.0.1:6379]
    #[arg(
        long,
        value_name = "URL",
        env = "DISPATCHER_REDIS_URL",
        hide_env_values = true
    )]
    pub redis_url: Option<String>,
    /// For rediss://, a file with the certificate authorities to trust, in PEM [default: those of
    /// the system]
    #[arg(
        long,
        value_name = "FILE",
        env = "DISPATCHER_REDIS_CA_FILE",
        hide_env_values = true
    )]
    pub redis_ca_file: Option<String>,
    /// For rediss://, a file with the certificate that this client shows, in PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "DISPATCHER_REDIS_CERT_FILE",
        hide_env_values = true
    )]
    pub redis_cert_file: Option<String>,
    /// The file with the key of --redis-cert-file, in PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "DISPATCHER_REDIS_KEY_FILE",
        hide_env_values = true
    )]
    pub redis_key_file: Option<String>,
    /// What every key there begins with, in braces [default: dispatcher]
    #[arg(
        long,
        value_name = "WORD",
        env = "DISPATCHER_REDIS_PREFIX",
        hide_env_values = true
    )]
    pub redis_prefix: Option<String>,
}

/// Where messages wait that SQS itself cannot delay for so long.
#[derive(Debug, Args)]
#[command(next_help_heading = "Schedule")]
pub struct TableArgs {
    /// The table of DynamoDB in which scheduled messages for SQS wait [default: for each queue the
    /// table of its name]
    #[arg(
        long,
        value_name = "TABLE",
        env = "DISPATCHER_SCHEDULE_TABLE",
        hide_env_values = true
    )]
    pub schedule_table: Option<String>,
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
    /// Stop an attempt after this long [default: 30s; for --function as long as the function may
    /// run, and a little more]
    #[arg(
        long,
        value_name = "TIME",
        env = "DISPATCHER_TIMEOUT",
        hide_env_values = true
    )]
    pub timeout: Option<String>,
    /// The most memory of one instance [default: 64MiB; 256MiB for --function]
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
    /// A Lambda function that the plugin may invoke: a name, NAME:ALIAS or ARN, in which * stands
    /// for any characters; may be repeated, and DISPATCHER_ALLOW_LAMBDA holds one a line
    #[arg(
        long,
        value_name = "PATTERN",
        env = "DISPATCHER_ALLOW_LAMBDA",
        hide_env_values = true
    )]
    pub allow_lambda: Vec<String>,
    /// A queue that the plugin may send to, with a delay of any length: a name, an SQS URL or ARN, or
    /// local:NAME, as the plugin writes it; may be repeated, and DISPATCHER_ALLOW_SEND holds one a
    /// line
    #[arg(
        long,
        value_name = "QUEUE",
        env = "DISPATCHER_ALLOW_SEND",
        hide_env_values = true
    )]
    pub allow_send: Vec<String>,
    /// Where the plugin may open TCP connections to, as in 192.0.2.7:7000; may be repeated, and
    /// DISPATCHER_ALLOW_CONNECT holds one a line
    #[arg(
        long,
        value_name = "IP:PORT",
        env = "DISPATCHER_ALLOW_CONNECT",
        hide_env_values = true
    )]
    pub allow_connect: Vec<String>,
    /// A host that the plugin may send HTTP requests to: a name, *.NAME, IP address, network such as
    /// 10.0.0.0/8 or localhost, each with http:// or https:// before it and :PORT after it or without;
    /// may be repeated, and DISPATCHER_ALLOW_HTTP holds one a line
    #[arg(
        long,
        value_name = "HOST",
        env = "DISPATCHER_ALLOW_HTTP",
        hide_env_values = true
    )]
    pub allow_http: Vec<String>,
    /// A folder that the plugin may read, and not write; it sees it as /
    #[arg(
        long,
        value_name = "FOLDER",
        env = "DISPATCHER_ALLOW_READ",
        hide_env_values = true
    )]
    pub allow_read: Option<String>,
    /// A setting that the plugin reads by wasi:config; may be repeated, and DISPATCHER_SETTING holds
    /// one a line
    #[arg(
        long,
        value_name = "K=V",
        env = "DISPATCHER_SETTING",
        hide_env_values = true
    )]
    pub setting: Vec<String>,
    /// A bucket of keys and values that the plugin opens as NAME by wasi:keyvalue: in the data folder
    /// (local:BUCKET) or on the Redis server (redis:BUCKET); may be repeated, and DISPATCHER_STORE
    /// holds one a line
    #[arg(
        long,
        value_name = "NAME=WHERE",
        env = "DISPATCHER_STORE",
        hide_env_values = true
    )]
    pub store: Vec<String>,
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

/// The same for a command that runs routes: with what the classic tool's variables say below it,
/// and a notice for the log if they say anything.
pub fn with_classic(matches: &ArgMatches) -> (Flags, Option<String>) {
    let mut flags = settings(matches);
    let notice = classic::take(&mut flags, |name| std::env::var(name).ok());
    (flags, notice)
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

/// A queue as it is typed, unless it is none.
pub fn queue(text: &str, problems: &mut Vec<Problem>) -> Option<QueueName> {
    let read = text.parse();
    read.map_err(|found| problems.push(Problem::new("QUEUE", found, "")))
        .ok()
}

/// `places` and the queue, for commands that are about one and need nothing else.
pub fn place_of(matches: &ArgMatches, text: &str) -> Result<(Places, QueueName), Failure> {
    let (places, _screen, mut problems) = places(matches);
    match queue(text, &mut problems) {
        Some(name) if problems.is_empty() => Ok((places, name)),
        _ => Err(problems.into()),
    }
}

/// The same where the queue may be left out.
pub fn place_of_any(
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
