//! The compiled components of an engine that are in use. A component that several routes run is
//! compiled and held in memory once. Also lists the imports of a component.

use dispatcher_core::files;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use wasmtime::component::Component;

/// The components that loaded plugins hold, by the digest of their bytes.
#[derive(Default)]
pub(super) struct CompiledComponents(Mutex<HashMap<String, Weak<Component>>>);

impl CompiledComponents {
    /// Returns the component of these bytes: the one in use, or the result of `compile`. Callers do
    /// not wait for each other's compilation: two at once both compile.
    pub(super) fn of<E>(
        &self,
        bytes: &[u8],
        compile: impl FnOnce() -> Result<Component, E>,
    ) -> Result<Arc<Component>, E> {
        let digest = files::digest(bytes);
        let known = self.with(|all| all.get(&digest).and_then(Weak::upgrade));
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Arc::new(compile()?);
        self.with(|all| {
            all.retain(|_, one| one.strong_count() > 0);
            all.insert(digest, Arc::downgrade(&made));
        });
        Ok(made)
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<String, Weak<Component>>) -> T) -> T {
        act(&mut self.0.lock())
    }
}

/// Returns the names of a component's imports, in its order.
pub(super) fn imports(component: &Component) -> Vec<String> {
    let kind = component.component_type();
    let imports = kind.imports(component.engine());
    imports.map(|(name, _)| name.to_owned()).collect()
}
