//! Checks who else may access the files of a data folder: owners and modes, and locks of other
//! processes. Knows nothing of the content.

use super::{NAP, failed, judge_io};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::files;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long to wait for the lock of a process that opens the same file: far longer than that takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The folders whose mode this process has warned of.
static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Checks that a data folder is ours alone to change. One that others may write to is warned of,
/// once in a process; one of another user, unless that is root or we are, is an error: its owner
/// could put any file in the place of our file.
pub(crate) fn check_folder(folder: &Path) -> Result<(), CallError> {
    let Ok(metadata) = std::fs::metadata(folder) else {
        // Opening the files in it says why.
        return Ok(());
    };
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != user && owner != 0 && user != 0 {
        let why = format!(
            "the data folder `{}` belongs to user {owner}, and this is user {user}; use a separate folder",
            folder.display()
        );
        return Err(failed(ErrorKind::AccessDenied, why));
    }
    let mode = metadata.mode() & 0o7777;
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if mode & 0o022 != 0 && warned.insert(folder.to_owned()) {
        tracing::warn!(
            path = %folder.display(),
            mode = format!("{mode:04o}"),
            "data folder writable by other users: they can replace or delete its files; use chmod go-w"
        );
    }
    Ok(())
}

/// Makes every file that belongs to this database, and is there, readable and writable by its owner
/// alone.
pub(crate) fn tighten(path: &Path) -> Result<(), CallError> {
    for suffix in ["", "-wal", "-shm"] {
        let file = super::beside(path, suffix);
        let plain = |error| failed(judge_io(&error), format!("`{}`: {error}", file.display()));
        let former = files::tighten(&file).map_err(plain)?;
        log_tightened(&file, former);
    }
    Ok(())
}

/// Opens a file that nobody else may read or write, for both; makes it if it is missing.
pub(crate) fn open(path: &Path) -> Result<File, CallError> {
    let plain = |error| failed(judge_io(&error), format!("`{}`: {error}", path.display()));
    let (file, former) = files::open_private(path).map_err(plain)?;
    log_tightened(path, former);
    Ok(file)
}

fn log_tightened(path: &Path, former: Option<u32>) {
    if let Some(former) = former {
        tracing::info!(
            path = %path.display(),
            from = format!("{former:04o}"),
            to = "0600",
            "file permissions tightened"
        );
    }
}

/// Locks a file; it is unlocked when it is dropped. Another process's lock is waited for, up to
/// `PATIENCE`.
pub(crate) fn lock(file: &File, path: &Path) -> Result<(), CallError> {
    let most = PATIENCE.as_micros() / NAP.as_micros();
    for _ in 0..most {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(NAP),
            Err(TryLockError::Error(error)) => return Err(failed(judge_io(&error), error)),
        }
    }
    let why = format!(
        "the file `{}` is locked by another process, for more than {PATIENCE:?}",
        path.display()
    );
    Err(failed(ErrorKind::Transient, why))
}
