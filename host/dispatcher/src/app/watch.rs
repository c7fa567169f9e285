//! Reports when a watched file may have changed: at once if the system notifies, otherwise every
//! few seconds. Reads no file, and does not wait long for a file system.

use dispatcher_core::files::bounded;
use dispatcher_core::{clock, tasks};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The interval of checks without notifications: some file systems send none.
const LOOK: Duration = Duration::from_secs(5);
/// The time without a change after which a file counts as written: it is written in many steps.
const QUIET: Duration = Duration::from_millis(100);
/// The maximum time to wait for that.
const BUSY: Duration = Duration::from_secs(2);

/// The state of a file when it was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FileSnapshot {
    /// The file does not exist, or is not accessible.
    Absent,
    /// Its file system did not answer.
    Stalled,
    Present(Version),
}

/// Device and inode number, size, and the times of the last changes of content and metadata.
type Version = (u64, u64, u64, i64, i64, i64, i64);

/// Watches some files.
pub(crate) struct FileWatch {
    told: Arc<Notify>,
    files: Vec<(PathBuf, FileSnapshot)>,
    /// Watches the folders, because the file of a name may be replaced at any moment.
    watcher: Option<RecommendedWatcher>,
}

impl FileWatch {
    pub(crate) fn new() -> Self {
        Self {
            told: Arc::new(Notify::new()),
            files: Vec::new(),
            watcher: None,
        }
    }

    /// Watches these files from now on, starting with their current state.
    pub(crate) async fn on(&mut self, files: Vec<PathBuf>) {
        let seen = look(files.clone()).await;
        self.files = files.into_iter().zip(seen).collect();
        self.watcher = None;
        let folders: BTreeSet<PathBuf> = self.files.iter().map(|(file, _)| folder(file)).collect();
        if folders.is_empty() {
            return;
        }
        let told = self.told.clone();
        let begin = tasks::blocking(move || watcher(told, &folders));
        match begin.finished().await {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => tracing::warn!(
                error,
                every = ?LOOK,
                "cannot watch the folders of plugins; polling them instead"
            ),
        }
    }

    /// Returns the files that changed, once no change has followed for a moment. Cancel-safe.
    pub(crate) async fn changed(&mut self) -> Vec<PathBuf> {
        while !self.is_other().await {
            let now = clock::now();
            tokio::select! {
                // Other files in the folders may change without a pause.
                () = self.told.notified() => clock::sleep_until(Some(now + QUIET)).await,
                () = clock::sleep_until(Some(now + LOOK)) => {}
            }
        }
        self.quiet().await;
        // A change during this check is reported the next time.
        let now = self.look().await;
        let mut changed = Vec::new();
        for ((file, seen), now) in self.files.iter_mut().zip(now) {
            if *seen != now {
                *seen = now;
                changed.push(file.clone());
            }
        }
        changed
    }

    async fn look(&self) -> Vec<FileSnapshot> {
        look(self.files.iter().map(|(file, _)| file.clone()).collect()).await
    }

    async fn is_other(&self) -> bool {
        let now = self.look().await;
        self.files.iter().map(|(_, seen)| seen).ne(&now)
    }

    /// Waits until none of the files has changed for a while.
    async fn quiet(&self) {
        let latest = clock::now() + BUSY;
        loop {
            let before = self.look().await;
            clock::sleep_until(Some(clock::now() + QUIET)).await;
            if self.look().await == before || clock::now() >= latest {
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

/// Notifies of changes in these folders.
fn watcher(told: Arc<Notify>, folders: &BTreeSet<PathBuf>) -> Result<RecommendedWatcher, String> {
    let made = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            told.notify_one();
        }
    });
    let mut watcher = made.map_err(|error| error.to_string())?;
    for folder in folders {
        let at = folder.clone();
        let watched = bounded::within(folder, move || {
            let watched = watcher.watch(&at, RecursiveMode::NonRecursive);
            watched.map(|()| watcher)
        })
        .map_err(|error| format!("{}: {error}", folder.display()))?;
        watcher = watched.map_err(|error| error.to_string())?;
    }
    Ok(watcher)
}

/// Follows links, since the target would be read. Waits only once for a file system that does not
/// answer, not at every check.
async fn look(files: Vec<PathBuf>) -> Vec<FileSnapshot> {
    let looked = tasks::blocking(move || files.iter().map(|file| seen(file)).collect());
    looked.finished().await
}

fn seen(file: &Path) -> FileSnapshot {
    match bounded::about(file) {
        Ok(about) => FileSnapshot::Present(version(&about)),
        Err(error) if error.is_stall() => FileSnapshot::Stalled,
        Err(_) => FileSnapshot::Absent,
    }
}

fn version(about: &Metadata) -> Version {
    (
        about.dev(),
        about.ino(),
        about.len(),
        about.mtime(),
        about.mtime_nsec(),
        about.ctime(),
        about.ctime_nsec(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn written_replaced_or_created_file_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), "1").expect("written");
        let mut watch = FileWatch::new();
        watch.on(vec![path("a"), path("b")]).await;
        std::fs::write(path("a"), "22").expect("written");
        assert_eq!(watch.changed().await, [path("a")]);
        std::fs::write(path("new"), "3").expect("written");
        std::fs::rename(path("new"), path("a")).expect("renamed");
        assert_eq!(watch.changed().await, [path("a")]);
        std::fs::write(path("b"), "4").expect("written");
        assert_eq!(watch.changed().await, [path("b")]);
        assert!(!watch.is_other().await);
        std::fs::write(path("stranger"), "5").expect("written");
        assert!(!watch.is_other().await);
    }

    #[tokio::test]
    async fn retargeted_symbolic_link_is_noticed() {
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
        let mut watch = FileWatch::new();
        watch.on(vec![path("a")]).await;
        symlink("2", path("..next")).expect("linked");
        std::fs::rename(path("..next"), path("..data")).expect("renamed");
        assert_eq!(watch.changed().await, [path("a")]);
        assert!(!watch.is_other().await);
    }
}
