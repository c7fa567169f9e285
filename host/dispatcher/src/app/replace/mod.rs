//! Replaces plugins at run time: when a file changes, when the settings are reloaded, or on
//! request. Loads the new version while the old one runs, and swaps them. A refused version changes
//! nothing.

use super::build::plugins::Loader;
use super::build::versions::VersionCheck;
use super::watch::FileWatch;
use dispatcher_config::problem::Problem;
use dispatcher_config::{PluginConfig, Route, Source};
use dispatcher_core::handler::{Handler, Usage};
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_operate::objects::ReloadResult;
use dispatcher_operate::problem::{CallProblem, StatusCode};
use dispatcher_telemetry::plugins;
use dispatcher_telemetry::plugins::Figures;
use dispatcher_trials::rollout::{Rollout, Stage, Version};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A route whose plugin can be replaced.
pub(crate) struct Replaceable {
    /// The route, with the plugin that runs now.
    pub route: Route,
    /// The plugin of the new settings, if it could not be applied yet.
    pub wanted: Option<PluginConfig>,
    /// The rollout that runs it.
    pub rollout: Arc<Rollout>,
    /// Loads its further versions.
    pub loader: Arc<Loader>,
}

/// The result of checking a route's plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    /// The name of the route.
    pub route: String,
    /// The new versions.
    pub replaced: Vec<String>,
    /// The refused versions, with the reasons.
    pub refused: Vec<String>,
}

enum ReloadRequest {
    /// Check all files, and report the result.
    Look(oneshot::Sender<Vec<Report>>),
    /// Run these plugins with new settings, by route.
    Settings(Vec<(String, PluginConfig)>),
    /// Watch the plugins of these routes from now on, instead of those of earlier versions.
    Add(Vec<Replaceable>),
    /// Watch the plugin of this route no longer.
    Remove(String),
}

/// Requests to replace plugins. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReloadRequests {
    requests: UnboundedSender<ReloadRequest>,
    /// The rollouts by route.
    rollouts: Arc<Mutex<BTreeMap<String, Arc<Rollout>>>>,
}

impl ReloadRequests {
    /// Checks all files now. Returns how many plugins were replaced, with a report on each, or
    /// nothing if the run is about to end.
    pub(super) async fn reload(&self) -> Result<(u64, ReloadResult), CallProblem> {
        let (answer, answered) = oneshot::channel();
        let _ = self.requests.send(ReloadRequest::Look(answer));
        let reports: Vec<Report> = answered.await.unwrap_or_default();
        let replaced = reports
            .iter()
            .filter(|one| !one.replaced.is_empty())
            .count() as u64;
        let plugins: Vec<Value> = reports.iter().map(|report| json!(report)).collect();
        if reports.iter().all(|report| report.refused.is_empty()) {
            return Ok((replaced, ReloadResult { plugins }));
        }
        let why = "Not every plugin was replaced; the old versions stay.";
        Err(CallProblem {
            more: [("plugins".to_owned(), plugins.into())]
                .into_iter()
                .collect(),
            ..CallProblem::new(StatusCode::UNPROCESSABLE_ENTITY, why)
        })
    }

    /// Rolls back the canary of a route at once, even while a version is compiled. Returns the name
    /// of the version.
    pub(super) fn roll_back(&self, route: &str) -> Result<String, CallProblem> {
        let rollout = self.rollouts.lock().get(route).cloned();
        let Some(rollout) = rollout else {
            return Err(CallProblem::not_found(format!(
                "This process has no route `{route}` with a plugin."
            )));
        };
        let version = rollout.roll_back();
        version.map(|version| version.to_string()).ok_or_else(|| {
            let why = format!(
                "No canary of route `{route}` takes messages. To go back from a current version, put the \
                 file of the earlier one in its place."
            );
            CallProblem::new(StatusCode::CONFLICT, why)
        })
    }

    /// Watches the plugins of routes that were started.
    pub(super) fn add(&self, routes: Vec<Replaceable>) {
        if routes.is_empty() {
            return;
        }
        let rollouts = routes
            .iter()
            .map(|one| (one.route.name.clone(), one.rollout.clone()));
        self.rollouts.lock().extend(rollouts);
        let _ = self.requests.send(ReloadRequest::Add(routes));
    }

