//! Loads the versions of a plugin: the current one, the canary, the shadow; at the start, and again
//! whenever one may have changed. Does not decide which version handles a message.

use super::grants;
use super::plugins::{Loaded, Loader, needs_batches, of_load};
use crate::config::TIMEOUT;
use crate::config::problem::Problem;
use crate::config::{Record, Route, Source};
use crate::image::registry;
use crate::image::registry::FetchError;
use dispatcher_core::handler::Handler;
use dispatcher_core::recording::Recorder;
use dispatcher_core::rollout::shadow;
use dispatcher_core::rollout::shadow::Shadow;
use dispatcher_core::rollout::{Canary, Recording, Rollout, Stage, Version};
use dispatcher_core::{files, tasks};
use dispatcher_wasm::capability::refusals::Count;
use dispatcher_wasm::load::{LoadError, PluginOptions};
use dispatcher_wasm::warm::Warm;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How much of a digest people are shown.
const SHOWN: usize = 12;

/// A component that has been read and not yet loaded.
struct Read {
    bytes: Vec<u8>,
    digest: String,
}

/// What became of a part of a stage that was looked at again.
pub struct Looked {
    /// The stage as it may be from now on: what was refused is as it was before.
    pub stage: Stage,
    /// What the versions are called that are others than before.
    pub changed: Vec<Arc<str>>,
    /// What was refused, and why.
    pub problems: Vec<Problem>,
}

impl Loader {
    /// The versions that a route begins with.
    pub(super) async fn begin(
        &self,
        route: &Route,
        source: &Source,
        problems: &mut Vec<Problem>,
    ) -> Option<Loaded> {
        let plugin = &route.plugin;
        let mut found = Vec::new();
        let current = self.version(route, source, None).await;
        let current = current.map_err(|wrong| found.extend(wrong)).ok();
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
            let refused = |why| found.push(Problem::new(&plugin.at, why, "a folder to record in"));
            recording.map_err(refused).ok()
        });
        let failed = !found.is_empty();
        problems.append(&mut found);
        let stage = stage.filter(|_| !failed)?;
        let batch = stage.current.handler.batch();
        let rollout = Arc::new(Rollout::new(&plugin.name, batch, stage, recording));
        Some(Loaded {
            handler: rollout.clone(),
            timeout: plugin.settings.time_limit(timeout(route)),
            rollout: Some(rollout),
        })
    }

    /// Looks at the files of a route's plugin again, and loads what is another than in `old`; all of
    /// it where `anew`, since it is to be run otherwise.
    pub async fn look_again(&self, route: &Route, old: &Stage, anew: bool) -> Looked {
        let mut stage = old.clone();
        let mut problems = Vec::new();
        let known = |version: &Version| (!anew).then(|| version.clone());
        if let crate::config::Code::Component(source) = &route.plugin.code {
            match self.version(route, source, known(&old.current)).await {
                Ok(version) => stage.current = version,
                Err(wrong) => problems.extend(wrong),
            }
        }
        let canary = old.canary.as_ref().filter(|_| !anew);
        self.canary(route, canary, &mut stage, &mut problems).await;
        let shadow = old.shadow.as_ref().filter(|_| !anew);
        self.shadow(route, shadow, &mut stage, &mut problems).await;
        let is_other = |now: &&Version| {
            let mut before = versions(old);
            before.all(|before| !Arc::ptr_eq(&before.handler, &now.handler))
        };
        let changed = versions(&stage).filter(is_other);
        Looked {
            changed: changed.map(|version| version.label.clone()).collect(),
            stage,
            problems,
        }
    }

    /// Puts the canary that the route wants into the stage. One that is the same continues as it was,
    /// one that cannot be loaded leaves the old one there.
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
                let fresh = || Arc::new(Canary::new(version.clone(), trial.share, before));
                stage.canary = Some(same.cloned().unwrap_or_else(fresh));
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
        let granted = self.granted(route).await.map(closed);
        let granted = granted.map(|granted| called(granted, "shadow"));
        match self.load_version(route, source, known, granted).await {
            Ok(version) => {
                let same = old.filter(|old| Arc::ptr_eq(&old.version().handler, &version.handler));
                let (run, control) = (self.spawn.clone(), Handle::current());
                let (name, over) = (&route.plugin.name, self.over.clone());
                let fresh = || Shadow::new(version.clone(), name, timeout, run, control, over);
                stage.shadow = Some(same.cloned().unwrap_or_else(fresh));
            }
            Err(wrong) => problems.extend(wrong),
        }
    }

    /// A version with all that the route grants. The known one, if that is what is there.
    async fn version(
        &self,
        route: &Route,
        source: &Source,
        known: Option<Version>,
    ) -> Result<Version, Vec<Problem>> {
        let granted = self.granted(route).await;
        self.load_version(route, source, known, granted).await
    }

    /// All that a route grants its plugin.
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
        let Read { bytes, digest } = self.read(source, at).await?;
        if let Some(known) = known
            && *known.digest == *digest
        {
            return Ok(known);
        }
        // Files are read beside each other, and compiled one after the other: that takes all cores
        // and much memory.
        let _turn = self.compiling.lock().await;
        let loaded = self.compile(source.to_string(), bytes, options).await;
        let loaded = loaded.map_err(|error| of_load(at, &error))?;
        // Another version that is tried beside it may use more or less; the grants are the plugin's.
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

    async fn read(&self, source: &Source, at: &str) -> Result<Read, Vec<Problem>> {
        let bytes = read(source, &self.settings().stores.data).await;
        let bytes = bytes.map_err(|error| match error {
            ReadError::File(error) => of_load(at, &error),
            ReadError::Image(error) => vec![of_fetch(at, &error)],
        })?;
        // A component may be large.
        let hashed = tasks::blocking(move || Read {
            digest: files::digest(&bytes),
            bytes,
        });
        Ok(hashed.finished().await)
    }
}

