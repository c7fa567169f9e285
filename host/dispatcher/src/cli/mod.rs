//! The command line: parses arguments and selects the command. There is one file per command; it
//! knows the output and the exit code, and leaves everything else to `app` and `config`.

mod admin;
mod asked;
mod backup;
mod check;
mod completions;
#[cfg(feature = "local")]
mod dev;
mod doctor;
mod flags;
mod fleet;
mod health;
mod input;
#[cfg(feature = "local")]
mod local;
mod man;
mod output;
mod peek;
mod plugin;
#[cfg(feature = "postgres")]
mod postgres;
mod queues;
mod run;
mod schedule;
mod send;
mod tail;
mod top;
mod verbs;
mod workers;

use crate::error::{Exit, Failure};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use dispatcher_config::backends;
use dispatcher_config::problem::Problem;
use dispatcher_core::backend::Backend;
use dispatcher_core::files;
use dispatcher_operate::verbs::Verb;
use dispatcher_sqlite as sqlite;
use dispatcher_telemetry::log;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// How long the end of a command waits for its databases to be closed.
const CLOSING: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  dispatcher run --plugin handler.wasm        handle messages of local:default
  dispatcher send local:default hello         send one, from another terminal
  dispatcher dev orders                       build and run it at each save
  dispatcher run --plugin handler.wasm --queues payments:3,default:1
  dispatcher run --function my-function --queues payments:3,default:1
  dispatcher check --config dispatcher.toml   find every problem, start nothing
  dispatcher schedule add local:default --in 36h --body hello
  dispatcher redrive local:default.dead       dead letters; --apply moves them
  dispatcher top --admin 127.0.0.1:9090       watch a running process
  dispatcher doctor --config dispatcher.toml  problems of queues and functions

A queue is a name (SQS), an SQS URL or ARN, local:NAME (a file on this machine), redis:NAME,
postgres:NAME, or dynamodb:TABLE (the newest first).
Every setting is also an environment variable: --poll-for is DISPATCHER_POLL_FOR. Arguments of one
command, such as --delay or --json, are not. Flags override the environment, and both override the
file that --config names. No file is read without --config.

Exit codes:
  0    success
  1    failed while running
  2    bad usage or configuration; every problem is listed
  3    something needed could not be reached at start
  130  a second SIGINT forced the stop
  143  a second SIGTERM forced the stop";

/// The first steps of a new user.
const FIRST_STEPS: &str = "\
dispatcher takes messages from queues and runs your handler on each.

1. Create a handler (also javascript, typescript, python, go, c), build it and run it on a queue on
   this machine; every save rebuilds and replaces it:
     dispatcher plugin new --lang rust my-handler
     dispatcher dev my-handler

2. Send it a message, from another terminal:
     dispatcher send local:default hello

3. Then take messages from SQS, Redis, PostgreSQL or DynamoDB, or forward them to a Lambda function:
     dispatcher run --plugin handler.wasm --queues my-sqs-queue
     dispatcher run --function my-function --queues my-sqs-queue

dispatcher --help lists all commands; --help after a command has its options and examples.
";

/// Receives messages from queues by priority, runs a sandboxed WebAssembly handler on each or
/// forwards it to AWS Lambda, and settles it: done, retry later, or dead-letter
#[derive(Debug, Parser)]
#[command(name = "dispatcher", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    #[cfg(feature = "local")]
    Dev(dev::Args),
    Send(send::Args),
    Queues(queues::Args),
    Peek(peek::Args),
    Tail(tail::Args),
    Workers(workers::Args),
    Fleet(fleet::Args),
    Top(top::Args),
    Health(health::Args),
    Check(check::Args),
    Doctor(doctor::Args),
    #[cfg(feature = "local")]
    Local(local::Args),
    Backup(backup::Args),
    #[command(subcommand)]
    Schedule(schedule::Command),
    #[command(subcommand)]
    Plugin(plugin::Command),
    #[cfg(feature = "postgres")]
    #[command(subcommand)]
    Postgres(postgres::Command),
    Completions(completions::Args),
    Man(man::Args),
}

/// The parsed arguments that are not part of a typed struct.
struct LooseArguments {
    /// The arguments of the innermost command.
    matches: ArgMatches,
    /// Problems of unknown flags.
    unknown: Vec<Problem>,
}

/// Runs the command of this process's arguments.
pub fn main() -> ExitCode {
    main_with(&[])
}

/// Runs the program with additional backends.
pub fn main_with(more: &[&'static dyn Backend]) -> ExitCode {
    backends::add(more);
    let words: Vec<OsString> = std::env::args_os().collect();
    let asks_for_json = asks_for_json(&words);
    let answer = answer(words);
    // The databases' threads close them after their last user is gone.
    sqlite::wait_closed(CLOSING);
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let asked: Option<fn(&str, u8) -> String> = asks_for_json.then_some(log::json_error);
            failure.report(asked.or(log::error_line()))
        }
    }
}

