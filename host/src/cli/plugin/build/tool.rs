//! Finds a language's tool and runs it: what it says goes through to the person, with what is run
//! before and how long it took after. Knows no tool by name.

use crate::cli::output;
use crate::clock;
use crate::error::{Exit, Failure};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a program is, by the folders of `PATH`.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    find_in(name, &std::env::var_os("PATH")?)
}

fn find_in(name: &str, path: &OsStr) -> Option<PathBuf> {
    let places = std::env::split_paths(path).map(|folder| folder.join(name));
    places.into_iter().find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The same, or what to install.
pub(super) fn need(name: &str, install: &str) -> Result<PathBuf, Failure> {
    find(name).ok_or_else(|| missing(name, install))
}

/// A tool is not there. `install` is a command or what to do, in a few words.
pub(super) fn missing(name: &str, install: &str) -> Failure {
    let what = format!("no {name} on the PATH; install it: {install}");
    Failure::new(Exit::Unreachable, what)
}

/// Whether a command ends well, without a word.
pub(super) fn works(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs a tool. Whatever it prints goes to stderr.
pub(super) fn run(command: &mut Command) -> Result<(), Failure> {
    let stderr = std::io::stderr();
    let stderr = stderr.as_fd().try_clone_to_owned();
    let words = stderr.map_err(|error| Failure::new(Exit::Failed, format!("stderr: {error}")))?;
    command.stdout(words);
    timed(command).map(drop)
}

/// The same, and returns what it prints to stdout.
pub(super) fn read(command: &mut Command) -> Result<Vec<u8>, Failure> {
    command.stdout(Stdio::piped());
    timed(command)
}

fn timed(command: &mut Command) -> Result<Vec<u8>, Failure> {
    let text = text(command);
    let name = text.split(' ').next().unwrap_or_default().to_owned();
    output::note(format!("{text} ..."));
    let begun = clock::now();
    let child = command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let ended = child.spawn().and_then(|child| child.wait_with_output());
    let took = clock::now().since(begun).as_secs_f64();
    let ended = ended.map_err(|error| Failure::new(Exit::Failed, format!("{name}: {error}")))?;
    if !ended.status.success() {
        let what = format!("{name} failed after {took:.1} s: {}", ended.status);
        return Err(Failure::new(Exit::Failed, what));
    }
    output::note(format!("{name}: {took:.1} s"));
    Ok(ended.stdout)
}

/// A command as a person would type it, as near as one line can.
fn text(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

/// Whether what was installed from a list is older than the list, or was never installed.
pub(super) fn is_stale(list: &Path, installed: &Path) -> bool {
    let time = |file: &Path| file.metadata().and_then(|data| data.modified()).ok();
    match (time(list), time(installed)) {
        (Some(list), Some(installed)) => list > installed,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_the_path_and_must_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().as_os_str();
        std::fs::write(folder.path().join("notes"), "").unwrap();
        assert_eq!(find_in("notes", path), None);
        assert_eq!(find_in("nothing", path), None);
        assert!(find("sh").is_some());
        let told = need("no-such-tool", "buy it").unwrap_err();
        assert_eq!(told.exit, Exit::Unreachable);
        assert_eq!(
            told.lines,
            ["no no-such-tool on the PATH; install it: buy it"]
        );
    }

    #[test]
    fn a_tool_that_fails_says_how() {
        let failed = run(Command::new("sh").args(["-c", "exit 7"])).unwrap_err();
        assert!(failed.lines[0].starts_with("sh failed after"), "{failed:?}");
        assert!(failed.lines[0].contains('7'), "{failed:?}");
        let read = read(Command::new("sh").args(["-c", "echo data"])).unwrap();
        assert_eq!(read, b"data\n");
    }

    #[test]
    fn what_was_installed_before_the_list_changed_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, at: u64| {
            let path = folder.path().join(name);
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(at);
            let file = std::fs::File::create(&path).unwrap();
            file.set_modified(time).unwrap();
            path
        };
        let (old, new) = (file("old", 100), file("new", 200));
        assert!(is_stale(&new, &old));
        assert!(!is_stale(&old, &new));
        assert!(is_stale(&old, &folder.path().join("never")));
    }
}
