//! `dispatcher plugin invoke`: runs a plugin on one message, given or recorded, once or many times,
//! without a queue.

use super::super::flags::{GuestArgs, LogArgs, StoreArgs};
use super::super::input::MessageArgs;
use super::super::{LooseArguments, block_on, output};
use super::workbench::{self, Ran, Workbench};
use super::{ShownOutput, bench, settings_and_log};
use crate::error::{Exit, Failure};
use dispatcher_config::problem::Problem;
use dispatcher_core::clock;
use dispatcher_core::message::{Message, Receipt};
use dispatcher_trials::recording::entry;
use dispatcher_trials::recording::entry::{Cause, RecordedVerdict};
use dispatcher_wasm::runtime::Insight;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  dispatcher plugin invoke handler.wasm 'hello'
  dispatcher plugin invoke handler.wasm --file order.json --attribute kind=order
  echo hello | dispatcher plugin invoke handler.wasm - --json
  dispatcher plugin invoke handler.wasm 'hello' --trace
  dispatcher plugin invoke handler.wasm 'hello' --bench --count 1000
  dispatcher plugin invoke handler.wasm --recorded recordings/ --nth 3

Prints the verdict: done, retry or reject. The plugin's output is logged to stderr. If it does not
answer (a trap, a timeout, too much memory), stderr has the stack and the last output. Exits with 0
if the plugin returned any verdict, and with 1 if it did not.";

/// Run a plugin on a body and print its verdict
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The component
    #[arg(value_name = "FILE")]
    pub plugin_file: PathBuf,
    #[command(flatten)]
    pub message: MessageArgs,
    /// Take the message from a recording, as `run --record` writes it: a file, or a folder of them
    #[arg(long, value_name = "RECORDING")]
    #[arg(conflicts_with_all = ["body", "file", "attribute"])]
    pub recorded: Option<PathBuf>,
    /// Position of the message in the recording, from 1; in a folder across its files by name
    /// [default: 1]
    #[arg(long, value_name = "N", requires = "recorded")]
    pub nth: Option<usize>,
    /// The recorded message with this id
    #[arg(long, value_name = "ID", requires = "recorded", conflicts_with = "nth")]
    pub id: Option<String>,
    /// Run it this many times, one after the other [default: 1; 500 with --bench]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    /// Measure compiling, loading, fresh and reused instances, memory; its output is not shown
    #[arg(long)]
    pub bench: bool,
    /// Show every call of the plugin to the host on stderr: arguments, result and duration
    #[arg(long)]
    #[arg(conflicts_with = "bench")]
    pub trace: bool,
    /// Print JSON: {"verdict","after_ms","cause","why"}, and "trace" and "printed" if it did not
    /// answer
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub guest: GuestArgs,
    #[command(flatten)]
    pub stores: StoreArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Prints the verdict.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let shown = match (args.trace, args.bench) {
        (true, _) => ShownOutput::Calls,
        (_, true) => ShownOutput::Nothing,
        _ => ShownOutput::Printed,
    };
    let (settings, plugin, screen, mut problems) =
        settings_and_log(typed, &args.plugin_file, shown);
    let message = message(args, &mut problems);
    let (Some(plugin), true) = (plugin, problems.is_empty()) else {
        return Err(problems.into());
    };
    block_on(async {
        let workbench = Workbench::set_up(&plugin, &settings, Insight::Lines).await?;
        if args.bench {
            return bench::run(&workbench, &message, args.count.unwrap_or(500), args.json).await;
        }
        let loaded = workbench.load_on(&screen, plugin.reuse)?;
        let mut broke = false;
        for _ in 0..args.count.unwrap_or(1) {
            let ran = loaded.run(message.clone()).await?;
            broke |= !print(&ran, args.json)?;
        }
        if broke {
            Err(Failure {
                exit: Exit::Failed,
                lines: Vec::new(),
            })
        } else {
            Ok(())
        }
    })?
}

/// Prints the result of a message. Returns whether the plugin answered.
fn print(ran: &Ran, json: bool) -> Result<bool, Failure> {
    let answer = RecordedVerdict::of(&ran.verdict);
    if let Some(scene) = &ran.scene {
        workbench::show(scene);
    }
    if json {
        output::json(&as_json(&answer, ran))?
    } else {
        output::line(answer.to_string())?
    }
    Ok(match &answer {
        RecordedVerdict::Retry { cause, .. } => *cause == Cause::Asked,
        _ => true,
    })
}

fn as_json(answer: &RecordedVerdict, ran: &Ran) -> Value {
    let mut value = json!(answer);
    if let (Some(scene), Some(fields)) = (&ran.scene, value.as_object_mut()) {
        let trace = scene.trace.iter().map(ToString::to_string);
        let printed = scene.printed.iter().map(ToString::to_string);
        fields.insert("trace".into(), trace.collect::<Vec<_>>().into());
        fields.insert("printed".into(), printed.collect::<Vec<_>>().into());
    }
    value
}

fn message(args: &Args, problems: &mut Vec<Problem>) -> Message {
    if let Some(recording) = &args.recorded {
        return recorded(recording, args.nth.unwrap_or(1), args.id.as_deref())
            .map_err(|problem| problems.push(problem))
            .unwrap_or_default();
    }
    let attributes = args.message.attributes(problems);
    let body = args.message.body().unwrap_or_else(|problem| {
        problems.push(problem);
        String::new()
    });
    Message {
        id: uuid::Uuid::now_v7().to_string(),
        queue: "invoke".into(),
        body,
        source: "invoke".into(),
        receipt: Receipt("invoke".into()),
        receive_count: 1,
        sent_at: Some(clock::wall_clock_now()),
        first_received_at: Some(clock::wall_clock_now()),
        attributes,
        ..Message::default()
    }
}

/// Returns a message of a recording, by its id or its position.
fn recorded(recording: &Path, nth: usize, id: Option<&str>) -> Result<Message, Problem> {
    let entries = entry::read_all(recording)
        .map_err(|why| Problem::new("--recorded", why, "what `run --record` wrote"))?;
    let found = entries.len();
    let mut entries = entries.into_iter();
    let entry = match id {
        Some(id) => entries.find(|entry| entry.message.id == id),
        None => nth.checked_sub(1).and_then(|at| entries.nth(at)),
    };
    entry
        .map(|entry| entry.message.into())
        .ok_or_else(|| match id {
            Some(id) => Problem::new(
                "--id",
                format!("it does not contain `{id}`"),
                "a recorded id",
            ),
            None => Problem::new("--nth", nth.to_string(), format!("1 to {found}")),
        })
}
