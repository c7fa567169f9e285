//! Wakes the receivers of other processes through a file that senders write to after their commit
//! and that receivers watch. It is only a hint: if a sender is killed in between, the slow poll of
//! the writer finds what it sent. Independent of SQL and queues.

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::fs::File;
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The notifier of one store.
pub(super) struct FileNotifier {
    /// The path and the file; `None` if no other process can open the store.
    file: Option<(PathBuf, File)>,
    ears: Arc<NotifierFlags>,
    // Its `Drop` ends the watch.
    watch: Option<RecommendedWatcher>,
    tried: bool,
}

/// Flags that the watcher's thread reads before it wakes the writer.
#[derive(Default)]
struct NotifierFlags {
    /// Whether a receive waits.
    open: AtomicBool,
    /// Whether a ring has been passed on and not been acknowledged yet.
    ringing: AtomicBool,
}

impl FileNotifier {
    /// Creates a notifier that does not watch yet. `file` is open for writing.
    pub(super) fn new(path: PathBuf, file: File) -> Self {
        Self {
            file: Some((path, file)),
            ..Self::alone()
        }
    }

    /// Creates a notifier without a file, for a store that no other process can open.
    pub(super) fn alone() -> Self {
        Self {
            file: None,
            ears: Arc::default(),
            watch: None,
            tried: false,
        }
    }

    /// Wakes the processes that watch. A failure is not an error: they poll later.
    pub(super) fn notify(&mut self) {
        let Some((path, file)) = &mut self.file else {
            return;
        };
        let rung = file.rewind().and_then(|()| file.write_all(b"!"));
        if let Err(error) = rung {
            tracing::debug!(%error, path = %path.display(), "cannot notify other processes");
        }
    }

    /// Sets whether notifications are passed on from now.
    pub(super) fn listen(&self, open: bool) {
        self.ears.open.store(open, Ordering::SeqCst);
    }

    /// Acknowledges the last ring, so that the next one is passed on.
    pub(super) fn acknowledge(&self) {
        self.ears.ringing.store(false, Ordering::SeqCst);
    }

    /// Begins to watch, at the first call only. `on_ring` runs on the watcher's thread.
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
