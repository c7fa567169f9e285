//! Wraps a core module, the output of a language's compiler, into a component that the host can
//! run. Handles the two entry points of WASI 0.1 and nothing of the contract.

mod exit;

use crate::output::escape_control_characters;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as WASI_0_1,
    WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER as COMMAND,
    WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as REACTOR,
};
use wasmparser::{BinaryReaderError, Parser, Payload};
use wit_component::ComponentEncoder;

/// The export of a program that is run from its start.
const START: &str = "_start";

/// Makes a component of a core module's bytes. Its world is the one that the bindings left in its
/// custom sections, plus `wasi:cli/command` if it exports `_start`. Calls to WASI 0.1 are adapted
/// to WASI 0.2. An error is one line that says what is wrong with the module.
pub fn component(module: &[u8]) -> Result<Vec<u8>, String> {
    let shape = Shape::of(module)?;
    if !shape.starts && !shape.has_world {
        let what = "it exports no `_start` and contains no bindings of a component's world";
        return Err(what.into());
    }
    let module = if shape.starts {
        exit::with_code(module)?
    } else {
        module.into()
    };
    let mut encoder = ComponentEncoder::default().module(&module).map_err(line)?;
    // The adapter exports the entry of a program, even if the program does not call WASI.
    if shape.starts {
        encoder = encoder.adapter(WASI_0_1, COMMAND).map_err(line)?;
    } else if shape.calls_wasi {
        encoder = encoder.adapter(WASI_0_1, REACTOR).map_err(line)?;
    }
    encoder.encode().map_err(line)
}

/// Returns the module with the description of its world that the bindings left in one of their
/// object files. For compilers that cannot link such a file.
pub fn with_world(module: &[u8], object: &[u8]) -> Result<Vec<u8>, String> {
    Shape::of(module)?;
    if !Shape::of(object)?.has_world {
        return Err("the bindings' object does not name its world".into());
    }
    let mut with = module.to_vec();
    for section in sections(object) {
        if section.custom.is_some_and(is_world) {
            with.extend(section.bytes);
        }
    }
    Ok(with)
}

/// Returns the module without debugging information other than the names of functions. For C, that
/// information would be most of the file.
pub fn without_debug(module: &[u8]) -> Result<Vec<u8>, String> {
    Shape::of(module)?;
    let mut without = module[..HEADER].to_vec();
    for section in sections(module) {
        let is_debug = section
            .custom
            .is_some_and(|name| name.starts_with(".debug"));
        if !is_debug {
            without.extend(section.bytes);
        }
    }
    Ok(without)
}

/// The length of the magic word and the version, in bytes.
const HEADER: usize = 8;

/// One section of a module.
struct Section<'a> {
    /// Its name, if it is a custom section.
    custom: Option<&'a str>,
    /// The whole section, with its number and length.
    bytes: &'a [u8],
}

fn is_world(custom: &str) -> bool {
    custom.starts_with("component-type")
}

/// Returns the sections of a module that was parsed without an error.
fn sections(module: &[u8]) -> Vec<Section<'_>> {
    let mut found = Vec::new();
    let mut start = HEADER;
    for payload in Parser::new(0).parse_all(module).flatten() {
        let Some((_, content)) = payload.as_section() else {
            continue;
        };
        let end = content.end;
        let custom = match payload {
            Payload::CustomSection(section) => Some(section.name()),
            _ => None,
        };
        // There is no gap between sections.
        let bytes = &module[start..end];
        found.push(Section { custom, bytes });
        start = end;
    }
    found
}

fn damaged(error: BinaryReaderError) -> String {
    format!("not a valid module: {}", line(error))
}

/// Returns an error and its causes in one line.
fn line(error: impl std::fmt::Display) -> String {
    let text = format!("{error:#}");
    let words: Vec<_> = text.split_whitespace().collect();
    // The text may quote the module.
    escape_control_characters(&words.join(" "))
}

/// The properties that decide how a module is wrapped.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shape {
    /// Whether it is run from its start.
    starts: bool,
    /// Whether it imports something of WASI 0.1.
    calls_wasi: bool,
    /// Whether its bindings name its world.
    has_world: bool,
}

impl Shape {
    fn of(module: &[u8]) -> Result<Self, String> {
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
                    shape.has_world |= is_world(section.name());
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
    fn program_becomes_a_command() {
        let (imports, exports) = wrapped(
            r#"(module
                (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
                (memory (export "memory") 1)
                (func (export "_start") (call $exit (i32.const 3))))"#,
        );
        assert!(exports_run(&exports), "{exports:?}");
        let mut names = imports.iter();
        assert!(
            names.any(|name| name.starts_with("wasi:cli/exit@0.2.")),
            "{imports:?}"
        );
    }

    #[test]
    fn program_without_imports_becomes_a_command() {
        let text = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;
        let (_, exports) = wrapped(text);
        assert!(exports_run(&exports), "{exports:?}");
    }

    #[test]
    fn debug_sections_are_removed_and_names_and_worlds_kept() {
        let parsed = wat::parse_str(
            r#"(module (func $named (export "f"))
                (@custom ".debug_info" "0123456789") (@custom "component-type:w" "world"))"#,
        );
        let module = parsed.unwrap();
        let slim = without_debug(&module).unwrap();
        let has =
            |bytes: &[u8], what: &str| bytes.windows(what.len()).any(|at| at == what.as_bytes());
        assert!(has(&module, ".debug_info") && !has(&slim, ".debug_info"));
        assert!(has(&slim, "named") && has(&slim, "component-type:w"));
        assert_eq!(Shape::of(&slim), Shape::of(&module));
        let bare = wat::parse_str(r#"(module (func (export "g")))"#).unwrap();
        let with = with_world(&bare, &module).unwrap();
        assert!(Shape::of(&with).unwrap().has_world && !has(&with, "named"));
        assert!(with_world(&bare, &bare).is_err());
    }

    #[test]
    fn file_that_is_no_module_names_the_reason() {
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
    fn module_that_lacks_what_its_imports_need_is_refused_in_one_line() {
        let text = r#"(module (import "env" "gone" (func)) (func (export "_start")))"#;
        let told = component(&wat::parse_str(text).unwrap()).unwrap_err();
        assert!(told.contains("gone") && !told.contains('\n'), "{told}");
    }
}
