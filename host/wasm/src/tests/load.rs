//! Every reason why a file is no plugin, and that all of them are told at once.

use super::super::inspect::{self, Kind};
use super::*;
use crate::capability::description::{LINKED_WASI_2, WASI_2};
use crate::diagnosis::linked;

/// The problems of a file, one a line.
fn problems(file: &std::path::Path) -> String {
    let error = runtime(1).load(file, options()).unwrap_err();
    assert!(!error.problems.is_empty());
    let told = error.to_string();
    assert_eq!(told.lines().count(), error.problems.len(), "{told}");
    told
}

fn problems_of_text(text: &str) -> String {
    load_text(text).unwrap_err().to_string()
}

fn problems_of_bytes(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    problems(file.path())
}

#[track_caller]
fn assert_contains(told: &str, parts: &[&str]) {
    for part in parts {
        assert!(told.contains(part), "{part:?} in {told:?}");
    }
}

#[test]
fn files_that_are_no_component_are_refused() {
    assert_contains(
        &problems(&prebuilt("no-such-plugin")),
        &["no-such-plugin.wasm: no such file"],
    );
    assert_contains(&problems(std::path::Path::new("/")), &["/: a folder"]);
    assert_contains(&problems_of_bytes(b""), &["empty"]);
    assert_contains(&problems_of_bytes(b"#!/bin/sh"), &["not WebAssembly"]);
    assert_contains(&problems_of_bytes(b"(component)"), &["text"]);
    assert_contains(&problems_of_bytes(b"\0asm\x0d\0\x02\0"), &["version"]);
    assert_contains(
        &problems_of_bytes(b"\0asm\x0d\0\x01\0rubbish"),
        &["not a valid component"],
    );
    assert_contains(
        &problems(&prebuilt("core-module")),
        &["a core module", "exports neither"],
    );
}

#[test]
fn what_several_routes_run_is_compiled_once_while_one_of_them_holds_it() {
    let runtime = runtime(1);
    let load = |name: &str| runtime.load(&prebuilt(name), options()).unwrap();
    let code = |plugin: &LoadedPlugin| plugin.loaded.component.image_range();
    let (first, second, other) = (load("verdicts"), load("verdicts"), load("bench-noop"));
    assert_eq!(code(&first), code(&second));
    assert_ne!(code(&first), code(&other));
    let held = Arc::downgrade(&first.loaded.component);
    drop((first, second));
    assert_eq!(held.strong_count(), 0, "it ends with the last of them");
    let again = load("verdicts");
    assert!(again.imports().iter().any(|name| name.contains("wasi:")));
}

#[test]
fn component_of_another_world_or_version_is_refused() {
    let told = problems(&prebuilt("wrong-world"));
    assert_contains(
        &told,
        &["neither", "of version 0.1.0 but", "elsewhere:clock/ticks"],
    );
    let told = problems(&prebuilt("wrong-version"));
    assert_contains(
        &told,
        &[
            "dispatcher:plugin/handler of version 0.9.0",
            "supports 0.1.0",
        ],
    );
    assert_contains(&problems_of_text("(component)"), &["but nothing"]);
    let told = problems_of_text(
        r#"(component (instance $http) (export "wasi:http/handler@0.4.0" (instance $http)))"#,
    );
    assert_contains(&told, &["exports wasi:http/handler@0.4.0"]);
    assert_contains(
        &told,
        &["wasi:http/incoming-handler@0.2.0 and wasi:http/handler@0.3.0"],
    );
}

#[test]
fn import_without_a_grant_is_refused() {
    let told = problems(&prebuilt("forbidden"));
    assert_contains(
        &told,
        &["imports dispatcher:plugin/lambda@0.1.0", "allow-lambda"],
    );
}

