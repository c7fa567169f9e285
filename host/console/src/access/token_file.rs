//! The tokens in the file of a role. Keeps their digests only.

use super::Role;
use dispatcher_config::problem::Problem;
use dispatcher_config::tokens;
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::Limits;
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The mode bit of a file that every user of the machine can read.
const WORLD_READABLE: u32 = 0o004;

/// The tokens in a file.
#[derive(Debug)]
pub(super) struct TokenFile {
    pub role: Role,
    pub file: PathBuf,
    tokens: RwLock<Arc<[KnownToken]>>,
}

/// A token that the program accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownToken {
    /// Its name in the log, if the file has one.
    pub name: Option<Arc<str>>,
    /// The SHA-256 digest: comparing digests takes the same time however many bytes match.
    pub digest: [u8; 32],
}

impl TokenFile {
    /// Reads the tokens of a role.
    ///
    /// # Errors
    /// Returns what is wrong with the file.
    pub(super) fn open(role: Role, file: &Path) -> Result<Self, Problem> {
        let tokens = read(file).map_err(|why| {
            let found = format!("{}: {why}", file.display());
            Problem::new(role.flag(), found, "a file that holds a token")
                .hint("make one with `openssl rand -hex 32`")
        })?;
        Ok(Self {
            role,
            file: file.to_owned(),
            tokens: RwLock::new(tokens),
        })
    }

    /// Reads the file again, and returns whether its tokens changed.
    pub(super) fn reload(&self) -> Result<bool, String> {
        let tokens = read(&self.file)?;
        let mut current = self.tokens.write();
        let has_changed = *current != tokens;
        *current = tokens;
        Ok(has_changed)
    }

    /// Whether another file has one of these tokens.
    pub(super) fn shares(&self, other: &Self) -> bool {
        let others = other.tokens();
        let tokens = self.tokens();
        let mut digests = tokens.iter().map(|token| token.digest);
        digests.any(|digest| others.iter().any(|other| other.digest == digest))
    }

    pub(super) fn tokens(&self) -> Arc<[KnownToken]> {
        self.tokens.read().clone()
    }

    /// Returns the token that was offered, if it is one of these. Compares with all of them, so that
    /// the duration reveals nothing.
    pub(super) fn matching(&self, offered: &[u8]) -> Option<KnownToken> {
        let digest: [u8; 32] = Sha256::digest(offered).into();
        let tokens = self.tokens();
        let mut matching = None;
        for token in tokens.iter() {
            if token.is(&digest) {
                matching = Some(token);
            }
        }
        matching.cloned()
    }

    #[cfg(test)]
    pub(super) fn of_text(role: Role, text: &str) -> Self {
        Self {
            role,
            file: PathBuf::new(),
            tokens: RwLock::new(parse(text).expect("tokens")),
        }
    }
}

impl KnownToken {
    fn is(&self, digest: &[u8; 32]) -> bool {
        let pairs = self.digest.iter().zip(digest);
        pairs.fold(0, |other, (a, b)| other | (a ^ b)) == 0
    }
}

/// Returns the tokens in a file. Warns if every user of the machine can read it.
fn read(path: &Path) -> Result<Arc<[KnownToken]>, String> {
    let bytes = bounded::read(path, Limits::SMALL).map_err(|error| error.to_string())?;
    let about = bounded::about(path).map_err(|error| error.to_string())?;
    let tokens = parse(&String::from_utf8_lossy(&bytes))?;
    let mode = about.permissions().mode() & 0o777;
    if mode & WORLD_READABLE != 0 {
        let (file, mode) = (path.display(), format!("{mode:o}"));
        tracing::warn!(%file, mode, "admin token file is readable by every user; chmod it to 600");
    }
    Ok(tokens)
}

fn parse(text: &str) -> Result<Arc<[KnownToken]>, String> {
    let tokens = tokens::parse(text)?.into_iter();
    let known = tokens.map(|one| KnownToken {
        name: one.name.map(Arc::from),
        digest: Sha256::digest(one.token).into(),
    });
    Ok(known.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Path, text: &[u8]) {
        std::fs::write(file, text).expect("written");
    }

    #[test]
    fn finding_18_file_without_a_token_is_refused_and_the_old_token_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        write(&file, b"first\n");
        let tokens = TokenFile::open(Role::Operate, &file).expect("a token");
        assert_eq!(tokens.reload(), Ok(false));
        for bad in [
            &b""[..],
            b" \n",
            b"three short words",
            b"one\ntwo\n",
            b"\xff",
            &[b'x'; 5_000],
        ] {
            write(&file, bad);
            assert!(tokens.reload().is_err(), "{bad:?}");
            assert!(TokenFile::open(Role::Operate, &file).is_err(), "{bad:?}");
        }
        assert!(tokens.matching(b"first").is_some());
        write(&file, b"second");
        assert_eq!(tokens.reload(), Ok(true));
        assert!(tokens.matching(b"second").is_some() && tokens.matching(b"first").is_none());
        write(&file, b"# all\nci a\nanna b");
        assert_eq!(tokens.reload(), Ok(true));
        let anna = tokens.matching(b"b").expect("it is known");
        assert_eq!(anna.name.as_deref(), Some("anna"));
        assert!(read(folder.path()).is_err(), "a folder");
        assert!(read(&folder.path().join("none")).is_err());
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        let refused = read(&pipe).expect_err("a pipe");
        assert_eq!(refused, "a named pipe where a regular file is wanted");
        assert!(read(Path::new("/dev/zero")).is_err());
    }
}
