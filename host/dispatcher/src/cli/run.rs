//! `dispatcher run`: handles messages until stopped.

use super::{LooseArguments, block_on, block_on_beside_guests, flags};
use crate::app;
use crate::error::Failure;
use dispatcher_config::SettingsSource;
use dispatcher_core::telemetry::counters::Counters;
use dispatcher_telemetry::log;
use dispatcher_telemetry::otlp::LogRecords;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  dispatcher run --plugin handler.wasm
      handle messages of `dispatcher send local:default …`: no account needed
  dispatcher run --plugin handler.wasm --queues payments,default
      SQS, in strict order: nothing of `default` while `payments` holds messages
  dispatcher run --plugin handler.wasm --queues payments:3,default:1 \\
                 --concurrency 50
      SQS, three of `payments` for one of `default`
  dispatcher run --function my-function --queues payments:3,default:1 \\
                 --name my-app
      forward to Lambda as SQS events, with metrics in Dispatcher-my-app
  dispatcher run --function my-function:live --queues payments,default \\
                 --batch-size 10 --partial-failures \\
                 --concurrency 50,payments=5 --rate default=100/s
      ten messages per event; at most five concurrent events of `payments`, and
      100 messages of `default` a second
  dispatcher run --forward http://127.0.0.1:8080/jobs \\
                 --queues payments,default --concurrency 100
      post each message to an HTTP service; the response's status is its outcome
  dispatcher run --config dispatcher.toml --log-format json
      several routes, each with its plugin and queues

The first SIGTERM or SIGINT stops receiving, lets running attempts end within --shutdown-grace, and
releases messages that have not started; a second one forces the exit. SIGHUP reloads the file of
--config, whose routes are added, removed and replaced while the others go on, and the token of
--admin-token-file. Without either, SIGHUP stops the process like SIGTERM. A stop takes at most 28 s
by default: Kubernetes and ECS kill after 30 s.

WORKERLESS_FUNCTION, _QUEUES, _CONCURRENCY, _POLL_FOR, _SLEEP, _NAME and _METRICS_INTERVAL are read
if neither the flag nor its DISPATCHER_ variable is set.";

/// Receive messages from queues and run a plugin on each, until stopped
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    pub run: flags::RunArgs,
}

/// Checks everything first, and starts only if there is no problem.
pub(super) fn run(typed: LooseArguments) -> Result<(), Failure> {
    let flags = flags::with_classic(&typed.matches);
    let source = SettingsSource::read(&flags);
    let (settings, mut problems) = source.written();
    problems.splice(0..0, typed.unknown);
    let logs = settings.otlp.logs.as_ref();
    let records = logs.map(|logs| LogRecords::new(logs.batches.capacity));
    let log = &settings.log;
    let screen = log::start_with_export(log.format, &log.level, records.clone());
    flags::log_notices(&flags);
    if !problems.is_empty() {
        problems.extend(block_on(app::check(&settings))?);
        return Err(problems.into());
    }
    let counters = Arc::new(Counters::default());
    let shown = Arc::clone(&counters);
    let _progress = screen.progress(move || shown.snapshot());
    block_on_beside_guests(async move {
        let exporting = app::export_logs(&settings.otlp, records)?;
        let ended = app::run(settings, source, counters).await;
        exporting.finish(None).await;
        Ok(ended?)
    })?
}
