//! `dispatcher plugin check`: what a file is, and whether `run` would take it.

use super::super::flags::{GuestArgs, LogArgs};
use super::super::{Typed, block_on, output};
use super::settings;
use crate::app::{self, build::plugins};
use crate::config::problem::Problem;
use crate::error::{Exit, Failure};
use crate::plugin::inspect::{self, Inspection};
use crate::plugin::runtime::{Runtime, RuntimeOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;

const EXAMPLES: &str = "\
Examples:
  dispatcher plugin check handler.wasm
  dispatcher plugin check plugins/*.wasm

Prints what each file is, imports and exports. Exits with 2 if one of them would be refused.";

/// Show what plugins are and want, and whether they would be refused
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Components
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub guest: GuestArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Looks at every file; one that is refused does not hide the others.
pub fn run(args: &Args, typed: &Typed) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for file in &args.files {
        let (settings, plugin, wrong) = settings(typed, file);
        if !wrong.is_empty() {
            return Err(wrong.into());
        }
        match inspect::file(file) {
            Ok(inspection) => output::bytes(describe(file, &inspection).as_bytes())?,
            Err(problem) => {
                problems.push(refused(file, &problem.what, problem.hint.as_deref()));
                continue;
            }
        }
        let Some(plugin) = plugin else { continue };
        let options = RuntimeOptions {
            instances: 1,
            max_memory: plugin.max_memory,
            cache: None,
        };
        let loaded = block_on(async {
            let runtime = Runtime::start(options, Handle::current(), Arc::new(drop))?;
            let alone = plugins::options_by_hand(&settings, &plugin, app::TIMEOUT).await;
            Ok(runtime.load(file, alone))
        })?;
        let loaded = loaded.map_err(|error: crate::plugin::runtime::StartError| {
            Failure::new(Exit::Failed, error.to_string())
        })?;
        if let Err(error) = loaded {
            let lines = error.problems.iter();
            problems.extend(lines.map(|line| refused(file, &line.what, line.hint.as_deref())));
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems.into()),
    }
}

fn refused(file: &Path, what: &str, hint: Option<&str>) -> Problem {
    let problem = Problem::new(file.display().to_string(), what, "");
    match hint {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

fn describe(file: &Path, inspection: &Inspection) -> String {
    let Inspection {
        kind, size, digest, ..
    } = inspection;
    let size = bytesize::ByteSize::b(*size as u64);
    let mut text = format!("{}: {kind}, {size}, sha256 {digest}\n", file.display());
    for (verb, names) in [
        ("imports", &inspection.imports),
        ("exports", &inspection.exports),
    ] {
        for name in names {
            text += &format!("  {verb} {name}\n");
        }
    }
    text
}
