//! Reads files that users name or others may change, with limits on size and time, regardless of
//! what is at the path. Each read has its own thread, which is abandoned if the file system does
//! not answer. Independent of contents.

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// The limits of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of bytes.
    pub bytes: u64,
    /// Whether a pipe is read to its end, like that of a shell's `<(command)`. A named pipe that no
    /// process has opened for writing is refused in any case.
    pub pipes: bool,
    /// Whether the file may grow while it is read. Then only the size that it had when it was
    /// opened is read.
    pub grows: bool,
}

impl Limits {
    /// The limits of a component: 512 MiB.
    pub const COMPONENT: Self = Self::regular(512 << 20);
    /// The limits of a file of recorded messages, which may still be written to: 512 MiB.
    pub const RECORDING: Self = Self {
        grows: true,
        ..Self::regular(512 << 20)
    };
    /// The limits of a configuration file: 16 MiB.
    pub const CONFIGURATION: Self = Self {
        pipes: true,
        ..Self::regular(16 << 20)
    };
    /// The limits of a message's body: 512 MiB.
    pub const BODY: Self = Self {
        pipes: true,
        ..Self::regular(512 << 20)
    };
    /// The limits of certificates, keys, tokens and lists of packages: 1 MiB.
    pub const SMALL: Self = Self::regular(1 << 20);

    /// Returns the limits of a regular file that does not change while it is read.
    pub const fn regular(bytes: u64) -> Self {
        Self {
            bytes,
            pipes: false,
            grows: false,
        }
    }

    fn patience(self) -> Patience {
        Patience {
            // The writer of a pipe may take a while to begin.
            stalled: if self.pipes { WHOLE } else { STALLED },
            whole: WHOLE,
        }
    }
}

/// The maximum time without a byte of a regular file.
const STALLED: Duration = Duration::from_secs(5);
/// The maximum time of a whole read.
const WHOLE: Duration = Duration::from_secs(60);
/// The maximum number of abandoned threads of the process. Each ends when its file system answers.
const ABANDONED: usize = 8;
/// The number of bytes that are read between two signs of life.
const PIECE: u64 = 64 << 10;

/// An error of a read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No file is at the path.
    #[error("no such file")]
    NotFound,
    /// The path does not lead to a regular file, or to a pipe with a writer where pipes are
    /// allowed.
    #[error("{found} where {wanted} is wanted")]
    Kind {
        /// The kind of what is at the path.
        found: &'static str,
        /// The kinds that can be read.
        wanted: &'static str,
    },
    /// The file has more bytes than the limit.
    #[error("{found} bytes or more, and at most {most} are allowed")]
    TooLarge {
        /// The number of bytes that are known.
        found: u64,
        /// The limit.
        most: u64,
    },
    /// The file was written to while it was read.
    #[error("it changed while it was read; wanted a file that is complete")]
    Changed,
    /// The file system returned nothing for too long.
    #[error("the file system has not answered for {} s", .0.as_secs())]
    Stalled(Duration),
    /// An earlier read of the same path still waits.
    #[error("the file system has not answered an earlier read of it yet")]
    StillStalled,
    /// Too many earlier reads still wait.
    #[error("not read: the file system has not answered {0} earlier reads yet")]
    TooManyStalled(usize),
    /// The error of the system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl ReadError {
    /// Whether the file system may answer later.
    pub fn is_stall(&self) -> bool {
        matches!(
            self,
            Self::Stalled(_) | Self::StillStalled | Self::TooManyStalled(_)
        )
    }

    fn kind(found: &'static str, limits: Limits) -> Self {
        let wanted = if limits.pipes {
            "a regular file or a pipe with a writer"
        } else {
            "a regular file"
        };
        Self::Kind { found, wanted }
    }
}

/// Reads a whole file. Blocks for at most one minute, and for at most 5 s without a byte of a
/// regular file.
///
/// # Errors
/// Returns an error if `limits` do not accept what is at the path, or if the file system does not
/// answer.
pub fn read(path: &Path, limits: Limits) -> Result<Vec<u8>, ReadError> {
    let named = path.to_owned();
    apart(path, limits.patience(), move |alive: &Alive| {
        contents(&named, limits, alive)
    })?
}

/// Reads a whole text file, with the limits of [`read`].
///
/// # Errors
/// Returns the errors of [`read`], and an error if the contents are not UTF-8.
pub fn read_text(path: &Path, limits: Limits) -> Result<String, ReadError> {
    let bytes = read(path, limits)?;
    String::from_utf8(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()).into())
}

/// Returns the metadata of the file that a path leads to. Blocks for at most 5 s.
///
/// # Errors
/// Returns the error of the system, or an error if the file system does not answer.
pub fn about(path: &Path) -> Result<Metadata, ReadError> {
    let named = path.to_owned();
    within(path, move || Ok(std::fs::metadata(named)?))?
}

/// Runs work on a path that may block for as long as the file system does. Waits for at most 5 s.
///
/// # Errors
/// Returns an error if the work takes longer.
pub fn within<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ReadError> {
    let patience = Patience {
        stalled: STALLED,
        whole: STALLED,
    };
    apart(path, patience, move |_| work())
}

/// The time limits of the wait for a thread.
#[derive(Debug, Clone, Copy)]
struct Patience {
    stalled: Duration,
    whole: Duration,
}

impl Patience {
    /// Whether to keep waiting after this time for a thread. `is_alive` is whether it has made
    /// progress lately.
    fn lasts(self, is_alive: bool, waited: Duration) -> bool {
        is_alive && waited < self.whole
    }
}

/// The count of a thread's signs of life.
type Alive = AtomicU64;

