//! A thread that writes entries, with a bounded queue: no handler waits for a disk. Knows nothing
//! of files.

use super::entry::RecordedMessage;
use super::pages::Pages;
use crate::clock;
use crate::clock::BootInstant;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Entries that wait to be written; beyond them they are left out.
const WAITING: usize = 1_024;
/// Nor do more bytes wait, unless one entry alone has more.
const BYTES: usize = 32 << 20;
/// After a failed write nothing is tried for this long.
const REST: Duration = Duration::from_secs(1);
/// How often left-out entries are logged.
const MINUTE: Duration = Duration::from_secs(60);
/// How long the end waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes on its own thread; ends, with all written, when dropped, unless the disk takes too
/// long.
#[derive(Debug)]
pub(super) struct RecordingWriter {
    folder: PathBuf,
    entries: Option<SyncSender<RecordedMessage>>,
    /// How many bytes wait.
    waiting: Arc<AtomicUsize>,
    counts: Arc<Counts>,
    refused: Mutex<DropReport>,
    /// Hangs up when the thread ends.
    ended: Mutex<Receiver<()>>,
    patience: Duration,
}

/// What became of entries.
#[derive(Debug, Default)]
struct Counts {
    kept: AtomicU64,
    left_out: AtomicU64,
}

/// Why an entry is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error("the disk is too slow")]
    Full,
    #[error("the writer thread has ended")]
    Ended,
}

impl RecordingWriter {
    /// Writes to files in the folder, from the first entry on.
    pub(super) fn start(folder: &Path, plugin: &str, most: u64) -> std::io::Result<Self> {
        let counts = Arc::<Counts>::default();
        let mut scribe = RecordingTask {
            counts: counts.clone(),
            pages: Pages::new(folder, plugin, most),
            folder: folder.to_owned(),
            rest: None,
            failed: DropReport::default(),
        };
        let write = move |entry: &RecordedMessage| scribe.take(entry, clock::now());
        let mut writer = Self::with(folder, PATIENCE, write)?;
        writer.counts = counts;
        Ok(writer)
    }

    /// Hands entries to `write` on its own thread.
    fn with(
        folder: &Path,
        patience: Duration,
        mut write: impl FnMut(&RecordedMessage) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (sender, entries) = sync_channel::<RecordedMessage>(WAITING);
        let (alive, ended) = channel::<()>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let of_thread = waiting.clone();
        std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || {
                let _alive = alive;
                for entry in entries {
                    write(&entry);
                    of_thread.fetch_sub(entry.bytes(), Relaxed);
                }
            })?;
        Ok(Self {
            folder: folder.to_owned(),
            entries: Some(sender),
            waiting,
            counts: Arc::default(),
            refused: Mutex::default(),
            ended: Mutex::new(ended),
            patience,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// How many entries were written, and how many left out.
    pub(super) fn counts(&self) -> (u64, u64) {
        let Counts { kept, left_out } = &*self.counts;
        (kept.load(Relaxed), left_out.load(Relaxed))
    }

    pub(super) fn write(&self, entry: RecordedMessage) {
        let Err(why) = self.offer(entry) else { return };
        self.counts.left_out.fetch_add(1, Relaxed);
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left_out) = refused.count(clock::now()) {
            let folder = self.folder.display();
            tracing::warn!(%folder, left_out, reason = %why, "messages left out of the recording");
        }
    }

    fn offer(&self, entry: RecordedMessage) -> Result<(), Refused> {
        let bytes = entry.bytes();
        let more = |waiting| (waiting == 0 || waiting + bytes <= BYTES).then_some(waiting + bytes);
        let room = self.waiting.fetch_update(Relaxed, Relaxed, more);
        room.map_err(|_| Refused::Full)?;
        let entries = self.entries.as_ref().ok_or(Refused::Ended)?;
        entries.try_send(entry).map_err(|error| {
            self.waiting.fetch_sub(bytes, Relaxed);
            match error {
                TrySendError::Full(_) => Refused::Full,
                TrySendError::Disconnected(_) => Refused::Ended,
            }
        })
    }
}

impl Drop for RecordingWriter {
    fn drop(&mut self) {
        self.entries = None;
        let ended = self.ended.get_mut();
        let ended = ended.unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(self.patience) == Err(RecvTimeoutError::Timeout) {
            let (folder, bytes) = (self.folder.display(), self.waiting.load(Relaxed));
            tracing::warn!(%folder, bytes, "recorded messages dropped at the stop");
        }
    }
}

/// Writes, and rests where it cannot.
struct RecordingTask {
    counts: Arc<Counts>,
    pages: Pages,
    folder: PathBuf,
    /// Until when, and why.
    rest: Option<(BootInstant, String)>,
    failed: DropReport,
}

impl RecordingTask {
    fn take(&mut self, entry: &RecordedMessage, now: BootInstant) {
        if self.rest.as_ref().is_none_or(|(until, _)| now >= *until) {
            let error = self.pages.write(entry).err();
            self.rest = error.map(|error| (now + REST, error.to_string()));
        }
        let Some((_, why)) = &self.rest else {
            self.counts.kept.fetch_add(1, Relaxed);
            return;
        };
        self.counts.left_out.fetch_add(1, Relaxed);
        if let Some(left_out) = self.failed.count(now) {
            let folder = self.folder.display();
            tracing::error!(%folder, left_out, error = why, "recording failed: messages are left out");
        }
    }
}

/// How many entries were left out, and when that was logged.
#[derive(Debug, Default)]
struct DropReport {
    left_out: u64,
    said: Option<BootInstant>,
}

impl DropReport {
    /// Counts one more. All so far, if it is time to say it.
    fn count(&mut self, now: BootInstant) -> Option<u64> {
        self.left_out += 1;
        if self.said.is_some_and(|said| now.since(said) < MINUTE) {
            return None;
        }
        self.said = Some(now);
        Some(self.left_out)
    }
}

#[cfg(test)]
mod tests;
