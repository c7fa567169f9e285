//! Loads the versions of a plugin (the current version, the canary and the shadow) at the start and
//! whenever one may have changed. Does not decide which version handles a message.

use super::grants;
use super::plugins::{LoadedHandler, Loader, needs_batches, of_load};
use crate::registry;
use crate::registry::FetchError;
use dispatcher_config::TIMEOUT;
use dispatcher_config::problem::Problem;
use dispatcher_config::{Record, Route, Source};
use dispatcher_core::handler::Handler;
use dispatcher_core::{files, tasks};
use dispatcher_trials::recording::Recorder;
use dispatcher_trials::rollout::shadow;
use dispatcher_trials::rollout::shadow::Shadow;
use dispatcher_trials::rollout::{Canary, RecordedShare, Rollout, Stage, Version};
use dispatcher_wasm::capability::refusals::Count;
use dispatcher_wasm::load::{LoadError, PluginOptions};
use dispatcher_wasm::warm::Warm;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// The number of digits of a digest that are shown.
const SHOWN: usize = 12;

/// A component that was read but not yet loaded.
struct ReadComponent {
    bytes: Vec<u8>,
    digest: String,
}

/// The result of checking a stage for new versions.
pub struct VersionCheck {
    /// The new stage. A refused version is left unchanged.
    pub stage: Stage,
    /// The labels of the versions that changed.
    pub changed: Vec<Arc<str>>,
    /// The refused versions, with the reasons.
    pub problems: Vec<Problem>,
}

impl Loader {
    /// Loads the first versions of a route.
    pub(super) async fn begin(
        &self,
        route: &Route,
        source: &Source,
        problems: &mut Vec<Problem>,
    ) -> Option<LoadedHandler> {
        let plugin = &route.plugin;
        let mut found = Vec::new();
        let current = self
            .version(route, source, None)
            .await
            .map_err(|wrong| found.extend(wrong))
            .ok();
        let mut stage = current.map(|current| Stage {
            current,
            canary: None,
            shadow: None,
        });
        if let Some(stage) = &mut stage {
            self.canary(route, None, stage, &mut found).await;
            self.shadow(route, None, stage, &mut found).await;
        }
        let recording = plugin.trials.record.as_ref().and_then(|record| {
            let recording = recording(&plugin.name, record);
            recording
                .map_err(|why| found.push(Problem::new(&plugin.at, why, "a folder to record in")))
                .ok()
        });
        let failed = !found.is_empty();
        problems.append(&mut found);
        if failed {
            return None;
        }
        let stage = stage?;
        let batch = stage.current.handler.batch();
        let rollout = Arc::new(Rollout::new(&plugin.name, batch, stage, recording));
        Some(LoadedHandler {
            handler: rollout.clone(),
            timeout: plugin.settings.time_limit(timeout(route)),
            rollout: Some(rollout),
        })
    }

    /// Reads the files of a route's plugin again, and loads what differs from `old`; with `anew`,
    /// loads everything, since the options differ.
    pub async fn look_again(&self, route: &Route, old: &Stage, anew: bool) -> VersionCheck {
        let mut stage = old.clone();
        let mut problems = Vec::new();
        if let dispatcher_config::Code::Component(source) = &route.plugin.code {
            let known = (!anew).then(|| old.current.clone());
            match self.version(route, source, known).await {
                Ok(version) => stage.current = version,
                Err(wrong) => problems.extend(wrong),
            }
        }
        let canary = if !anew { old.canary.as_ref() } else { None };
        self.canary(route, canary, &mut stage, &mut problems).await;
        let shadow = if !anew { old.shadow.as_ref() } else { None };
        self.shadow(route, shadow, &mut stage, &mut problems).await;
        let changed = versions(&stage).filter(|now: &&Version| {
            let mut before = versions(old);
            before.all(|before| !Arc::ptr_eq(&before.handler, &now.handler))
        });
        VersionCheck {
            changed: changed.map(|version| version.label.clone()).collect(),
            stage,
            problems,
        }
    }

    /// Sets the route's canary in the stage. An unchanged canary continues; if the new one cannot
    /// be loaded, the old one stays.
    async fn canary(
        &self,
        route: &Route,
        old: Option<&Arc<Canary>>,
        stage: &mut Stage,
        problems: &mut Vec<Problem>,
    ) {
        let Some(trial) = &route.plugin.trials.canary else {
            stage.canary = None;
            return;
        };
        let known = old.map(|canary| canary.version().clone());
        let granted = self
            .granted(route)
            .await
            .map(|granted| called(granted, "canary"));
        match self
            .load_version(route, &trial.source, known, granted)
            .await
        {
            Ok(version) => {
                let same = old.filter(|old| Arc::ptr_eq(&old.version().handler, &version.handler));
                let before = stage.canary.as_deref();
                stage.canary = Some(same.cloned().unwrap_or_else(|| {
                    Arc::new(Canary::new(version.clone(), trial.share, before))
                }));
            }
            Err(wrong) => problems.extend(wrong),
        }
    }

    /// Loads the shadow.
    async fn shadow(
        &self,
        route: &Route,
        old: Option<&Arc<Shadow>>,
        stage: &mut Stage,
        problems: &mut Vec<Problem>,
    ) {
        let Some(source) = &route.plugin.trials.shadow else {
            stage.shadow = None;
            return;
        };
        let timeout = route.plugin.settings.time_limit(timeout(route));
        let known = old.map(|shadow| shadow.version().clone());
        let granted = self
            .granted(route)
            .await
            .map(closed)
            .map(|granted| called(granted, "shadow"));
        match self.load_version(route, source, known, granted).await {
            Ok(version) => {
                let same = old.filter(|old| Arc::ptr_eq(&old.version().handler, &version.handler));
                let (run, control) = (self.spawn.clone(), Handle::current());
                let (name, over) = (&route.plugin.name, self.over.clone());
                stage.shadow = Some(same.cloned().unwrap_or_else(|| {
                    Shadow::new(version.clone(), name, timeout, run, control, over)
                }));
            }
            Err(wrong) => problems.extend(wrong),
        }
    }