/// The number of abandoned threads per path. Each of them counts until it ends.
static HANGING: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());

fn hanging() -> MutexGuard<'static, BTreeMap<PathBuf, usize>> {
    HANGING.lock()
}

/// Takes the thread off the list of abandoned ones when it ends in any way, if it is there.
struct HangingGuard(PathBuf);

impl Drop for HangingGuard {
    fn drop(&mut self) {
        let mut hanging = hanging();
        if let Some(threads) = hanging.get_mut(&self.0) {
            *threads -= 1;
            if *threads == 0 {
                hanging.remove(&self.0);
            }
        }
    }
}

/// Runs `work` on its own thread, and abandons the thread if it shows no sign of life for too long.
fn apart<T: Send + 'static>(
    path: &Path,
    patience: Patience,
    work: impl FnOnce(&Alive) -> T + Send + 'static,
) -> Result<T, ReadError> {
    {
        let hanging = hanging();
        let threads: usize = hanging.values().sum();
        if hanging.contains_key(path) {
            return Err(ReadError::StillStalled);
        }
        if threads >= ABANDONED {
            return Err(ReadError::TooManyStalled(threads));
        }
    }
    let alive = Arc::new(Alive::new(0));
    let (answer, answered) = mpsc::sync_channel(1);
    let (shown, ending) = (Arc::clone(&alive), HangingGuard(path.to_owned()));
    std::thread::Builder::new()
        .name("file".into())
        .spawn(move || {
            let done = work(&shown);
            let _ = answer.send(done);
            drop(ending);
        })?;
    wait(path, patience, &alive, &answered)
}

fn wait<T>(
    path: &Path,
    patience: Patience,
    alive: &Alive,
    answered: &Receiver<T>,
) -> Result<T, ReadError> {
    let (mut waited, mut seen) = (Duration::ZERO, 0);
    loop {
        match answered.recv_timeout(patience.stalled) {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        waited += patience.stalled;
        let now = alive.load(Ordering::Relaxed);
        let is_alive = now != std::mem::replace(&mut seen, now);
        if patience.lasts(is_alive, waited) {
            continue;
        }
        // A thread takes itself off the list after it has answered, so one that has not answered by
        // now is put on the list before it takes itself off.
        let mut hanging = hanging();
        return match answered.try_recv() {
            Ok(done) => Ok(done),
            Err(mpsc::TryRecvError::Disconnected) => Err(gone()),
            Err(mpsc::TryRecvError::Empty) => {
                *hanging.entry(path.to_owned()).or_default() += 1;
                Err(ReadError::Stalled(waited))
            }
        };
    }
}

fn gone() -> ReadError {
    ReadError::Io(io::Error::other("the reading thread ended early"))
}

/// Reads on this thread. Checks the kind of the file after opening it, so that it cannot be
/// swapped.
fn contents(path: &Path, limits: Limits, alive: &Alive) -> Result<Vec<u8>, ReadError> {
    let (file, before) = open(path, limits)?;
    let is_pipe = FileType::from_raw_mode(before.st_mode) == FileType::Fifo;
    let size = u64::try_from(before.st_size).unwrap_or_default();
    let most = limits.bytes;
    if size > most {
        return Err(ReadError::TooLarge { found: size, most });
    }
    // One byte more shows that there is too much. Files of the kernel itself state no size.
    let wanted = if limits.grows && size > 0 {
        size
    } else {
        most + 1
    };
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    loop {
        let left = wanted - bytes.len() as u64;
        let mut piece = (&file).take(left.min(PIECE));
        if piece.read_to_end(&mut bytes)? == 0 {
            break;
        }
        alive.fetch_add(1, Ordering::Relaxed);
    }
    let found = bytes.len() as u64;
    if found > most {
        return Err(ReadError::TooLarge { found, most });
    }
    if is_pipe && bytes.is_empty() {
        return Err(ReadError::kind("a pipe without a writer", limits));
    }
    let is_whole = is_pipe || limits.grows || {
        let after = rustix::fs::fstat(&file).map_err(io::Error::from)?;
        (size == 0 || size == found) && version(&before) == version(&after)
    };
    is_whole.then_some(bytes).ok_or(ReadError::Changed)
}

/// Opens without blocking: otherwise a pipe without a writer would never open.
fn open(path: &Path, limits: Limits) -> Result<(File, Stat), ReadError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = opened.map_err(|error| match error {
        rustix::io::Errno::NOENT => ReadError::NotFound,
        // A socket, or a device that is not there.
        rustix::io::Errno::NXIO => ReadError::kind("a socket or device", limits),
        error => ReadError::Io(error.into()),
    })?;
    let about = rustix::fs::fstat(&file).map_err(io::Error::from)?;
    match FileType::from_raw_mode(about.st_mode) {
        FileType::RegularFile => {}
        FileType::Fifo if limits.pipes => {
            let flags = rustix::fs::fcntl_getfl(&file).map_err(io::Error::from)?;
            let blocking = flags.difference(OFlags::NONBLOCK);
            rustix::fs::fcntl_setfl(&file, blocking).map_err(io::Error::from)?;
        }
        other => return Err(ReadError::kind(name(other), limits)),
    }
    Ok((File::from(file), about))
}

fn name(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a named pipe",
        FileType::Directory => "a folder",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Socket => "a socket",
        _ => "something else",
    }
}

/// Returns a value that differs once the file has been written to.
fn version(about: &Stat) -> impl PartialEq {
    let seconds = i128::from(about.st_mtime);
    let nanoseconds = i128::from(about.st_mtime_nsec);
    (about.st_size, seconds, nanoseconds)
}

#[cfg(test)]
mod tests;
