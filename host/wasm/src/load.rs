//! Loads a file as a plugin, or lists every reason why it cannot.

use crate::capability::caller::Recipient;
use crate::capability::refusals::Refusals;
use crate::capability::registry::Capability;
use crate::engines::LinkedEngine;
use crate::guest::{Guest, GuestSettings};
use crate::idle::Idle;
use crate::plugin::PluginParts;
pub use crate::plugin::{LoadedPlugin, PluginOptions};
pub use crate::problem::{LoadError, Problem};
use crate::runtime::Runtime;
use crate::shared::{Recipe, SharedInstances, SharingSettings};
use crate::unawaited::{self, DroppedAnswer};
use crate::world::{ComponentKind, ExportsPre};
use crate::{ahead, compiled, diagnosis, inspect};
use dispatcher_core::files::owner;
use std::path::Path;
use std::sync::{Arc, Weak};
use wasmtime::component::{Component, InstancePre, Linker};

impl Runtime {
    /// Compiles the component in a file, or takes it from the cache, and resolves its imports.
    /// Blocks for as long as that takes: milliseconds to many seconds.
    pub fn load(&self, file: &Path, options: PluginOptions) -> Result<LoadedPlugin, LoadError> {
        let bytes = inspect::read(file).map_err(|problem| vec![problem]);
        bytes
            .and_then(|bytes| self.try_load(&bytes, options))
            .map_err(|problems| LoadError {
                file: file.to_owned(),
                problems,
            })
    }

    /// Loads a component from memory; `name` replaces the file.
    pub fn load_bytes(
        &self,
        name: &str,
        bytes: &[u8],
        options: PluginOptions,
    ) -> Result<LoadedPlugin, LoadError> {
        self.try_load(bytes, options).map_err(|problems| LoadError {
            file: name.into(),
            problems,
        })
    }

    fn try_load(&self, bytes: &[u8], options: PluginOptions) -> Result<LoadedPlugin, Vec<Problem>> {
        let component = diagnosis::component_of(bytes).map_err(|problem| vec![problem])?;
        self.load_component(&component, bytes.len(), options)
            .map_err(|problems| diagnosis::of_file(bytes, problems))
    }

    /// Loads a component. `size` is the size of the file, which may have been wrapped.
    fn load_component(
        &self,
        bytes: &[u8],
        size: usize,
        options: PluginOptions,
    ) -> Result<LoadedPlugin, Vec<Problem>> {
        if let Some(cache) = &self.inner.cache {
            // Code in the cache is run, and its owner may have changed since the start.
            owner::check(cache).map_err(|why| {
                let what = format!("the compiled-plugin cache is no longer trusted: {why}");
                vec![Problem::new(what).hint("remove that folder and restart")]
            })?;
        }
        let LinkedEngine { engine, linker } = self.inner.engines.of(bytes);
        let compiled = self.inner.compiled.of(bytes, || {
            let compiled = Component::from_binary(engine, bytes);
            if let Some(functions) = &self.inner.functions {
                functions.keep();
            }
            compiled
        });
        let component = compiled.map_err(|error| {
            let missing = options.grants.missing();
            diagnosis::of_refusal(bytes, options.max_memory, &missing, &error)
        })?;
        let (way, pre, drops_coroutines) = self.resolve(bytes, &component, linker, &options)?;
        let is_shared = options.instance_concurrency > 1;
        let unshared = (!is_shared).then_some(&options);
        let idle = unshared.and_then(|options| self.idle(way, size, options));
        let refusals = Arc::new(Refusals::new(&options.name, options.refused));
        let granted = options.grants.give(&Recipient {
            name: &options.name,
            queue_prefix: &options.queue_prefix,
            refusals: &refusals,
            control: &self.inner.control,
            connections: &self.inner.connections,
        });
        let settings = Arc::new(GuestSettings {
            name: options.name,
            is_command: way.is_command(),
            max_memory: options.max_memory,
            attempts: options.instance_concurrency,
            max_open: self.inner.max_open,
            timeout: options.timeout,
            queue_prefix: options.queue_prefix,
            granted,
            refusals,
            meter: options.meter,
            quiet_output: options.quiet_output,
            witness: options.witness,
            tally: options.tally,
        });
        let exports =
            ExportsPre::new(way, pre).map_err(|error| vec![diagnosis::of_mismatch(&error)])?;
        let sharing = is_shared.then_some(SharingSettings {
            concurrency: options.instance_concurrency,
            instances: options.shared_instances,
            reuse: options.reuse,
        });
        let shared = sharing
            .map(|sharing| self.share(sharing, options.max_memory, &settings, &exports))
            .transpose()?;
        if is_shared {
            note_waits(&settings.name, &compiled::imports(&component));
        }
        let loaded = Arc::new(PluginParts {
            runtime: Arc::clone(&self.inner),
            settings,
            component,
            is_async: exports.concurrent().is_some(),
            pre: exports,
            drops_coroutines,
            idle,
            patience: options.warm.patience,
            shared,
        });
        ahead::refill(&loaded);
        Ok(LoadedPlugin { loaded })
    }