    /// Watches the plugin of a route no longer.
    pub(super) fn remove(&self, route: &str) {
        self.rollouts.lock().remove(route);
        let _ = self.requests.send(ReloadRequest::Remove(route.to_owned()));
    }

    /// Applies new settings to these plugins.
    pub(super) fn settings(&self, plugins: Vec<(String, PluginConfig)>) {
        let _ = self.requests.send(ReloadRequest::Settings(plugins));
    }
}

/// The task that replaces plugins. Dropping it ends the task and the work that runs beside the
/// messages' own attempts.
pub(crate) struct ReplacementTask {
    _task: Task<()>,
    _over: DropGuard,
}

/// Starts watching. `over` is the token that the loaders are started with.
pub(crate) fn start(over: CancellationToken) -> (ReplacementTask, ReloadRequests) {
    let (requests, wishes) = unbounded_channel();
    let reload_requests = ReloadRequests {
        requests,
        rollouts: Arc::default(),
    };
    let replacer = Replacer {
        watch: FileWatch::new(),
        routes: Vec::new(),
    };
    let replacing = ReplacementTask {
        _task: tasks::spawn(replacer.run(wishes)),
        _over: over.drop_guard(),
    };
    (replacing, reload_requests)
}

struct Replacer {
    routes: Vec<Replaceable>,
    watch: FileWatch,
}

impl Replacer {
    async fn run(mut self, mut wishes: UnboundedReceiver<ReloadRequest>) {
        // Files may still change after all senders are gone.
        let mut open = true;
        loop {
            tokio::select! {
                wish = wishes.recv(), if open => match wish {
                    Some(ReloadRequest::Look(answer)) => {
                        let reports = self.look(None).await;
                        let _ = answer.send(reports);
                    }
                    Some(ReloadRequest::Settings(plugins)) => {
                        self.want(plugins);
                        // Watches the files before it reads them, so that it notices a change in
                        // between.
                        self.watch.on(self.files()).await;
                        self.look(None).await;
                    }
                    Some(ReloadRequest::Add(added)) => {
                        self.routes.retain(|one| {
                            added.iter().all(|new| new.route.name != one.route.name)
                        });
                        let files: Vec<PathBuf> =
                            added.iter().flat_map(Replaceable::files).collect();
                        self.routes.extend(added);
                        self.watch.on(self.files()).await;
                        // A file that changed since it was loaded has caused no event.
                        self.look(Some(&files)).await;
                    }
                    Some(ReloadRequest::Remove(route)) => {
                        self.routes.retain(|one| one.route.name != route);
                        self.watch.on(self.files()).await;
                    }
                    None => open = false,
                },
                changed = self.watch.changed() => {
                    self.look(Some(&changed)).await;
                }
            }
        }
    }

    /// Records the plugins whose settings differ from the running ones.
    fn want(&mut self, plugins: Vec<(String, PluginConfig)>) {
        let mut plugins: BTreeMap<String, PluginConfig> = plugins.into_iter().collect();
        for Replaceable { route, wanted, .. } in &mut self.routes {
            *wanted = plugins.remove(&route.name).filter(|new| {
                // The location of the setting does not affect the run.
                let at = route.plugin.at.clone();
                PluginConfig { at, ..new.clone() } != route.plugin
            });
        }
    }

    /// Returns the files of all plugins.
    fn files(&self) -> Vec<PathBuf> {
        self.routes.iter().flat_map(Replaceable::files).collect()
    }

    /// Checks every plugin, or only those of some files, and applies pending settings. Plugins are
    /// checked concurrently, so a slow file delays no other plugin.
    async fn look(&mut self, of: Option<&[PathBuf]>) -> Vec<Report> {
        let routes = self.routes.iter_mut().filter(|one: &&mut Replaceable| {
            of.is_none_or(|changed| one.files().iter().any(|file| changed.contains(file)))
        });
        tasks::all(routes.map(Replaceable::look).collect()).await
    }
}

