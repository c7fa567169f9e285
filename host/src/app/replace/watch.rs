//! Says when one of some files may have changed: at once where the system tells, every few seconds
//! otherwise. Reads none of them.

use crate::clock;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Files are looked at so often where nothing is told: some file systems tell nothing.
const LOOK: Duration = Duration::from_secs(5);
/// After a change the next ones are waited for so long: a file is written in many steps.
const QUIET: Duration = Duration::from_millis(100);
/// But no longer than this.
const BUSY: Duration = Duration::from_secs(2);

/// What a file was like when it was looked at. None where there was none.
type Seen = Option<(u64, u64, u64, i64, i64, i64, i64)>;

/// Watches some files.
pub(super) struct Watch {
    told: Arc<Notify>,
    files: Vec<(PathBuf, Seen)>,
    /// Of the folders; by name a file may be another at any moment.
    watcher: Option<RecommendedWatcher>,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            told: Arc::new(Notify::new()),
            files: Vec::new(),
            watcher: None,
        }
    }

    /// Watches these files from now on, as they are now.
    pub(super) fn on(&mut self, files: Vec<PathBuf>) {
        let looked = files.into_iter().map(|file| {
            let seen = look(&file);
            (file, seen)
        });
        self.files = looked.collect();
        self.watcher = None;
        let folders: BTreeSet<PathBuf> = self.files.iter().map(|(file, _)| folder(file)).collect();
        if folders.is_empty() {
            return;
        }
        let told = self.told.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !event.kind.is_access()) {
                told.notify_one();
            }
        })
        .and_then(|mut watcher| {
            for folder in &folders {
                watcher.watch(folder, RecursiveMode::NonRecursive)?;
            }
            Ok(watcher)
        });
        match watcher {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => tracing::warn!(
                %error,
                "cannot watch the folders of plugins; looking every {LOOK:?} instead"
            ),
        }
    }

    /// Returns when one of the files is not what it was, and has been left alone for a moment. Safe
    /// to drop and ask again.
    pub(super) async fn changed(&mut self) {
        while !self.is_other() {
            let now = clock::now();
            tokio::select! {
                // Others may write beside them without a pause.
                () = self.told.notified() => clock::sleep_until(Some(now + QUIET)).await,
                () = clock::sleep_until(Some(now + LOOK)) => {}
            }
        }
        self.quiet().await;
        // What changes while it is read is told again.
        for (file, seen) in &mut self.files {
            *seen = look(file);
        }
    }

    fn is_other(&self) -> bool {
        self.files.iter().any(|(file, seen)| look(file) != *seen)
    }

    /// Returns when none of the files has changed for a while.
    async fn quiet(&self) {
        let latest = clock::now() + BUSY;
        let look_at_all = || self.files.iter().map(|(file, _)| look(file));
        loop {
            let before: Vec<Seen> = look_at_all().collect();
            clock::sleep_until(Some(clock::now() + QUIET)).await;
            if look_at_all().eq(before) || clock::now() >= latest {
                return;
            }
        }
    }
}

fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if folder.as_os_str().is_empty() => PathBuf::from("."),
        Some(folder) => folder.to_owned(),
        None => PathBuf::from("/"),
    }
}

/// Follows links: what counts is what would be read.
fn look(file: &Path) -> Seen {
    let about = std::fs::metadata(file).ok()?;
    Some((
        about.dev(),
        about.ino(),
        about.len(),
        about.mtime(),
        about.mtime_nsec(),
        about.ctime(),
        about.ctime_nsec(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_written_replaced_or_made_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), "1").expect("written");
        let mut watch = Watch::new();
        watch.on(vec![path("a"), path("b")]);
        std::fs::write(path("a"), "22").expect("written");
        watch.changed().await;
        std::fs::write(path("new"), "3").expect("written");
        std::fs::rename(path("new"), path("a")).expect("renamed");
        watch.changed().await;
        std::fs::write(path("b"), "4").expect("written");
        watch.changed().await;
        assert!(!watch.is_other());
        std::fs::write(path("stranger"), "5").expect("written");
        assert!(!watch.is_other());
    }

    #[tokio::test]
    async fn a_link_that_is_turned_elsewhere_is_told() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for version in ["1", "2"] {
            std::fs::create_dir(path(version)).expect("made");
            std::fs::write(path(version).join("a"), version).expect("written");
        }
        // As Kubernetes mounts what it may change: a link in a linked folder.
        symlink("1", path("..data")).expect("linked");
        symlink("..data/a", path("a")).expect("linked");
        let mut watch = Watch::new();
        watch.on(vec![path("a")]);
        symlink("2", path("..next")).expect("linked");
        std::fs::rename(path("..next"), path("..data")).expect("renamed");
        watch.changed().await;
        assert!(!watch.is_other());
    }
}