    /// Creates the instances that take many attempts at once.
    fn share(
        &self,
        sharing: SharingSettings,
        max_memory: usize,
        settings: &Arc<GuestSettings>,
        exports: &ExportsPre,
    ) -> Result<Arc<SharedInstances>, Vec<Problem>> {
        let many = exports.concurrent().cloned();
        let recipe = Recipe {
            runtime: Arc::clone(&self.inner),
            settings: Arc::clone(settings),
            pre: many.ok_or_else(|| vec![diagnosis::of_taking_turns(sharing.concurrency)])?,
        };
        let spawn = Arc::clone(&self.inner.spawn);
        let shared = SharedInstances::new(sharing, max_memory, recipe, spawn);
        let spare: Weak<SharedInstances> = Arc::downgrade(&shared);
        self.inner.admission.watch(spare);
        Ok(shared)
    }

    /// Creates the set of idle instances, if instances are reused or created ahead.
    fn idle(&self, way: ComponentKind, size: usize, options: &PluginOptions) -> Option<Arc<Idle>> {
        let ahead = if way.is_command() {
            0
        } else {
            options.warm.wanted(size)
        };
        if options.reuse.is_none() && ahead == 0 {
            return None;
        }
        let idle = Arc::new(Idle::new(options.reuse, ahead));
        let spare: Weak<Idle> = Arc::downgrade(&idle);
        options.tally.watch(spare.clone());
        self.inner.admission.watch(spare);
        Some(idle)
    }

    /// Resolves the imports of a component. Returns its kind, and whether its language drops a
    /// coroutine that the handler returns, with a warning.
    fn resolve(
        &self,
        bytes: &[u8],
        component: &Component,
        linker: &Linker<Guest>,
        options: &PluginOptions,
    ) -> Result<(ComponentKind, InstancePre<Guest>, bool), Vec<Problem>> {
        let max_memory = options.max_memory;
        let mut problems = diagnosis::of_component(component, &options.grants.missing());
        problems.extend(diagnosis::of_needs(component, max_memory));
        let mut drops_coroutines = false;
        match unawaited::of(bytes, component) {
            Some(DroppedAnswer::Refused(problem)) => problems.push(problem),
            Some(DroppedAnswer::Printed) => drops_coroutines = true,
            None => {}
        }
        if max_memory > self.inner.max_memory {
            let most = self.inner.max_memory;
            let what = format!("{max_memory} bytes of memory required, {most} reserved");
            problems.push(Problem::new(what));
        }
        problems.extend(options.grants.problems());
        let way = ComponentKind::of(component);
        problems.extend(way.and_then(|way| diagnosis::of_options(way, options)));
        let (Some(way), true) = (way, problems.is_empty()) else {
            return Err(problems);
        };
        let pre = linker.instantiate_pre(component);
        pre.map(|pre| (way, pre, drops_coroutines))
            .map_err(|error| vec![diagnosis::of_mismatch(&error)])
    }
}

/// Logs an import that makes the attempts that share an instance wait for each other.
fn note_waits(plugin: &str, imports: &[String]) {
    let mut suspends = Capability::all().flat_map(|asked| asked.description().suspends);
    if let Some(import) =
        suspends.find_map(|start: &&str| imports.iter().find(|import| import.starts_with(start)))
    {
        tracing::info!(
            plugin,
            import,
            "a call blocks the whole instance, with all messages that share it"
        );
    }
}