fn answer(words: Vec<OsString>) -> Result<(), Failure> {
    if words.len() <= 1 {
        return output::bytes(FIRST_STEPS.as_bytes());
    }
    let (cli, typed) = match parse(words)? {
        ParsedCommand::Help => return Ok(()),
        ParsedCommand::Operation(verbs, typed) => {
            files::keep_private();
            return verbs::run(&verbs, &typed);
        }
        ParsedCommand::Command(cli, typed) => (cli, typed),
    };
    let is_for_others = match &cli.command {
        Command::Plugin(command) => command.writes_project(),
        Command::Man(_) => true,
        _ => false,
    };
    if !is_for_others {
        files::keep_private();
    }
    match cli.command {
        Command::Run(_) => run::run(typed),
        #[cfg(feature = "local")]
        Command::Dev(args) => dev::run(&args, &typed),
        Command::Send(args) => send::run(args, &typed),
        Command::Queues(args) => queues::run(args, &typed),
        Command::Peek(args) => peek::run(&args, &typed),
        Command::Tail(args) => tail::run(&args, &typed),
        Command::Workers(args) => workers::run(args, &typed),
        Command::Fleet(args) => fleet::run(&args, &typed),
        Command::Top(args) => top::run(&args, &typed),
        Command::Health(args) => health::run(&args, &typed),
        Command::Check(_) => check::run(typed),
        Command::Doctor(args) => doctor::run(&args, typed),
        #[cfg(feature = "local")]
        Command::Local(args) => local::run(&args, &typed),
        Command::Backup(args) => backup::run(&args, &typed),
        Command::Schedule(command) => schedule::run(command, &typed),
        Command::Plugin(command) => plugin::run(command, &typed),
        #[cfg(feature = "postgres")]
        Command::Postgres(command) => postgres::run(command, &typed),
        Command::Completions(args) => completions::run(&args, &mut program()),
        Command::Man(args) => man::run(&args, program()),
    }
}

/// Returns whether a flag or a variable selects the JSON log format. The settings file may select
/// it as well.
fn asks_for_json(words: &[OsString]) -> bool {
    words
        .windows(2)
        .any(|pair: &[OsString]| pair[0] == "--log-format" && pair[1] == "json")
        || words.iter().any(|word| word == "--log-format=json")
        || std::env::var_os("DISPATCHER_LOG_FORMAT").is_some_and(|format| format == "json")
}

/// A parsed command line.
enum ParsedCommand {
    /// The help or the version, which was printed.
    Help,
    /// An operation.
    Operation(Vec<&'static Verb>, LooseArguments),
    /// Any other command.
    Command(Box<Cli>, LooseArguments),
}

/// Returns the whole command line.
fn program() -> clap::Command {
    verbs::add_to(Cli::command())
}

fn parse(mut words: Vec<OsString>) -> Result<ParsedCommand, Failure> {
    let mut unknown = Vec::new();
    loop {
        let error = match program().try_get_matches_from(&words) {
            Ok(matches) => {
                if let Some(verbs) = matches.subcommand_name().and_then(verbs::find) {
                    let matches = innermost(matches);
                    return Ok(ParsedCommand::Operation(
                        verbs,
                        LooseArguments { matches, unknown },
                    ));
                }
                match Cli::from_arg_matches(&matches) {
                    Ok(cli) => {
                        let matches = innermost(matches);
                        return Ok(ParsedCommand::Command(
                            Box::new(cli),
                            LooseArguments { matches, unknown },
                        ));
                    }
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        // Only these commands take nothing but flags, so a word after an unknown flag belongs to
        // it.
        let flags_only = words
            .get(1)
            .is_some_and(|word| word == "run" || word == "check" || word == "doctor");
        if flags_only
            && error.kind() == ErrorKind::UnknownArgument
            && let Some(problem) = take_unknown(&error, &mut words)
        {
            unknown.push(problem);
            continue;
        }
        let mut failure = Failure::from(unknown);
        failure.exit = Exit::Usage;
        if error.use_stderr() && asks_for_json(&words) {
            let text = error.to_string();
            let line = text.strip_prefix("error: ").unwrap_or(&text);
            failure.lines.push(line.trim_end().to_owned());
            return Err(failure);
        }
        // If this fails, it cannot be reported.
        let _ = error.print();
        return if error.use_stderr() {
            Err(failure)
        } else {
            Ok(ParsedCommand::Help)
        };
    }
}

/// Removes an unknown flag and its value from the words, so that the rest can be parsed.
fn take_unknown(error: &clap::Error, words: &mut Vec<OsString>) -> Option<Problem> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let at = words.iter().position(|word: &OsString| {
        let word = word.to_string_lossy();
        word.split_once('=').map_or(&*word, |(flag, _)| flag) == flag
    })?;
    let with_value = words.remove(at).to_string_lossy().contains('=');
    if flag.starts_with('-')
        && !with_value
        && words
            .get(at)
            .is_some_and(|word: &OsString| !word.to_string_lossy().starts_with('-'))
    {
        words.remove(at);
    }
    let what = if flag.starts_with('-') {
        "unknown flag"
    } else {
        "not a flag"
    };
    let problem = Problem::new(flag, what, "");
    Some(match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(name)) => problem.hint(format!("did you mean `{name}`?")),
        _ => problem.hint("see --help"),
    })
}

fn innermost(mut matches: ArgMatches) -> ArgMatches {
    while let Some((_, inner)) = matches.remove_subcommand() {
        matches = inner;
    }
    matches
}

/// The number of threads of the control runtime, if nothing else needs the cores.
const CONTROL_THREADS: usize = 2;

/// Runs a future on the control runtime: the threads of polls, leases and settlement.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    block_on_threads(CONTROL_THREADS, future)
}

/// Runs a future on the control runtime beside as many guest threads as cores. With up to three
/// cores it uses one thread, since a second would often wake up and find the cores busy.
fn block_on_beside_guests<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    block_on_threads((cores / 2).clamp(1, CONTROL_THREADS), future)
}

fn block_on_threads<T>(threads: usize, future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("control")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, format!("no control threads: {error}")))?;
    let made = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(made)
}

#[cfg(test)]
mod tests;
