//! Describes a file for users: its kind, its imports and exports, and whether this host can run it.

use crate::compiled;
use crate::diagnosis;
use crate::problem::Problem;
use crate::unawaited::{self, DroppedAnswer};
use crate::world::ComponentKind;
use dispatcher_core::files;
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::{Limits, ReadError};
use std::path::Path;
use wasmtime::component::Component;

/// The description of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The way in which it can be used.
    pub kind: Kind,
    /// The names of its imports, in its own order; empty unless it is a component.
    pub imports: Vec<String>,
    /// The names of its exports.
    pub exports: Vec<String>,
    /// The size in bytes.
    pub size: usize,
    /// The SHA-256 in hexadecimal.
    pub digest: String,
    /// The reasons why this host cannot run it, as far as names show them. Types are checked when
    /// it is loaded.
    pub problems: Vec<Problem>,
}

/// The way in which a file can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A plugin that handles messages one at a time.
    Handler,
    /// A plugin that handles messages in batches.
    BatchHandler,
    /// An HTTP handler of WASI 0.2: each message is a request.
    HttpHandler,
    /// An HTTP handler of WASI 0.3.
    AsyncHttpHandler,
    /// A program as a core module of WASI 0.1: each message is a run.
    CommandModule,
    /// A program as a component of WASI 0.2.
    Command,
    /// A program as a component of WASI 0.3.
    AsyncCommand,
    /// A component that is not a plugin of a version that this host supports.
    Component,
    /// A core module.
    CoreModule,
    /// Not WebAssembly, or damaged.
    Unknown,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Handler => "a plugin of single messages",
            Self::BatchHandler => "a plugin of batches",
            Self::HttpHandler => "a wasi:http handler (p2 component)",
            Self::AsyncHttpHandler => "a wasi:http handler (p3 component)",
            Self::CommandModule => "a WASI command (p1 module)",
            Self::Command => "a WASI command (p2 component)",
            Self::AsyncCommand => "a WASI command (p3 component)",
            Self::Component => "a component that is not a plugin",
            Self::CoreModule => "a core module",
            Self::Unknown => "not WebAssembly",
        })
    }
}

/// Inspects a file. Returns an error only if the file cannot be read.
pub fn file(path: &Path) -> Result<Inspection, Problem> {
    Ok(bytes(&read(path)?))
}

/// Inspects bytes. Validates their code and compiles the rest.
pub fn bytes(bytes: &[u8]) -> Inspection {
    let mut inspection = Inspection {
        kind: Kind::Unknown,
        imports: Vec::new(),
        exports: Vec::new(),
        size: bytes.len(),
        digest: files::digest(bytes),
        problems: Vec::new(),
    };
    let is_module = diagnosis::is_core_module(bytes);
    if is_module {
        inspection.kind = Kind::CoreModule;
    }
    let component = match diagnosis::component_of(bytes) {
        Ok(component) => component,
        Err(problem) => {
            inspection.problems.push(problem);
            return inspection;
        }
    };
    match diagnosis::compile(&component) {
        Ok(compiled) => {
            describe(&compiled, &mut inspection);
            if let Some(DroppedAnswer::Refused(problem)) = unawaited::of(&component, &compiled) {
                inspection.problems.push(problem);
            }
            inspection.kind = match inspection.kind {
                Kind::Command if is_module => Kind::CommandModule,
                Kind::Component if is_module => Kind::CoreModule,
                kind => kind,
            };
            let problems = std::mem::take(&mut inspection.problems);
            inspection.problems = diagnosis::of_file(bytes, problems);
        }
        Err(error) => inspection.problems.push(diagnosis::of_compilation(&error)),
    }
    inspection
}

fn describe(component: &Component, inspection: &mut Inspection) {
    let (kind, engine) = (component.component_type(), component.engine());
    inspection.imports = compiled::imports(component);
    inspection.exports = kind
        .exports(engine)
        .map(|(name, _): (&str, _)| name.to_owned())
        .collect();
    inspection.kind = match ComponentKind::of(component) {
        Some(ComponentKind::Contract(export)) if export.is_batch => Kind::BatchHandler,
        Some(ComponentKind::Contract(_)) => Kind::Handler,
        Some(ComponentKind::Http) => Kind::HttpHandler,
        Some(ComponentKind::AsyncHttp) => Kind::AsyncHttpHandler,
        Some(ComponentKind::Command) => Kind::Command,
        Some(ComponentKind::AsyncCommand) => Kind::AsyncCommand,
        None => Kind::Component,
    };
    // The operator may grant what is missing.
    inspection.problems = diagnosis::of_component(component, &[]);
}

/// Returns the bytes of a file, or the reason why it cannot be read. Reads no more than the maximum
/// size of a component, and does not wait long for a file system that does not answer.
pub fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    bounded::read(path, Limits::COMPONENT).map_err(|error| {
        let hint = match &error {
            ReadError::NotFound => "a plugin is a .wasm component; build it first",
            ReadError::Kind { found, .. } if *found == "a folder" => "name the .wasm file in it",
            ReadError::Kind { .. } => "a plugin is a .wasm component in a regular file",
            ReadError::Changed => "write another file and rename it into place",
            ReadError::Io(error) => return Problem::new(format!("cannot be read: {error}")),
            _ => return Problem::new(error.to_string()),
        };
        Problem::new(error.to_string()).hint(hint)
    })
}
