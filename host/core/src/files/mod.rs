//! System limits and file ownership: the number of files (including connections) that the process
//! may open, the memory that it may map, the permissions of folders that it creates, and content
//! digests. `bounded` reads files that others name, `owner` checks who owns a folder. Independent
//! of the rest.

pub mod bounded;
pub mod owner;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit, umask};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The mode of a file that only its owner may read and write.
const PRIVATE: u32 = 0o600;

/// Raises the limit of open files as far as the process may by itself: the soft limit up to the
/// hard one. Returns the former limit and the present one; `u64::MAX` means unlimited. The two are
/// equal if the system refuses: fewer connections are no reason not to start.
pub fn raise_limit() -> (u64, u64) {
    let had = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: had.maximum,
        maximum: had.maximum,
    };
    let raised = setrlimit(Resource::Nofile, wanted).is_ok();
    let now = if raised { had.maximum } else { had.current };
    (had.current.unwrap_or(u64::MAX), now.unwrap_or(u64::MAX))
}

/// Whether the system refuses a file or a connection because this process or this machine has too
/// many: open files, ports, network memory. The error passes when others are closed.
pub fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| {
        [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::ADDRNOTAVAIL,
        ]
        .contains(&errno)
    })
}

/// Returns the maximum bytes of address space that the process may map (`ulimit -v`), or `None` if
/// unlimited.
pub fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Creates a folder, and missing ones above it, for the process's user only; for root, they belong
/// to the owner of the folder around them. An existing folder keeps its permissions.
///
/// # Errors
/// Returns the error of the system.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    if !geteuid().is_root() {
        return builder.create(folder);
    }
    let missing: Vec<&Path> = folder
        .ancestors()
        .take_while(|path| !path.exists())
        .filter(|path| *path != Path::new(""))
        .collect();
    builder.create(folder)?;
    for made in missing.into_iter().rev() {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(made, flags, Mode::empty())?;
        leave_to_owner(&File::from(opened), made)?;
    }
    Ok(())
}

/// Gives a file or folder that root created to the owner of the folder around it: the owner of a
/// service's data folder must be able to use everything in it, even after an administrator's
/// command. Uses the handle, because that owner may put something else at the path.
fn leave_to_owner(made: &File, path: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let around = std::fs::metadata(folder.unwrap_or(Path::new(".")))?;
    if around.uid() == made.metadata()?.uid() {
        return Ok(());
    }
    std::os::unix::fs::fchown(made, Some(around.uid()), Some(around.gid()))
}

/// Makes all files and folders that this process creates from now on private to its user, including
/// those that libraries create.
pub fn keep_private() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Creates a file for the process's user only, regardless of the umask; for root, it belongs to the
/// owner of its folder. An existing file is an error.
///
/// # Errors
/// Returns the error of the system.
pub fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(PRIVATE);
    let file = options.open(path)?;
    file.set_permissions(Permissions::from_mode(PRIVATE))?;
    leave_to_owner(&file, path)?;
    Ok(file)
}

/// Writes a file for the process's user only. Replaces an existing one.
///
/// # Errors
/// Returns the error of the system.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        removed => removed?,
    }
    create_private(path)?.write_all(bytes)
}

/// Opens a file for reading and writing. Creates it for the process's user only if it is missing.
/// An existing file of that user is made private; then the mode that it had is returned as well.
///
/// # Errors
/// Returns the error of the system.
pub fn open_private(path: &Path) -> io::Result<(File, Option<u32>)> {
    match create_private(path).map(drop) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let former = tighten(path)?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    Ok((file, former))
}

/// Removes all access of other users to an existing file of the process's user. Returns the mode
/// that the file had, if others had access.
///
/// # Errors
/// Returns the error of the system.
pub fn tighten(path: &Path) -> io::Result<Option<u32>> {
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        metadata => metadata?,
    };
    let mode = metadata.mode() & 0o7777;
    let is_open = mode & 0o077 != 0;
    if !metadata.is_file() || metadata.uid() != geteuid().as_raw() || !is_open {
        return Ok(None);
    }
    std::fs::set_permissions(path, Permissions::from_mode(PRIVATE))?;
    Ok(Some(mode))
}

/// Returns the SHA-256 of contents, in lower-case hexadecimal.
pub fn digest(contents: &[u8]) -> String {
    let digest = Sha256::digest(contents);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_of_files_and_ports_is_told_from_other_errors() {
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::ADDRNOTAVAIL,
        ] {
            assert!(is_shortage(&io::Error::from(errno)), "{errno}");
        }
        for errno in [
            Errno::CONNREFUSED,
            Errno::PERM,
            Errno::TIMEDOUT,
            Errno::NOENT,
        ] {
            assert!(!is_shortage(&io::Error::from(errno)), "{errno}");
        }
    }

    #[test]
    fn open_file_limit_is_never_lowered() {
        let (had, now) = raise_limit();
        assert!(now >= had);
        assert_eq!(raise_limit(), (now, now));
    }

    fn mode_of(path: &Path) -> u32 {
        let metadata = std::fs::metadata(path).expect("it is there");
        metadata.mode() & 0o7777
    }

    #[test]
    fn finding_15_files_become_private_to_the_user_whatever_their_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        assert_eq!(tighten(&path).expect("nothing to do"), None);
        drop(create_private(&path).expect("made"));
        assert_eq!(mode_of(&path), 0o600);
        assert_eq!(tighten(&path).expect("nothing to do"), None);
        for wide in [0o644, 0o666, 0o640] {
            std::fs::set_permissions(&path, Permissions::from_mode(wide)).expect("it is ours");
            let (_, former) = open_private(&path).expect("opened");
            assert_eq!((mode_of(&path), former), (0o600, Some(wide)));
        }
        let again = create_private(&path).expect_err("it is there");
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("it is ours");
        write_private(&path, b"new").expect("written");
        assert_eq!(mode_of(&path), 0o600);
        assert_eq!(std::fs::read(&path).expect("read"), b"new");
    }

    #[cfg(unix)]
    #[test]
    fn created_folder_is_private_to_the_user() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("data/compiled");
        super::make_folder(&inner).expect("made");
        for made in [&inner, &folder.path().join("data")] {
            let mode = std::fs::metadata(made).expect("it is there").permissions();
            assert_eq!(mode.mode() & 0o777, 0o700);
        }
        super::make_folder(&inner).expect("it is there already");
    }
}
