//! Keeps the exit codes of WASI 0.1 programs. The adapter to WASI 0.2 calls the older exit
//! function, which only distinguishes success from failure; this code redirects the call to the
//! newer one. Does not depend on the program.

use super::{WASI_0_1, line};
use std::borrow::Cow;
use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder::{ImportSection, Module, RawSection};
use wasmparser::{Parser, Payload};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The function that ends a program of WASI 0.1. It takes one number, like the newer function of
/// WASI 0.2.
const PROC_EXIT: &str = "proc_exit";
/// The interface of the newer function.
const EXIT: &str = "wasi:cli/exit@0.2.12";
/// The name of the newer function.
const WITH_CODE: &str = "exit-with-code";
/// The imports of the module after the redirection.
const WORLD: &str = "
    package wasi:cli@0.2.12;
    interface exit {
        exit: func(status: result);
        exit-with-code: func(status-code: u8);
    }
    world program { import exit; }
";

/// Redirects the program's exit so that the whole exit code is kept, of which the lowest eight bits
/// count. An error is one line.
pub(super) fn with_code(module: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let mut led = Module::new();
    let mut exits = false;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(line)?;
        if let Payload::ImportSection(imports) = payload {
            let mut section = ImportSection::new();
            for import in imports.into_imports() {
                let import = import.map_err(line)?;
                let is_exit = import.module == WASI_0_1 && import.name == PROC_EXIT;
                let (from, name) = if is_exit {
                    (EXIT, WITH_CODE)
                } else {
                    (import.module, import.name)
                };
                let kind = RoundtripReencoder.entity_type(import.ty).map_err(line)?;
                section.import(from, name, kind);
                exits |= is_exit;
            }
            led.section(&section);
        } else if let Some((id, range)) = payload.as_section() {
            let data = module
                .get(range)
                .ok_or("a section that reaches beyond its end")?;
            led.section(&RawSection { id, data });
        }
    }
    if !exits {
        return Ok(Cow::Borrowed(module));
    }
    let mut led = led.finish();
    let mut wit = Resolve::default();
    let package = wit.push_str("exit.wit", WORLD).map_err(line)?;
    let world = wit.select_world(&[package], None).map_err(line)?;
    embed_component_metadata(&mut led, &wit, world, StringEncoding::UTF8).map_err(line)?;
    Ok(Cow::Owned(led))
}
