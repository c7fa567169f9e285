//! `dispatcher plugin check`: shows the kind of a file, its imports and grants, and whether `run`
//! would accept it.

use super::super::flags::{GuestArgs, LogArgs};
use super::super::{LooseArguments, block_on, output};
use super::settings;
use crate::app::build::versions;
use crate::app::build::versions::ReadError;
use crate::app::build::{grants, plugins};
use crate::error::{Exit, Failure};
use dispatcher_config::problem::Problem;
use dispatcher_config::{Code, PluginConfig, Settings, TIMEOUT};
use dispatcher_wasm::capability::registry::Capability;
use dispatcher_wasm::inspect;
use dispatcher_wasm::inspect::Inspection;
use dispatcher_wasm::runtime::{Runtime, RuntimeOptions, StartError};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;

const EXAMPLES: &str = "\
Examples:
  dispatcher plugin check handler.wasm
  dispatcher plugin check handler.wasm --allow-http api.example.com
  dispatcher plugin check plugins/*.wasm --json
  dispatcher plugin check oci://registry.example/team/orders@sha256:DIGEST

Prints the kind, imports and exports of each file, the capabilities that it requests by its imports,
and which of them the flags grant. Importing something does not mean using it: many languages always
import files or HTTP, and only a call without a grant is denied. Exits with 2 if one of the files
would be refused.";

/// Show the kind of plugins, what they import and are granted, and whether they would be refused
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Components: files, or their pinned names in a registry
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Print JSON: [{"file","kind","bytes","sha256","imports","exports",
    /// "requests":[{"capability","granted","flag"}],"problems"}]
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub guest: GuestArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Checks every file. A refused file does not hide the others.
pub(super) fn run(args: &Args, typed: &LooseArguments) -> Result<(), Failure> {
    let mut problems = Vec::new();
    let mut rows = Vec::new();
    for file in &args.files {
        let (settings, plugin, _, wrong) = settings(typed, file);
        if !wrong.is_empty() {
            return Err(wrong.into());
        }
        let Some(plugin) = plugin else { continue };
        let Code::Component(source) = &plugin.code else {
            continue;
        };
        let read = block_on(versions::read(source, &settings.stores.data))?;
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => {
                let found = unread(&error);
                let lines: Vec<_> = found.iter().map(ToString::to_string).collect();
                rows.push(json!({ "file": file, "problems": lines }));
                problems.extend(found);
                continue;
            }
        };
        let inspection = inspect::bytes(&bytes);
        if !args.json {
            output::text(&describe(file, &inspection, &plugin))?;
        }
        let found = load(file, &bytes, &settings, &plugin)?;
        rows.push(row(file, &inspection, &plugin, &found));
        problems.extend(found);
    }
    if args.json {
        output::json(&Value::Array(rows))?;
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.into())
    }
}

/// Returns the problems with which `run` would refuse the file.
fn load(
    file: &Path,
    bytes: &[u8],
    settings: &Settings,
    plugin: &PluginConfig,
) -> Result<Vec<Problem>, Failure> {
    let options = RuntimeOptions {
        instances: 1,
        max_memory: plugin.max_memory(),
        // The next command that runs the file need not compile it again.
        cache: Some(plugins::cache(&settings.stores.data)),
        functions: plugins::functions(),
    };
    let loaded = block_on(async {
        let runtime = Runtime::start(options, Handle::current(), Arc::new(drop))?;
        let alone = plugins::options_by_hand(settings, plugin, TIMEOUT).await;
        Ok(runtime.load_bytes(&file.to_string_lossy(), bytes, alone))
    })?;
    let loaded =
        loaded.map_err(|error: StartError| Failure::new(Exit::Failed, error.to_string()))?;
    Ok(match loaded {
        Ok(_) => Vec::new(),
        Err(error) => plugins::of_file(&error),
    })
}

/// Returns the problems of a file that could not be read.
fn unread(error: &ReadError) -> Vec<Problem> {
    match error {
        ReadError::File(error) => plugins::of_file(error),
        ReadError::Image(error) => vec![versions::of_fetch("FILE", error)],
    }
}

fn describe(file: &Path, inspection: &Inspection, plugin: &PluginConfig) -> String {
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
    for asked in Capability::of(&inspection.imports) {
        let granted = grants::granted(plugin, asked);
        let answer = if granted.is_empty() {
            format!("denied: {} grants it", asked.flag())
        } else {
            format!("granted: {}", granted.join(", "))
        };
        text += &format!("  requests {asked}: {answer}\n");
    }
    text
}

fn row(file: &Path, inspection: &Inspection, plugin: &PluginConfig, problems: &[Problem]) -> Value {
    let requests = Capability::of(&inspection.imports)
        .into_iter()
        .map(|asked| {
            json!({
                "capability": asked.to_string(),
                "granted": grants::granted(plugin, asked),
                "flag": asked.flag(),
            })
        });
    json!({
        "file": file,
        "kind": inspection.kind.to_string(),
        "bytes": inspection.size,
        "sha256": inspection.digest,
        "imports": inspection.imports,
        "exports": inspection.exports,
        "requests": requests.collect::<Vec<_>>(),
        "problems": problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
