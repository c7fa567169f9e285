//! Reads files that users name or others may change: bounded in size and in time, whatever is at
//! the path. Each read has its own thread, which is abandoned if the file system does not answer.
//! Knows nothing of contents.

use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is accepted at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes.
    pub bytes: u64,
    /// Whether a pipe is read to its end, as a shell's `<(command)` is. A named pipe that nobody has
    /// opened for writing is refused in any case.
    pub pipes: bool,
    /// Whether the file may grow meanwhile: then it is read as far as it went when it was opened.
    pub grows: bool,
}

impl Limits {
    /// A component: 512 MiB.
    pub const COMPONENT: Self = Self::regular(512 << 20);
    /// A file of recorded messages, which may be one that is being written: 512 MiB.
    pub const RECORDING: Self = Self {
        grows: true,
        ..Self::regular(512 << 20)
    };
    /// A configuration file: 16 MiB.
    pub const CONFIGURATION: Self = Self {
        pipes: true,
        ..Self::regular(16 << 20)
    };
    /// A message's body: 512 MiB.
    pub const BODY: Self = Self {
        pipes: true,
        ..Self::regular(512 << 20)
    };
    /// Certificates, keys, tokens, lists of packages: 1 MiB.
    pub const SMALL: Self = Self::regular(1 << 20);

    /// A regular file that does not change while it is read.
    pub const fn regular(bytes: u64) -> Self {
        Self {
            bytes,
            pipes: false,
            grows: false,
        }
    }

    fn patience(self) -> Patience {
        Patience {
            // Whoever writes to a pipe may take a while to begin.
            stalled: if self.pipes { WHOLE } else { STALLED },
            whole: WHOLE,
        }
    }
}

/// The longest without a byte of a regular file.
const STALLED: Duration = Duration::from_secs(5);
/// The longest that all of a read may take.
const WHOLE: Duration = Duration::from_secs(60);
/// The most abandoned threads of the process. Each ends when its file system answers.
const ABANDONED: usize = 8;
/// Bytes that are read between two signs of life.
const PIECE: u64 = 64 << 10;

/// Why there are no contents.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Nothing is at the path.
    #[error("no such file")]
    NotFound,
    /// Something that is no file with contents.
    #[error("{found} where {wanted} is wanted")]
    Kind {
        /// What it is.
        found: &'static str,
        /// What is read.
        wanted: &'static str,
    },
    /// More bytes than are read.
    #[error("{found} bytes or more, and at most {most} are allowed")]
    TooLarge {
        /// As many as are known.
        found: u64,
        /// The limit.
        most: u64,
    },
    /// Somebody wrote to it meanwhile.
    #[error("it changed while it was read; wanted a file that is complete")]
    Changed,
    /// The file system gave nothing for too long.
    #[error("the file system has not answered for {} s", .0.as_secs())]
    Stalled(Duration),
    /// An earlier read of the same path still waits.
    #[error("the file system has not answered an earlier read of it yet")]
    StillStalled,
    /// Too many earlier reads still wait.
    #[error("not read: the file system has not answered {0} earlier reads yet")]
    TooManyStalled(usize),
    /// As the system has it.
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
        let wanted = match limits.pipes {
            true => "a regular file or a pipe with a writer",
            false => "a regular file",
        };
        Self::Kind { found, wanted }
    }
}

/// Reads a whole file. Blocks for a minute at most, and for 5 s where nothing comes.
///
/// # Errors
/// What is there is nothing that `limits` accept, or does not come.
pub fn read(path: &Path, limits: Limits) -> Result<Vec<u8>, ReadError> {
    let named = path.to_owned();
    let read = move |alive: &Alive| contents(&named, limits, alive);
    apart(path, limits.patience(), read)?
}

/// The same for text.
///
/// # Errors
/// Likewise, and where it is not UTF-8.
pub fn read_text(path: &Path, limits: Limits) -> Result<String, ReadError> {
    let bytes = read(path, limits)?;
    String::from_utf8(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()).into())
}

/// What the system knows of the file that a path leads to. Blocks for 5 s at most.
///
/// # Errors
/// As the system has them, and where it does not answer.
pub fn about(path: &Path) -> Result<Metadata, ReadError> {
    let named = path.to_owned();
    within(path, move || Ok(std::fs::metadata(named)?))?
}

/// Does something with what is at a path that may block for as long as the file system likes. Waits
/// for it 5 s at most.
///
/// # Errors
/// Where that was not enough.
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

/// How long somebody waits for a thread.
#[derive(Debug, Clone, Copy)]
struct Patience {
    stalled: Duration,
    whole: Duration,
}

impl Patience {
    /// Whether to keep waiting after this time, for a thread that has or has not made progress
    /// lately.
    fn lasts(self, is_alive: bool, waited: Duration) -> bool {
        is_alive && waited < self.whole
    }
}

/// Signs of life of a thread.
type Alive = AtomicU64;

/// How many threads hang on each path. Each of them counts until it ends.
static HANGING: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());

fn hanging() -> MutexGuard<'static, BTreeMap<PathBuf, usize>> {
    HANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the thread off the list of those that hang, if it is there, however it ends.
struct Ending(PathBuf);

impl Drop for Ending {
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

/// Runs `work` on its own thread, and abandons it when it shows no life for too long.
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
    let (shown, ending) = (Arc::clone(&alive), Ending(path.to_owned()));
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
    let gone = || ReadError::Io(io::Error::other("the reading thread ended early"));
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
        // now does so after it is put there.
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

/// Reads on this thread. What is at the path is judged once it is open, so nobody can swap it.
fn contents(path: &Path, limits: Limits, alive: &Alive) -> Result<Vec<u8>, ReadError> {
    let (file, before) = open(path, limits)?;
    let is_pipe = FileType::from_raw_mode(before.st_mode) == FileType::Fifo;
    let size = u64::try_from(before.st_size).unwrap_or_default();
    let most = limits.bytes;
    if size > most {
        return Err(ReadError::TooLarge { found: size, most });
    }
    // One byte more shows that there is too much. The kernel's own files state no size.
    let wanted = match limits.grows && size > 0 {
        true => size,
        false => most + 1,
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

/// Opens without waiting for anybody: a pipe that nobody writes to would never open otherwise.
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

/// What differs once somebody has written to a file.
fn version(about: &Stat) -> impl PartialEq {
    let seconds = i128::from(about.st_mtime);
    let nanoseconds = i128::from(about.st_mtime_nsec);
    (about.st_size, seconds, nanoseconds)
}

#[cfg(test)]
mod tests;
