//! Values that the settings refer to by a file, since other users may be able to read the settings.
//! A value is a text without the line feed at its end. It is read with the settings, so that a
//! reload notices a change.

use super::problem::Problem;
use super::section::WrittenValue;
use super::value;
use dispatcher_core::files::bounded::{self, Limits};
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The permission bit that lets every user of the machine read a file.
const WORLD_READABLE: u32 = 0o004;

/// The text of a file, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    file: PathBuf,
    text: String,
    /// The permissions of the file, if every user of the machine may read it.
    open_mode: Option<u32>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Secret({})", self.file.display())
    }
}

impl Secret {
    /// Returns the path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the secret text. Logs a warning if every user of the machine can read the file.
    pub fn reveal(&self) -> String {
        if let Some(mode) = self.open_mode {
            let (file, mode) = (self.file.display(), format!("{mode:o}"));
            tracing::warn!(%file, mode, "secret file is readable by every user; chmod it to 600");
        }
        self.text.clone()
    }

    /// Returns the secret with its text replaced by the validated one.
    pub(super) fn with_text(&self, text: String) -> Self {
        Self {
            text,
            ..self.clone()
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Reads the file of a setting; `what` describes its content in messages.
pub(super) fn read(given: &WrittenValue, what: &str) -> Result<Secret, Problem> {
    let file = PathBuf::from(value::text(given, "a file")?);
    from(&file).map_err(|why| {
        let found = format!("the {what} in `{}`: {why}", file.display());
        Problem::new(&given.at, found, "a file with one text")
    })
}

fn from(file: &Path) -> Result<Secret, String> {
    let bytes = bounded::read(file, Limits::SMALL).map_err(|error| error.to_string())?;
    let about = bounded::about(file).map_err(|error| error.to_string())?;
    let mode = about.permissions().mode() & 0o777;
    Ok(Secret {
        file: file.to_owned(),
        text: only_text(bytes)?,
        open_mode: (mode & WORLD_READABLE != 0).then_some(mode),
    })
}

fn only_text(bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    if text.contains('\0') {
        return Err("it contains a NUL character".to_owned());
    }
    let before_feed = text.strip_suffix('\n').unwrap_or(&text);
    let line = before_feed.strip_suffix('\r').unwrap_or(before_feed);
    if line.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_the_text_of_its_file_without_the_last_line_feed() {
        for (text, wanted) in [
            ("s3cret\n", "s3cret"),
            ("s3cret\r\n", "s3cret"),
            (" two\nlines \n\n", " two\nlines \n"),
        ] {
            assert_eq!(only_text(text.into()).as_deref(), Ok(wanted));
        }
        for (bytes, why) in [
            (&b"\n"[..], "it is empty"),
            (b"", "it is empty"),
            (b"a\0b", "it contains a NUL character"),
            (b"\xff\xfe", "it is not UTF-8 text"),
        ] {
            assert_eq!(only_text(bytes.to_vec()), Err(why.to_owned()));
        }
    }

    #[test]
    fn secret_is_never_shown_and_another_text_is_another_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "s3cret\n").expect("written");
        let given = WrittenValue::new("--setting-file", file.to_string_lossy());
        let secret = read(&given, "value of `token`").expect("it is there");
        assert!(!format!("{secret:?}").contains("s3cret"));
        assert_eq!(
            (secret.file(), secret.reveal()),
            (&*file, "s3cret".to_owned())
        );
        std::fs::write(&file, "another").expect("written");
        assert_ne!(read(&given, "value of `token`"), Ok(secret));
        std::fs::remove_file(&file).expect("removed");
        let problem = read(&given, "value of `token`")
            .expect_err("it is gone")
            .to_string();
        assert!(
            problem.starts_with("--setting-file: the value of `token` in `"),
            "{problem}"
        );
        assert!(problem.contains("no such file"), "{problem}");
    }
}
