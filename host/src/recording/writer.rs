//! A thread that writes entries to files of one folder, which it keeps from growing for ever.

use super::entry::Entry;
use crate::clock;
use crate::files;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Entries that wait to be written; beyond them they are left out.
const WAITING: usize = 1_024;
/// How large one file grows at most.
const FILE: u64 = 64 << 20;
/// How recordings end, and are known by when they are deleted.
pub const ENDING: &str = ".recording.jsonl";

/// Writes on a thread of its own; ends, with all written, when dropped.
#[derive(Debug)]
pub(super) struct Writer {
    folder: PathBuf,
    entries: Option<SyncSender<Entry>>,
    left_out: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Makes the folder, and a file in it: only their owner can read them.
    pub(super) fn start(folder: &Path, plugin: &str, most: u64) -> std::io::Result<Self> {
        files::make_folder(folder)?;
        let mut pages = Pages {
            folder: folder.to_owned(),
            plugin: plugin.replace(['/', '\\'], "_"),
            number: 0,
            most,
            written: 0,
            file: None,
        };
        pages.turn()?;
        let (sender, entries) = sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || write(&entries, pages))?;
        Ok(Self {
            folder: folder.to_owned(),
            entries: Some(sender),
            left_out: AtomicU64::new(0),
            thread: Some(thread),
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn write(&self, entry: Entry) {
        let sent = match &self.entries {
            Some(entries) => entries.try_send(entry),
            None => return,
        };
        let (Err(TrySendError::Full(_)) | Err(TrySendError::Disconnected(_))) = sent else {
            return;
        };
        let left_out = self.left_out.fetch_add(1, Relaxed) + 1;
        // At the first, and then ever more rarely.
        if left_out.is_power_of_two() {
            let folder = self.folder.display();
            tracing::warn!(
                left_out,
                "{folder}: messages are not recorded, since they cannot be written as fast"
            );
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.entries = None;
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked; if it has, that was reported.
            let _ = thread.join();
        }
    }
}

fn write(entries: &Receiver<Entry>, mut pages: Pages) {
    while let Ok(first) = entries.recv() {
        let written = pages.write(&first).and_then(|()| {
            entries
                .try_iter()
                .try_for_each(|entry| pages.write(&entry))?;
            pages.flush()
        });
        if let Err(error) = written {
            let folder = pages.folder.display();
            tracing::error!("{folder}: nothing more is recorded: {error}");
            return;
        }
    }
}

/// The files of one recorder, one after the other.
struct Pages {
    folder: PathBuf,
    plugin: String,
    number: u32,
    most: u64,
    written: u64,
    file: Option<BufWriter<File>>,
}

impl Pages {
    fn write(&mut self, entry: &Entry) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        // A file alone must not be more than all may be.
        if self.written > 0 && self.written + line.len() as u64 > FILE.min(self.most / 2) {
            self.turn()?;
        }
        self.written += line.len() as u64;
        match &mut self.file {
            Some(file) => file.write_all(&line),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }

    /// Goes on in a new file.
    fn turn(&mut self) -> std::io::Result<()> {
        self.flush()?;
        self.file = None;
        self.make_room()?;
        let (at, process) = (clock::today().0, std::process::id());
        self.number += 1;
        let name = format!("{}-{at}-{process}-{}{ENDING}", self.plugin, self.number);
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(self.folder.join(name))?;
        self.file = Some(BufWriter::new(file));
        self.written = 0;
        Ok(())
    }

    /// Deletes the oldest recordings until a whole file more has room.
    fn make_room(&self) -> std::io::Result<()> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(ENDING) {
                let about = entry.metadata()?;
                files.push((about.modified()?, about.len(), entry.path()));
            }
        }
        files.sort();
        let mut sum: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        let room = self.most - FILE.min(self.most / 2);
        for (_, bytes, path) in files {
            if sum <= room {
                break;
            }
            std::fs::remove_file(path)?;
            sum -= bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry;
    use super::*;
    use crate::message::{Message, Verdict};
    use std::time::Duration;

    fn entry_of(bytes: usize) -> Entry {
        let message = Message {
            body: "x".repeat(bytes),
            ..Message::default()
        };
        Entry::new("p", "1", message, &Verdict::Done, Duration::ZERO)
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        files.sort();
        files
    }

    #[test]
    fn what_is_written_can_be_read_once_it_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let writer = Writer::start(folder.path(), "a/b", 1 << 30).expect("a writer");
        for _ in 0..100 {
            writer.write(entry_of(10));
        }
        drop(writer);
        let files = files(folder.path());
        assert_eq!(files.len(), 1);
        let kept = std::fs::metadata(&files[0]).expect("it is there");
        let mode = std::os::unix::fs::PermissionsExt::mode(&kept.permissions());
        assert_eq!(mode & 0o777, 0o600, "others may read it");
        assert_eq!(entry::read(&files[0]).expect("entries").len(), 100);
    }

    #[test]
    fn the_folder_does_not_grow_for_ever_and_strangers_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("mine.txt"), vec![0; 50_000]).expect("written");
        let mut pages = Pages {
            folder: folder.path().to_owned(),
            plugin: "p".into(),
            number: 0,
            most: 40_000,
            written: 0,
            file: None,
        };
        pages.turn().expect("a file");
        for _ in 0..100 {
            pages.write(&entry_of(5_000)).expect("written");
            pages.flush().expect("written");
        }
        let kept: u64 = files(folder.path())
            .iter()
            .filter(|path| path.to_string_lossy().ends_with(ENDING))
            .map(|path| path.metadata().expect("a file").len())
            .sum();
        assert!((15_000..=40_000).contains(&kept), "{kept}");
        assert!(folder.path().join("mine.txt").exists());
    }
}
