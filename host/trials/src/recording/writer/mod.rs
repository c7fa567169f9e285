//! Writes entries on a separate thread with a bounded queue, so that no handler waits for a disk.
//! Leaves files to `pages`.

use super::entry::RecordedMessage;
use super::pages::Pages;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::time::Duration;

/// The maximum number of entries that wait to be written; further ones are left out.
const WAITING: usize = 1_024;
/// The maximum number of bytes that wait to be written, unless a single entry is larger.
const BYTES: usize = 32 << 20;
/// The pause after a failed write.
const REST: Duration = Duration::from_secs(1);
/// The minimum interval between log lines about entries left out.
const MINUTE: Duration = Duration::from_secs(60);
/// The maximum time for which dropping the writer waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes entries on its own thread. Dropping it waits until all are written, unless the disk takes
/// too long.
#[derive(Debug)]
pub(super) struct RecordingWriter {
    folder: PathBuf,
    entries: Option<SyncSender<RecordedMessage>>,
    /// The number of bytes that wait to be written.
    waiting: Arc<AtomicUsize>,
    counts: Arc<Counts>,
    refused: Mutex<DropReport>,
    /// Disconnects when the thread ends.
    ended: Mutex<Receiver<()>>,
    patience: Duration,
}

/// The numbers of entries written and left out.
#[derive(Debug, Default)]
struct Counts {
    kept: AtomicU64,
    left_out: AtomicU64,
}

/// The reason why an entry is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum WriteRefusal {
    #[error("the disk is too slow")]
    Full,
    #[error("the writer thread has ended")]
    Ended,
}

impl RecordingWriter {
    /// Writes to files in the folder. Creates the first one with the first entry.
    pub(super) fn start(folder: &Path, plugin: &str, most: u64) -> std::io::Result<Self> {
        let counts = Arc::<Counts>::default();
        let mut scribe = RecordingTask {
            counts: counts.clone(),
            pages: Pages::new(folder, plugin, most),
            folder: folder.to_owned(),
            rest: None,
            failed: DropReport::default(),
        };
        let mut writer = Self::with(folder, PATIENCE, move |entry: &RecordedMessage| {
            scribe.take(entry, clock::now())
        })?;
        writer.counts = counts;
        Ok(writer)
    }

    /// Passes entries to `write` on a separate thread.
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

    /// Returns the numbers of entries written and left out.
    pub(super) fn counts(&self) -> (u64, u64) {
        let Counts { kept, left_out } = &*self.counts;
        (kept.load(Relaxed), left_out.load(Relaxed))
    }

    pub(super) fn write(&self, entry: RecordedMessage) {
        let Err(why) = self.offer(entry) else { return };
        self.counts.left_out.fetch_add(1, Relaxed);
        let mut refused = self.refused.lock();
        if let Some(left_out) = refused.count(clock::now()) {
            let folder = self.folder.display();
            tracing::warn!(%folder, left_out, reason = %why, "messages left out of the recording");
        }
    }

    fn offer(&self, entry: RecordedMessage) -> Result<(), WriteRefusal> {
        let bytes = entry.bytes();
        let room = self.waiting.fetch_update(Relaxed, Relaxed, |waiting| {
            (waiting == 0 || waiting + bytes <= BYTES).then_some(waiting + bytes)
        });
        room.map_err(|_| WriteRefusal::Full)?;
        let entries = self.entries.as_ref().ok_or(WriteRefusal::Ended)?;
        entries.try_send(entry).map_err(|error| {
            self.waiting.fetch_sub(bytes, Relaxed);
            match error {
                TrySendError::Full(_) => WriteRefusal::Full,
                TrySendError::Disconnected(_) => WriteRefusal::Ended,
            }
        })
    }
}

impl Drop for RecordingWriter {
    fn drop(&mut self) {
        self.entries = None;
        let ended = self.ended.get_mut();
        if ended.recv_timeout(self.patience) == Err(RecvTimeoutError::Timeout) {
            let (folder, bytes) = (self.folder.display(), self.waiting.load(Relaxed));
            tracing::warn!(%folder, bytes, "recorded messages dropped at the stop");
        }
    }
}

/// Writes entries, and pauses after a failure.
struct RecordingTask {
    counts: Arc<Counts>,
    pages: Pages,
    folder: PathBuf,
    /// The end of the pause, and the error.
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

/// The number of entries left out, and the time at which it was last logged.
#[derive(Debug, Default)]
struct DropReport {
    left_out: u64,
    said: Option<BootInstant>,
}

impl DropReport {
    /// Counts one more. Returns the total if it is time to log it.
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
