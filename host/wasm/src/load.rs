//! Loads a file as a plugin, or lists every reason why it cannot.

use crate::capability::caller::Recipient;
use crate::capability::refusals::Refusals;
use crate::capability::registry::Capability;
use crate::guest::{Guest, GuestSettings};
use crate::idle::Idle;
use crate::plugin::Loaded;
pub use crate::plugin::{LoadedPlugin, PluginOptions};
pub use crate::problem::{LoadError, Problem};
use crate::runtime::Runtime;
use crate::shared::{Recipe, SharedInstances, Sharing};
use crate::world::contract::ManyPre;
use crate::world::{ComponentKind, ExportsPre};
use crate::{ahead, compiled, diagnosis, inspect};
use dispatcher_core::files::owner;
use std::path::Path;
use std::sync::{Arc, Weak};
use wasmtime::component::{Component, InstancePre};

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

    /// `size` is that of the file, which may have been wrapped.
    fn load_component(
        &self,
        bytes: &[u8],
        size: usize,
        options: PluginOptions,
    ) -> Result<LoadedPlugin, Vec<Problem>> {
        if let Some(cache) = &self.inner.cache {
            // What is in it is run, and it may have changed hands since the start.
            owner::check(cache).map_err(|why| {
                let what = format!("the compiled-plugin cache is no longer trusted: {why}");
                vec![Problem::new(what).hint("remove that folder and restart")]
            })?;
        }
        let compile = || {
            let compiled = Component::from_binary(&self.inner.engine, bytes);
            if let Some(functions) = &self.inner.functions {
                functions.keep();
            }
            compiled
        };
        let compiled = self.inner.compiled.of(bytes, compile);
        let component = compiled.map_err(|error| {
            let missing = options.grants.missing();
            diagnosis::of_refusal(bytes, options.max_memory, &missing, &error)
        })?;
        let (way, pre) = self.resolve(&component, &options)?;
        let is_shared = options.instance_concurrency > 1;
        let idle = match is_shared {
            true => None,
            false => self.idle(way, size, &options),
        };
        let refusals = Arc::new(Refusals::new(&options.name, options.refused));
        let granted = options.grants.give(&Recipient {
            name: &options.name,
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
            granted,
            refusals,
            meter: options.meter,
            quiet_output: options.quiet_output,
            witness: options.witness,
            tally: options.tally,
        });
        let sharing = is_shared.then_some(Sharing {
            concurrency: options.instance_concurrency,
            instances: options.shared_instances,
            reuse: options.reuse,
        });
        let share = |sharing| self.share(sharing, options.max_memory, &settings, &pre);
        let shared = sharing.map(share).transpose()?;
        if is_shared {
            note_waits(&settings.name, &compiled::imports(&component));
        }
        let is_async = ManyPre::new(pre.clone()).is_some();
        let pre =
            ExportsPre::new(way, pre).map_err(|error| vec![diagnosis::of_mismatch(&error)])?;
        let loaded = Arc::new(Loaded {
            runtime: Arc::clone(&self.inner),
            settings,
            component,
            pre,
            is_async,
            idle,
            patience: options.warm.patience,
            shared,
        });
        ahead::refill(&loaded);
        Ok(LoadedPlugin { loaded })
    }

    /// Instances that take many attempts at once.
    fn share(
        &self,
        sharing: Sharing,
        max_memory: usize,
        settings: &Arc<GuestSettings>,
        pre: &InstancePre<Guest>,
    ) -> Result<Arc<SharedInstances>, Vec<Problem>> {
        let many = ManyPre::new(pre.clone());
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

    /// Where instances wait that are used again or made ahead, if any are.
    fn idle(&self, way: ComponentKind, size: usize, options: &PluginOptions) -> Option<Arc<Idle>> {
        let ahead = match way.is_command() {
            true => 0,
            false => options.warm.wanted(size),
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

    fn resolve(
        &self,
        component: &Component,
        options: &PluginOptions,
    ) -> Result<(ComponentKind, InstancePre<Guest>), Vec<Problem>> {
        let max_memory = options.max_memory;
        let mut problems = diagnosis::of_component(component, &options.grants.missing());
        problems.extend(diagnosis::of_needs(component, max_memory));
        if max_memory > self.inner.max_memory {
            let most = self.inner.max_memory;
            let what = format!("{max_memory} bytes of memory required, {most} reserved");
            problems.push(Problem::new(what));
        }
        problems.extend(options.grants.problems());
        let way = ComponentKind::of(component);
        problems.extend(way.and_then(|way| diagnosis::of_options(way, options)));
        let Some(way) = way.filter(|_| problems.is_empty()) else {
            return Err(problems);
        };
        let pre = self.inner.linker.instantiate_pre(component);
        pre.map(|pre| (way, pre))
            .map_err(|error| vec![diagnosis::of_mismatch(&error)])
    }
}

/// Says what of its imports makes those that share an instance wait for each other.
fn note_waits(plugin: &str, imports: &[String]) {
    let mut suspends = Capability::all().flat_map(|asked| asked.description().suspends);
    let starts = |start: &&str| imports.iter().find(|import| import.starts_with(start));
    if let Some(import) = suspends.find_map(starts) {
        tracing::info!(
            plugin,
            import,
            "a call blocks the whole instance, with all messages that share it"
        );
    }
}
