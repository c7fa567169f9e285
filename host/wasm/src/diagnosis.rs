//! Explains why a file is not a plugin that this host can run, with a remedy for each reason.

use crate::capability::description::{CONTRACT, Interface, WASI_2, WASI_3, package_of, split};
use crate::capability::registry::Capability;
use crate::output::escape_control_characters;
use crate::plugin::PluginOptions;
use crate::problem::Problem;
use crate::world::ComponentKind;
use crate::world::contract;
use crate::{limits, skeleton, wrap};
use std::borrow::Cow;
use wasmparser::{Validator, WasmFeatures};
use wasmtime::component::Component;
use wasmtime::{Config, Engine, OptLevel};

/// The interfaces of WASI that this host links for any plugin.
pub(crate) const WASI: [Interface; 19] = [
    Interface::new("wasi:cli/exit", &[WASI_2, WASI_3]),
    Interface::new("wasi:cli/stderr", &[WASI_2, WASI_3]),
    Interface::new("wasi:cli/stdin", &[WASI_2, WASI_3]),
    Interface::new("wasi:cli/stdout", &[WASI_2, WASI_3]),
    Interface::new("wasi:cli/terminal-input", &[WASI_2, WASI_3]),
    Interface::new("wasi:cli/terminal-output", &[WASI_2, WASI_3]),
    Interface::new("wasi:cli/terminal-stderr", &[WASI_2, WASI_3]),
    Interface::new("wasi:cli/terminal-stdin", &[WASI_2, WASI_3]),
    Interface::new("wasi:cli/terminal-stdout", &[WASI_2, WASI_3]),
    Interface::new("wasi:clocks/monotonic-clock", &[WASI_2, WASI_3]),
    Interface::new("wasi:clocks/system-clock", &[WASI_3]),
    Interface::new("wasi:clocks/types", &[WASI_3]),
    Interface::new("wasi:clocks/wall-clock", &[WASI_2]),
    Interface::new("wasi:io/error", &[WASI_2]),
    Interface::new("wasi:io/poll", &[WASI_2]),
    Interface::new("wasi:io/streams", &[WASI_2]),
    Interface::new("wasi:random/insecure", &[WASI_2, WASI_3]),
    Interface::new("wasi:random/insecure-seed", &[WASI_2, WASI_3]),
    Interface::new("wasi:random/random", &[WASI_2, WASI_3]),
];

/// Returns all interfaces that this host links. Their calls may still be denied.
pub(crate) fn linked() -> impl Iterator<Item = &'static Interface> {
    let granted = Capability::all().flat_map(|asked| asked.description().interfaces);
    granted.chain(&contract::INTERFACES).chain(&WASI)
}

/// The first bytes of a component: the magic word, version 13, layer 1.
const COMPONENT: [u8; 8] = *b"\0asm\x0d\0\x01\0";
/// The first bytes of a core module: the magic word, version 1.
const CORE_MODULE: [u8; 8] = *b"\0asm\x01\0\0\0";

/// Whether these are the bytes of a core module.
pub(super) fn is_core_module(bytes: &[u8]) -> bool {
    bytes.starts_with(&CORE_MODULE)
}

