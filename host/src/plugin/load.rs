//! From a file to a plugin, or to every reason why it is none.

use super::Reuse;
use super::guest::Settings;
use super::instance::Idle;
use super::runtime::{Inner, Runtime};
use super::world::v0_1::ExportsPre;
use super::{diagnosis, inspect};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wasmtime::component::Component;

/// How a plugin is run.
#[derive(Debug, Clone, Default)]
pub struct PluginOptions {
    /// Its name in logs.
    pub name: String,
    /// The most memory of one instance, in bytes; at most the runtime's `max_memory`.
    pub max_memory: usize,
    /// The environment variables that it sees; it sees no others.
    pub env: Vec<(String, String)>,
    /// When instances are used again. Without it every attempt has a fresh one.
    pub reuse: Option<Reuse>,
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
    pub(super) idle: Option<Arc<Idle>>,
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
        self.try_load(file, options).map_err(|problems| LoadError {
            file: file.to_owned(),
            problems,
        })
    }

    fn try_load(&self, file: &Path, options: PluginOptions) -> Result<Plugin, Vec<Problem>> {
        let bytes = inspect::read(file).map_err(|problem| vec![problem])?;
        diagnosis::of_bytes(&bytes).map_err(|problem| vec![problem])?;
        let component = Component::from_binary(&self.inner.engine, &bytes)
            .map_err(|error| diagnosis::of_refusal(&bytes, options.max_memory, &error))?;
        let pre = self.resolve(&component, options.max_memory)?;
        let idle = options.reuse.map(|reuse| Arc::new(Idle::new(reuse)));
        if let Some(idle) = &idle {
            self.inner.watch(idle);
        }
        let settings = Settings {
            name: options.name,
            env: options.env,
            max_memory: options.max_memory,
        };
        Ok(Plugin {
            loaded: Arc::new(Loaded {
                runtime: Arc::clone(&self.inner),
                settings: Arc::new(settings),
                pre,
                idle,
            }),
        })
    }

    fn resolve(
        &self,
        component: &Component,
        max_memory: usize,
    ) -> Result<ExportsPre, Vec<Problem>> {
        let mut problems = diagnosis::of_component(component);
        problems.extend(diagnosis::of_needs(component, max_memory));
        if max_memory > self.inner.max_memory {
            let most = self.inner.max_memory;
            let what = format!("{max_memory} bytes of memory wanted, {most} reserved");
            problems.push(Problem::new(what));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let mismatch = |error| vec![diagnosis::of_mismatch(&error)];
        let pre = self
            .inner
            .linker
            .instantiate_pre(component)
            .map_err(mismatch)?;
        ExportsPre::new(pre).map_err(mismatch)
    }
}

impl Plugin {
    /// The name that it was loaded under.
    pub fn name(&self) -> &str {
        &self.loaded.settings.name
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Plugin({})", self.name())
    }
}