#[test]
fn all_problems_are_reported_together() {
    let told = problems_of_text(
        r#"(component
            (import "wasi:http/types@0.9.0" (instance))
            (import "wasi:http/handler@0.3.0" (instance))
            (import "wasi:cli/stdout@0.1.0" (instance))
            (import "wasi:cli/stdin@0.3.99" (instance))
            (import "wasi:cli/stdout@0.2.99" (instance))
            (import "dispatcher:plugin/queues@0.1.0" (instance))
            (import "dispatcher:plugin/context@0.7.0" (instance))
            (import "dispatcher:plugin/telepathy@0.1.0" (instance))
            (import "acme:anvil/drop@1.0.0" (instance))
        )"#,
    );
    assert_eq!(told.lines().count(), 8, "{told}");
    assert_contains(
        &told,
        &[
            "wasi:http/types@0.9.0 (this host provides wasi:http 0.2 and 0.3)",
            "wasi:http/handler@0.3.0 (not provided in this version)",
            "wasi:cli/stdout@0.1.0 (this host provides WASI 0.2",
            "dispatcher:plugin/queues@0.1.0 (grant it the queues",
            "dispatcher:plugin/context@0.7.0 (this host provides it at version 0.1.0)",
            "dispatcher:plugin/telepathy@0.1.0 (unknown to the version of the contract that this host supports)",
            "acme:anvil/drop@1.0.0 (unknown)",
            "neither",
        ],
    );
}

/// A component whose `handle` has no parameters.
const MISTYPED: &str = r#"
    (core module $m (func (export "handle") (result i32) i32.const 0))
    (core instance $i (instantiate $m))
    (func $handle (result u32) (canon lift (core func $i "handle")))
    (instance $handler (export "handle" (func $handle)))
    (export "dispatcher:plugin/handler@0.1.0" (instance $handler))
"#;

#[test]
fn right_name_with_another_type_is_refused() {
    let told = problems_of_text(&format!("(component {MISTYPED})"));
    assert_contains(&told, &["another type", "handle"]);
    let told = problems_of_text(&format!(
        r#"(component (import "dispatcher:plugin/context@0.1.0" (instance
            (export "cancelled" (func (param "message-id" u32) (result bool))))) {MISTYPED})"#
    ));
    assert_contains(
        &told,
        &[
            "another type",
            "dispatcher:plugin/context@0.1.0",
            "cancelled",
        ],
    );
}

#[test]
fn component_that_needs_more_than_its_limits_is_refused() {
    let told = problems_of_text(&format!(
        "(component (core module $big (memory 4096)) (core instance (instantiate $big)) {MISTYPED})"
    ));
    assert_contains(&told, &["268435456 bytes of memory"]);
    let greedy = PluginOptions {
        max_memory: MAX_MEMORY * 2,
        ..options()
    };
    let told = runtime(1)
        .load(&prebuilt("count"), greedy)
        .unwrap_err()
        .to_string();
    assert_contains(&told, &["67108864 bytes of memory"]);
}

/// The list that the diagnosis goes by names what the engine links.
#[test]
fn every_listed_import_can_be_linked() {
    let runtime = runtime(1);
    let linker = &runtime.inner.engines.of(b"").linker;
    // What is there already cannot be defined once more.
    let is_linked = |name: &str| {
        linker
            .clone()
            .root()
            .func_wrap(name, |_, (): ()| Ok(()))
            .is_err()
    };
    let mut count = 0;
    for interface in linked() {
        for version in interface.versions {
            let name = interface.name;
            let is_wasi_2 = interface.is_released_wasi() && *version == WASI_2;
            let version = if is_wasi_2 { LINKED_WASI_2 } else { version };
            assert!(is_linked(&format!("{name}@{version}")), "{name}@{version}");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
    assert!(!is_linked("wasi:http/incoming-handler@0.2.12"));
    assert!(!is_linked("wasi:http/handler@0.3.0"));
}

#[test]
fn no_linkable_import_is_called_unknown() {
    for name in [
        "hello",
        "verdicts",
        "count",
        "bench-noop",
        "batch-verdicts",
        "order-check",
    ] {
        load(&runtime(1), name, options());
    }
}

#[test]
fn refused_component_can_still_be_inspected() {
    let look = |name: &str| inspect::file(&prebuilt(name)).unwrap();
    let hello = look("hello");
    assert_eq!(
        (hello.kind, hello.problems.as_slice()),
        (Kind::Handler, [].as_slice())
    );
    assert_eq!(hello.digest.len(), 64);
    assert!(
        hello
            .exports
            .contains(&"dispatcher:plugin/handler@0.1.0".to_owned())
    );
    assert_eq!(look("batch-verdicts").kind, Kind::BatchHandler);
    let forbidden = look("forbidden");
    assert_eq!(forbidden.kind, Kind::Handler);
    assert!(
        forbidden
            .imports
            .contains(&"dispatcher:plugin/lambda@0.1.0".to_owned())
    );
    assert!(
        forbidden.problems.is_empty(),
        "functions may be granted to it"
    );
    assert_eq!(look("wrong-world").kind, Kind::Component);
    assert_eq!(look("core-module").kind, Kind::CoreModule);
    assert_eq!(inspect::bytes(b"MZ").kind, Kind::Unknown);
    assert!(inspect::file(&prebuilt("no-such-plugin")).is_err());
}

#[test]
fn compiled_component_is_cached_and_reused() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let options = RuntimeOptions {
            instances: 1,
            max_memory: MAX_MEMORY,
            cache: Some(folder.path().join("compiled")),
            functions: None,
        };
        let runtime = Runtime::start(options, timers(), spawn()).unwrap();
        assert_eq!(
            rejection(&load(&runtime, "count", super::options()), ""),
            "1"
        );
    }
    assert!(folder.path().join("compiled").read_dir().unwrap().count() > 0);
}

