//! Why a file is no plugin that this host runs, each reason with what to do about it.

use super::load::{PluginOptions, Problem};
use super::world::v0_1::{BATCH_HANDLER, HANDLER, LAMBDA, LENT, QUEUES, VERSION};
use super::world::{Way, keyvalue};
use super::{limits, wrap};
use std::borrow::Cow;
use wasmparser::{Validator, WasmFeatures};
use wasmtime::component::Component;
use wasmtime::{Config, Engine, OptLevel};

/// The interfaces of WASI 0.2 that this host links; what they lead to may still be shut.
pub(super) const WASI: [&str; 27] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// Those of WASI 0.3.
pub(super) const WASI_3: [&str; 20] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/system-clock",
    "wasi:clocks/types",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/types",
];
/// Those of `wasi:http` 0.2.
pub(super) const HTTP: [&str; 2] = ["wasi:http/outgoing-handler", "wasi:http/types"];
/// Those of `wasi:http` 0.3.
pub(super) const HTTP_3: [&str; 2] = ["wasi:http/client", "wasi:http/types"];

/// Settings.
pub(super) const CONFIG: &str = "wasi:config/store@0.2.0-rc.1";

/// How a component begins: the magic word, version 13, layer 1.
const COMPONENT: [u8; 8] = *b"\0asm\x0d\0\x01\0";
/// How a core module begins: the magic word, version 1.
const CORE_MODULE: [u8; 8] = *b"\0asm\x01\0\0\0";

/// Whether these are the bytes of a core module.
pub(super) fn is_core_module(bytes: &[u8]) -> bool {
    bytes.starts_with(&CORE_MODULE)
}

/// The component in a file: its bytes, or what a core module of a program becomes. A problem if
/// they cannot be one.
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

/// What a core module becomes.
fn of_module(bytes: &[u8]) -> Result<Vec<u8>, Problem> {
    // What wraps it takes it for valid.
    let valid = Validator::new_with_features(WasmFeatures::all()).validate_all(bytes);
    let wrapped = match valid {
        Ok(_) => wrap::component(bytes),
        Err(error) => Err(format!(
            "not a valid module: {}",
            one_line(&error.to_string())
        )),
    };
    wrapped.map_err(|why| {
        let what = format!("a core module that is no program of WASI: {why}");
        Problem::new(what).hint("build it for wasm32-wasip2, or for wasm32-wasip1 with a main")
    })
}

/// Problems of a file, told of the file: what they are about may be what a core module became.
pub(super) fn of_file(bytes: &[u8], mut problems: Vec<Problem>) -> Vec<Problem> {
    let of_component = ["exports ", "imports "];
    if is_core_module(bytes) {
        let all = problems.iter_mut();
        for problem in all.filter(|one| of_component.iter().any(|is| one.what.starts_with(is))) {
            problem.what = format!("a core module that, made a component, {}", problem.what);
        }
    }
    problems
}

/// Why the engine that is to run it could not compile it: what it needs, if an engine without
/// limits can.
pub(super) fn of_refusal(
    bytes: &[u8],
    max_memory: usize,
    lent: Lent,
    error: &wasmtime::Error,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Ok(component) = compile(bytes) {
        problems.extend(of_component(&component, lent));
        problems.extend(of_needs(&component, max_memory));
    }
    if problems.is_empty() {
        problems.push(of_compilation(error));
    }
    problems
}

/// Compiles a component quickly and badly, to look at it.
pub(super) fn compile(bytes: &[u8]) -> wasmtime::Result<Component> {
    let mut config = Config::new();
    config.cranelift_opt_level(OptLevel::None);
    Component::from_binary(&Engine::new(&config)?, bytes)
}

/// Why no engine could compile it.
pub(super) fn of_compilation(error: &wasmtime::Error) -> Problem {
    Problem::new(format!("not a valid component: {}", line(error)))
        .hint("the file may be damaged, or use a proposal that this host lacks")
}

/// Why its imports or exports do not fit though their names do.
pub(super) fn of_mismatch(error: &wasmtime::Error) -> Problem {
    Problem::new(format!(
        "an interface of the right name has another type: {}",
        line(error)
    ))
    .hint(format!(
        "build it against the WIT of dispatcher:plugin@{VERSION}"
    ))
}

/// Why its instances cannot take so many attempts at once.
pub(super) fn of_taking_turns(concurrency: usize) -> Problem {
    Problem::new(format!(
        "{concurrency} attempts at once in an instance whose handle is not an async func"
    ))
    .hint(
        "export it with async_handler! or async_batch_handler!, or leave instance-concurrency out",
    )
}

/// Why it cannot be run with these options.
pub(super) fn of_options(way: Way, options: &PluginOptions) -> Option<Problem> {
    let many = options.instance_concurrency > 1;
    let ahead = options.warm.count.is_some_and(|count| count > 0);
    if way.is_command() && (many || ahead || options.reuse.is_some()) {
        let what = "instances made ahead, reuse of them, or many attempts in one, of a command";
        let hint =
            "a command runs anew for each message: leave warm, reuse and instance-concurrency out";
        return Some(Problem::new(what).hint(hint));
    }
    if way.is_http() && many {
        let what = format!(
            "{} attempts at once in an instance of an HTTP handler",
            options.instance_concurrency
        );
        let hint = "it takes one at a time: leave instance-concurrency out";
        return Some(Problem::new(what).hint(hint));
    }
    None
}

/// What the configuration lends of what it must lend by name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lent {
    /// Functions.
    pub(super) lambda: bool,
    /// Queues.
    pub(super) queues: bool,
}

