//! Key-value stores: buckets that a plugin opens by their granted names.

mod buckets;
mod keyvalue;

use super::caller::{Grant, GrantedTo, Recipient};
use super::description::{Description, Interface};
use buckets::OpenedStores;
pub use buckets::StoreGrant;
use std::sync::Arc;
use wasmtime::component::Linker;

impl Grant for StoreGrant {
    const DESCRIPTION: Description = Description {
        name: "keys and values",
        key: "store",
        value: "NAME=WHERE",
        value_for: Some(|name| format!("{name}=local:{name}")),
        requested_by: &["wasi:keyvalue/store"],
        interfaces: &[
            Interface::new("wasi:keyvalue/store", &[keyvalue::VERSION]),
            Interface::new("wasi:keyvalue/atomics", &[keyvalue::VERSION]),
            Interface::new("wasi:keyvalue/batch", &[keyvalue::VERSION]),
        ],
        suspends: &["wasi:keyvalue/"],
        documented_as: "`wasi:keyvalue/{store,atomics,batch}@0.2.0-draft2`",
        without_grant: "`open` returns `access-denied`",
    };

    type SharedGrant = Option<OpenedStores>;

    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
        keyvalue::link(linker)
    }

    fn give(self, plugin: &Recipient<'_>) -> Self::SharedGrant {
        let refusals = Arc::clone(plugin.refusals);
        Some(OpenedStores::new(self, refusals, plugin.control.clone()))
    }

    fn for_shadow(self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests;
