//! `dispatcher purge`: empty a queue.

use super::{Typed, block_on, flags, output};
use crate::app::backlog;
use crate::app::build::Backends;
use crate::app::drain::{Signals, stop_at_signal};
use crate::config::Places;
use crate::error::{Exit, Failure};
use crate::name::QueueName;
use dispatcher_core::queue::{Depth, Queue, QueueError};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  dispatcher purge local:orders.dead              count, remove nothing
  dispatcher purge local:orders.dead --apply

Removes what waits and what is delayed, for good. What is in flight stays with its handlers, save on
SQS: there one call empties the queue within a minute, what is in flight included, and the next is
taken a minute later.";

/// Remove all messages of a queue
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The queue
    pub queue: String,
    /// Remove them; without it they are only counted
    #[arg(long)]
    pub apply: bool,
    /// Print JSON: {"queue","applied","messages","removed"}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub places: flags::PlaceArgs,
    #[command(flatten)]
    pub log: flags::LogArgs,
}

/// Removes, or says how many there are.
pub(super) fn run(args: &Args, typed: &Typed) -> Result<(), Failure> {
    let (places, name) = flags::place_of(&typed.matches, &args.queue)?;
    block_on(purge(&places, &name, args))?
}

async fn purge(places: &Places, name: &QueueName, args: &Args) -> Result<(), Failure> {
    let backends = Backends::new(places.stores.clone());
    let opened = async {
        let queue = backends.open_existing(name).await?;
        let depth = queue.depth().await?;
        Ok::<_, QueueError>((queue, depth))
    };
    let (queue, depth) = match opened.await {
        Ok(opened) => opened,
        Err(error) => return Err(backends.problem("QUEUE", name, &error).await.into()),
    };
    let messages = backlog(name.backend, depth).purged();
    if !args.apply {
        return counted(name, depth, args.json);
    }
    let signals = Signals::listen(true)
        .map_err(|error| Failure::new(Exit::Failed, format!("signal handlers: {error}")))?;
    let cancel = CancellationToken::new();
    let removed = tokio::select! {
        biased; // what has ended is reported
        removed = steps(&*queue, &cancel) => removed,
        () = stop_at_signal(signals, &cancel) => return Ok(()),
    };
    let (removed, failed) = match removed {
        (removed, None) => (removed, None),
        (removed, Some(error)) => (removed, Some(backends.problem("QUEUE", name, &error).await)),
    };
    let queue = name.to_string();
    tracing::info!(target: "message", queue, removed, complete = failed.is_none(), "queue purged");
    if args.json {
        output::json(&serde_json::json!({
            "queue": queue, "applied": true, "messages": messages, "removed": removed,
        }))?;
    } else {
        output::line(match removed {
            Some(removed) => format!("{name}: {removed} removed"),
            None => format!(
                "{name}: emptied within a minute, about {messages} messages, those in flight included"
            ),
        })?;
    }
    match failed {
        Some(problem) => Err(problem.failed().into()),
        None if cancel.is_cancelled() => Err(Failure::new(
            Exit::Failed,
            "stopped by a signal; run it again to go on",
        )),
        None => Ok(()),
    }
}

fn counted(name: &QueueName, depth: Depth, json: bool) -> Result<(), Failure> {
    let Depth {
        waiting,
        delayed,
        in_flight,
        ..
    } = depth;
    if json {
        return output::json(&serde_json::json!({
            "queue": name.to_string(), "applied": false, "messages": backlog(name.backend, depth).purged(),
        }));
    }
    output::line(format!(
        "{name}: {waiting} waiting, {delayed} delayed, {in_flight} in flight"
    ))?;
    output::line(match name.backend.purges_in_flight() {
        true => "nothing was removed; add --apply to remove all of it, what is in flight included",
        false => "nothing was removed; add --apply to remove what waits and is delayed",
    })
}

/// Step by step, until there is nothing left or a signal comes.
async fn steps(queue: &dyn Queue, cancel: &CancellationToken) -> (Option<u64>, Option<QueueError>) {
    let mut removed = 0;
    loop {
        match queue.purge().await {
            Err(error) => return (Some(removed), Some(error)),
            Ok(step) => match step.removed {
                None => return (None, None),
                Some(more) => {
                    removed += more;
                    if !step.has_more || cancel.is_cancelled() {
                        return (Some(removed), None);
                    }
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_is_counted_where_a_purge_removes_it() {
        let depth = Depth {
            waiting: 1,
            delayed: 2,
            in_flight: 4,
            ..Depth::default()
        };
        for (name, messages) in [("orders", 7), ("local:orders", 3)] {
            let name: QueueName = name.parse().expect("a name");
            let purged = backlog(name.backend, depth).purged();
            assert_eq!(purged, messages, "{name}");
        }
    }
}
