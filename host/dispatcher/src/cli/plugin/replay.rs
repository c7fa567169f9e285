//! `dispatcher plugin replay`: runs recorded messages against a component, and shows differing
//! answers.

use super::super::flags::{GuestArgs, LogArgs, StoreArgs};
use super::super::{LooseArguments, block_on, output};
use super::settings;
use super::workbench::{self, Workbench};
use crate::error::{Exit, Failure};
use dispatcher_config::problem::Problem;
use dispatcher_core::telemetry::escape::escape_control_characters;
use dispatcher_trials::recording::entry;
use dispatcher_trials::recording::entry::{RecordedMessage, RecordedVerdict};
use dispatcher_wasm::runtime::Insight;
use serde_json::json;
use std::io::BufRead;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  dispatcher plugin replay handler.wasm recordings/
  dispatcher plugin replay handler.wasm orders-1763800.recording.jsonl --json
  dispatcher plugin replay handler.wasm recordings/ --only 01a2… --debug

A recording is what `run --record FOLDER` writes. Prints each message whose answer differs, and a
summary. The plugin is granted only what the flags grant. Exits with 0 if all answers are equal, and
with 1 if one differs.

--debug compiles the component for debuggers, prints how to attach one, and waits for Enter. The
component must have been built with debugging information; lldb and gdb then know its lines and
variables.";

/// Run recorded messages against a component and compare
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The component
    #[arg(value_name = "FILE")]
    pub plugin_file: PathBuf,
    /// Recordings: files, or folders of them
    #[arg(value_name = "RECORDING", required = true)]
    pub recordings: Vec<PathBuf>,
    /// Only the message of this id; may be repeated
    #[arg(long, value_name = "ID")]
    pub only: Vec<String>,
    /// Wait for a debugger before the first message
    #[arg(long)]
    pub debug: bool,
    /// Print every message as one line of JSON: {"id","was","is","alike"}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub guest: GuestArgs,
    #[command(flatten)]
    pub stores: StoreArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Prints the differences.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let (settings, plugin, screen, mut problems) = settings(typed, &args.plugin_file);
    let entries = entries(args, &mut problems);
    let (Some(plugin), true) = (plugin, problems.is_empty()) else {
        return Err(problems.into());
    };
    let (mut alike, mut otherwise) = (0, 0);
    block_on(async {
        let insight = if args.debug {
            Insight::Debugger
        } else {
            Insight::Lines
        };
        let workbench = Workbench::set_up(&plugin, &settings, insight).await?;
        let loaded = workbench.load_on(&screen, None)?;
        if args.debug {
            wait_for_debugger()?;
        }
        // Differences are printed above the bar, unless the output is for a program.
        let bar = screen.bar(entries.len() as u64);
        for entry in entries {
            bar.advance(1);
            let message = entry.message.clone().into();
            let ran = loaded.run(message).await?;
            let is = RecordedVerdict::of(&ran.verdict);
            let same = is.is_like(&entry.answer);
            if same {
                alike += 1
            } else {
                otherwise += 1
            }
            if !same && let Some(scene) = ran.scene.as_ref() {
                bar.beside(|| workbench::show(scene));
            }
            bar.beside(|| print(args, &entry, &is, same))?;
        }
        Ok::<_, Failure>(())
    })??;
    if !args.json {
        output::line(format!("{alike} answers equal, {otherwise} different"))?;
    }
    match otherwise {
        0 => Ok(()),
        _ => Err(Failure {
            exit: Exit::Failed,
            lines: Vec::new(),
        }),
    }
}

fn print(
    args: &Args,
    entry: &RecordedMessage,
    is: &RecordedVerdict,
    alike: bool,
) -> Result<(), Failure> {
    let (id, was) = (&entry.message.id, &entry.answer);
    match (args.json, alike) {
        (true, _) => output::json(&json!({ "id": id, "was": was, "is": is, "alike": alike })),
        (false, true) => Ok(()),
        (false, false) => {
            let id = escape_control_characters(id);
            output::line(format!("{id}\n  was: {was}\n  is:  {is}"))
        }
    }
}

/// Returns the recorded messages, in the order of the files' names and lines.
fn entries(args: &Args, problems: &mut Vec<Problem>) -> Vec<RecordedMessage> {
    let mut entries = Vec::new();
    for recording in &args.recordings {
        match entry::read_all(recording) {
            Ok(read) => entries.extend(read),
            Err(why) => problems.push(Problem::new("RECORDING", why, "what --record wrote")),
        }
    }
    if !args.only.is_empty() {
        entries.retain(|entry| args.only.contains(&entry.message.id));
    }
    if entries.is_empty() && problems.is_empty() {
        let wanted = "at least one recorded message";
        problems.push(Problem::new("RECORDING", "nothing to run", wanted));
    }
    entries
}

fn wait_for_debugger() -> Result<(), Failure> {
    let process = std::process::id();
    let file = std::env::current_exe().unwrap_or_else(|_| "dispatcher".into());
    output::note(format!(
        "The component is compiled. Attach a debugger, set breakpoints, let it go on, and press Enter here:\n  \
         lldb -p {process} -o 'settings set plugin.jit-loader.gdb.enable on'\n  \
         gdb {} {process}",
        file.display()
    ));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map(drop)
        .map_err(|error: std::io::Error| Failure::new(Exit::Failed, format!("stdin: {error}")))
}
