//! The source files of a project, and changes in them. Compares contents, so that a file that a
//! build rewrites with the same contents does not count as changed.

use crate::app::watch::FileWatch;
use crate::cli::output;
use dispatcher_core::tasks;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folders that builds write.
const OUTPUTS: [&str; 5] = ["target", "node_modules", "build", "dist", "__pycache__"];
/// The lock files of packages, which builds also write.
const LOCKS: [&str; 3] = ["Cargo.lock", "package-lock.json", "go.sum"];
/// The maximum number of watched files; a project with more is not a handler.
const MOST_FILES: usize = 10_000;
/// The size above which only the length of a file is compared.
const LARGEST: u64 = 4 * 1024 * 1024;

/// The contents of a file, or its length.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Digest([u8; 32]),
    Length(u64),
}

/// The content of a project's folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Snapshot {
    files: BTreeMap<PathBuf, Content>,
    /// The folders: adding or removing a file changes its folder.
    folders: Vec<PathBuf>,
    /// The targets of links to files, which change elsewhere.
    targets: Vec<PathBuf>,
    /// The lock files of packages, which are not watched.
    locks: BTreeMap<PathBuf, Content>,
    /// Descriptions of possible sources that are not watched.
    left_out: Vec<String>,
}

/// The sources of one project.
pub(super) struct Sources {
    root: PathBuf,
    seen: Snapshot,
    watch: FileWatch,
}

impl Sources {
    /// Reads their current state.
    pub(super) async fn of(root: &Path) -> Self {
        let mut sources = Self {
            root: root.to_owned(),
            seen: Snapshot::default(),
            watch: FileWatch::new(),
        };
        sources.seen = sources.look().await;
        sources.seen.note_left_out(&Snapshot::default());
        sources.watch.on(sources.seen.paths()).await;
        sources
    }

    /// Waits for a change since the last call, and returns the names of the changed files,
    /// including those that changed before this call. Cancel-safe.
    pub(super) async fn changed(&mut self) -> Vec<String> {
        loop {
            let now = self.look().await;
            let changed = self.seen.changed(&now, &self.root);
            if now != self.seen {
                now.note_left_out(&self.seen);
                self.watch.on(now.paths()).await;
                self.seen = now;
            }
            if !changed.is_empty() {
                return changed;
            }
            self.watch.changed().await;
        }
    }

    /// Returns the current contents of all sources and lock files. Returns `None` if a source changed
    /// since the last call of `changed`, or if the contents are not fully known.
    pub(super) async fn contents(&self) -> Option<BTreeMap<PathBuf, [u8; 32]>> {
        let now = self.look().await;
        if now.files != self.seen.files || !now.left_out.is_empty() {
            return None;
        }
        let all = now.files.into_iter().chain(now.locks);
        let known = all.map(|(file, content)| match content {
            Content::Digest(digest) => Some((file, digest)),
            Content::Length(_) => None,
        });
        known.collect()
    }

    async fn look(&self) -> Snapshot {
        let root = self.root.clone();
        tasks::blocking(move || Snapshot::of(&root))
            .finished()
            .await
    }
}

impl Snapshot {
    fn of(root: &Path) -> Self {
        let mut found = Self::default();
        let mut beyond = 0;
        let mut open = vec![root.to_owned()];
        while let Some(folder) = open.pop() {
            let entries = folder.read_dir().into_iter().flatten().flatten();
            for entry in entries {
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                let (path, Ok(kind)) = (entry.path(), entry.file_type()) else {
                    continue;
                };
                let is_hidden = name.starts_with('.') || name.ends_with('~');
                if is_hidden || OUTPUTS.contains(&name) && !kind.is_file() {
                    continue;
                }
                if kind.is_dir() {
                    open.push(path);
                } else if kind.is_symlink() && path.is_dir() {
                    // It may lead back, or to a whole disk.
                    let link = path.strip_prefix(root).unwrap_or(&path).display();
                    found.left_out.push(format!("{link}: a link to a folder"));
                } else if !path.is_file() {
                    continue;
                } else if LOCKS.contains(&name) {
                    found
                        .locks
                        .extend(content(&path).map(|content| (path, content)));
                } else if found.files.len() == MOST_FILES {
                    beyond += 1;
                } else if let Some(content) = content(&path) {
                    let target = kind.is_symlink().then(|| path.canonicalize().ok());
                    found.targets.extend(target.flatten());
                    found.files.insert(path, content);
                }
            }
            found.folders.push(folder);
        }
        found.folders.sort();
        found.targets.sort();
        found.left_out.sort();
        if beyond > 0 {
            let line = format!("{beyond} files beyond the first {MOST_FILES}");
            found.left_out.push(line);
        }
        found
    }

