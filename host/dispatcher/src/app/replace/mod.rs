//! Replaces plugins at run time: when a file changes, when the settings are reloaded, or on
//! request. Loads the new version beside the old one, and swaps; a refused version changes nothing.

use super::build::plugins::Loader;
use super::build::versions::Looked;
use super::watch::FileWatch;
use crate::config::problem::Problem;
use crate::config::{PluginConfig, Route, Source};
use crate::telemetry::plugins;
use crate::telemetry::plugins::Figures;
use dispatcher_core::handler::{Handler, Usage};
use dispatcher_core::rollout::{Rollout, Stage, Version};
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A route whose plugin can be replaced.
pub(crate) struct Replaceable {
    /// The route, with the plugin as it is run now.
    pub route: Route,
    /// The plugin as the settings want it, where it could not be taken yet.
    pub wanted: Option<PluginConfig>,
    /// Who runs it.
    pub rollout: Arc<Rollout>,
}

/// What became of a route's plugin when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    /// The route.
    pub route: String,
    /// What is new.
    pub replaced: Vec<String>,
    /// What is not taken, and why.
    pub refused: Vec<String>,
}

enum ReloadRequest {
    /// Look at all files, and say what came of it.
    Look(oneshot::Sender<Vec<Report>>),
    /// Run these plugins otherwise, by route.
    Settings(Vec<(String, PluginConfig)>),
}

/// What came of rolling a canary back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RollBack {
    /// No route of this name has a plugin that can be replaced.
    NoRoute,
    /// None of its versions is a canary that takes messages.
    NoCanary,
    /// This one was rolled back.
    Done(Arc<str>),
}

/// How plugins are asked to be replaced. Cheap to clone.
#[derive(Clone)]
pub(super) struct ReloadRequests {
    requests: UnboundedSender<ReloadRequest>,
    /// By route.
    rollouts: Arc<BTreeMap<String, Arc<Rollout>>>,
}

impl ReloadRequests {
    /// Looks at all files now. Nothing if the run is about to end.
    pub(super) async fn look(&self) -> Vec<Report> {
        let (answer, answered) = oneshot::channel();
        let _ = self.requests.send(ReloadRequest::Look(answer));
        answered.await.unwrap_or_default()
    }

    /// Rolls the canary of a route back, at once: also while a version is compiled.
    pub(super) fn roll_back(&self, route: &str) -> RollBack {
        match self.rollouts.get(route) {
            None => RollBack::NoRoute,
            Some(rollout) => rollout
                .roll_back()
                .map_or(RollBack::NoCanary, RollBack::Done),
        }
    }

    /// Runs these plugins so from now on.
    pub(super) fn settings(&self, plugins: Vec<(String, PluginConfig)>) {
        let _ = self.requests.send(ReloadRequest::Settings(plugins));
    }
}

/// The task that replaces. Dropped, it ends, and what runs beside the messages' own attempts with it.
pub(crate) struct Replacing {
    _task: Task<()>,
    _over: DropGuard,
}

/// Begins to watch. `over` is what the loader was started with.
pub(crate) fn start(
    loader: Loader,
    routes: Vec<Replaceable>,
    over: CancellationToken,
) -> (Replacing, ReloadRequests) {
    let (requests, wishes) = unbounded_channel();
    let rollouts = routes
        .iter()
        .map(|one| (one.route.name.clone(), one.rollout.clone()));
    let reload_requests = ReloadRequests {
        requests,
        rollouts: Arc::new(rollouts.collect()),
    };
    let replacer = Replacer {
        watch: FileWatch::new(),
        loader,
        routes,
    };
    let replacing = Replacing {
        _task: tasks::spawn(replacer.run(wishes)),
        _over: over.drop_guard(),
    };
    (replacing, reload_requests)
}

struct Replacer {
    loader: Loader,
    routes: Vec<Replaceable>,
    watch: FileWatch,
}

