//! `dispatcher cancel`: remove a task from a queue, waiting or running.

use super::{Typed, block_on, flags, output};
use crate::app::build::Backends;
use crate::config::Places;
use crate::error::{Exit, Failure};
use crate::name::QueueName;

const EXAMPLES: &str = "\
Examples:
  dispatcher cancel redis:feeds wss://example.net/1        each of these tasks
  dispatcher cancel redis:default 1763764000123456-0123abcd   one message, by id

A waiting task is removed. A running one is removed as well, and its attempt is stopped: `cancelled`
becomes true for the handler. Prints the number of each, and fails if there was none. Only Redis
queues support this.";

/// Remove a task from a queue, and stop it if it runs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The queue, redis:NAME
    pub queue: String,
    /// The id of a message, or the body of any number of them
    pub task: String,
    #[command(flatten)]
    pub file: flags::FileArgs,
    #[command(flatten)]
    pub redis: flags::RedisArgs,
    #[command(flatten)]
    pub worqr: flags::WorqrArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Cancels, and prints what was.
pub(super) fn run(args: Args, typed: &Typed) -> Result<(), Failure> {
    let (places, name) = flags::place_of(&typed.matches, &args.queue)?;
    block_on(cancel(&places, &name, &args.task))?
}

async fn cancel(places: &Places, name: &QueueName, task: &str) -> Result<(), Failure> {
    let backends = Backends::new(places.stores.clone());
    let cancelled = match backends.cancel(name, task).await {
        Ok(cancelled) => cancelled,
        Err(error) => return Err(backends.problem("QUEUE", name, &error).await.into()),
    };
    if cancelled.waiting + cancelled.running == 0 {
        let line = format!("queue `{name}` has no message with this id or body");
        return Err(Failure::new(Exit::Failed, line));
    }
    output::line(format!(
        "{} waiting removed, {} running stopped",
        cancelled.waiting, cancelled.running
    ))
}
