//! Checks the ownership of cache folders: whether another user could have written there.
//! Independent of contents.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The user id of root, who may do anything on this machine anyway.
const ROOT: u32 = 0;
/// The mode bits for write access of the group or of everybody.
const BY_OTHERS: u32 = 0o022;
/// The mode bits for any access of the group or of everybody.
const FOR_OTHERS: u32 = 0o077;

/// The reason why the contents of a folder cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustProblem {
    /// The folder, or something in it, belongs to another user.
    #[error("{} is owned by user {owner}; wanted user {wanted}", path.display())]
    Owner {
        /// The path of the file or folder.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// The user id that should own it.
        wanted: u32,
    },
    /// The folder, or something in it, can be written by others.
    #[error("{} of user {owner} is writable by other users (mode {mode:04o}); wanted 0700", path.display())]
    Mode {
        /// The path of the file or folder.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// The path leads to neither a file nor a folder.
    #[error("{} of user {owner} is neither a file nor a folder", path.display())]
    Kind {
        /// The path of the file or folder.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
    },
    /// The ownership could not be checked.
    #[error("{}: {error}", path.display())]
    Unknown {
        /// The path that could not be checked.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// Checks that only the process's user, or root, can have put anything into a folder. They must own
/// it and everything in it, and either other users cannot enter it or nothing in it is writable by
/// others. They must also own a link to it. A missing folder is trusted, unless root would create
/// it in the folder of another user, who could not read it later.
///
/// # Errors
/// Returns an error for the first thing that another user could have put there or that cannot be
/// checked.
pub fn check(folder: &Path) -> Result<(), TrustProblem> {
    check_for(rustix::process::geteuid().as_raw(), folder)
}

fn check_for(user: u32, folder: &Path) -> Result<(), TrustProblem> {
    let place = match std::fs::symlink_metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut above = folder.ancestors().skip(1).filter(|path| path.exists());
            return match above.next() {
                Some(above) if user == ROOT => {
                    let about = std::fs::metadata(above).map_err(|error| unknown(above, error))?;
                    check_owner(above, about.uid(), user)
                }
                _ => Ok(()),
            };
        }
        about => about.map_err(|error| unknown(folder, error))?,
    };
    check_owner(folder, place.uid(), user)?;
    let folder = std::fs::canonicalize(folder).map_err(|error| unknown(folder, error))?;
    let mut is_closed = false;
    let mut left = vec![folder.clone()];
    while let Some(path) = left.pop() {
        // Does not follow links: dispatcher creates none there.
        let about = match std::fs::symlink_metadata(&path) {
            // Deleted meanwhile by a process that limits the size of the folder.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            about => about.map_err(|error| unknown(&path, error))?,
        };
        let (owner, mode) = (about.uid(), about.mode() & 0o7777);
        check_owner(&path, owner, user)?;
        if !about.is_dir() && !about.is_file() {
            return Err(TrustProblem::Kind { path, owner });
        }
        if path == folder {
            is_closed = mode & FOR_OTHERS == 0;
        }
        // If other users cannot enter the folder, the permissions in it give them nothing.
        if !is_closed && mode & BY_OTHERS != 0 {
            return Err(TrustProblem::Mode { path, owner, mode });
        }
        if about.is_dir() {
            let entries = std::fs::read_dir(&path).map_err(|error| unknown(&path, error))?;
            for entry in entries {
                left.push(entry.map_err(|error| unknown(&path, error))?.path());
            }
        }
    }
    Ok(())
}

fn check_owner(path: &Path, owner: u32, user: u32) -> Result<(), TrustProblem> {
    if owner == user || owner == ROOT {
        return Ok(());
    }
    Err(TrustProblem::Owner {
        path: path.to_owned(),
        owner,
        wanted: user,
    })
}

fn unknown(path: &Path, error: io::Error) -> TrustProblem {
    TrustProblem::Unknown {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    }

    /// Our cache with an entry two folders down.
    fn cache() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("modules");
        std::fs::create_dir(&inner).expect("made");
        let entry = inner.join("entry");
        std::fs::write(&entry, "code").expect("written");
        mode(folder.path(), 0o755);
        (folder, entry)
    }

    #[test]
    fn finding_17_private_file_is_trusted() {
        let (folder, entry) = cache();
        check(folder.path()).expect("it is ours");
        check(&folder.path().join("none")).expect("we make it");
        // As a process without a umask leaves it, in a folder that nobody else gets into.
        mode(&entry, 0o666);
        mode(folder.path(), 0o700);
        check(folder.path()).expect("nobody else gets there");
    }

    #[test]
    fn finding_17_file_writable_by_others_is_not_trusted() {
        let (folder, entry) = cache();
        for path in [folder.path(), entry.parent().expect("one"), &entry] {
            for open in [0o777, 0o775, 0o772] {
                mode(path, open);
                let why = check(folder.path()).expect_err("others write there");
                assert!(matches!(&why, TrustProblem::Mode { path: found, .. } if found == path));
                assert!(why.to_string().contains(&format!("{open:04o}")), "{why}");
            }
            mode(path, 0o755);
        }
        check(folder.path()).expect("it is ours alone again");
    }

    #[test]
    fn finding_17_file_of_another_user_is_not_trusted() {
        let (folder, entry) = cache();
        let ours = rustix::process::geteuid().as_raw();
        let stranger = ours + 4711;
        // For whom all of it is somebody else's. Root's would be trusted.
        if ours != ROOT {
            let why = check_for(stranger, folder.path()).expect_err("it is not theirs");
            let text = why.to_string();
            assert!(text.contains(&format!("owned by user {ours}")), "{text}");
            return;
        }
        for path in [folder.path(), entry.parent().expect("one"), &entry] {
            chown(path, Some(stranger), None).expect("we are root");
            // Permissions tell nothing then.
            mode(folder.path(), 0o700);
            let why = check(folder.path()).expect_err("it is another's");
            assert!(
                matches!(&why, TrustProblem::Owner { path: found, owner, .. }
                if found == path && *owner == stranger)
            );
            chown(path, Some(ours), None).expect("we are root");
        }
    }

    /// The case of `sudo dispatcher check` with the configuration of a service.
    #[test]
    fn root_makes_nothing_in_the_folder_of_another_user_that_this_user_cannot_use() {
        let folder = tempfile::tempdir().expect("a folder");
        let ours = rustix::process::geteuid().as_raw();
        let owner = if ours == ROOT { 4711 } else { ours };
        if ours == ROOT {
            chown(folder.path(), Some(owner), Some(owner)).expect("we are root");
        }
        let inner = folder.path().join("data");
        crate::files::make_folder(&inner.join("deep")).expect("made");
        drop(crate::files::create_private(&inner.join("file")).expect("made"));
        for made in [&inner, &inner.join("deep"), &inner.join("file")] {
            let about = std::fs::metadata(made).expect("it is there");
            assert_eq!(about.uid(), owner, "{}", made.display());
        }
        let why = check_for(ROOT, &inner.join("compiled")).expect_err("it would be root's");
        assert!(
            matches!(&why, TrustProblem::Owner { path, .. } if *path == inner),
            "{why}"
        );
    }

    #[test]
    fn finding_17_symbolic_link_is_not_trusted() {
        let (folder, entry) = cache();
        symlink("/etc/passwd", entry.with_file_name("link")).expect("linked");
        let why = check(folder.path()).expect_err("it leads elsewhere");
        assert!(matches!(why, TrustProblem::Kind { .. }), "{why}");
    }
}