/// Returns the component in a file: its bytes, or the component made from the core module of a
/// program. Returns a problem if the bytes are neither.
pub(super) fn component_of(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Problem> {
    if bytes.starts_with(&COMPONENT) {
        return Ok(Cow::Borrowed(bytes));
    }
    if is_core_module(bytes) {
        return of_module(bytes).map(Cow::Owned);
    }
    Err(if bytes.is_empty() {
        Problem::new("empty where a WebAssembly component is wanted")
    } else if bytes.starts_with(b"\0asm") {
        Problem::new("WebAssembly of a version that this host does not know")
            .hint("rebuild it with current tools")
    } else if bytes.trim_ascii_start().starts_with(b"(") {
        Problem::new("WebAssembly text where the binary form is wanted")
            .hint("convert it with `wasm-tools parse`")
    } else {
        Problem::new("not WebAssembly").hint("a plugin is a .wasm component")
    })
}

/// Converts a core module to a component.
fn of_module(bytes: &[u8]) -> Result<Vec<u8>, Problem> {
    // The code that wraps the module assumes that it is valid.
    let valid = Validator::new_with_features(WasmFeatures::all()).validate_all(bytes);
    let wrapped = match valid {
        Ok(_) => wrap::component(bytes),
        Err(error) => Err(format!(
            "not a valid module: {}",
            one_line(&error.to_string())
        )),
    };
    wrapped.map_err(|why| {
        let what = format!("a core module that is not a WASI program: {why}");
        Problem::new(what).hint("build it for wasm32-wasip2, or for wasm32-wasip1 with a main")
    })
}

/// Rewords problems so that they are about the file, even if they were found in the component made
/// from its core module.
pub(super) fn of_file(bytes: &[u8], mut problems: Vec<Problem>) -> Vec<Problem> {
    let of_component = ["exports ", "imports "];
    if is_core_module(bytes) {
        let all = problems.iter_mut();
        for problem in all.filter(|one| of_component.iter().any(|is| one.what.starts_with(is))) {
            problem.what = format!("a core module whose component {}", problem.what);
        }
    }
    problems
}

/// Returns the reasons why the engine that should run it could not compile it: its needs, if an
/// engine without limits can compile it.
pub(super) fn of_refusal(
    bytes: &[u8],
    max_memory: usize,
    missing: &[MissingCapability],
    error: &wasmtime::Error,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Ok(component) = compile(bytes) {
        problems.extend(of_component(&component, missing));
        problems.extend(of_needs(&component, max_memory));
    }
    if problems.is_empty() {
        problems.push(of_compilation(error));
    }
    problems
}

/// Compiles a component for inspection only: without the code of its functions.
pub(super) fn compile(bytes: &[u8]) -> wasmtime::Result<Component> {
    let mut config = Config::new();
    config.cranelift_opt_level(OptLevel::None);
    let engine = Engine::new(&config)?;
    // If there is no skeleton, the engine reports the reason.
    let skeleton = skeleton::without_code(&engine, bytes);
    Component::from_binary(&engine, skeleton.as_deref().unwrap_or(bytes))
}

/// Returns the problem of a component that no engine can compile.
pub(super) fn of_compilation(error: &wasmtime::Error) -> Problem {
    Problem::new(format!("not a valid component: {}", line(error)))
        .hint("the file may be damaged, or use a proposal that this host does not support")
}

/// Returns the problem of imports or exports that do not fit although their names do.
pub(super) fn of_mismatch(error: &wasmtime::Error) -> Problem {
    Problem::new(format!(
        "an interface of the right name has another type: {}",
        line(error)
    ))
    .hint(format!(
        "build it against the WIT of dispatcher:plugin@{CONTRACT}"
    ))
}

/// Returns the problem of instances that cannot run this many attempts concurrently.
pub(super) fn of_taking_turns(concurrency: usize) -> Problem {
    Problem::new(format!(
        "{concurrency} concurrent attempts in an instance whose handle is not an async func"
    ))
    .hint("export it with async_handler! or async_batch_handler!, or omit instance-concurrency")
}

/// Returns the reason why it cannot run with these options, if there is one.
pub(super) fn of_options(way: ComponentKind, options: &PluginOptions) -> Option<Problem> {
    let many = options.instance_concurrency > 1;
    let ahead = options.warm.count.is_some_and(|count| count > 0);
    if way.is_command() && (many || ahead || options.reuse.is_some()) {
        let what = "prewarmed, reused or shared instances of a command";
        let hint =
            "a command starts fresh for each message: omit warm, reuse and instance-concurrency";
        return Some(Problem::new(what).hint(hint));
    }
    if way.is_http() && many {
        let what = format!(
            "{} concurrent attempts in an instance of an HTTP handler",
            options.instance_concurrency
        );
        let hint = "it takes one at a time: omit instance-concurrency";
        return Some(Problem::new(what).hint(hint));
    }
    None
}

/// A capability that is not granted, so that a component that requests it is refused, with a word
/// for what is missing.
pub(crate) type MissingCapability = (Capability, &'static str);

/// Returns the problems that names show: imports that this host does not grant, and missing
/// exports.
pub(super) fn of_component(component: &Component, missing: &[MissingCapability]) -> Vec<Problem> {
    let (kind, engine) = (component.component_type(), component.engine());
    let imports = kind
        .imports(engine)
        .filter_map(|(name, _)| of_import(name, missing));
    let mut problems: Vec<_> = imports.collect();
    let handlers: Vec<_> = contract::exports_of(component).collect();
    if let [one, other, ..] = handlers[..] {
        let both = Problem::new(format!("exports both {} and {}", one.name, other.name));
        problems.push(both.hint("export one of them"));
    }
    if ComponentKind::of(component).is_none() {
        let exports: Vec<_> = kind.exports(engine).map(|(name, _)| name).collect();
        problems.push(of_exports(&exports));
    }
    problems
}

/// The maximum number of exports that are listed.
const SHOWN: usize = 20;

fn of_exports(exports: &[&str]) -> Problem {
    if let Some(other) = exports.iter().find(|name: &&&str| {
        let mut known = contract::EXPORTS.iter();
        known.any(|export| split(export.name).0 == split(name).0)
    }) {
        let (interface, version) = split(other);
        return Problem::new(format!(
            "exports {interface} of version {version} of the contract; this host supports {CONTRACT}"
        ))
        .hint("build it against the WIT of that version");
    }
    let of_http = ["wasi:http/handler", "wasi:http/incoming-handler"];
    if let Some(other) = exports.iter().find(|name| of_http.contains(&split(name).0)) {
        let [old, new] = [ComponentKind::Http, ComponentKind::AsyncHttp].map(ComponentKind::export);
        return Problem::new(format!("exports {other}; this host runs {old} and {new}"))
            .hint("build it as an HTTP handler of one of them");
    }
    let found = match exports {
        [] => "nothing".to_owned(),
        some if some.len() <= SHOWN => some.join(", "),
        [some @ .., _] => {
            let rest = exports.len() - SHOWN;
            format!("{} and {rest} more", some[..SHOWN].join(", "))
        }
    };
    Problem::new(format!(
        "exports neither dispatcher:plugin/handler nor dispatcher:plugin/batch-handler of version {CONTRACT} but {found}"
    ))
    .hint(
        "build it for wasm32-wasip2 as one of the two, or as a command or an HTTP handler of WASI",
    )
}

/// Returns the problem of an import that is not granted.
fn of_import(name: &str, missing: &[MissingCapability]) -> Option<Problem> {
    let (interface, version) = split(name);
    let package = package_of(interface);
    let refused = |why: &str| Some(Problem::new(format!("imports {name}")).hint(why));
    if let Some((asked, what)) = missing.iter().find(|(asked, _): &&MissingCapability| {
        asked.description().requested_by.contains(&interface)
    }) {
        let key = asked.key();
        return refused(&format!(
            "grant it the {what} that it needs with --{key} or {key}"
        ));
    }
    if let Some(linked) = linked().find(|one| one.name == interface) {
        return if linked.supports(version) {
            None
        } else {
            refused(&other_version(linked))
        };
    }
    match package {
        // The interface contains only types, so there is nothing to grant.
        "wasi:cli" if interface == "wasi:cli/types" => None,
        "dispatcher:plugin" if is_types_only(interface) && is_known_version(version) => None,
        "dispatcher:plugin" if is_types_only(interface) => {
            refused(&format!("this host provides it at version {CONTRACT}"))
        }
        "dispatcher:plugin" => {
            refused("unknown to the version of the contract that this host supports")
        }
        "wasi:logging" | "wasi:tls" | "wasi:nn" => refused("not provided in this version"),
        _ if linked().any(|one| one.package() == package) => {
            refused("not provided in this version")
        }
        _ => refused("unknown"),
    }
}

/// Returns a hint with the versions of an interface that this host provides.
fn other_version(linked: &Interface) -> String {
    if linked.package() == "wasi:http" {
        return "this host provides wasi:http 0.2 and 0.3".to_owned();
    }
    if linked.is_released_wasi() {
        return "this host provides WASI 0.2 and 0.3; build it for wasm32-wasip2".to_owned();
    }
    format!(
        "this host provides it at version {}",
        linked.versions.join(" or ")
    )
}

/// Whether this host supports a version of the contract.
fn is_known_version(version: &str) -> bool {
    Interface::new("dispatcher:plugin/types", &[CONTRACT]).supports(version)
}

/// Whether the interface contains only types, so that there is nothing to grant.
fn is_types_only(interface: &str) -> bool {
    interface.ends_with("-types") || interface.ends_with("/types")
}

/// Returns a problem for each resource that one instance needs and this host does not provide.
pub(super) fn of_needs(component: &Component, max_memory: usize) -> Vec<Problem> {
    const PAGE: u64 = 64 << 10;
    let Some(needs) = component.resources_required() else {
        return vec![Problem::new("imports core modules").hint("link them into the component")];
    };
    let mut problems = Vec::new();
    let mut check = |what: &str, wanted: u64, most: u64| {
        if wanted > most {
            problems.push(Problem::new(format!(
                "one instance needs {wanted} {what}; this host allows {most}"
            )));
        }
    };
    check(
        "memories",
        needs.num_memories.into(),
        limits::MEMORIES.into(),
    );
    check("tables", needs.num_tables.into(), limits::TABLES.into());
    let elements = needs.max_initial_table_size.unwrap_or_default();
    check(
        "elements in a table",
        elements,
        limits::TABLE_ELEMENTS as u64,
    );
    let memory = needs
        .max_initial_memory_size
        .unwrap_or_default()
        .saturating_mul(PAGE);
    check("bytes of memory", memory, max_memory as u64);
    problems
}

/// Returns an error and its causes in one line.
fn line(error: &wasmtime::Error) -> String {
    one_line(&format!("{error:#}"))
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // The text may quote the file.
    escape_control_characters(&line)
}
