//! Tries a plugin on messages before they are moved. The plugin runs with the grants of a shadow,
//! so it can neither read nor change anything outside. Opens no queue.

use super::build::versions::ReadError;
use super::build::{plugins, versions};
use dispatcher_config::flags::Flags;
use dispatcher_config::problem::Problem;
use dispatcher_config::section::WrittenValue;
use dispatcher_config::{Code, PluginConfig, Settings, TIMEOUT};
use dispatcher_core::handler::{Attempt, Deadline, Handler, TimeLimit};
use dispatcher_core::message::{FailureReason, Message, Verdict};
use dispatcher_trials::recording::entry::RecordedVerdict;
use dispatcher_wasm::load::{LoadedPlugin, PluginOptions};
use dispatcher_wasm::runtime::{Insight, Runtime, RuntimeOptions};
use dispatcher_wasm::warm::Warm;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// One running instance, and one for the next message.
const INSTANCES: usize = 2;

/// A plugin to try messages on.
pub struct Sandbox {
    plugin: LoadedPlugin,
    timeout: TimeLimit,
}

impl Sandbox {
    /// Loads the plugin; `at` is its name in problems.
    ///
    /// # Errors
    /// Returns the problems if it cannot be loaded.
    pub async fn load(
        at: &str,
        plugin: &PluginConfig,
        settings: &Settings,
    ) -> Result<Self, Vec<Problem>> {
        let Code::Component(source) = &plugin.code else {
            let found = format!(
                "`{}` is not a component to run: it forwards messages",
                plugin.name
            );
            return Err(vec![Problem::new(at, found, "a plugin with a file")]);
        };
        let bytes = versions::read(source, &settings.stores.data)
            .await
            .map_err(|error| match error {
                ReadError::File(error) => plugins::of_file(&error),
                ReadError::Image(error) => vec![versions::of_fetch(at, &error)],
            })?;
        let timeout = plugin.settings.timeout.unwrap_or(TIMEOUT);
        let insight = Insight::lines_of(&bytes);
        let start = |cache| {
            let options = RuntimeOptions {
                instances: INSTANCES,
                max_memory: plugin.max_memory(),
                cache,
                functions: None,
            };
            Runtime::start_with(insight, options, Handle::current(), Arc::new(drop))
        };
        // Without a cache, compiling takes longer but works.
        let cache = plugins::cache(&settings.stores.data);
        let started = start(Some(cache)).or_else(|_| start(None));
        let runtime =
            started.map_err(|error| vec![Problem::new(at, error.to_string(), "").failed()])?;
        let by_hand = plugins::options_by_hand(settings, plugin, timeout).await;
        let options = PluginOptions {
            instance_concurrency: 1,
            reuse: None,
            warm: Warm::default(),
            grants: by_hand.grants.for_shadow(),
            ..by_hand
        };
        let plugin_limit = plugin.settings.time_limit(timeout);
        let plugin = runtime.load_bytes(&source.to_string(), &bytes, options);
        Ok(Self {
            plugin: plugin.map_err(|error| plugins::of_file(&error))?,
            timeout: plugin_limit,
        })
    }

    /// Loads the plugin of a file; `data` caches compiled plugins.
    ///
    /// # Errors
    /// Returns the problems if it cannot be loaded.
    pub(crate) async fn of_file(at: &str, file: &Path, data: &Path) -> Result<Self, Vec<Problem>> {
        let mut flags = Flags::default();
        flags.take("plugin", WrittenValue::new(at, file.to_string_lossy()));
        flags.take("data", WrittenValue::new("--data", data.to_string_lossy()));
        let (settings, problems) = dispatcher_config::settings(&flags);
        let plugin = settings.routes.first().map(|route| &route.plugin);
        match plugin {
            Some(plugin) if problems.is_empty() => Self::load(at, plugin, &settings).await,
            _ => Err(problems),
        }
    }

    /// Runs the plugin on a message until `cancel` is set. The error describes its verdict, if that
    /// is not done.
    pub async fn passes(&self, message: Message, cancel: &CancellationToken) -> Result<(), String> {
        let deadline = Deadline::after(self.timeout);
        let attempt = Arc::new(Attempt {
            messages: vec![message],
            cancelled: vec![CancellationToken::new()],
            tries: Vec::new(),
            deadline: deadline.clone(),
        });
        let timers = Handle::current();
        let verdicts = tokio::select! {
            biased; // a guest that computes is stopped from inside
            verdicts = self.plugin.handle(attempt) => verdicts,
            () = cancel.cancelled() => return Err("nothing: it was stopped".to_owned()),
            () = deadline.passed(&timers) => vec![Verdict::Retry {
                after: None,
                why: FailureReason::TimedOut(self.timeout.timeout + deadline.added()),
            }],
        };
        match verdicts.into_iter().next() {
            Some(Verdict::Done) => Ok(()),
            Some(other) => Err(RecordedVerdict::of(&other).to_string()),
            None => Err("nothing".to_owned()),
        }
    }
}
