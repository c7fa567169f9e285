//! `dispatcher plugin build`: runs the tools of a project's language to build a component, and
//! checks it. There is one file per language; this one knows none of the tools.

mod adapter;
mod bundle;
mod c;
mod go;
mod imports;
mod node;
mod python;
mod rust;
mod tool;

#[cfg(feature = "local")]
pub(in crate::cli) use adapter::ProjectWorld;
#[cfg(feature = "local")]
pub(in crate::cli) use tool::{begin, cancel, end};

use super::language::Language;
use crate::cli::output;
use crate::error::{Exit, Failure};
use dispatcher_wasm::{inspect, wrap};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  dispatcher plugin build
  dispatcher plugin build orders
  dispatcher plugin invoke $(dispatcher plugin build orders) 'hello'

The language is detected by the project's files: Cargo.toml is Rust, package.json JavaScript, with
tsconfig.json TypeScript, app.py Python, go.mod Go, a .c file C. Prints the component's path; what
the tools print goes to stderr.

Exits with 3 if a tool is missing, with what to install, and with 1 if a tool failed or its output
is not a plugin.";

/// Build a plugin with the tools of its language
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The project's folder
    #[arg(value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// The language, if the folder has files of several
    #[arg(long, value_enum)]
    pub lang: Option<Language>,
}

/// A folder with sources.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Project {
    /// The absolute path.
    pub(in crate::cli) folder: PathBuf,
    /// The folder's name.
    name: String,
}

/// Builds and checks the component, and prints its path.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let project = Project::open(&args.folder)?;
    let lang = project.language(args.lang)?;
    output::line(project.build(lang)?.display().to_string())
}

impl Project {
    pub(in crate::cli) fn open(folder: &Path) -> Result<Self, Failure> {
        let at = folder
            .canonicalize()
            .map_err(|error| unusable(folder, &error))?;
        let name = at
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| unusable(folder, &"it has no name"))?
            .to_owned();
        Ok(Self { folder: at, name })
    }

    /// Returns the folder's name.
    #[cfg(feature = "local")]
    pub(in crate::cli) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the sorted names of the entries of one of its folders, or nothing if there is no
    /// such folder.
    fn names(&self, below: &str) -> Vec<String> {
        let entries = self
            .folder
            .join(below)
            .read_dir()
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Returns the requested language, or the one detected from the files.
    pub(in crate::cli) fn language(&self, asked: Option<Language>) -> Result<Language, Failure> {
        if let Some(lang) = asked {
            return Ok(lang);
        }
        Language::of(&self.names("")).map_err(|why| {
            let what = format!("{}: {why}", self.folder.display());
            Failure::new(Exit::Usage, what)
        })
    }

    /// Builds and checks the component. Returns its path. Blocks while tools run.
    pub(in crate::cli) fn build(&self, lang: Language) -> Result<PathBuf, Failure> {
        let component = match lang {
            Language::Rust => rust::build(self),
            Language::JavaScript => node::build(self, false),
            Language::TypeScript => node::build(self, true),
            Language::Python => python::build(self),
            Language::Go => go::build(self),
            Language::C => c::build(self),
        }?;
        look_at(&component)?;
        Ok(component)
    }

    /// Returns the default path of the component; cargo can be configured otherwise.
    pub(in crate::cli) fn usual_component(&self, lang: Language) -> PathBuf {
        lang.component(&self.folder, &self.name)
    }

    /// Builds the component beside its path and moves it there once it is complete: a watcher of
    /// the path never reads a partial file, even if the build is killed.
    fn place(
        &self,
        lang: Language,
        make: impl FnOnce(&Path) -> Result<(), Failure>,
    ) -> Result<PathBuf, Failure> {
        let component = self.usual_component(lang);
        let folder = component.parent().expect("it lies in the project");
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        let partial = component.with_extension("partial.wasm");
        make(&partial)?;
        std::fs::rename(&partial, &component).map_err(|error| failed(&component, &error))?;
        Ok(component)
    }
}

fn unusable(folder: &Path, why: &dyn std::fmt::Display) -> Failure {
    let what = format!("{}: {why}; wanted a project's folder", folder.display());
    Failure::new(Exit::Usage, what)
}

/// Wraps the core module that a compiler built of this project, and moves the component to its
/// path.
fn wrapped(
    project: &Project,
    lang: Language,
    core: impl FnOnce(&Path) -> Result<Vec<u8>, Failure>,
) -> Result<PathBuf, Failure> {
    project.place(lang, |component| {
        let file = component.with_extension("core.wasm");
        let module = core(&file)?;
        let bytes = wrap::component(&module).map_err(|why| failed(&file, &why))?;
        std::fs::write(component, bytes).map_err(|error| failed(component, &error))?;
        std::fs::remove_file(&file).map_err(|error| failed(&file, &error))
    })
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| failed(file, &error))
}

fn failed(file: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, format!("{}: {why}", file.display()))
}

/// Prints a description of the component.
///
/// # Errors
/// Fails if no host would accept it.
fn look_at(component: &Path) -> Result<(), Failure> {
    let found = inspect::file(component).map_err(|why| failed(component, &why))?;
    if !found.problems.is_empty() {
        let lines = found
            .problems
            .iter()
            .map(|why| format!("{}: {why}", component.display()));
        return Err(Failure {
            exit: Exit::Failed,
            lines: lines.collect(),
        });
    }
    let size = bytesize::ByteSize::b(found.size as u64);
    output::note(format!("built {}, {size}", found.kind));
    Ok(())
}

#[cfg(test)]
mod tests;
