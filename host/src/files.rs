//! Of the system's files: how many the process may hold open at once, a connection being one, how much
//! it may map, for
//! whom the folders are that it makes, what tells contents apart; `bounded` reads what others named,
//! `owner` tells whose a folder is. Knows nothing else.

pub mod bounded;
pub mod owner;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sha2::{Digest, Sha256};

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

/// The most bytes of address space that the process may map (`ulimit -v`); none is no limit.
pub fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Makes a folder that is not there, and those above it, for our user alone. One that is there keeps
/// its permissions.
///
/// # Errors
/// As the system has them.
pub fn make_folder(folder: &std::path::Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
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
    fn the_limit_never_falls() {
        let (had, now) = raise_limit();
        assert!(now >= had);
        assert_eq!(raise_limit(), (now, now));
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_we_make_is_open_to_us_alone() {
        use std::os::unix::fs::PermissionsExt;
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