#[test]
fn compiled_functions_are_kept_for_another_component_and_give_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let functions = folder.path().join("functions-of-all");
    let answers = || {
        let options = RuntimeOptions {
            instances: 1,
            max_memory: MAX_MEMORY,
            cache: None,
            functions: Some(functions.clone()),
        };
        let runtime = Runtime::start(options, timers(), spawn()).unwrap();
        let answers = ["count", "verdicts"].map(|name| {
            let plugin = load(&runtime, name, super::options());
            rejection(&plugin, "reject why")
        });
        let kept = std::fs::metadata(functions.join("functions")).unwrap();
        (answers, kept.len())
    };
    let (first, kept) = answers();
    assert_eq!(first[0], "1");
    assert!(kept > 0);
    let (again, all) = answers();
    assert_eq!(again, first);
    // The compiler does not know some functions again, about one in twenty.
    assert!(all - kept < kept / 4, "{kept} bytes kept first, {all} then");
}

/// A handler with what a tool links in.
fn made_by(runtime: &str, more: &str, lift: &str) -> String {
    let items = format!(
        r#"(memory (export "memory") 1)
        (global (export "{runtime}:memory_base") i32 (i32.const 0))
        (func (export "again") (param i32 i32 i32) (result i32) i32.const 0) {more}"#
    );
    let guest = hostile::Guest {
        items: &items,
        lift,
        ..hostile::HARMLESS
    };
    guest.text()
}

#[test]
fn plain_export_whose_language_drops_coroutines_and_promises_is_refused() {
    const RUNTIMES: [(&str, &str); 2] = [
        ("libcomponentize_py_runtime.so", "componentize-py"),
        ("componentize_qjs_runtime.wasm", "componentize-qjs"),
    ];
    let later = r#"async (callback (core func $i "again"))"#;
    for (runtime, tool) in RUNTIMES {
        let text = made_by(runtime, "", "");
        let refused = problems_of_text(&text);
        assert_contains(&refused, &[tool, "handler-async", "plugin build"]);
        let inspected = inspect::bytes(&wat::parse_str(&text).unwrap());
        assert_contains(&inspected.problems[0].to_string(), &[tool]);
        load_text(&made_by(runtime, "", later)).unwrap();
    }
    load_text(&made_by("libother.so", "", "")).unwrap();
    let checked = r#"(data (i32.const 0) "dispatcher_entry")"#;
    let [(python, _), (javascript, _)] = RUNTIMES;
    load_text(&made_by(python, checked, "")).unwrap();
    problems_of_text(&made_by(javascript, checked, ""));
}

#[test]
fn batch_of_a_language_that_drops_coroutines_is_loaded_and_a_command_is_not() {
    let runtime =
        r#"(global (export "libcomponentize_py_runtime.so:memory_base") i32 (i32.const 0))"#;
    let items = format!(r#"(memory (export "memory") 1) {runtime}"#);
    let guest = hostile::Guest {
        items: &items,
        batch: true,
        ..hostile::HARMLESS
    };
    load_text(&guest.text()).unwrap();
    let command = format!(
        r#"(component
            (core module $m (func (export "run") (result i32) i32.const 0) {runtime})
            (core instance $i (instantiate $m))
            (func $run (result (result)) (canon lift (core func $i "run")))
            (instance $cli (export "run" (func $run)))
            (export "wasi:cli/run@0.2.0" (instance $cli)))"#
    );
    assert_contains(&problems_of_text(&command), &["wasi:cli/run@0.3.0"]);
}
