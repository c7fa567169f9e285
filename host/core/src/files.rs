//! System limits and file ownership: how many files the process may open, connections included, how
//! much it may map, permissions of the folders that it creates, content digests; `bounded` reads
//! files named by others, `owner` checks who owns a folder. Knows nothing else.

pub mod bounded;
pub mod owner;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit, umask};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// What our user alone may read and write.
const PRIVATE: u32 = 0o600;

/// Raises the limit of open files as far as the process may by itself: the soft limit up to the
/// hard one. Answers the limit that it had and the one that it has now; `u64::MAX` is none. Where
/// the system refuses, the two are equal: fewer connections are no reason not to start.
pub fn raise_limit() -> (u64, u64) {
    let had = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: had.maximum,
        maximum: had.maximum,
    };
    let raised = setrlimit(Resource::Nofile, wanted).is_ok();
    let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let now = if raised { had.maximum } else { had.current };
    (number(had.current), number(now))
}

/// Maximum bytes of address space that the process may map (`ulimit -v`); none is no limit.
pub fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Makes a folder that is not there, and those above it, for our user alone, or for the owner of the
/// folder around them if we are root. One that is there keeps its permissions.
///
/// # Errors
/// As the system has them.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    if !geteuid().is_root() {
        return builder.create(folder);
    }
    let missing = folder.ancestors().take_while(|path| !path.exists());
    let missing: Vec<&Path> = missing.filter(|path| *path != Path::new("")).collect();
    builder.create(folder)?;
    for made in missing.into_iter().rev() {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(made, flags, Mode::empty())?;
        leave_to_owner(&File::from(opened), made)?;
    }
    Ok(())
}

/// Gives what root has made to the owner of the folder around it: whoever has the data folder of a
/// service must be able to use all in it, also after a command of an administrator. By the handle,
/// since that owner may put something else in its place.
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

/// From now on files and folders that this process makes are for our user alone, those that
/// libraries make too.
pub fn keep_private() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Makes a file for our user alone, whatever the umask, or for the owner of its folder if we are root;
/// one that is there is an error.
///
/// # Errors
/// As the system has them.
pub fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(PRIVATE);
    let file = options.open(path)?;
    file.set_permissions(Permissions::from_mode(PRIVATE))?;
    leave_to_owner(&file, path)?;
    Ok(file)
}

/// Writes a file for our user alone, in the place of one that is there.
///
/// # Errors
/// As the system has them.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        removed => removed?,
    }
    create_private(path)?.write_all(bytes)
}

/// Opens a file to read and write it, made for our user alone if it is missing. One that is there is
/// made so if it is ours; then with the mode that it had.
///
/// # Errors
/// As the system has them.
pub fn open_private(path: &Path) -> io::Result<(File, Option<u32>)> {
    match create_private(path).map(drop) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let former = tighten(path)?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    Ok((file, former))
}

/// Takes from all others what they may do with a file that is there and ours; answers with the mode
/// that it had, if that was more.
///
/// # Errors
/// As the system has them.
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

/// SHA-256 of contents, in lower-case hexadecimal.
pub fn digest(contents: &[u8]) -> String {
    let digest = Sha256::digest(contents);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_file_limit_is_never_lowered() {
        let (had, now) = raise_limit();
        assert!(now >= had);
        assert_eq!(raise_limit(), (now, now));
    }

    #[test]
    fn finding_15_files_become_private_to_the_user_whatever_their_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let mode = || {
            let metadata = std::fs::metadata(&path).expect("it is there");
            metadata.mode() & 0o7777
        };
        assert_eq!(tighten(&path).expect("nothing to do"), None);
        drop(create_private(&path).expect("made"));
        assert_eq!(mode(), 0o600);
        assert_eq!(tighten(&path).expect("nothing to do"), None);
        for wide in [0o644, 0o666, 0o640] {
            std::fs::set_permissions(&path, Permissions::from_mode(wide)).expect("it is ours");
            let (_, former) = open_private(&path).expect("opened");
            assert_eq!((mode(), former), (0o600, Some(wide)));
        }
        let again = create_private(&path).expect_err("it is there");
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("it is ours");
        write_private(&path, b"new").expect("written");
        assert_eq!(mode(), 0o600);
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
