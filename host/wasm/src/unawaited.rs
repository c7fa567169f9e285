//! Recognizes components whose language drops the handler's return value, even a coroutine or a
//! promise, and answers "done", so that it is unknown whether the handler ran. Recognizes tools by
//! what they link in.

use crate::problem::Problem;
use crate::world::{self, ComponentKind};
use wasmparser::{Parser, Payload};
use wasmtime::component::Component;

/// The prefix of the exports of the module that holds a language's memory, and the tool that made
/// it.
const RUNTIMES: [(&str, &str); 2] = [
    (PYTHON, "componentize-py"),
    ("componentize_qjs_runtime.wasm:", "componentize-qjs"),
];
const PYTHON: &str = "libcomponentize_py_runtime.so:";
/// The module that `dispatcher plugin build` puts around a Python handler. It checks what the
/// handler returns and leaves behind. In JavaScript such a component has an `async func`.
const CHECKED: &[u8] = b"dispatcher_entry";

/// How the host treats a component whose language drops what the handler returns.
pub(super) enum DroppedAnswer {
    /// It could answer "done" for a handler that never ran.
    Refused(Problem),
    /// The interpreter prints a warning about a coroutine that nothing awaited.
    Printed,
}

/// Returns how to treat a component if its language drops what the handler returns.
pub(super) fn of(bytes: &[u8], component: &Component) -> Option<DroppedAnswer> {
    let kind = ComponentKind::of(component)?;
    let (function, hint) = match kind {
        // The answer of a batch is a list, which a coroutine or a promise is not.
        ComponentKind::Contract(export) if !export.is_batch => (
            "handle",
            "export dispatcher:plugin/handler-async and make the handler async, as in the world \
             async-handler, or build it with `dispatcher plugin build`",
        ),
        ComponentKind::Command => (
            "run",
            "make it a handler and build it with `dispatcher plugin build`, or export \
             wasi:cli/run@0.3.0, whose `run` is an async func",
        ),
        _ => return None,
    };
    let export = kind.export();
    // The answer of a plain func is there when it returns.
    if world::function(component, export, function)?.async_() {
        return None;
    }
    let (runtime, tool) = runtime_of(bytes)?;
    if runtime == PYTHON && bytes.windows(CHECKED.len()).any(|part| part == CHECKED) {
        return None;
    }
    if runtime == PYTHON && function == "handle" && can_print(component) {
        return Some(DroppedAnswer::Printed);
    }
    let what = format!(
        "exports {export} by {tool} with `{function}` as a plain func: a coroutine, promise or \
         generator that it returns would count as done without having run"
    );
    Some(DroppedAnswer::Refused(Problem::new(what).hint(hint)))
}

/// Whether a component can write to stderr.
fn can_print(component: &Component) -> bool {
    let kind = component.component_type();
    let mut imports = kind.imports(component.engine());
    imports.any(|(name, _)| name.starts_with("wasi:cli/stderr@"))
}

/// Returns the runtime that is linked into one of the component's modules.
fn runtime_of(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let parts = Parser::new(0).parse_all(bytes).map_while(Result::ok);
    let exports = parts.filter_map(|part| match part {
        Payload::ExportSection(exports) => Some(exports),
        _ => None,
    });
    let names = exports.flatten().flatten().map(|export| export.name);
    names.into_iter().find_map(|name| {
        RUNTIMES
            .into_iter()
            .find(|(start, _)| name.starts_with(start))
    })
}
