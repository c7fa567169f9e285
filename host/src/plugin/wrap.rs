//! From a core module to a component: what a language's own compiler makes, put into the shape
//! that the host runs. Knows the two entries of WASI 0.1 and nothing of the contract.

mod exit;

use super::output::harmless;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as WASI_0_1,
    WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER as COMMAND,
    WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as REACTOR,
};
use wasmparser::{Parser, Payload};
use wit_component::ComponentEncoder;

/// What a program exports that is run from its start.
const START: &str = "_start";

/// Makes a component of a core module's bytes. Its world is what the bindings left in its custom
/// sections, and `wasi:cli/command` besides if it exports `_start`; calls to WASI 0.1 are adapted
/// to WASI 0.2. An error is one line: what is wrong with the module.
pub fn component(module: &[u8]) -> Result<Vec<u8>, String> {
    let shape = Shape::of(module)?;
    if !shape.starts && !shape.has_world {
        let what = "it exports no `_start` and holds no bindings of a component's world";
        return Err(what.into());
    }
    let mut encoder = ComponentEncoder::default();
    let module = match shape.starts {
        true => exit::with_code(module)?,
        false => module.into(),
    };
    encoder.module(&module).map_err(line)?;
    // A program's entry is the adapter's to export, whether or not the program calls WASI.
    if shape.starts {
        encoder.adapter(WASI_0_1, COMMAND).map_err(line)?;
    } else if shape.calls_wasi {
        encoder.adapter(WASI_0_1, REACTOR).map_err(line)?;
    }
    encoder.encode().map_err(line)
}

/// An error and its causes in one line.
fn line(error: impl std::fmt::Display) -> String {
    let text = format!("{error:#}");
    let words: Vec<_> = text.split_whitespace().collect();
    // It may quote the module.
    harmless(&words.join(" "))
}

/// What decides how a module is wrapped.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shape {
    /// It is run from its start.
    starts: bool,
    /// It imports something of WASI 0.1.
    calls_wasi: bool,
    /// Its bindings left in it which world it is of.
    has_world: bool,
}

impl Shape {
    fn of(module: &[u8]) -> Result<Self, String> {
        let damaged = |error| format!("not a valid module: {}", line(error));
        let mut shape = Self::default();
        for payload in Parser::new(0).parse_all(module) {
            match payload.map_err(damaged)? {
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        shape.calls_wasi |= import.map_err(damaged)?.module == WASI_0_1;
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        shape.starts |= export.map_err(damaged)?.name == START;
                    }
                }
                Payload::Version { encoding, .. } if encoding != wasmparser::Encoding::Module => {
                    return Err("a component where a core module is wanted".into());
                }
                Payload::CustomSection(section) => {
                    shape.has_world |= section.name().starts_with("component-type");
                }
                _ => {}
            }
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::super::inspect::{self, Kind};
    use super::*;

    /// The names of what the component of this text imports and exports.
    fn wrapped(text: &str) -> (Vec<String>, Vec<String>) {
        let bytes = component(&wat::parse_str(text).unwrap()).unwrap();
        let found = inspect::bytes(&bytes);
        assert_ne!(found.kind, Kind::Unknown, "{:?}", found.problems);
        (found.imports, found.exports)
    }

    fn exports_run(exports: &[String]) -> bool {
        exports
            .iter()
            .any(|name| name.starts_with("wasi:cli/run@0.2."))
    }

    #[test]
    fn a_program_becomes_a_command() {
        let (imports, exports) = wrapped(
            r#"(module
                (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
                (memory (export "memory") 1)
                (func (export "_start") (call $exit (i32.const 3))))"#,
        );
        assert!(exports_run(&exports), "{exports:?}");
        let exits = |name: &String| name.starts_with("wasi:cli/exit@0.2.");
        assert!(imports.iter().any(exits), "{imports:?}");
    }

    #[test]
    fn so_does_one_that_calls_nothing() {
        let text = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
        let (_, exports) = wrapped(text);
        assert!(exports_run(&exports), "{exports:?}");
    }

    #[test]
    fn what_is_no_module_of_a_component_says_so() {
        let module = wat::parse_str(r#"(module (func (export "handle")))"#).unwrap();
        let told = component(&module).unwrap_err();
        assert!(told.contains("no `_start`"), "{told}");
        let other = wat::parse_str("(component)").unwrap();
        let told = component(&other).unwrap_err();
        assert!(told.contains("a component where"), "{told}");
        let told = component(b"\0asm\x01\0\0\0\x02\xff").unwrap_err();
        assert!(
            told.starts_with("not a valid module") && !told.contains('\n'),
            "{told}"
        );
    }

    #[test]
    fn a_module_that_lacks_what_its_imports_need_is_told_in_one_line() {
        let text = r#"(module (import "env" "gone" (func)) (func (export "_start")))"#;
        let told = component(&wat::parse_str(text).unwrap()).unwrap_err();
        assert!(told.contains("gone") && !told.contains('\n'), "{told}");
    }
}
