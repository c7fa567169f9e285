//! Exit codes of WASI 0.1 programs. The adapter to WASI 0.2 calls the older exit function there,
//! which only distinguishes success from failure; this redirects it to the newer one. Knows no
//! program.

use super::{WASI_0_1, line};
use std::borrow::Cow;
use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder::{ImportSection, Module, RawSection};
use wasmparser::{Parser, Payload};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// How a program of WASI 0.1 ends: a function of one number, as the newer one of WASI 0.2 is.
const PROC_EXIT: &str = "proc_exit";
/// Where the newer one is.
const EXIT: &str = "wasi:cli/exit@0.2.12";
/// And its name.
const WITH_CODE: &str = "exit-with-code";
/// What the module imports then.
const WORLD: &str = "
    package wasi:cli@0.2.12;
    interface exit {
        exit: func(status: result);
        exit-with-code: func(status-code: u8);
    }
    world program { import exit; }
";

/// The program with its exit code whole, of which the lowest eight bits count. An error is one line.
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
                let (from, name) = match is_exit {
                    true => (EXIT, WITH_CODE),
                    false => (import.module, import.name),
                };
                let kind = RoundtripReencoder.entity_type(import.ty).map_err(line)?;
                section.import(from, name, kind);
                exits |= is_exit;
            }
            led.section(&section);
        } else if let Some((id, range)) = payload.as_section() {
            let data = module.get(range);
            let data = data.ok_or("a section that reaches beyond its end")?;
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
