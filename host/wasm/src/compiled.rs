//! The compiled components of an engine that are in use: what several routes run is compiled, and held
//! in memory, once; and what one imports.

use dispatcher_core::files;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use wasmtime::component::Component;

/// Those that a loaded plugin holds, by the digest of their bytes.
#[derive(Default)]
pub(super) struct Compiled(Mutex<HashMap<String, Weak<Component>>>);

impl Compiled {
    /// The component of these bytes: one that is in use, or what `compile` makes of them. Nobody waits
    /// for a compilation: where two come at once, both compile.
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
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The names of what a component imports, in its own order.
pub(super) fn imports(component: &Component) -> Vec<String> {
    let kind = component.component_type();
    let imports = kind.imports(component.engine());
    imports.map(|(name, _)| name.to_owned()).collect()
}
