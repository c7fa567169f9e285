//! Checks who else may access the files of a data folder: owners and modes, and locks of other
//! processes. Independent of the content.

use super::{NAP, failed, judge_io};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::files;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time limit for the lock of a process that opens the same file, far longer than opening
/// takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The folders about whose mode this process has warned.
static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Checks that no other user can change a data folder. Warns, once per process, if others may write
/// to it. Fails if it belongs to another user, unless that is root or this process runs as root:
/// the owner could replace any file in it.
pub(crate) fn check_folder(folder: &Path) -> Result<(), CallError> {
    let Ok(metadata) = std::fs::metadata(folder) else {
        // Opening the files in it reports the reason.
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
    let mut warned = WARNED.lock();
    if mode & 0o022 != 0 && warned.insert(folder.to_owned()) {
        tracing::warn!(
            path = %folder.display(),
            mode = format!("{mode:04o}"),
            "data folder writable by other users: they can replace or delete its files; use chmod go-w"
        );
    }
    Ok(())
}

/// Makes every existing file of this database readable and writable by its owner alone.
pub(crate) fn tighten(path: &Path) -> Result<(), CallError> {
    for suffix in ["", "-wal", "-shm"] {
        let file = super::beside(path, suffix);
        let former = files::tighten(&file)
            .map_err(|error| failed(judge_io(&error), format!("`{}`: {error}", file.display())))?;
        log_tightened(&file, former);
    }
    Ok(())
}

/// Opens a file for reading and writing that only its owner may read or write; creates it if it is
/// missing.
pub(crate) fn open(path: &Path) -> Result<File, CallError> {
    let (file, former) = files::open_private(path)
        .map_err(|error| failed(judge_io(&error), format!("`{}`: {error}", path.display())))?;
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

/// Locks a file until it is dropped. Waits for the lock of another process, up to `PATIENCE`.
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
