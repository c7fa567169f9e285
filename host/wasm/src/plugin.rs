//! A loaded plugin, and the options with which it runs.

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
use dispatcher_core::queue::prefix::QueuePrefix;
use dispatcher_core::telemetry::metrics::of_plugins::PluginMeter;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::component::Component;

/// The options with which a plugin runs.
#[derive(Debug, Clone, Default)]
pub struct PluginOptions {
    /// The name in logs.
    pub name: String,
    /// The maximum memory of one instance, in bytes; at most the runtime's `max_memory`.
    pub max_memory: usize,
    /// The time limit that error texts show. It is not enforced here: the deadline of the attempt
    /// is. If `None`, they show the time that was left when the attempt began.
    pub timeout: Option<Duration>,
    /// The limits within which instances are reused. If `None`, every attempt gets a fresh one.
    pub reuse: Option<Reuse>,
    /// The maximum number of concurrent attempts in one instance; 0 and 1 both mean one. More than
    /// one requires a plugin whose `handle` is asynchronous.
    pub instance_concurrency: usize,
    /// The maximum number of instances that take many attempts at once; further attempts wait.
    /// Instances that take no new attempts and still run are not counted; there can be as many of
    /// them, so the runtime needs room for twice this number. 0 means one. Has no effect if
    /// instances are not shared.
    pub shared_instances: usize,
    /// The prefix of queue names, which the plugin neither sees nor writes.
    pub queue_prefix: QueuePrefix,
    /// The grants of the plugin.
    pub grants: Grants,
    /// Counts the refusals of the plugin.
    pub refused: Count,
    /// The meter of the plugin.
    pub meter: PluginMeter,
    /// Whether its output is logged only at level debug.
    pub quiet_output: bool,
    /// The observer of failed attempts; by default the log.
    pub witness: Option<Arc<dyn Witness>>,
    /// The instances created ahead. There are none for commands, which are created for their
    /// message, or if many attempts share an instance.
    pub warm: Warm,
    /// Counts its instances, together with those of the other versions that share this tally.
    pub tally: Arc<Tally>,
}

/// A plugin that is ready to run. Clones share it.
#[derive(Clone)]
pub struct LoadedPlugin {
    pub(crate) loaded: Arc<PluginParts>,
}

pub(crate) struct PluginParts {
    pub(crate) runtime: Arc<Inner>,
    pub(crate) settings: Arc<GuestSettings>,
    /// Shared with other plugins that load the same bytes, while it is held.
    pub(crate) component: Arc<Component>,
    pub(crate) pre: ExportsPre,
    /// Whether `handle` is an `async func`: such a guest can continue after its answer.
    pub(crate) is_async: bool,
    /// Whether a coroutine that the handler returns is dropped, with a warning on stderr.
    pub(crate) drops_coroutines: bool,
    /// The instances that wait for an attempt: prewarmed and reused ones.
    pub(crate) idle: Option<Arc<Idle>>,
    /// The time limit for creating an instance ahead.
    pub(crate) patience: Duration,
    /// The shared instances, instead of one instance for each attempt.
    pub(crate) shared: Option<Arc<SharedInstances>>,
}

impl LoadedPlugin {
    /// Returns the name under which it was loaded.
    pub(crate) fn name(&self) -> &str {
        &self.loaded.settings.name
    }

    /// Returns the names of its imports.
    pub fn imports(&self) -> Vec<String> {
        compiled::imports(&self.loaded.component)
    }
}

impl std::fmt::Debug for LoadedPlugin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Plugin({})", self.name())
    }
}
