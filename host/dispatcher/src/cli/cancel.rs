//! `dispatcher cancel`: remove a task from a queue, waiting or running.

use super::admin::{AdminClient, in_path};
use super::{Typed, block_on, flags, output};
use crate::app::build::Backends;
use crate::config::Places;
use crate::error::{Exit, Failure};
use crate::name::QueueName;
use dispatcher_core::backend::CancelCount;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  dispatcher cancel redis:feeds wss://example.net/1        each of these tasks
  dispatcher cancel redis:default 1763764000123456-0123abcd   one message, by id
  dispatcher cancel local:orders 01999d1c-5f3e-7c40-8f7a-2f1f3a1b2c3d
  dispatcher cancel orders 5fea7756-0ea4-451a-a703-a558b933e274 \\
                    --admin 127.0.0.1:9090 --admin-token-file token
      one that runs in this process

A message that waits is removed, also for a delay or a retry. On Redis a running one is removed
as well, and its attempt is stopped: `cancelled` becomes true for the handler. On other backends
only ids are found, and the process that runs a message cancels it: name it by --admin. SQS has no
call that reaches a message that waits by its id. Prints the number of each, and fails if there was
none.";

/// Remove a task from a queue, and stop it if it runs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The queue
    pub queue: String,
    /// The id of a message, or on Redis the body of any number of them
    pub task: String,
    #[command(flatten)]
    pub admin: flags::AdminArgs,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Cancels, and prints what was.
pub(super) fn run(args: &Args, typed: &Typed) -> Result<(), Failure> {
    let (places, name) = flags::place_of(&typed.matches, &args.queue)?;
    let (place, problems) = flags::admin(&typed.matches);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let cancelled = match AdminClient::of(&place)? {
        Some(client) => block_on(ask(&client, &name, &args.task))??,
        None => block_on(cancel(&places, &name, &args.task))??,
    };
    output::line(format!(
        "{} waiting removed, {} running stopped",
        cancelled.waiting, cancelled.running
    ))
}

/// Has the process at an admin address do it.
async fn ask(client: &AdminClient, name: &QueueName, task: &str) -> Result<CancelCount, Failure> {
    let path = format!("/api/v1/queues/{}/cancel", in_path(&name.to_string()));
    let answer = client.post(&path, &json!({"message": task})).await?;
    let is_missing = answer.status == 404;
    let done = answer.json().map_err(|failure| match is_missing {
        true => Failure {
            exit: Exit::Failed,
            ..failure
        },
        false => failure,
    })?;
    let count = |key: &str| done[key].as_u64().unwrap_or_default();
    Ok(CancelCount {
        waiting: count("waiting"),
        running: count("running"),
    })
}

async fn cancel(places: &Places, name: &QueueName, task: &str) -> Result<CancelCount, Failure> {
    let backends = Backends::new(places.stores.clone());
    let cancelled = match backends.cancel(name, task).await {
        Ok(cancelled) => cancelled,
        Err(error) => return Err(backends.problem("QUEUE", name, &error).await.into()),
    };
    if cancelled.waiting + cancelled.running > 0 {
        return Ok(cancelled);
    }
    let line = match name.backend.can_cancel() {
        true => format!("queue `{name}` has no message with this id or body"),
        false => format!(
            "no message with this id waits in queue `{name}`; one that runs is cancelled by its \
             process: name it by --admin"
        ),
    };
    Err(Failure::new(Exit::Failed, line))
}