/// Why there is no component to load.
pub enum ReadError {
    /// A file is none.
    File(LoadError),
    /// A registry gave none.
    Image(FetchError),
}

/// A component, from its file, the registry, or what was kept of the registry in the data folder.
pub async fn read(source: &Source, data: &Path) -> Result<Vec<u8>, ReadError> {
    match source {
        Source::File(file) => {
            let path: PathBuf = file.clone();
            let read = tasks::blocking(move || dispatcher_wasm::inspect::read(&path));
            let error = |problem| LoadError {
                file: file.clone(),
                problems: vec![problem],
            };
            let read = read.finished().await;
            read.map_err(|problem| ReadError::File(error(problem)))
        }
        Source::Image(name) => {
            let fetched = registry::fetch(name, &images(data)).await;
            fetched.map_err(ReadError::Image)
        }
    }
}

/// A registry's refusal as a problem of the settings.
pub fn of_fetch(at: &str, error: &FetchError) -> Problem {
    let problem = Problem::new(at, error.to_string(), "");
    match error {
        FetchError::Unreachable(_) => problem.unreachable(),
        FetchError::Refused(_) => problem,
    }
}

/// Where components from registries are kept.
pub fn images(data: &Path) -> PathBuf {
    data.join("images")
}

/// How long one attempt of a component may take.
fn timeout(route: &Route) -> Duration {
    route.plugin.settings.timeout.unwrap_or(TIMEOUT)
}

/// Marks its log lines, to distinguish them from those of the current version.
fn called(options: PluginOptions, what: &str) -> PluginOptions {
    PluginOptions {
        name: format!("{} ({what})", options.name),
        ..options
    }
}

/// With everything that reaches out closed: a guest that asks for it is refused, as one is that may
/// use some of it and asks for other.
fn closed(options: PluginOptions) -> PluginOptions {
    PluginOptions {
        grants: options.grants.for_shadow(),
        refused: Count::by(|_| shadow::refused()),
        // So that who asks is known by its attempt.
        instance_concurrency: 1,
        // Nobody waits for its answers.
        warm: Warm::default(),
        ..options
    }
}

fn recording(plugin: &str, record: &Record) -> Result<Recording, String> {
    Ok(Recording {
        recorder: Recorder::open(plugin, &record.terms)?,
        share: record.share,
    })
}

/// The versions of a stage.
fn versions(stage: &Stage) -> impl Iterator<Item = &Version> {
    let canary = stage.canary.iter().map(|canary| canary.version());
    let shadow = stage.shadow.iter().map(|shadow| shadow.version());
    std::iter::once(&stage.current).chain(canary).chain(shadow)
}
