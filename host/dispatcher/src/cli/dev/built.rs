//! Remembers what the last build of a project was made of, so that a start does not build again what
//! did not change. Compares contents: times say little after a checkout or a copy.

use super::sources::Sources;
use crate::cli::plugin::build::Project;
use crate::cli::plugin::language::Language;
use dispatcher_core::files;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The variables that decide which tools a build runs.
const TOOLS: [&str; 2] = ["PATH", "WASI_SDK_PATH"];

/// The record of the last build, in a file beside the component.
pub(super) struct BuildRecord {
    pub(super) component: PathBuf,
    root: PathBuf,
    lang: Language,
    /// This program, which holds the adapters.
    program: PathBuf,
}

impl BuildRecord {
    pub(super) fn of(project: &Project, lang: Language) -> Self {
        Self {
            component: project.usual_component(lang),
            root: project.folder.clone(),
            lang,
            // An empty path has no version, so nothing is recorded.
            program: std::env::current_exe().unwrap_or_default(),
        }
    }

    /// Whether the component was built of these sources, by this program and these tools.
    pub(super) async fn is_of(&self, sources: &Sources) -> bool {
        let kept = std::fs::read_to_string(self.file()).ok();
        kept.is_some() && kept == self.digest(sources).await
    }

    /// Records that the component was built of these sources. If a source changed during the build,
    /// or the record cannot be written, the next start builds again.
    pub(super) async fn keep(&self, sources: &Sources) {
        if let Some(digest) = self.digest(sources).await {
            let _ = std::fs::write(self.file(), digest);
        }
    }

    fn file(&self) -> PathBuf {
        self.component.with_extension("built")
    }

    /// Returns a digest of everything that a build depends on, and of the component's version.
    /// Returns `None` if something is unknown.
    async fn digest(&self, sources: &Sources) -> Option<String> {
        // Cargo itself compiles only what changed, and knows the sources outside of the folder.
        if self.lang == Language::Rust {
            return None;
        }
        let contents = sources.contents().await?;
        let program = version(&self.program)?;
        let component = version(&self.component)?;
        let tools = TOOLS.map(std::env::var_os);
        let packages = installed(&self.root);
        let lang = self.lang.name();
        let all = (contents, program, component, tools, packages, lang);
        Some(files::digest(format!("{all:?}").as_bytes()))
    }
}

/// Returns the time of the last change of a file or folder, and its size.
fn version(path: &Path) -> Option<(SystemTime, u64)> {
    let about = path.metadata().ok()?;
    Some((about.modified().ok()?, about.len()))
}

/// Returns the versions of what npm and pip write when they install packages.
fn installed(root: &Path) -> Vec<Option<(SystemTime, u64)>> {
    let pythons = root.join(".venv/lib").read_dir().into_iter().flatten();
    let mut written: Vec<_> = pythons
        .flatten()
        .map(|python| python.path().join("site-packages"))
        .collect();
    written.sort();
    written.push(root.join("node_modules/.package-lock.json"));
    written.iter().map(|path| version(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let file = root.join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, text).expect("written");
    }

    #[tokio::test]
    async fn record_is_of_the_sources_the_component_the_program_and_the_packages() {
        let (root, other) = (tempfile::tempdir(), tempfile::tempdir());
        let (root, other) = (root.expect("a folder"), other.expect("a folder"));
        let program = other.path().join("dispatcher");
        std::fs::write(&program, "1").expect("written");
        let mut record = BuildRecord {
            program: program.clone(),
            ..BuildRecord::of(&Project::open(root.path()).expect("ours"), Language::Python)
        };
        let component = record.component.display().to_string();
        write(root.path(), "app.py", "1");
        write(root.path(), &component, "1");
        let sources = Sources::of(root.path()).await;
        assert!(!record.is_of(&sources).await, "it is not recorded");
        for changed in [
            "requirements.txt",
            "wit/world.wit",
            "go.sum",
            &component,
            ".venv/lib/python3.13/site-packages/yaml.py",
            "node_modules/.package-lock.json",
        ] {
            let sources = Sources::of(root.path()).await;
            record.keep(&sources).await;
            assert!(record.is_of(&sources).await, "{changed}");
            write(root.path(), changed, "another");
            let sources = Sources::of(root.path()).await;
            assert!(!record.is_of(&sources).await, "{changed}");
        }
        let sources = Sources::of(root.path()).await;
        record.keep(&sources).await;
        std::fs::write(&program, "newer").expect("written");
        assert!(!record.is_of(&sources).await, "the program");
        record.keep(&sources).await;
        record.lang = Language::Go;
        assert!(!record.is_of(&sources).await, "the language");
    }

    #[tokio::test]
    async fn nothing_is_recorded_if_a_source_changed_or_is_not_watched() {
        let (root, other) = (tempfile::tempdir(), tempfile::tempdir());
        let (root, other) = (root.expect("a folder"), other.expect("a folder"));
        let project = Project::open(root.path()).expect("ours");
        let record = BuildRecord::of(&project, Language::Python);
        let component = record.component.display().to_string();
        write(root.path(), "app.py", "1");
        write(root.path(), &component, "1");
        let sources = Sources::of(root.path()).await;
        write(root.path(), "app.py", "changed during the build");
        record.keep(&sources).await;
        let link = root.path().join("lib");
        std::os::unix::fs::symlink(other.path(), link).expect("linked");
        record.keep(&Sources::of(root.path()).await).await;
        assert!(!record.file().exists());
    }
}
