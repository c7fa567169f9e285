//! Checks the ownership of cache folders: whether another user could have written there. Knows
//! nothing of contents.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The user who may do anything on this machine anyway.
const ROOT: u32 = 0;
/// Writable by the group or by everybody.
const BY_OTHERS: u32 = 0o022;
/// Any access for the group or for everybody.
const FOR_OTHERS: u32 = 0o077;

/// Why contents of a folder cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// It, or something in it, is another user's.
    #[error("{} is owned by user {owner}; wanted user {wanted}", path.display())]
    Owner {
        /// What is.
        path: PathBuf,
        /// Whose.
        owner: u32,
        /// Whose it ought to be.
        wanted: u32,
    },
    /// It, or something in it, can be written by others.
    #[error("{} of user {owner} is writable by other users (mode {mode:04o}); wanted 0700", path.display())]
    Mode {
        /// What is.
        path: PathBuf,
        /// Whose.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// Neither a file nor a folder is there.
    #[error("{} of user {owner} is neither a file nor a folder", path.display())]
    Kind {
        /// What is.
        path: PathBuf,
        /// Whose.
        owner: u32,
    },
    /// It cannot be told.
    #[error("{}: {error}", path.display())]
    Unknown {
        /// What.
        path: PathBuf,
        /// As the system has it.
        error: io::Error,
    },
}

/// Whether only our user, or root, can have put anything into a folder: it and all in it is owned by
/// them, and either nobody else gets into it or nothing in it is writable by others. One that is not
/// there is trusted, unless root would make it in the folder of another user, who could not read it
/// later; a link to it must be theirs as well.
///
/// # Errors
/// The first thing that somebody else could have put there.
pub fn check(folder: &Path) -> Result<(), Untrusted> {
    check_for(rustix::process::geteuid().as_raw(), folder)
}

fn check_for(user: u32, folder: &Path) -> Result<(), Untrusted> {
    let unknown = |path: &Path, error| Untrusted::Unknown {
        path: path.to_owned(),
        error,
    };
    let owned = |path: &Path, owner| match owner == user || owner == ROOT {
        true => Ok(()),
        false => Err(Untrusted::Owner {
            path: path.to_owned(),
            owner,
            wanted: user,
        }),
    };
    let place = match std::fs::symlink_metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut above = folder.ancestors().skip(1).filter(|path| path.exists());
            return match above.next() {
                Some(above) if user == ROOT => {
                    let about = std::fs::metadata(above).map_err(|error| unknown(above, error))?;
                    owned(above, about.uid())
                }
                _ => Ok(()),
            };
        }
        about => about.map_err(|error| unknown(folder, error))?,
    };
    owned(folder, place.uid())?;
    let folder = std::fs::canonicalize(folder).map_err(|error| unknown(folder, error))?;
    let mut is_closed = false;
    let mut left = vec![folder.clone()];
    while let Some(path) = left.pop() {
        // Not what a link in it leads to: we make none.
        let about = match std::fs::symlink_metadata(&path) {
            // Deleted meanwhile, by whoever keeps the folder small.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            about => about.map_err(|error| unknown(&path, error))?,
        };
        let (owner, mode) = (about.uid(), about.mode() & 0o7777);
        owned(&path, owner)?;
        if !about.is_dir() && !about.is_file() {
            return Err(Untrusted::Kind { path, owner });
        }
        if path == folder {
            is_closed = mode & FOR_OTHERS == 0;
        }
        // Behind a closed door permissions open nothing.
        if !is_closed && mode & BY_OTHERS != 0 {
            return Err(Untrusted::Mode { path, owner, mode });
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
                assert!(matches!(&why, Untrusted::Mode { path: found, .. } if found == path));
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
            assert!(matches!(&why, Untrusted::Owner { path: found, owner, .. }
                if found == path && *owner == stranger));
            chown(path, Some(ours), None).expect("we are root");
        }
    }

    /// As `sudo dispatcher check` does with the configuration of a service.
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
            matches!(&why, Untrusted::Owner { path, .. } if *path == inner),
            "{why}"
        );
    }

    #[test]
    fn finding_17_symbolic_link_is_not_trusted() {
        let (folder, entry) = cache();
        symlink("/etc/passwd", entry.with_file_name("link")).expect("linked");
        let why = check(folder.path()).expect_err("it leads elsewhere");
        assert!(matches!(why, Untrusted::Kind { .. }), "{why}");
    }
}
