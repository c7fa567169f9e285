//! Makes a component without the code of its functions. It has the same imports and exports, and
//! compiles in a hundredth of the time. Does not depend on interfaces.

use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent, component_utils};
use wasm_encoder::{CodeSection, Component, Function};
use wasmparser::{FunctionBody, Parser, Payload, Validator, WasmFeatures};
use wasmtime::{Engine, Module};

/// Returns the component with functions that only trap, or `None` if this engine would not accept
/// its code.
pub(super) fn without_code(engine: &Engine, component: &[u8]) -> Option<Vec<u8>> {
    // The encoder assumes that its input is valid and complete, and panics otherwise.
    let mut validator = Validator::new_with_features(WasmFeatures::all());
    validator.validate_all(component).ok()?;
    if !is_whole(component) {
        return None;
    }
    let mut skeleton = Component::new();
    let mut reencoder = WithoutCode { engine, depth: 0 };
    let written = reencoder.parse_component(&mut skeleton, Parser::new(0), component);
    written.ok().map(|()| skeleton.finish())
}

/// Whether no module or component in it is cut off. The validator takes a cut for the end.
fn is_whole(component: &[u8]) -> bool {
    let mut parts = Parser::new(0).parse_all(component);
    parts.all(|part| match part {
        Ok(
            Payload::ModuleSection {
                unchecked_range, ..
            }
            | Payload::ComponentSection {
                unchecked_range, ..
            },
        ) => unchecked_range.end <= component.len(),
        Ok(_) => true,
        Err(_) => false,
    })
}

/// The maximum nesting depth of components, each of which needs room on the stack. Tools nest one
/// or two.
const DEPTH: u32 = 8;

struct WithoutCode<'a> {
    engine: &'a Engine,
    depth: u32,
}

impl Reencode for WithoutCode<'_> {
    type Error = wasmtime::Error;

    fn parse_function_body(
        &mut self,
        code: &mut CodeSection,
        _: FunctionBody<'_>,
    ) -> Result<(), Error<Self::Error>> {
        let mut trap = Function::new([]);
        trap.instructions().unreachable().end();
        code.function(&trap);
        Ok(())
    }
}

impl ReencodeComponent for WithoutCode<'_> {
    fn parse_component_submodule(
        &mut self,
        component: &mut Component,
        parser: Parser,
        module: &[u8],
    ) -> Result<(), Error<Self::Error>> {
        Module::validate(self.engine, module).map_err(Error::UserError)?;
        component_utils::parse_component_submodule(self, component, parser, module)
    }

    fn parse_component_subcomponent(
        &mut self,
        component: &mut Component,
        parser: Parser,
        inner: &[u8],
        whole: &[u8],
    ) -> Result<(), Error<Self::Error>> {
        if self.depth == DEPTH {
            let why = wasmtime::Error::msg("components are nested too deep");
            return Err(Error::UserError(why));
        }
        self.depth += 1;
        component_utils::parse_component_subcomponent(self, component, parser, inner, whole)?;
        self.depth -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmtime::component;

    /// A component whose module has this as a function's code.
    fn text(code: &str) -> Vec<u8> {
        let text = format!(
            "(component
                (core module $m
                    (memory (export \"memory\") 1)
                    (data (i32.const 0) \"kept\")
                    (func (export \"f\") (param i32) (result i32) {code}))
                (core instance $i (instantiate $m))
                (func (export \"f\") (param \"x\" u32) (result u32) (canon lift (core func $i \"f\"))))"
        );
        wat::parse_str(text).expect("it is WebAssembly's text")
    }

    #[test]
    fn exports_stay_and_code_goes() {
        let engine = Engine::default();
        let whole = text(&format!(
            "{} local.get 0",
            "local.get 0 drop ".repeat(1_000)
        ));
        let skeleton = without_code(&engine, &whole).expect("its code is valid");
        assert!(skeleton.len() < whole.len() - 2_000);
        let compiled = component::Component::from_binary(&engine, &skeleton).expect("it compiles");
        let component_type = compiled.component_type();
        let exports: Vec<_> = component_type
            .exports(&engine)
            .map(|(name, _)| name.to_owned())
            .collect();
        assert_eq!(exports, ["f"]);
    }

    #[test]
    fn component_with_invalid_code_has_no_skeleton() {
        let engine = Engine::default();
        assert_eq!(without_code(&engine, &text("")), None);
        let whole = text("local.get 0");
        assert_eq!(without_code(&engine, &whole[..whole.len() - 1]), None);
        // What is cut off elsewhere may be a component or not, and is no reason to panic.
        for length in 0..whole.len() {
            drop(without_code(&engine, &whole[..length]));
        }
    }

    #[test]
    fn deeply_nested_component_has_no_skeleton() {
        for (depth, has_skeleton) in [(9, true), (10, false), (90, false)] {
            let text = "(component ".repeat(depth) + &")".repeat(depth);
            let whole = wat::parse_str(text).expect("it is WebAssembly's text");
            let skeleton = without_code(&Engine::default(), &whole);
            assert_eq!(skeleton.is_some(), has_skeleton, "{depth}");
        }
    }
}
