//! Builds the grants of plugins other than queues and functions: hosts, settings, a folder and
//! buckets. Opens a bucket's store only when a plugin has a bucket in it.

use super::Backends;
use dispatcher_config::PluginConfig as PluginSettings;
use dispatcher_config::Secret;
use dispatcher_config::problem::Problem;
use dispatcher_core::error_kind::ErrorKind;
use dispatcher_core::telemetry::counters::Counters;
use dispatcher_core::telemetry::metrics::of_plugins::PluginMeter;
use dispatcher_wasm::capability::http::{AddedHeaders, AllowedHosts};
use dispatcher_wasm::capability::refusals::Count;
use dispatcher_wasm::capability::registry::{Capability, Grants};
use dispatcher_wasm::capability::settings::ConfigStore;
use dispatcher_wasm::capability::spans::SpanGrant;
use dispatcher_wasm::capability::store::StoreGrant;
use dispatcher_wasm::capability::variables::EnvironmentVariables;
use dispatcher_wasm::load::PluginOptions;
use dispatcher_wasm::warm::Warm;
use std::sync::Arc;
use std::time::Duration;

/// Returns the options that need nothing opened, for attempts of `timeout`: no queues, functions or
/// buckets.
pub fn options(
    plugin: &PluginSettings,
    timeout: Duration,
    counters: Arc<Counters>,
) -> PluginOptions {
    PluginOptions {
        name: plugin.name.clone(),
        max_memory: plugin.max_memory(),
        timeout: Some(timeout),
        reuse: plugin.reuse,
        warm: Warm {
            count: plugin.settings.warm,
            of_heavy: 0,
            patience: timeout,
        },
        instance_concurrency: plugin.instance_concurrency(),
        queue_prefix: plugin.queue_prefix.clone(),
        grants: grants(plugin, timeout),
        meter: PluginMeter::new(counters.of_plugins.clone(), &plugin.name),
        refused: Count::by(move |_| counters.refused.one()),
        ..PluginOptions::default()
    }
}

/// Returns the grants that need nothing opened: no queues, functions or buckets.
fn grants(plugin: &PluginSettings, timeout: Duration) -> Grants {
    Grants {
        http: AllowedHosts {
            hosts: plugin.settings.allow_http.clone(),
            longest: timeout,
            attempts: None,
            headers: AddedHeaders::default(),
        },
        settings: ConfigStore(
            with_secrets(&plugin.settings.setting, &plugin.settings.setting_file).collect(),
        ),
        folder: plugin.settings.allow_read.clone(),
        peers: plugin.settings.allow_connect.clone(),
        spans: SpanGrant(plugin.settings.allow_spans),
        env: EnvironmentVariables(
            with_secrets(&plugin.settings.env, &plugin.settings.env_file).collect(),
        ),
        ..Grants::default()
    }
}

/// Returns names with their values, including the values from files.
fn with_secrets<'a>(
    plain: &'a [(String, String)],
    secret: &'a [(String, Secret)],
) -> impl Iterator<Item = (String, String)> + 'a {
    let secret = secret.iter();
    let revealed = secret.map(|(name, secret)| (name.clone(), secret.reveal()));
    plain.iter().cloned().chain(revealed)
}

/// Returns what the settings grant of a capability, as configured. For variables and settings it
/// returns only the names, since the values may be secret.
pub fn granted(plugin: &PluginSettings, asked: Capability) -> Vec<String> {
    fn shown<T: ToString>(all: &[T]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }
    let settings = &plugin.settings;
    match asked {
        Capability::Functions => plugin.settings.allow_lambda.clone(),
        Capability::Queues => shown(&plugin.settings.allow_send),
        Capability::Http => shown(&plugin.settings.allow_http),
        Capability::Settings => names(&settings.setting, &settings.setting_file),
        Capability::Stores => {
            let stores = plugin.settings.store.iter();
            stores.map(|(name, at)| format!("{name}={at}")).collect()
        }
        Capability::Files => {
            let folder = plugin.settings.allow_read.iter();
            folder.map(|folder| folder.display().to_string()).collect()
        }
        Capability::Connections => shown(&plugin.settings.allow_connect),
        Capability::Variables => names(&settings.env, &settings.env_file),
        Capability::Spans => settings
            .allow_spans
            .iter()
            .map(ToString::to_string)
            .collect(),
    }
}

fn names(plain: &[(String, String)], secret: &[(String, Secret)]) -> Vec<String> {
    let plain = plain.iter().map(|(name, _)| name);
    let secret = secret.iter().map(|(name, _)| name);
    plain.chain(secret).cloned().collect()
}

/// Logs, in one line, the grants that the component does not import: a grant that is no longer
/// needed, or the wrong component.
pub fn note_unused(plugin: &PluginSettings, imports: &[String]) {
    let asked = Capability::of(imports);
    let unused =
        Capability::all().filter(|one| !asked.contains(one) && !granted(plugin, *one).is_empty());
    let grants: Vec<_> = unused.map(Capability::key).collect();
    if !grants.is_empty() {
        let (plugin, grants) = (plugin.name.as_str(), grants.join(", "));
        tracing::warn!(plugin, grants, "granted but not imported by the component");
    }
}

/// Logs that the spans of the handler are dropped, if they are.
pub fn note_dropped_spans(plugin: &PluginSettings) {
    if plugin.drops_spans() {
        let (plugin, instance_concurrency) = (&*plugin.name, plugin.instance_concurrency());
        tracing::warn!(
            plugin,
            instance_concurrency,
            "spans of the handler are dropped: many attempts share an instance"
        );
    }
}

/// The stores of buckets. Each is opened when its first bucket is granted.
pub struct Buckets {
    backends: Arc<Backends>,
}

impl Buckets {
    /// Creates the buckets in the stores of these backends.
    pub fn on(backends: Arc<Backends>) -> Self {
        Self { backends }
    }

    /// Returns the buckets of a plugin. A bucket that cannot be opened becomes a problem and is
    /// left out.
    pub async fn of(&self, plugin: &PluginSettings, problems: &mut Vec<Problem>) -> StoreGrant {
        let mut stores = StoreGrant::default();
        for (name, place) in &plugin.settings.store {
            let opened = match self.backends.client(place.backend).await {
                Ok(client) => client.bucket(&place.bucket).await,
                Err(error) => Err(error),
            };
            match opened {
                Ok(bucket) => drop(stores.0.insert(name.clone(), bucket)),
                Err(error) => {
                    let found = format!("the store `{name}` in {place}: {error}");
                    let problem = Problem::new(&plugin.at, found, "");
                    problems.push(match error.kind {
                        ErrorKind::Transient | ErrorKind::Unreachable => problem.unreachable(),
                        ErrorKind::NotFound | ErrorKind::AccessDenied | ErrorKind::Invalid => {
                            problem
                        }
                    });
                }
            }
        }
        stores
    }
}
