//! Flags that several commands share, and what was given of them. The texts stay texts: `config`
//! reads them, so that every problem is found at once.

mod run;

use crate::config;
use crate::config::Places;
use crate::config::classic;
use crate::config::flags::{Flags, unknown_variables, variable};
use crate::config::problem::Problem;
use crate::config::section::Given;
use crate::error::Failure;
use crate::name::QueueName;
use crate::telemetry::log;
use crate::telemetry::log::Screen;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};
pub use run::RunArgs;

/// Where queues are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Places")]
pub struct PlaceArgs {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub stores: StoreArgs,
    #[command(flatten)]
    pub worqr: WorqrArgs,
    #[command(flatten)]
    pub aws: AwsArgs,
}

/// Where settings are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Places")]
pub struct FileArgs {
    /// Read settings from this TOML file; without it no file is read
    #[arg(long, value_name = "FILE")]
    pub config: Option<String>,
}

/// What queues on Redis are npm worqr's.
#[derive(Debug, Args)]
#[command(next_help_heading = "Places")]
pub struct WorqrArgs {
    /// Queues there that are npm worqr's, by their bare names: payments=worqr,default=worqr
    #[arg(long, value_name = "QUEUE=FORMAT")]
    pub redis_format: Option<String>,
    /// What that package's keys begin with [default: worqr]
    #[arg(long, value_name = "WORD")]
    pub redis_worqr_prefix: Option<String>,
}

/// Where AWS is.
#[derive(Debug, Args)]
#[command(next_help_heading = "Places")]
pub struct AwsArgs {
    /// Speak to this address in place of AWS
    #[arg(long, value_name = "URL")]
    pub endpoint_url: Option<String>,
}

/// Where the program itself keeps something.
#[derive(Debug, Args)]
#[command(next_help_heading = "Places")]
pub struct StoreArgs {
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub redis: RedisArgs,
}

/// Where the embedded queue is.
#[derive(Debug, Args)]
#[command(next_help_heading = "Places")]
pub struct DataArgs {
    /// The folder of the embedded queue [default: this user's data folder]
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<String>,
}

/// Where Redis is.
#[derive(Debug, Args)]
#[command(next_help_heading = "Places")]
pub struct RedisArgs {
    /// The Redis server of queues written redis:NAME [default: redis://127.0.0.1:6379]
    #[arg(long, value_name = "URL")]
    pub redis_url: Option<String>,
    /// For rediss://, a file with the certificate authorities to trust, in PEM [default: those of
    /// the system]
    #[arg(long, value_name = "FILE")]
    pub redis_ca_file: Option<String>,
    /// For rediss://, a file with the certificate that this client shows, in PEM
    #[arg(long, value_name = "FILE")]
    pub redis_cert_file: Option<String>,
    /// The file with the key of --redis-cert-file, in PEM
    #[arg(long, value_name = "FILE")]
    pub redis_key_file: Option<String>,
    /// What every key there begins with, in braces [default: dispatcher]
    #[arg(long, value_name = "WORD")]
    pub redis_prefix: Option<String>,
}

/// Where messages wait that SQS itself cannot delay for so long.
#[derive(Debug, Args)]
#[command(next_help_heading = "Schedule")]
pub struct TableArgs {
    /// The table of DynamoDB in which scheduled messages for SQS wait [default: for each queue the
    /// table of its name]
    #[arg(long, value_name = "TABLE")]
    pub schedule_table: Option<String>,
}

/// What is logged, to stderr.
#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// How log lines are written: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// What is logged: off, error, warn, info, debug or trace, or directives such as
    /// warn,guest=debug (`guest` is what plugins print) [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
}

