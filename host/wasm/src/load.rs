//! From a file to a plugin, or to every reason why it is none.

use super::Peer;
use super::Reuse;
use super::capability::folder;
use super::capability::http::{self, Outgoing};
use super::capability::lambda::{Functions, Lent};
use super::capability::queues::{self, Queues};
use super::capability::refusals::{Count, Refusals};
use super::capability::store::{self, Stores};
use super::guest::{Guest, Settings};
use super::idle::Idle;
use super::runtime::{Inner, Runtime};
use super::scene::Witness;
use super::shared::{Recipe, Shared, Sharing};
use super::tally::Tally;
use super::warm::{self, Warm};
use super::world::v0_1::many::ManyPre;
use super::world::{ExportsPre, Way};
use super::{diagnosis, inspect};
use dispatcher_core::files::owner;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use wasmtime::component::{Component, InstancePre};

/// How a plugin is run.
#[derive(Debug, Clone, Default)]
pub struct PluginOptions {
    /// Its name in logs.
    pub name: String,
    /// The most memory of one instance, in bytes; at most the runtime's `max_memory`.
    pub max_memory: usize,
    /// The longest that an attempt may take, to be told to people; its deadline is what counts. Without
    /// it they are told what was left of its time when it began.
    pub timeout: Option<Duration>,
    /// The environment variables that it sees; it sees no others.
    pub env: Vec<(String, String)>,
    /// When instances are used again. Without it every attempt has a fresh one.
    pub reuse: Option<Reuse>,
    /// The most attempts at once in one instance; 0 and 1 both mean one. More needs a plugin whose
    /// `handle` is asynchronous.
    pub instance_concurrency: usize,
    /// The most instances where they take many attempts at once; attempts beyond wait. As many that
    /// take no more and have not ended may be there besides, so the runtime needs room for twice as
    /// many. 0 means one. Without effect otherwise.
    pub shared_instances: usize,
    /// The functions that it may invoke. Without it a plugin that wants any is refused.
    pub lambda: Option<Functions>,
    /// The queues that it may send to. Without it a plugin that wants any is refused.
    pub queues: Option<Queues>,
    /// Where it may connect to.
    pub peers: Vec<Peer>,
    /// Where it may send HTTP requests to. Nowhere else, and a plugin that tries is told.
    pub http: Outgoing,
    /// What it reads as its configuration.
    pub settings: Vec<(String, String)>,
    /// The buckets that it may open.
    pub stores: Stores,
    /// The folder that it may read; it sees it as `/`.
    pub folder: Option<PathBuf>,
    /// Counts what is refused to it.
    pub refused: Count,
    /// Whether what it prints is of interest at level debug alone.
    pub quiet_output: bool,
    /// Who is told where its attempts break off; none is the log.
    pub witness: Option<Arc<dyn Witness>>,
    /// Instances made ahead. None are of commands, which are made for their message, and none where
    /// many attempts share an instance.
    pub warm: Warm,
    /// Counts its instances, with those of whoever else counts here: its other versions.
    pub tally: Arc<Tally>,
}

impl PluginOptions {
    fn lent(&self) -> diagnosis::Lent {
        diagnosis::Lent {
            lambda: self.lambda.is_some(),
            queues: self.queues.is_some(),
        }
    }
}

/// A plugin, ready to run. Cloned by reference.
#[derive(Clone)]
pub struct Plugin {
    pub(super) loaded: Arc<Loaded>,
}

pub(super) struct Loaded {
    pub(super) runtime: Arc<Inner>,
    pub(super) settings: Arc<Settings>,
    pub(super) pre: ExportsPre,
    /// Whether a guest can go on after its answer.
    pub(super) is_async: bool,
    pub(super) imports: Vec<String>,
    /// Where any wait for an attempt.
    pub(super) idle: Option<Arc<Idle>>,
    /// How long making an instance ahead may take.
    pub(super) patience: Duration,
    /// Instead of one instance for each attempt.
    pub(super) shared: Option<Arc<Shared>>,
}

/// Every reason why a file is no plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// The file.
    pub file: PathBuf,
    /// At least one.
    pub problems: Vec<Problem>,
}

/// One reason, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, in one line.
    pub what: String,
    /// What to do about it, where we know.
    pub hint: Option<String>,
}

impl Problem {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: None,
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.hint {
            Some(hint) => write!(out, "{} ({hint})", self.what),
            None => out.write_str(&self.what),
        }
    }
}

