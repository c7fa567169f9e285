//! A plugin that is tried on messages before they are moved: it runs with the grants of a shadow,
//! which can read and change nothing outside. Opens no queue.

use super::build::versions::ReadError;
use super::build::{plugins, versions};
use crate::config::problem::Problem;
use crate::config::{Code, PluginConfig, Settings, TIMEOUT};
use dispatcher_core::handler::{Attempt, Deadline, Handler, TimeLimit};
use dispatcher_core::message::{FailureReason, Message, Verdict};
use dispatcher_core::recording::entry::RecordedVerdict;
use dispatcher_wasm::load::{LoadedPlugin, PluginOptions};
use dispatcher_wasm::runtime::{Insight, Runtime, RuntimeOptions};
use dispatcher_wasm::warm::Warm;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// One under way, and one that is made for the next.
const INSTANCES: usize = 2;

/// A plugin to try messages on.
pub struct Sandbox {
    plugin: LoadedPlugin,
    timeout: TimeLimit,
}

impl Sandbox {
    /// Loads the plugin; `at` is what it is called in problems.
    ///
    /// # Errors
    /// Why it cannot be loaded.
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
        let bytes = versions::read(source, &settings.stores.data).await;
        let bytes = bytes.map_err(|error| match error {
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
        // Compiling anew is slower, and no reason not to try a plugin.
        let cache = plugins::cache(&settings.stores.data);
        let runtime = start(Some(cache)).or_else(|_| start(None));
        let runtime =
            runtime.map_err(|error| vec![Problem::new(at, error.to_string(), "").failed()])?;
        let options = plugins::options_by_hand(settings, plugin, timeout).await;
        let options = PluginOptions {
            instance_concurrency: 1,
            reuse: None,
            warm: Warm::default(),
            grants: options.grants.for_shadow(),
            ..options
        };
        let plugin_limit = plugin.settings.time_limit(timeout);
        let plugin = runtime.load_bytes(&source.to_string(), &bytes, options);
        Ok(Self {
            plugin: plugin.map_err(|error| plugins::of_file(&error))?,
            timeout: plugin_limit,
        })
    }

    /// Runs the plugin on a message until `cancel` is set. The error is what it answered, unless it was
    /// done.
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