    /// Loads a version with the route's grants. Returns the known version if it is unchanged.
    async fn version(
        &self,
        route: &Route,
        source: &Source,
        known: Option<Version>,
    ) -> Result<Version, Vec<Problem>> {
        let granted = self.granted(route).await;
        self.load_version(route, source, known, granted).await
    }

    /// Returns everything that a route grants its plugin.
    async fn granted(&self, route: &Route) -> Result<PluginOptions, Vec<Problem>> {
        let mut problems = Vec::new();
        let stores = self.buckets.of(&route.plugin, &mut problems).await;
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut options = self.options(route, timeout(route), None).await;
        options.grants.stores = stores;
        Ok(options)
    }

    async fn load_version(
        &self,
        route: &Route,
        source: &Source,
        known: Option<Version>,
        granted: Result<PluginOptions, Vec<Problem>>,
    ) -> Result<Version, Vec<Problem>> {
        let options = granted?;
        let at = &route.plugin.at;
        let ReadComponent { bytes, digest } = self.read(source, at).await?;
        if let Some(known) = known
            && *known.digest == *digest
        {
            return Ok(known);
        }
        // Files are read concurrently but compiled one after the other, because a compilation uses
        // all cores and much memory.
        let _turn = self.compiling.lock().await;
        let loaded = self
            .compile(source.to_string(), bytes, options)
            .await
            .map_err(|error| of_load(at, &error))?;
        // Another version under trial may use more or less; the grants belong to the plugin.
        if Some(source) == route.plugin.code.source() {
            grants::note_unused(&route.plugin, &loaded.imports());
            grants::note_dropped_spans(&route.plugin);
        }
        if route.settings.batch_size > loaded.batch() {
            return Err(vec![needs_batches(route)]);
        }
        let short = digest.get(..SHOWN).unwrap_or(&digest);
        Ok(Version {
            handler: Arc::new(loaded),
            label: format!("{source} sha256:{short}").into(),
            digest: digest.into(),
        })
    }

    async fn read(&self, source: &Source, at: &str) -> Result<ReadComponent, Vec<Problem>> {
        let bytes =
            read(source, &self.settings().stores.data)
                .await
                .map_err(|error| match error {
                    ReadError::File(error) => of_load(at, &error),
                    ReadError::Image(error) => vec![of_fetch(at, &error)],
                })?;
        // Hashing a large component takes time.
        let hashed = tasks::blocking(move || ReadComponent {
            digest: files::digest(&bytes),
            bytes,
        });
        Ok(hashed.finished().await)
    }
}

/// The reason why there is no component to load.
pub enum ReadError {
    /// The file is not a component.
    File(LoadError),
    /// The registry returned no component.
    Image(FetchError),
}

/// Reads a component from its file, from the registry, or from the registry's cache in the data
/// folder.
pub async fn read(source: &Source, data: &Path) -> Result<Vec<u8>, ReadError> {
    match source {
        Source::File(file) => {
            let path: PathBuf = file.clone();
            let reading = tasks::blocking(move || dispatcher_wasm::inspect::read(&path));
            let read = reading.finished().await;
            read.map_err(|problem| {
                ReadError::File(LoadError {
                    file: file.clone(),
                    problems: vec![problem],
                })
            })
        }
        Source::Image(name) => {
            let fetched = registry::fetch(name, &images(data)).await;
            fetched.map_err(ReadError::Image)
        }
    }
}

/// Converts an error of a registry to a problem of the settings.
pub fn of_fetch(at: &str, error: &FetchError) -> Problem {
    let problem = Problem::new(at, error.to_string(), "");
    match error {
        FetchError::Unreachable(_) => problem.unreachable(),
        FetchError::Refused(_) => problem,
    }
}

/// Returns the folder of components from registries.
pub fn images(data: &Path) -> PathBuf {
    data.join("images")
}

/// Returns the time limit of an attempt of a component.
fn timeout(route: &Route) -> Duration {
    route.plugin.settings.timeout.unwrap_or(TIMEOUT)
}

/// Marks the log lines of a version, to distinguish them from those of the current version.
fn called(options: PluginOptions, what: &str) -> PluginOptions {
    PluginOptions {
        name: format!("{} ({what})", options.name),
        ..options
    }
}

/// Removes the grants that reach outside. A guest that uses one is refused in the same way as a
/// guest that exceeds a grant.
fn closed(options: PluginOptions) -> PluginOptions {
    PluginOptions {
        grants: options.grants.for_shadow(),
        refused: Count::by(|_| shadow::refused()),
        // Identifies the attempt that makes a request.
        instance_concurrency: 1,
        // No message waits for its result.
        warm: Warm::default(),
        ..options
    }
}

fn recording(plugin: &str, record: &Record) -> Result<RecordedShare, String> {
    Ok(RecordedShare {
        recorder: Recorder::open(plugin, &record.terms)?,
        share: record.share,
    })
}

/// Returns the versions of a stage.
fn versions(stage: &Stage) -> impl Iterator<Item = &Version> {
    let canary = stage.canary.iter().map(|canary| canary.version());
    let shadow = stage.shadow.iter().map(|shadow| shadow.version());
    std::iter::once(&stage.current).chain(canary).chain(shadow)
}
