//! The files of one recorder in a folder of limited size. Other recorders, of this process and of
//! others, may share the folder. A writer holds a lock on its file (`flock`), so that no other
//! process deletes it. Does not use threads or wait.

use super::entry::RecordedMessage;
use dispatcher_core::clock;
use dispatcher_core::files;
use rustix::fs::Access;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Result, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The maximum size of one file, in bytes.
const FILE: u64 = 64 << 20;
/// The divisor of the folder's limit that gives the maximum size of a file, so that this many
/// recorders can share the folder.
const PART: u64 = 8;
/// The number of names that are tried for one file.
const NAMES: usize = 1_000;
/// The suffix of recordings. Only files with this suffix are deleted.
pub(crate) const ENDING: &str = ".recording.jsonl";

/// Checks that files can be created in the folder, or the folder itself if it does not exist.
/// Creates nothing, and does not detect a full disk.
///
/// # Errors
/// Returns the operating system's error.
pub(super) fn may_write(folder: &Path) -> Result<()> {
    let mut place = std::path::absolute(folder)?;
    loop {
        match std::fs::metadata(&place) {
            Ok(about) if about.is_dir() => break,
            Ok(_) => return Err(ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            // Continues with the parent, in which the folder would be created.
            Err(error) if !place.pop() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(rustix::fs::access(
        &place,
        Access::WRITE_OK | Access::EXEC_OK,
    )?)
}

/// The recording files of one recorder.
#[derive(Debug)]
pub(super) struct Pages {
    folder: PathBuf,
    plugin: String,
    most: u64,
    number: u32,
    page: Option<RecordingFile>,
}

/// A file that is being written, locked as long as it is open.
#[derive(Debug)]
struct RecordingFile {
    file: File,
    path: PathBuf,
    written: u64,
}

/// A recording that no process writes any more.
struct ClosedRecording {
    modified: SystemTime,
    path: PathBuf,
    bytes: u64,
}

impl Pages {
    /// Creates no file before the first entry. `most` is the maximum size of all recordings in the
    /// folder, in bytes.
    pub(super) fn new(folder: &Path, plugin: &str, most: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            plugin: plugin.replace(['/', '\\'], "_"),
            most,
            number: 0,
            page: None,
        }
    }

    /// Appends an entry. Opens a new file if the current one is full or was deleted.
    ///
    /// # Errors
    /// Returns the operating system's error. No part of the entry is kept then, and the next entry
    /// gets a new file.
    pub(super) fn write(&mut self, entry: &RecordedMessage) -> Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let bytes = line.len() as u64;
        let full = self.full();
        // After an error the page is not put back, which closes it.
        let current = self.page.take();
        let mut page = match current
            .filter(|page: &RecordingFile| page.written + bytes <= full && !page.is_gone())
        {
            Some(page) => page,
            None => self.turn(bytes)?,
        };
        page.append(&line)?;
        self.page = Some(page);
        Ok(())
    }

    /// Returns the maximum size of a file, unless a single entry is larger.
    fn full(&self) -> u64 {
        FILE.min(self.most / PART)
    }

    /// Opens a new file after making space for it and for an entry of this many bytes.
    fn turn(&mut self, bytes: u64) -> Result<RecordingFile> {
        files::make_folder(&self.folder)?;
        self.make_room(bytes.max(self.full()))?;
        let (at, process) = (clock::wall_clock_now().0, std::process::id());
        for _ in 0..NAMES {
            self.number += 1;
            let (plugin, number) = (&self.plugin, self.number);
            let name = format!("{plugin}-{at}-{process}-{number}{ENDING}");
            if let Some(page) = RecordingFile::create(self.folder.join(name))? {
                return Ok(page);
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Deletes the oldest recordings until `more` bytes fit. Keeps recordings that others are
    /// writing and counts them as full.
    fn make_room(&self, more: u64) -> Result<()> {
        let mut sum = more;
        let mut closed = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let path = entry.path();
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if !is_file || !path.to_string_lossy().ends_with(ENDING) {
                continue;
            }
            sum += match unused(&path) {
                Ok(Some(file)) => {
                    let about = file.metadata()?;
                    match about.len() {
                        0 => gone(std::fs::remove_file(&path))?,
                        bytes => closed.push(ClosedRecording {
                            modified: about.modified()?,
                            path,
                            bytes,
                        }),
                    }
                    about.len()
                }
                Ok(None) => length(&path).max(self.full()),
                // The file was deleted meanwhile, or this process may not open it.
                Err(_) => length(&path),
            };
        }
        closed.sort_by(|one, two| (one.modified, &one.path).cmp(&(two.modified, &two.path)));
        for ClosedRecording { path, bytes, .. } in closed {
            if sum <= self.most {
                break;
            }
            // No process opens it for writing again, so the lock is not needed here.
            gone(std::fs::remove_file(&path))?;
            sum -= bytes;
        }
        Ok(())
    }
}

/// Returns the length of a file; 0 if it is not known.
fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |about| about.len())
}

/// Returns the file, locked, or `None` if another recorder is writing it.
fn unused(path: &Path) -> Result<Option<File>> {
    let file = OpenOptions::new().write(true).open(path)?;
    Ok(match file.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        // The file system may have no locks. Then a writer notices that its file was deleted.
        Ok(()) | Err(TryLockError::Error(_)) => Some(file),
    })
}

/// Treats a file that another process has already deleted as deleted.
fn gone(deleted: Result<()>) -> Result<()> {
    match deleted {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        deleted => deleted,
    }
}

impl RecordingFile {
    /// Returns `None` if the name is taken, or if another process deleted the file before it was
    /// locked.
    fn create(path: PathBuf) -> Result<Option<Self>> {
        let made = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let file = match made {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
            made => made?,
        };
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Ok(None);
        }
        let page = Self {
            file,
            path,
            written: 0,
        };
        Ok((!page.is_gone()).then_some(page))
    }

    /// Whether the file was deleted, which means that writes to it are lost.
    fn is_gone(&self) -> bool {
        self.file
            .metadata()
            .map_or(true, |about| about.nlink() == 0)
    }

    fn append(&mut self, line: &[u8]) -> Result<()> {
        let written = self.file.write_all(line);
        if written.is_err() {
            // Keep neither a partial line nor an empty file. If this fails as well, readers skip
            // the partial line at the end.
            let _ = match self.written {
                0 => std::fs::remove_file(&self.path),
                whole => self.file.set_len(whole),
            };
        }
        self.written += line.len() as u64;
        written
    }
}

#[cfg(test)]
mod tests;
