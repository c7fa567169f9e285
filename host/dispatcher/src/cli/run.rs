//! `dispatcher run`: handle messages until told to stop.

use super::{Typed, block_on, flags};
use crate::app;
use crate::config;
use crate::error::Failure;
use crate::telemetry::log;
use dispatcher_core::telemetry::counters::Counters;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  dispatcher run --plugin handler.wasm
      handle what `dispatcher send local:default …` sends; no account, no server
  dispatcher run --plugin handler.wasm --queues payments,default
      SQS, strictly: nothing of `default` while `payments` holds something
  dispatcher run --plugin handler.wasm --queues payments:3,default:1 --concurrency 50
      SQS, three of `payments` for one of `default`
  dispatcher run --function my-function --queues payments:3,default:1 --name my-app
      forward to a Lambda function as SQS events, with metrics in Dispatcher-my-app
  dispatcher run --function my-function:live --queues payments,default --batch-size 10 \\
                 --partial-failures --concurrency 50,payments=5 --rate default=100/s
      ten messages an event; at most five events of `payments` at once, and 100 messages of
      `default` a second
  dispatcher run --config dispatcher.toml --log-format json
      several routes, each with its plugin and queues

The first SIGTERM or SIGINT stops receiving, lets running attempts end within --shutdown-grace,
and gives back what has not begun; a second one forces the end. SIGHUP reads the file of --config
again, where limits change at once and all else at the next start, and the token of
--admin-token-file; without either it stops as SIGTERM does. A stop takes 28 s at most by default:
Kubernetes and ECS kill after 30.

WORKERLESS_FUNCTION, _QUEUES, _CONCURRENCY, _POLL_FOR, _SLEEP, _NAME and _METRICS_INTERVAL are read
where neither the flag nor its DISPATCHER_ variable is there.";

/// Take messages from queues and run a plugin on each, until told to stop
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    pub run: flags::RunArgs,
}

/// Checks everything first, and begins only if nothing is wrong.
pub(super) fn run(typed: Typed) -> Result<(), Failure> {
    let flags = flags::with_classic(&typed.matches);
    let (settings, mut problems) = config::settings(&flags);
    problems.splice(0..0, typed.unknown);
    let screen = log::start(settings.log.format, &settings.log.level);
    flags::log_notices(&flags);
    if !problems.is_empty() {
        problems.extend(block_on(app::check(&settings))?);
        return Err(problems.into());
    }
    let counters = Arc::new(Counters::default());
    let shown = Arc::clone(&counters);
    let _progress = screen.progress(move || shown.snapshot());
    Ok(block_on(app::run(settings, flags, counters))??)
}
