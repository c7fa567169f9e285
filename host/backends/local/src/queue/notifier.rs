//! Wakes the receivers of other processes: a file that senders write to after their commit and that
//! receivers watch. Only a hint: a sender that was killed in between has not notified, and the
//! writer's slow poll finds what it sent. Knows neither SQL nor queues.

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::fs::File;
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The notifier of one store.
pub(super) struct FileNotifier {
    /// Without one there is no other process.
    file: Option<(PathBuf, File)>,
    ears: Arc<NotifierFlags>,
    // Kept for its Drop, which ends the watch.
    watch: Option<RecommendedWatcher>,
    tried: bool,
}

/// What the watcher's thread reads before it disturbs anybody.
#[derive(Default)]
struct NotifierFlags {
    /// Somebody waits.
    open: AtomicBool,
    /// A ring has been passed on and not been looked into yet.
    ringing: AtomicBool,
}

impl FileNotifier {
    /// A notifier that nobody watches yet. `file` is open for writing.
    pub(super) fn new(path: PathBuf, file: File) -> Self {
        Self {
            file: Some((path, file)),
            ..Self::alone()
        }
    }

    /// A notifier that notifies nobody, of a store that no other process can open.
    pub(super) fn alone() -> Self {
        Self {
            file: None,
            ears: Arc::default(),
            watch: None,
            tried: false,
        }
    }

    /// Wakes whoever watches. Failing is no error: they look by themselves, later.
    pub(super) fn notify(&mut self) {
        let Some((path, file)) = &mut self.file else {
            return;
        };
        let rung = file.rewind().and_then(|()| file.write_all(b"!"));
        if let Err(error) = rung {
            tracing::debug!(%error, path = %path.display(), "cannot notify other processes");
        }
    }

    /// Whether notifications should be passed on from now.
    pub(super) fn listen(&self, open: bool) {
        self.ears.open.store(open, Ordering::SeqCst);
    }

    /// Says that the last ring is being looked into: the next one is news.
    pub(super) fn acknowledge(&self) {
        self.ears.ringing.store(false, Ordering::SeqCst);
    }

    /// Begins to watch, at the first call only; `on_ring` runs on the watcher's own thread.
    pub(super) fn watch(&mut self, on_ring: impl Fn() + Send + 'static) {
        if std::mem::replace(&mut self.tried, true) {
            return;
        }
        let Some((path, _)) = &self.file else {
            return;
        };
        let ears = self.ears.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let rung = event.is_ok_and(|event| event.kind.is_modify());
            if rung
                && ears.open.load(Ordering::SeqCst)
                && !ears.ringing.swap(true, Ordering::SeqCst)
            {
                on_ring();
            }
        })
        .and_then(|mut watcher| {
            watcher.watch(path, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        match watcher {
            Ok(watcher) => self.watch = Some(watcher),
            Err(error) => tracing::warn!(
                %error,
                path = %path.display(),
                "cannot watch for messages of other processes; polling once a second instead"
            ),
        }
    }
}