impl Replaceable {
    /// Returns the files of the plugin, whether or not they exist.
    fn files(&self) -> Vec<PathBuf> {
        let plugins = std::iter::once(&self.route.plugin).chain(&self.wanted);
        let files = plugins.flat_map(|plugin| {
            let current = match &plugin.code {
                dispatcher_config::Code::Component(source) => Some(source),
                _ => None,
            };
            let canary = plugin.trials.canary.as_ref().map(|trial| &trial.source);
            let sources = [current, canary, plugin.trials.shadow.as_ref()];
            sources.into_iter().flatten().filter_map(Source::file)
        });
        files.map(std::path::Path::to_owned).collect()
    }

    async fn look(&mut self) -> Report {
        let Self {
            route,
            wanted,
            rollout,
            loader,
        } = self;
        let old = rollout.stage();
        let mut next = route.clone();
        if let Some(wanted) = wanted {
            next.plugin = wanted.clone();
        }
        let mut looked = loader.look_again(&next, &old, wanted.is_some()).await;
        // New settings are applied completely or not at all, and stay pending until then.
        let taken = wanted.is_none() || looked.problems.is_empty();
        if taken {
            *route = next;
            *wanted = None;
        } else {
            looked.changed.clear()
        }
        let report = say(&route.name, rollout, &looked);
        if taken && (!report.replaced.is_empty() || is_less(&old, &looked.stage)) {
            rollout.set(looked.stage);
        }
        report
    }
}

/// Returns whether a canary or shadow was removed.
fn is_less(old: &Stage, new: &Stage) -> bool {
    (old.canary.is_some() && new.canary.is_none()) || (old.shadow.is_some() && new.shadow.is_none())
}

fn say(route: &str, rollout: &Rollout, looked: &VersionCheck) -> Report {
    let plugin = rollout.plugin();
    for version in &looked.changed {
        tracing::info!(route, plugin, %version, "replaced: new attempts run this version, running ones finish with theirs");
    }
    for problem in &looked.problems {
        rollout.refuse();
        tracing::error!(route, plugin, %problem, "not replaced, the old version stays");
    }
    Report {
        route: route.to_owned(),
        replaced: looked.changed.iter().map(ToString::to_string).collect(),
        refused: looked.problems.iter().map(Problem::to_string).collect(),
    }
}

/// Returns the state of a route's versions.
pub(crate) fn figures(rollout: &Rollout) -> Figures {
    let stage = rollout.stage();
    let (replaced, refused) = rollout.counts();
    let Usage {
        running,
        running_memory,
        idle,
        idle_memory,
    } = rollout.usage();
    Figures {
        plugin: rollout.plugin().to_owned(),
        current: version_figures(&stage.current),
        replaced,
        refused,
        instances: plugins::Instances {
            running,
            running_memory_bytes: running_memory,
            idle,
            idle_memory_bytes: idle_memory,
        },
        canary: stage.canary.as_ref().map(|canary| {
            let race = canary.race();
            plugins::Canary {
                version: version_figures(canary.version()),
                share: canary.share().map_or(0.0, |share| share.get()),
                attempts: race.canary.attempts,
                failed: race.canary.failed,
                current_attempts: race.current.attempts,
                current_failed: race.current.failed,
            }
        }),
        shadow: stage.shadow.as_ref().map(|shadow| plugins::Shadow {
            version: version_figures(shadow.version()),
            same: shadow.compared.same.load(Relaxed),
            different: shadow.compared.different.load(Relaxed),
            closed: shadow.compared.closed.load(Relaxed),
            skipped: shadow.compared.skipped.load(Relaxed),
        }),
        recorded: rollout
            .recorded()
            .map(|(kept, left_out)| plugins::RecordedCount { kept, left_out }),
    }
}

fn version_figures(version: &Version) -> plugins::Version {
    let file = version.label.rsplit_once(" sha256:");
    plugins::Version {
        file: file.map_or(&*version.label, |(file, _)| file).to_owned(),
        sha256: version.digest.to_string(),
    }
}