/// One line per problem, each with the file.
impl std::fmt::Display for LoadError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let before = if index == 0 { "" } else { "\n" };
            write!(out, "{before}{}: {problem}", self.file.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

impl Runtime {
    /// Compiles the component in a file, or takes it from the cache, and resolves its imports.
    /// Blocks for as long as that takes: milliseconds to many seconds.
    pub fn load(&self, file: &Path, options: PluginOptions) -> Result<Plugin, LoadError> {
        let bytes = inspect::read(file).map_err(|problem| vec![problem]);
        bytes
            .and_then(|bytes| self.try_load(&bytes, options))
            .map_err(|problems| LoadError {
                file: file.to_owned(),
                problems,
            })
    }

    /// The same with a component that is at hand; `name` stands for the file.
    pub fn load_bytes(
        &self,
        name: &str,
        bytes: &[u8],
        options: PluginOptions,
    ) -> Result<Plugin, LoadError> {
        self.try_load(bytes, options).map_err(|problems| LoadError {
            file: name.into(),
            problems,
        })
    }

    fn try_load(&self, bytes: &[u8], options: PluginOptions) -> Result<Plugin, Vec<Problem>> {
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
    ) -> Result<Plugin, Vec<Problem>> {
        if let Some(cache) = &self.inner.cache {
            // What lies in it is run, and it may have changed hands since the start.
            owner::check(cache).map_err(|why| {
                let what = format!("the compiled-plugin cache cannot be trusted any more: {why}");
                vec![Problem::new(what).hint("remove that folder and restart")]
            })?;
        }
        let component = Component::from_binary(&self.inner.engine, bytes).map_err(|error| {
            diagnosis::of_refusal(bytes, options.max_memory, options.lent(), &error)
        })?;
        let (way, pre) = self.resolve(&component, &options)?;
        let is_shared = options.instance_concurrency > 1;
        let idle = match is_shared {
            true => None,
            false => self.idle(way, size, &options),
        };
        let refusals = Arc::new(Refusals::new(options.refused));
        let lent = http::Lent::new(
            &options.name,
            options.http,
            Arc::clone(&refusals),
            self.inner.connections.of_plugin(),
        );
        let control = || self.inner.control.clone();
        let settings = Arc::new(Settings {
            name: options.name,
            env: options.env,
            is_command: way.is_command(),
            max_memory: options.max_memory,
            max_open: self.inner.max_open,
            timeout: options.timeout,
            lambda: options.lambda.map(|lent| Lent::new(lent, control())),
            queues: options
                .queues
                .map(|lent| queues::Lent::new(lent, control())),
            peers: options.peers,
            http: Some(Arc::new(lent)),
            settings: options.settings.into_iter().collect(),
            stores: Some(store::Lent::new(options.stores, control())),
            folder: options.folder.map(folder::Lent::new),
            refusals,
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
        let imports = inspect::imports(&component);
        if is_shared {
            note_waits(&settings.name, &imports);
        }
        let is_async = ManyPre::new(pre.clone()).is_some();
        let pre =
            ExportsPre::new(way, pre).map_err(|error| vec![diagnosis::of_mismatch(&error)])?;
        let loaded = Arc::new(Loaded {
            runtime: Arc::clone(&self.inner),
            settings,
            pre,
            is_async,
            imports,
            idle,
            patience: options.warm.patience,
            shared,
        });
        warm::refill(&loaded);
        Ok(Plugin { loaded })
    }

    /// Instances that take many attempts at once.
    fn share(
        &self,
        sharing: Sharing,
        max_memory: usize,
        settings: &Arc<Settings>,
        pre: &InstancePre<Guest>,
    ) -> Result<Arc<Shared>, Vec<Problem>> {
        let many = ManyPre::new(pre.clone());
        let recipe = Recipe {
            runtime: Arc::clone(&self.inner),
            settings: Arc::clone(settings),
            pre: many.ok_or_else(|| vec![diagnosis::of_taking_turns(sharing.concurrency)])?,
        };
        let spawn = Arc::clone(&self.inner.spawn);
        let shared = Shared::new(sharing, max_memory, recipe, spawn);
        let spare: Weak<Shared> = Arc::downgrade(&shared);
        self.inner.admission.watch(spare);
        Ok(shared)
    }

    /// Where instances wait that are used again or made ahead, if any are.
    fn idle(&self, way: Way, size: usize, options: &PluginOptions) -> Option<Arc<Idle>> {
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
    ) -> Result<(Way, InstancePre<Guest>), Vec<Problem>> {
        let max_memory = options.max_memory;
        let mut problems = diagnosis::of_component(component, options.lent());
        problems.extend(diagnosis::of_needs(component, max_memory));
        if max_memory > self.inner.max_memory {
            let most = self.inner.max_memory;
            let what = format!("{max_memory} bytes of memory wanted, {most} reserved");
            problems.push(Problem::new(what));
        }
        if let Some(folder) = &options.folder
            && let Err(why) = folder::check(folder)
        {
            problems.push(Problem::new(why).hint("make it, or leave --allow-read out"));
        }
        let way = Way::of(component);
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
    const HOLD: [&str; 2] = ["wasi:http/outgoing-handler", "wasi:keyvalue/"];
    let holds = |import: &&String| HOLD.iter().any(|hold| import.starts_with(hold));
    if let Some(import) = imports.iter().find(holds) {
        tracing::info!(
            plugin,
            "a call of {import} holds the whole instance, with all messages that share it by `instance-concurrency`"
        );
    }
}

impl Plugin {
    /// The name that it was loaded under.
    pub fn name(&self) -> &str {
        &self.loaded.settings.name
    }

    /// The names of what it imports.
    pub fn imports(&self) -> Vec<String> {
        self.loaded.imports.clone()
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Plugin({})", self.name())
    }
}
