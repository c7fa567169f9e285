//! Finds a language's tool and runs it: its output goes to the person, with the command before and
//! its duration after. Knows no tool by name.

use crate::cli::output;
use crate::error::{Exit, Failure};
use dispatcher_core::clock;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};

/// Maximum bytes of what a tool prints that are searched for what it means.
const HEARD: usize = 256 * 1024;

/// What runs now, and whether more may start.
#[derive(Debug)]
struct RunningTool {
    tool: Option<Pid>,
    /// Whether each tool leads a process group, so that what it starts ends with it.
    has_group: bool,
    /// The build under way is to end.
    is_cancelled: bool,
    /// No build begins any more.
    is_over: bool,
}

static RUNNING: Mutex<RunningTool> = Mutex::new(RunningTool {
    tool: None,
    has_group: false,
    is_cancelled: false,
    is_over: false,
});

fn running() -> std::sync::MutexGuard<'static, RunningTool> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A build begins that `cancel` and `end` can end: its tools get process groups, which a terminal's
/// Ctrl-C does not reach.
#[cfg(feature = "local")]
pub(in crate::cli) fn begin() {
    let mut running = running();
    running.has_group = true;
    running.is_cancelled = false;
}

/// Ends the build under way: kills the tool that runs now and all that it started.
#[cfg(feature = "local")]
pub(in crate::cli) fn cancel() {
    let mut running = running();
    running.is_cancelled = true;
    running.kill();
}

/// The same, and no build begins after it.
#[cfg(feature = "local")]
pub(in crate::cli) fn end() {
    let mut running = running();
    running.is_over = true;
    running.kill();
}

impl RunningTool {
    #[cfg(feature = "local")]
    fn kill(&self) {
        if let Some(tool) = self.tool.filter(|_| self.has_group) {
            // What a build leaves behind is of no use, so that nobody is asked to end.
            let _ = rustix::process::kill_process_group(tool, rustix::process::Signal::KILL);
        }
    }
}

/// Starts a tool that `cancel` can end.
fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let mut running = running();
    if running.is_cancelled || running.is_over {
        return Err(std::io::ErrorKind::Interrupted.into());
    }
    if running.has_group {
        command.process_group(0);
    }
    let child = command.spawn()?;
    running.tool = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
    Ok(child)
}

/// Waits for its end. Its number is forgotten before it can be another process's.
fn wait(mut child: Child) -> std::io::Result<ExitStatus> {
    let tool = running().tool;
    if let Some(tool) = tool {
        waitid(
            WaitId::Pid(tool),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        )?;
    }
    running().tool = None;
    child.wait()
}

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

/// Finds a program, or says what to install.
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
    print_to_stderr(command)?;
    timed(command).map(drop)
}

/// Runs a tool. If it fails, `hint` may explain what it printed to stderr.
pub(super) fn run_or_hint(
    command: &mut Command,
    hint: impl FnOnce(&str) -> Option<String>,
) -> Result<(), Failure> {
    print_to_stderr(command)?;
    let mut heard = String::new();
    let failed = measured(command, |command| {
        let mut child = spawn(command.stderr(Stdio::piped()))?;
        for line in child
            .stderr
            .take()
            .map(BufReader::new)
            .into_iter()
            .flat_map(|all| all.split(b'\n'))
        {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            output::note(&line);
            if heard.len() < HEARD {
                heard.push_str(&line);
                heard.push('\n');
            }
        }
        Ok((wait(child)?, ()))
    });
    failed.map_err(|mut failure| {
        if let (Some(why), Some(line)) = (hint(&heard), failure.lines.last_mut()) {
            *line = format!("{line}; {why}");
        }
        failure
    })
}

/// Runs a tool and returns what it prints to stdout.
pub(super) fn read(command: &mut Command) -> Result<Vec<u8>, Failure> {
    command.stdout(Stdio::piped());
    timed(command)
}

fn print_to_stderr(command: &mut Command) -> Result<(), Failure> {
    let stderr = std::io::stderr().as_fd().try_clone_to_owned();
    let words = stderr.map_err(|error| Failure::new(Exit::Failed, format!("stderr: {error}")))?;
    command.stdout(words);
    Ok(())
}

fn timed(command: &mut Command) -> Result<Vec<u8>, Failure> {
    measured(command, |command| {
        let mut child = spawn(command.stderr(Stdio::inherit()))?;
        let mut printed = Vec::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_end(&mut printed)?;
        }
        Ok((wait(child)?, printed))
    })
}

/// Shows the command, runs it, and shows how long it took. An error if it did not end well.
fn measured<T>(
    command: &mut Command,
    run: impl FnOnce(&mut Command) -> std::io::Result<(ExitStatus, T)>,
) -> Result<T, Failure> {
    let text = text(command);
    let name = text.split(' ').next().unwrap_or_default().to_owned();
    output::note(format!("{text} ..."));
    let begun = clock::now();
    let ended = run(command.stdin(Stdio::null()));
    let took = clock::now().since(begun).as_secs_f64();
    let ended = ended.map_err(|error| Failure::new(Exit::Failed, format!("{name}: {error}")))?;
    let (status, value) = ended;
    if !status.success() {
        let what = format!("{name} failed after {took:.1} s: {status}");
        return Err(Failure::new(Exit::Failed, what));
    }
    output::note(format!("{name}: {took:.1} s"));
    Ok(value)
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
    fn program_is_found_on_the_path_if_executable() {
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
    fn failing_tool_is_reported_with_its_output() {
        let failed = run(Command::new("sh").args(["-c", "exit 7"])).unwrap_err();
        assert!(failed.lines[0].starts_with("sh failed after"), "{failed:?}");
        assert!(failed.lines[0].contains('7'), "{failed:?}");
        let read = read(Command::new("sh").args(["-c", "echo data"])).unwrap();
        assert_eq!(read, b"data\n");
    }

    #[test]
    fn finding_24_failure_is_explained_by_the_tools_output() {
        let fails = |words: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo \"$0\" >&2; exit 3", words]);
            let hint = |heard: &str| heard.contains("known").then(|| "do this".to_owned());
            run_or_hint(&mut command, hint).unwrap_err().lines
        };
        let known = fails("a known failure");
        assert!(known[0].ends_with("exit status: 3; do this"), "{known:?}");
        let other = fails("another one");
        assert!(other[0].ends_with("exit status: 3"), "{other:?}");
        let mut good = Command::new("sh");
        good.args(["-c", "echo known >&2"]);
        run_or_hint(&mut good, |_| Some("never".into())).unwrap();
    }

    #[test]
    fn installation_before_a_change_of_the_list_is_stale() {
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