    /// Prints what is not watched, unless it was already printed.
    fn note_left_out(&self, before: &Self) {
        for one in &self.left_out {
            if !before.left_out.contains(one) {
                output::note(format!("not watched: {one}"));
            }
        }
    }

    /// Returns the paths to watch.
    fn paths(&self) -> Vec<PathBuf> {
        let paths = self.files.keys().chain(&self.folders);
        paths.chain(&self.targets).cloned().collect()
    }

    /// Returns the names of the changed, new and removed files.
    fn changed(&self, now: &Self, root: &Path) -> Vec<String> {
        let before = self
            .files
            .keys()
            .filter(|file| !now.files.contains_key(*file));
        let after = now
            .files
            .iter()
            .filter(|(file, content)| self.files.get(*file) != Some(content));
        let changed = before
            .chain(after.map(|(file, _)| file))
            .map(|file| file.strip_prefix(root).unwrap_or(file));
        changed.map(|file| file.display().to_string()).collect()
    }
}

fn content(file: &Path) -> Option<Content> {
    let length = file.metadata().ok()?.len();
    if length > LARGEST {
        return Some(Content::Length(length));
    }
    let bytes = std::fs::read(file).ok()?;
    Some(Content::Digest(Sha256::digest(bytes).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn write(root: &Path, name: &str, text: &str) {
        let file = root.join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, text).expect("written");
    }

    #[test]
    fn outputs_locks_and_hidden_files_are_not_sources() {
        let root = tempfile::tempdir().expect("a folder");
        for name in [
            "src/lib.rs",
            "handler.py",
            "target/x.rs",
            "node_modules/a/b.js",
            ".venv/lib.py",
            "build/a.wasm",
            "Cargo.lock",
            "lib.rs~",
        ] {
            write(root.path(), name, "1");
        }
        let found = Snapshot::default().changed(&Snapshot::of(root.path()), root.path());
        assert_eq!(found, ["handler.py", "src/lib.rs"]);
    }

    #[test]
    fn a_change_is_another_content_a_new_file_or_a_missing_one() {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path(), "a", "1");
        write(root.path(), "b", "1");
        let before = Snapshot::of(root.path());
        write(root.path(), "a", "1");
        assert_eq!(before, Snapshot::of(root.path()));
        write(root.path(), "a", "2");
        write(root.path(), "src/new", "1");
        std::fs::remove_file(root.path().join("b")).expect("removed");
        let after = Snapshot::of(root.path());
        assert_eq!(before.changed(&after, root.path()), ["b", "a", "src/new"]);
    }

    #[tokio::test]
    async fn a_link_to_a_file_is_watched_where_it_leads_and_one_to_a_folder_is_named() {
        let (root, other) = (tempfile::tempdir(), tempfile::tempdir());
        let (root, other) = (root.expect("a folder"), other.expect("a folder"));
        write(other.path(), "shared.py", "1");
        for (name, target) in [
            ("shared.py", other.path().join("shared.py")),
            ("lib", other.path().to_owned()),
            ("broken", other.path().join("none")),
        ] {
            std::os::unix::fs::symlink(target, root.path().join(name)).expect("linked");
        }
        let mut sources = Sources::of(root.path()).await;
        assert_eq!(sources.seen.left_out, ["lib: a link to a folder"]);
        write(other.path(), "shared.py", "2");
        assert_eq!(sources.changed().await, ["shared.py"]);
    }

    #[tokio::test]
    async fn changes_are_noticed_also_those_between_two_calls() {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path(), "src/a", "1");
        let mut sources = Sources::of(root.path()).await;
        write(root.path(), "src/a", "2");
        assert_eq!(sources.changed().await, ["src/a"]);
        write(root.path(), "src/deep/b", "1");
        assert_eq!(sources.changed().await, ["src/deep/b"]);
        let none = tokio::time::timeout(Duration::from_millis(1), sources.changed()).await;
        assert!(none.is_err());
        write(root.path(), "src/deep/b", "2");
        assert_eq!(sources.changed().await, ["src/deep/b"]);
    }
}