impl Replacer {
    async fn run(mut self, mut wishes: UnboundedReceiver<ReloadRequest>) {
        self.watch.on(self.files()).await;
        // What was replaced since it was loaded has been told to nobody.
        self.look(None).await;
        // Where nobody can wish, files may still change.
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
                        // Before they are looked at: so what changes meanwhile is told.
                        self.watch.on(self.files()).await;
                        self.look(None).await;
                    }
                    None => open = false,
                },
                changed = self.watch.changed() => {
                    self.look(Some(&changed)).await;
                }
            }
        }
    }

    /// Notes what the settings want otherwise than it is run.
    fn want(&mut self, plugins: Vec<(String, PluginConfig)>) {
        let mut plugins: BTreeMap<String, PluginConfig> = plugins.into_iter().collect();
        for Replaceable { route, wanted, .. } in &mut self.routes {
            *wanted = plugins.remove(&route.name).filter(|new| {
                // Where it is written is nothing that is run.
                let at = route.plugin.at.clone();
                PluginConfig { at, ..new.clone() } != route.plugin
            });
        }
    }

    /// The files of all plugins.
    fn files(&self) -> Vec<PathBuf> {
        self.routes.iter().flat_map(Replaceable::files).collect()
    }

    /// Looks at every plugin, or at those of some files alone; those that are wanted otherwise in their
    /// new way. Each on its own: a file that is slow to come delays no other plugin.
    async fn look(&mut self, of: Option<&[PathBuf]>) -> Vec<Report> {
        let loader = &self.loader;
        let is_of = |one: &&mut Replaceable| {
            of.is_none_or(|changed| one.files().iter().any(|file| changed.contains(file)))
        };
        let routes = self.routes.iter_mut().filter(is_of);
        tasks::all(routes.map(|one| one.look(loader)).collect()).await
    }
}

impl Replaceable {
    /// The files that make up the plugin, whether or not they are there.
    fn files(&self) -> Vec<PathBuf> {
        let plugins = std::iter::once(&self.route.plugin).chain(&self.wanted);
        let files = plugins.flat_map(|plugin| {
            let current = match &plugin.code {
                crate::config::Code::Component(source) => Some(source),
                _ => None,
            };
            let canary = plugin.trials.canary.as_ref().map(|trial| &trial.source);
            let sources = [current, canary, plugin.trials.shadow.as_ref()];
            sources.into_iter().flatten().filter_map(Source::file)
        });
        files.map(std::path::Path::to_owned).collect()
    }

    async fn look(&mut self, loader: &Loader) -> Report {
        let Self {
            route,
            wanted,
            rollout,
        } = self;
        let old = rollout.stage();
        let mut next = route.clone();
        if let Some(wanted) = wanted {
            next.plugin = wanted.clone();
        }
        let mut looked = loader.look_again(&next, &old, wanted.is_some()).await;
        // Other settings are taken whole or not at all, and wanted until they are.
        let taken = wanted.is_none() || looked.problems.is_empty();
        match taken {
            true => {
                *route = next;
                *wanted = None;
            }
            false => looked.changed.clear(),
        }
        let report = say(&route.name, rollout, &looked);
        if taken && (!report.replaced.is_empty() || is_less(&old, &looked.stage)) {
            rollout.set(looked.stage);
        }
        report
    }
}

/// Whether something that ran beside the current version is gone.
fn is_less(old: &Stage, new: &Stage) -> bool {
    (old.canary.is_some() && new.canary.is_none()) || (old.shadow.is_some() && new.shadow.is_none())
}

fn say(route: &str, rollout: &Rollout, looked: &Looked) -> Report {
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

/// The state of a route's versions, for people and machines.
pub(crate) fn figures(rollout: &Rollout) -> Figures {
    let stage = rollout.stage();
    let version = |version: &Version| {
        let file = version.label.rsplit_once(" sha256:");
        plugins::Version {
            file: file.map_or(&*version.label, |(file, _)| file).to_owned(),
            sha256: version.digest.to_string(),
        }
    };
    let (replaced, refused) = rollout.counts();
    let Usage {
        running,
        running_memory,
        idle,
        idle_memory,
    } = rollout.usage();
    Figures {
        plugin: rollout.plugin().to_owned(),
        current: version(&stage.current),
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
                version: version(canary.version()),
                share: canary.share().map_or(0.0, |share| share.get()),
                attempts: race.canary.attempts,
                failed: race.canary.failed,
                current_attempts: race.current.attempts,
                current_failed: race.current.failed,
            }
        }),
        shadow: stage.shadow.as_ref().map(|shadow| plugins::Shadow {
            version: version(shadow.version()),
            same: shadow.compared.same.load(Relaxed),
            different: shadow.compared.different.load(Relaxed),
            closed: shadow.compared.closed.load(Relaxed),
            skipped: shadow.compared.skipped.load(Relaxed),
        }),
        recorded: rollout
            .recorded()
            .map(|(kept, left_out)| plugins::Recorded { kept, left_out }),
    }
}
