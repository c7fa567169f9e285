//! `dispatcher plugin build`: run the tools of a project's language to build a component, and check
//! it. One file per language; knows none of the tools itself.

mod adapter;
mod c;
mod go;
mod node;
mod python;
mod rust;
mod tool;

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
    /// Absolute.
    pub(in crate::cli) folder: PathBuf,
    /// The folder's name.
    name: String,
}

/// Builds, looks at what came of it, and prints where it lies.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let project = Project::open(&args.folder)?;
    let lang = project.language(args.lang)?;
    output::line(project.build(lang)?.display().to_string())
}

impl Project {
    pub(in crate::cli) fn open(folder: &Path) -> Result<Self, Failure> {
        let unusable = |why: &dyn std::fmt::Display| {
            let what = format!("{}: {why}; wanted a project's folder", folder.display());
            Failure::new(Exit::Usage, what)
        };
        let at = folder.canonicalize().map_err(|error| unusable(&error))?;
        let name = at.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| unusable(&"it has no name"))?.to_owned();
        Ok(Self { folder: at, name })
    }

    /// The names of what is in one of its folders, sorted; none if there is no such folder.
    fn names(&self, below: &str) -> Vec<String> {
        let entries = self.folder.join(below).read_dir();
        let entries = entries.into_iter().flatten().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// The language that was asked for, or the one that the files are of.
    pub(in crate::cli) fn language(&self, asked: Option<Language>) -> Result<Language, Failure> {
        if let Some(lang) = asked {
            return Ok(lang);
        }
        Language::of(&self.names("")).map_err(|why| {
            let what = format!("{}: {why}", self.folder.display());
            Failure::new(Exit::Usage, what)
        })
    }

    /// Builds, and looks at what came of it. Returns where it lies. Blocks while tools run.
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

    /// Where the component goes, unless cargo is told otherwise.
    pub(in crate::cli) fn usual_component(&self, lang: Language) -> PathBuf {
        lang.component(&self.folder, &self.name)
    }

    /// Has the component made beside its place, and puts it there once it is whole: whoever watches
    /// the place reads no part of one, also where the build is killed.
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

/// A compiler made a core module of this project; puts the component in its place.
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

/// Says what was built; an error if no host would take it.
fn look_at(component: &Path) -> Result<(), Failure> {
    let found = inspect::file(component).map_err(|why| failed(component, &why))?;
    if !found.problems.is_empty() {
        let lines = found.problems.iter();
        let lines = lines.map(|why| format!("{}: {why}", component.display()));
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
