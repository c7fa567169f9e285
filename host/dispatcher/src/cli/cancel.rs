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
  dispatcher cancel local:orders 01999d1c-5f3e-7c40-8f7a-2f1f3a1b2c3d

A message that waits is removed. On Redis a running one is removed as well, and its attempt is
stopped: `cancelled` becomes true for the handler. On local: and DynamoDB only ids are found, and
the process that runs a message cancels it: POST /api/v1/queues/{queue}/cancel at its admin
address, or its page. SQS has no call that reaches a message by its id. Prints the number of each,
and fails if there was none.";

/// Remove a task from a queue, and stop it if it runs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The queue
    pub queue: String,
    /// The id of a message, or on Redis the body of any number of them
    pub task: String,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
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
        let line = match name.backend.can_cancel() {
            true => format!("queue `{name}` has no message with this id or body"),
            false => format!(
                "no message with this id waits in queue `{name}`; one that runs is cancelled at the \
                 admin address of its process"
            ),
        };
        return Err(Failure::new(Exit::Failed, line));
    }
    output::line(format!(
        "{} waiting removed, {} running stopped",
        cancelled.waiting, cancelled.running
    ))
}
