//! The token of the dashboard of `dispatcher dev`: made once per data folder, so that a browser stays
//! signed in.

use crate::error::{Exit, Failure};
use dispatcher_core::files;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Its file in the data folder.
const FILE: &str = "dev-token";

/// Returns the path of the file with the token.
pub(super) fn file_in(data: &Path) -> PathBuf {
    data.join(FILE)
}

/// Returns the file with the token, which only this user can read. Creates it if there is none.
pub(super) fn made_in(data: &Path) -> Result<PathBuf, Failure> {
    let file = file_in(data);
    let made = files::make_folder(data).and_then(|()| create(&file));
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            let what = format!("{}: the dashboard's token: {error}", file.display());
            Err(Failure::new(Exit::Failed, what))
        }
        _ => Ok(file),
    }
}

fn create(file: &Path) -> io::Result<()> {
    let token = uuid::Uuid::new_v4();
    writeln!(files::create_private(file)?, "{}", token.simple())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn token_is_made_once_and_private() {
        let data = tempfile::tempdir().expect("a folder");
        let data = data.path().join("below");
        let made = made_in(&data).expect("made");
        let token = fs::read_to_string(&made).expect("readable");
        assert_eq!(token.trim().len(), 32);
        let mode = made.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = made_in(&data).expect("there");
        assert_eq!(fs::read_to_string(again).expect("readable"), token);
    }
}
