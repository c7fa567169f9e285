//! `dispatcher cancel`: remove a task from a queue, waiting or running.

use super::admin::{AdminClient, in_path};
use super::{Typed, block_on, flags, output};
use crate::app::build::Backends;
use crate::config::Places;
use crate::error::{Exit, Failure};
use crate::name::QueueName;
use clap::parser::ValueSource;
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
only ids are found, and the process that runs a message cancels it: type its address as --admin. If
it cannot be reached or does not know the message, the queue is looked at without it. An address in
the file or in DISPATCHER_ADMIN is not asked. SQS has no call that reaches a message that waits by
its id. Prints the number of each, and fails if there was none.";

/// Remove a task from a queue, and stop it if it runs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The queue
    pub queue: String,
    /// The id of a message, or on Redis the body of any number of them
    pub task: String,
    /// Print JSON: {"queue","task","waiting","running"}
    #[arg(long)]
    pub json: bool,
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
    let task = &args.task;
    let cancelled = match named_process(&name, typed)? {
        Some(client) => block_on(ask_first(&client, &places, &name, task))??,
        None => block_on(cancel(&places, &name, task))??,
    };
    if args.json {
        return output::json(&json!({
            "queue": name.to_string(), "task": task,
            "waiting": cancelled.waiting, "running": cancelled.running,
        }));
    }
    output::line(format!(
        "{} waiting removed, {} running stopped",
        cancelled.waiting, cancelled.running
    ))
}

/// The process that does it: one whose address was typed, and not one that a file or a variable
/// configures for other commands. A backend that stops what runs needs none.
fn named_process(name: &QueueName, typed: &Typed) -> Result<Option<AdminClient>, Failure> {
    let is_typed = typed.matches.value_source("admin") == Some(ValueSource::CommandLine);
    if !is_typed || name.backend.can_cancel() {
        return Ok(None);
    }
    let (place, problems) = flags::admin(&typed.matches);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    AdminClient::of(&place)
}

/// What the process answered that was asked to cancel.
enum ProcessAnswer {
    Done(CancelCount),
    /// It cannot be reached, or knows no such message or queue: nothing was done.
    Unknown(Failure),
}

/// Has the process at an admin address do it, and does without it where it does not know the message.
async fn ask_first(
    client: &AdminClient,
    places: &Places,
    name: &QueueName,
    task: &str,
) -> Result<CancelCount, Failure> {
    let asked = match ask(client, name, task).await? {
        ProcessAnswer::Done(count) => return Ok(count),
        ProcessAnswer::Unknown(asked) => asked,
    };
    let done = cancel(places, name, task).await;
    done.map_err(|own| Failure {
        exit: asked.exit,
        lines: asked.lines.into_iter().chain(own.lines).collect(),
    })
}

async fn ask(client: &AdminClient, name: &QueueName, task: &str) -> Result<ProcessAnswer, Failure> {
    let path = format!("/api/v1/queues/{}/cancel", in_path(&name.to_string()));
    let answer = match client.post(&path, &json!({"message": task})).await {
        Ok(answer) => answer,
        Err(failure) if failure.exit == Exit::Unreachable => {
            return Ok(ProcessAnswer::Unknown(failure));
        }
        Err(failure) => return Err(failure),
    };
    let is_missing = answer.status == 404;
    let done = match answer.json() {
        Err(failure) if is_missing => {
            return Ok(ProcessAnswer::Unknown(Failure {
                exit: Exit::Failed,
                ..failure
            }));
        }
        done => done?,
    };
    let count = |key: &str| done[key].as_u64().unwrap_or_default();
    Ok(ProcessAnswer::Done(CancelCount {
        waiting: count("waiting"),
        running: count("running"),
    }))
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
