//! Settings: named texts that a plugin reads through `wasi:config`. Does not read the
//! configuration.

use super::caller::{Grant, GrantedTo, Recipient, View, ViewOf, view};
use super::description::{Description, Interface};
use bindings::wasi::config::store::{self, Error};
use std::collections::BTreeMap;
use wasmtime::component::Linker;

/// The settings that a plugin may read.
#[derive(Debug, Clone, Default)]
pub struct ConfigStore(pub BTreeMap<String, String>);

impl Grant for ConfigStore {
    const DESCRIPTION: Description = Description {
        name: "settings",
        key: "setting",
        value: "K=V",
        value_for: None,
        requested_by: &["wasi:config/store"],
        interfaces: &[Interface::new("wasi:config/store", &["0.2.0-rc.1"])],
        suspends: &[],
        documented_as: "`wasi:config/store@0.2.0-rc.1`",
        without_grant: "there are none",
    };

    type SharedGrant = Self;

    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
        store::add_to_linker::<_, ViewOf<C>>(linker, view)
    }

    fn give(self, _: &Recipient<'_>) -> Self::SharedGrant {
        self
    }

    /// Reading settings does not affect other systems.
    fn for_shadow(self) -> Self {
        self
    }
}

// The library's own bindings do not show calls in `plugin invoke --trace`.
mod bindings {
    wasmtime::component::bindgen!({
        inline: "
            package dispatcher:host;
            world configured {
                import wasi:config/store@0.2.0-rc.1;
            }
            package wasi:config@0.2.0-rc.1 {
                interface store {
                    variant error {
                        upstream(string),
                        io(string),
                    }
                    get: func(key: string) -> result<option<string>, error>;
                    get-all: func() -> result<list<tuple<string, string>>, error>;
                }
            }
        ",
        world: "dispatcher:host/configured",
        imports: { default: trappable | tracing | verbose_tracing },
    });
}

impl<C: GrantedTo<ConfigStore>> store::Host for View<'_, C> {
    fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<String>, Error>> {
        Ok(Ok(self.0.granted().0.get(&key).cloned()))
    }

    fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, Error>> {
        let all = self
            .0
            .granted()
            .0
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        Ok(Ok(all.collect()))
    }
}

#[cfg(test)]
mod tests;
