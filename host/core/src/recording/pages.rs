//! The files of one recorder in a folder that other recorders, of this process and of others, may
//! share, and whose size is bounded. A writer holds a lock on its file (`flock`), so that nobody
//! else deletes it. Knows no threads and no waiting.

use super::entry::RecordedMessage;
use crate::clock;
use crate::files;
use rustix::fs::Access;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Result, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How large one file grows at most, in bytes.
const FILE: u64 = 64 << 20;
/// Maximum size of a file as a fraction of the folder's bound: this many recorders can share it
/// and still leave space for others.
const PART: u64 = 8;
/// How many names are tried for one file.
const NAMES: usize = 1_000;
/// How recordings end, and are known by when they are deleted.
pub(crate) const ENDING: &str = ".recording.jsonl";

/// Whether files could be made in the folder, or the folder itself if it is not there. Makes
/// nothing, and does not see a disk that is full.
///
/// # Errors
/// As the system has them.
pub(super) fn may_write(folder: &Path) -> Result<()> {
    let mut place = std::path::absolute(folder)?;
    loop {
        match std::fs::metadata(&place) {
            Ok(about) if about.is_dir() => break,
            Ok(_) => return Err(ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            // Where it would be made.
            Err(error) if !place.pop() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(rustix::fs::access(
        &place,
        Access::WRITE_OK | Access::EXEC_OK,
    )?)
}

/// Where entries go.
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

/// A recording that nobody writes any more.
struct Closed {
    modified: SystemTime,
    path: PathBuf,
    bytes: u64,
}

impl Pages {
    /// Makes nothing before the first entry. `most` is how many bytes the folder's recordings have
    /// together.
    pub(super) fn new(folder: &Path, plugin: &str, most: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            plugin: plugin.replace(['/', '\\'], "_"),
            most,
            number: 0,
            page: None,
        }
    }

    /// Appends an entry, in a new file where the old one is full or gone.
    ///
    /// # Errors
    /// As the system has them. Nothing of the entry is left then, and the next one gets a new file.
    pub(super) fn write(&mut self, entry: &RecordedMessage) -> Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let bytes = line.len() as u64;
        let full = self.full();
        // Whatever fails, the page is not put back, and closed thereby.
        let page = self.page.take();
        let fits = |page: &RecordingFile| page.written + bytes <= full && !page.is_gone();
        let mut page = match page.filter(fits) {
            Some(page) => page,
            None => self.turn(bytes)?,
        };
        page.append(&line)?;
        self.page = Some(page);
        Ok(())
    }

    /// How large a file grows, unless one entry alone is larger.
    fn full(&self) -> u64 {
        FILE.min(self.most / PART)
    }

    /// Opens a new file, with space for it and an entry of this many bytes.
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

    /// Deletes the oldest recordings until so much more has room. Those that others write are left,
    /// and count as if they were full.
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
            let bytes = || std::fs::metadata(&path).map_or(0, |about| about.len());
            sum += match unused(&path) {
                Ok(Some(file)) => {
                    let about = file.metadata()?;
                    match about.len() {
                        0 => gone(std::fs::remove_file(&path))?,
                        bytes => closed.push(Closed {
                            modified: about.modified()?,
                            path,
                            bytes,
                        }),
                    }
                    about.len()
                }
                Ok(None) => bytes().max(self.full()),
                // Gone meanwhile, or not ours to touch.
                Err(_) => bytes(),
            };
        }
        closed.sort_by(|one, two| (one.modified, &one.path).cmp(&(two.modified, &two.path)));
        for Closed { path, bytes, .. } in closed {
            if sum <= self.most {
                break;
            }
            // Nobody opens it again to write: its lock need not be held.
            gone(std::fs::remove_file(&path))?;
            sum -= bytes;
        }
        Ok(())
    }
}

/// The file, locked; none if somebody writes it.
fn unused(path: &Path) -> Result<Option<File>> {
    let file = OpenOptions::new().write(true).open(path)?;
    Ok(match file.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        // Or a file system without locks: then whoever writes it sees that it is gone.
        Ok(()) | Err(TryLockError::Error(_)) => Some(file),
    })
}

/// That another has deleted it is as well.
fn gone(deleted: Result<()>) -> Result<()> {
    match deleted {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        deleted => deleted,
    }
}

impl RecordingFile {
    /// None if the name is taken, or somebody tidied the file away before it was locked.
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

    /// Whether somebody has deleted the file: what is written to it then is lost.
    fn is_gone(&self) -> bool {
        self.file
            .metadata()
            .map_or(true, |about| about.nlink() == 0)
    }

    fn append(&mut self, line: &[u8]) -> Result<()> {
        let written = self.file.write_all(line);
        if written.is_err() {
            // No half of a line stays, and no empty file. Where that fails as well, readers leave
            // out a half at the end.
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
