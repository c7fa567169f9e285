//! AWS Lambda: the functions that a plugin may invoke.

mod contract;
mod functions;
mod invocations;

use super::caller::{Grant, GrantedTo, Recipient};
use super::description::{CONTRACT, Description, Interface};
pub use functions::Functions;
use functions::GrantedFunctions;
use std::sync::Arc;
use wasmtime::component::Linker;

impl Grant for Option<Functions> {
    const DESCRIPTION: Description = Description {
        name: "Lambda functions",
        key: "allow-lambda",
        value: "PATTERN",
        value_for: Some(str::to_owned),
        requested_by: &["dispatcher:plugin/lambda", "dispatcher:plugin/lambda-async"],
        interfaces: &[
            Interface::new("dispatcher:plugin/lambda", &[CONTRACT]),
            Interface::new("dispatcher:plugin/lambda-async", &[CONTRACT]),
        ],
        suspends: &[],
        documented_as: "`dispatcher:plugin/lambda`",
        without_grant: "the component is refused at start; with other functions granted, `forbidden`",
    };

    type SharedGrant = Option<Arc<GrantedFunctions>>;

    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
        contract::link(linker)
    }

    fn give(self, plugin: &Recipient<'_>) -> Self::SharedGrant {
        let refusals = Arc::clone(plugin.refusals);
        self.map(|functions| {
            Arc::new(GrantedFunctions::new(
                functions,
                refusals,
                plugin.control.clone(),
            ))
        })
    }

    fn for_shadow(self) -> Self {
        self.map(|functions| Functions {
            allowed: Vec::new(),
            ..functions
        })
    }

    fn missing(&self) -> Option<&'static str> {
        self.is_none().then_some("functions")
    }
}

#[cfg(test)]
pub(crate) mod tests;