/// What its names tell: imports that this host does not lend, exports that it needs.
pub(super) fn of_component(component: &Component, lent: Lent) -> Vec<Problem> {
    let (kind, engine) = (component.component_type(), component.engine());
    let imports = kind
        .imports(engine)
        .filter_map(|(name, _)| of_import(name, lent));
    let mut problems: Vec<_> = imports.collect();
    let has = |way: Way| component.get_export_index(None, way.export()).is_some();
    if has(Way::Handler) && has(Way::BatchHandler) {
        let both = Problem::new("exports both handler and batch-handler");
        problems.push(both.hint("export one of them"));
    }
    if Way::of(component).is_none() {
        let exports: Vec<_> = kind.exports(engine).map(|(name, _)| name).collect();
        problems.push(of_exports(&exports));
    }
    problems
}

/// The most exports that are listed.
const SHOWN: usize = 20;

fn of_exports(exports: &[&str]) -> Problem {
    let ours = |name: &&&str| {
        let interface = split(name).0;
        interface == split(HANDLER).0 || interface == split(BATCH_HANDLER).0
    };
    if let Some(other) = exports.iter().find(ours) {
        let interface = split(other).0;
        return Problem::new(format!(
            "exports {other}; this host speaks {interface}@{VERSION}"
        ))
        .hint("build it against the WIT of this version");
    }
    let of_http = ["wasi:http/handler", "wasi:http/incoming-handler"];
    if let Some(other) = exports.iter().find(|name| of_http.contains(&split(name).0)) {
        let [old, new] = [Way::Http, Way::AsyncHttp].map(Way::export);
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
        "exports neither {HANDLER} nor {BATCH_HANDLER} but {found}"
    ))
    .hint(
        "build it for wasm32-wasip2 as one of the two, or as a command or an HTTP handler of WASI",
    )
}

/// Why this import is not lent.
fn of_import(name: &str, lent: Lent) -> Option<Problem> {
    let (interface, version) = split(name);
    let package = interface.split('/').next().unwrap_or(interface);
    let refused = |why: &str| Some(Problem::new(format!("imports {name}")).hint(why));
    match package {
        "dispatcher:plugin" => {
            let known = LENT.contains(&interface) || is_words(interface);
            if LAMBDA.contains(&interface) && !lent.lambda {
                refused("lend it the functions that it needs with --allow-lambda or allow-lambda")
            } else if QUEUES.contains(&interface) && !lent.queues {
                refused("lend it the queues that it needs with --allow-send or allow-send")
            } else if known && same_track(version, VERSION) {
                None
            } else if known {
                refused(&format!("this host lends it at version {VERSION}"))
            } else {
                refused("unknown to this version of the contract")
            }
        }
        "wasi:http" if HTTP.contains(&interface) && same_track(version, "0.2.0") => None,
        "wasi:http" if HTTP_3.contains(&interface) && same_track(version, "0.3.0") => None,
        "wasi:http" if HTTP.contains(&interface) || HTTP_3.contains(&interface) => {
            refused("this host lends wasi:http 0.2 and 0.3")
        }
        "wasi:http" => refused("not lent in this version"),
        "wasi:config" => match name == CONFIG {
            true => None,
            false => refused(&format!("this host lends {CONFIG}")),
        },
        "wasi:keyvalue" if keyvalue::LENT.contains(&interface) => {
            match version == keyvalue::VERSION {
                true => None,
                false => refused(&format!(
                    "this host lends it at version {}",
                    keyvalue::VERSION
                )),
            }
        }
        "wasi:keyvalue" | "wasi:logging" | "wasi:tls" | "wasi:nn" => {
            refused("not lent in this version")
        }
        // Shapes alone: nothing to lend.
        "wasi:cli" if interface == "wasi:cli/types" => None,
        _ if WASI.contains(&interface) && same_track(version, "0.2.0") => None,
        _ if WASI_3.contains(&interface) && same_track(version, "0.3.0") => None,
        _ if WASI.contains(&interface) || WASI_3.contains(&interface) => {
            refused("this host lends WASI 0.2 and 0.3; build it for wasm32-wasip2")
        }
        _ => refused("unknown"),
    }
}

/// Whether the interface holds types alone: nothing to lend.
fn is_words(interface: &str) -> bool {
    interface.ends_with("-types")
}

/// `a:b/c@1.2.3` → `a:b/c` and `1.2.3`.
fn split(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

/// Whether versions of 0.x are compatible: they differ in the last number alone.
fn same_track(one: &str, other: &str) -> bool {
    let track = |version: &str| version.rsplit_once('.').map(|(track, _)| track.to_owned());
    track(one).is_some() && track(one) == track(other)
}

/// What one instance needs that this host does not give.
pub(super) fn of_needs(component: &Component, max_memory: usize) -> Vec<Problem> {
    const PAGE: u64 = 64 << 10;
    let Some(needs) = component.resources_required() else {
        return vec![Problem::new("imports core modules").hint("link them into the component")];
    };
    let mut problems = Vec::new();
    let mut check = |what: &str, wanted: u64, most: u64| {
        if wanted > most {
            problems.push(Problem::new(format!(
                "one instance wants {wanted} {what}; this host gives {most}"
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
    let memory = needs.max_initial_memory_size.unwrap_or_default();
    let memory = memory.saturating_mul(PAGE);
    check("bytes of memory", memory, max_memory as u64);
    problems
}

/// An error and its causes in one line.
fn line(error: &wasmtime::Error) -> String {
    one_line(&format!("{error:#}"))
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // It may quote the file.
    super::output::harmless(&line)
}