/// What a plugin may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Plugin")]
pub struct GuestArgs {
    /// Stop an attempt after this long [default: 30s; for --function as long as the function may
    /// run, and a little more]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// The most memory of one instance [default: 64MiB; 256MiB for --function]
    #[arg(long, value_name = "SIZE")]
    pub max_memory: Option<String>,
    /// An environment variable for the plugin, which sees no others; may be repeated, and
    /// DISPATCHER_ENV holds one a line
    #[arg(long, value_name = "K=V")]
    pub env: Vec<String>,
    /// A Lambda function that the plugin may invoke: a name, NAME:ALIAS or ARN, in which * stands
    /// for any characters; may be repeated, and DISPATCHER_ALLOW_LAMBDA holds one a line
    #[arg(long, value_name = "PATTERN")]
    pub allow_lambda: Vec<String>,
    /// A queue that the plugin may send to, with a delay of any length: a name, an SQS URL or ARN, or
    /// local:NAME, as the plugin writes it; may be repeated, and DISPATCHER_ALLOW_SEND holds one a
    /// line
    #[arg(long, value_name = "QUEUE")]
    pub allow_send: Vec<String>,
    /// Where the plugin may open TCP connections to, as in 192.0.2.7:7000; may be repeated, and
    /// DISPATCHER_ALLOW_CONNECT holds one a line
    #[arg(long, value_name = "IP:PORT")]
    pub allow_connect: Vec<String>,
    /// A host that the plugin may send HTTP requests to: a name, *.NAME, IP address, network such as
    /// 10.0.0.0/8 or localhost, each with http:// or https:// before it and :PORT after it or without;
    /// may be repeated, and DISPATCHER_ALLOW_HTTP holds one a line
    #[arg(long, value_name = "HOST")]
    pub allow_http: Vec<String>,
    /// A folder that the plugin may read, and not write; it sees it as /
    #[arg(long, value_name = "FOLDER")]
    pub allow_read: Option<String>,
    /// A setting that the plugin reads by wasi:config; may be repeated, and DISPATCHER_SETTING holds
    /// one a line
    #[arg(long, value_name = "K=V")]
    pub setting: Vec<String>,
    /// A bucket of keys and values that the plugin opens as NAME by wasi:keyvalue: in the data folder
    /// (local:BUCKET) or on the Redis server (redis:BUCKET); may be repeated, and DISPATCHER_STORE
    /// holds one a line
    #[arg(long, value_name = "NAME=WHERE")]
    pub store: Vec<String>,
}

/// The settings among what was given, each with the flag or the variable that it came from.
pub fn settings(matches: &ArgMatches) -> Flags {
    let mut flags = Flags::default();
    for id in matches.ids() {
        let name = id.as_str().replace('_', "-");
        let at = match matches.value_source(id.as_str()) {
            Some(ValueSource::CommandLine) => format!("--{name}"),
            Some(ValueSource::EnvVariable) => variable(&name).unwrap_or_default().to_owned(),
            _ => continue,
        };
        // Ids of groups and of typed arguments hold no texts.
        if let Ok(Some(texts)) = matches.try_get_many::<String>(id.as_str()) {
            for text in texts {
                flags.take(&name, Given::new(&at, text));
            }
        }
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let (problems, notices) = unknown_variables(names);
    flags.problems.extend(problems);
    flags.notices.extend(notices);
    flags
}

/// The same for a command that runs routes: with what the classic tool's variables say below it,
/// and a notice for the log if they say anything.
pub fn with_classic(matches: &ArgMatches) -> Flags {
    let mut flags = settings(matches);
    let notice = classic::take(&mut flags, |name| std::env::var(name).ok());
    flags.notices.extend(notice);
    flags
}

/// Gives every flag that is a setting its environment variable, in this command and those below it.
/// A command's own arguments have none: an exported `DISPATCHER_DELAY` would delay every `send`.
pub fn with_variables(command: Command) -> Command {
    let variables = |arg: Arg| match arg.get_long().and_then(variable) {
        Some(name) => arg.env(name).hide_env_values(true),
        None => arg,
    };
    command.mut_args(variables).mut_subcommands(with_variables)
}

/// Logs what flags have to say about where they came from; once the log is set up.
pub fn log_notices(flags: &Flags) {
    for notice in &flags.notices {
        tracing::warn!("{notice}");
    }
}

/// Where queues are for commands that run no plugin; the log is set up on the way.
pub fn places(matches: &ArgMatches) -> (Places, Screen, Vec<Problem>) {
    let flags = settings(matches);
    let (places, problems) = config::places(&flags);
    let screen = log::start(places.log_format, &places.log_level);
    log_notices(&flags);
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
