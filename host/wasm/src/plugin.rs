//! A loaded plugin, and how it is run.

use crate::capability::refusals::Count;
use crate::capability::registry::Grants;
use crate::compiled;
use crate::guest::GuestSettings;
use crate::idle::Idle;
use crate::reuse::Reuse;
use crate::runtime::Inner;
use crate::scene::Witness;
use crate::shared::SharedInstances;
use crate::tally::Tally;
use crate::warm::Warm;
use crate::world::ExportsPre;
use dispatcher_core::telemetry::metrics::of_plugins::PluginMeter;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::component::Component;

/// How a plugin is run.
#[derive(Debug, Clone, Default)]
pub struct PluginOptions {
    /// Its name in logs.
    pub name: String,
    /// The most memory of one instance, in bytes; at most the runtime's `max_memory`.
    pub max_memory: usize,
    /// The maximum duration of an attempt, for messages to people; its deadline is what counts.
    /// Without it they see what was left of its time when it began.
    pub timeout: Option<Duration>,
    /// When instances are used again. Without it every attempt has a fresh one.
    pub reuse: Option<Reuse>,
    /// Maximum concurrent attempts in one instance; 0 and 1 both mean one. More needs a plugin whose
    /// `handle` is asynchronous.
    pub instance_concurrency: usize,
    /// Maximum instances where they take many attempts at once; attempts beyond wait. As many that
    /// take no more and have not ended may be there besides, so the runtime needs room for twice as
    /// many. 0 means one. Without effect otherwise.
    pub shared_instances: usize,
    /// What it is granted.
    pub grants: Grants,
    /// Counts what is refused to it.
    pub refused: Count,
    /// What it measures with.
    pub meter: PluginMeter,
    /// Whether what it prints is of interest at level debug alone.
    pub quiet_output: bool,
    /// The observer of failed attempts; by default the log.
    pub witness: Option<Arc<dyn Witness>>,
    /// Instances made ahead. None are of commands, which are made for their message, and none where
    /// many attempts share an instance.
    pub warm: Warm,
    /// Counts its instances, with those of whoever else counts here: its other versions.
    pub tally: Arc<Tally>,
}

/// A plugin, ready to run. Cloned by reference.
#[derive(Clone)]
pub struct LoadedPlugin {
    pub(crate) loaded: Arc<Loaded>,
}

pub(crate) struct Loaded {
    pub(crate) runtime: Arc<Inner>,
    pub(crate) settings: Arc<GuestSettings>,
    /// While it is held, others that load the same bytes have it too.
    pub(crate) component: Arc<Component>,
    pub(crate) pre: ExportsPre,
    /// Whether a guest can continue after its answer.
    pub(crate) is_async: bool,
    /// Where any wait for an attempt.
    pub(crate) idle: Option<Arc<Idle>>,
    /// How long making an instance ahead may take.
    pub(crate) patience: Duration,
    /// Instead of one instance for each attempt.
    pub(crate) shared: Option<Arc<SharedInstances>>,
}

impl LoadedPlugin {
    /// The name that it was loaded under.
    pub(crate) fn name(&self) -> &str {
        &self.loaded.settings.name
    }

    /// The names of what it imports.
    pub fn imports(&self) -> Vec<String> {
        compiled::imports(&self.loaded.component)
    }
}

impl std::fmt::Debug for LoadedPlugin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Plugin({})", self.name())
    }
}
