//! Environment variables: a plugin sees the granted ones. A command also sees those of its message.

mod environment;

use super::caller::{Grant, GrantedTo, Recipient};
use super::description::{Description, Interface, WASI_2, WASI_3};
pub(crate) use environment::Environment;
use wasmtime::component::Linker;

/// The names and texts of variables.
#[derive(Debug, Clone, Default)]
pub struct EnvironmentVariables(pub Vec<(String, String)>);

impl Grant for EnvironmentVariables {
    const DESCRIPTION: Description = Description {
        name: "environment variables",
        key: "env",
        value: "K=V",
        value_for: None,
        requested_by: &["wasi:cli/environment"],
        interfaces: &[Interface::new("wasi:cli/environment", &[WASI_2, WASI_3])],
        suspends: &[],
        documented_as: "`wasi:cli/environment`",
        without_grant: "there are none",
    };

    type SharedGrant = Self;

    /// WASI's own function reads the variables from the context of the instance.
    fn link<C: GrantedTo<Self>>(_: &mut Linker<C>) -> wasmtime::Result<()> {
        Ok(())
    }

    fn give(self, _: &Recipient<'_>) -> Self::SharedGrant {
        self
    }

    /// Reading variables does not affect other systems.
    fn for_shadow(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests;
