//! Finds and runs a language's tool. The tool's output goes to the user, after the command and
//! before its duration. Knows no tool by name.

use crate::cli::output;
use crate::error::{Exit, Failure};
use dispatcher_core::clock;
use parking_lot::Mutex;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::SystemTime;

/// The maximum number of bytes of a tool's output that are searched for hints.
const HEARD: usize = 256 * 1024;

/// The running tool, and whether more may start.
#[derive(Debug)]
struct RunningTool {
    tool: Option<Pid>,
    /// Whether each tool leads a process group, so that its children end with it.
    has_group: bool,
    /// Whether the current build must end.
    is_cancelled: bool,
    /// Whether no further build may begin.
    is_over: bool,
}

static RUNNING: Mutex<RunningTool> = Mutex::new(RunningTool {
    tool: None,
    has_group: false,
    is_cancelled: false,
    is_over: false,
});

fn running() -> parking_lot::MutexGuard<'static, RunningTool> {
    RUNNING.lock()
}

/// Begins a build that `cancel` and `end` can end: its tools get process groups, which Ctrl-C in a
/// terminal does not reach.
#[cfg(feature = "local")]
pub(in crate::cli) fn begin() {
    let mut running = running();
    running.has_group = true;
    running.is_cancelled = false;
}

/// Ends the current build: kills the running tool and all its children.
#[cfg(feature = "local")]
pub(in crate::cli) fn cancel() {
    let mut running = running();
    running.is_cancelled = true;
    running.kill();
}

/// Ends the current build, and prevents further builds.
#[cfg(feature = "local")]
pub(in crate::cli) fn end() {
    let mut running = running();
    running.is_over = true;
    running.kill();
}

impl RunningTool {
    #[cfg(feature = "local")]
    fn kill(&self) {
        if self.has_group
            && let Some(tool) = self.tool
        {
            // A partial build is useless, so the tools are killed without a grace period.
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

/// Waits for the end of a tool. Forgets its process id before another process can get it.
fn wait(mut child: Child) -> std::io::Result<ExitStatus> {
    let tool = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
    if let Some(tool) = tool {
        waitid(
            WaitId::Pid(tool),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        )?;
    }
    running().tool.take_if(|running| Some(*running) == tool);
    child.wait()
}

/// Returns the path of a program in the folders of `PATH`.
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

/// Finds a program, or fails with what to install.
pub(super) fn need(name: &str, install: &str) -> Result<PathBuf, Failure> {
    find(name).ok_or_else(|| missing(name, install))
}

/// Finds a program of at least this version, as it prints it for `arguments`. A version that cannot be
/// read is taken for new enough.
pub(super) fn need_version(
    name: &str,
    arguments: &[&str],
    least: (u32, u32),
    install: &str,
) -> Result<PathBuf, Failure> {
    let program = need(name, install)?;
    let printed = printed(Command::new(&program).args(arguments));
    match printed.as_deref().and_then(version_in) {
        Some((major, minor)) if (major, minor) < least => Err(Failure::new(
            Exit::Unreachable,
            format!("{name} {major}.{minor} is too old; install {install}"),
        )),
        _ => Ok(program),
    }
}

/// Returns what a command prints to stdout, if it succeeds. Hides its other output.
pub(super) fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.trim().to_owned())
}

/// Returns the first two numbers of a version such as `go1.19.8`, `v18.19.0` or `Python 3.9.2`.
fn version_in(printed: &str) -> Option<(u32, u32)> {
    let digits = printed.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = printed[digits..].split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns the failure of a missing tool. `install` is a command or short advice.
pub(super) fn missing(name: &str, install: &str) -> Failure {
    let what = format!("no {name} on the PATH; install it: {install}");
    Failure::new(Exit::Unreachable, what)
}

/// Returns whether a command succeeds. Hides its output.
pub(super) fn works(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs a tool. Its output goes to stderr.
pub(super) fn run(command: &mut Command) -> Result<(), Failure> {
    print_to_stderr(command)?;
    timed(command).map(drop)
}

/// Runs a tool. If it fails, `hint` may explain its output to stderr.
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
            let bytes = line?;
            let line = String::from_utf8_lossy(&bytes);
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

/// Runs a tool without showing it, and returns its output, whether it succeeds or not.
pub(super) fn complaints(command: &mut Command) -> Result<String, Failure> {
    let mut printed = Vec::new();
    let ended = std::io::pipe().and_then(|(mut reader, writer)| {
        command.stdin(Stdio::null()).stdout(writer.try_clone()?);
        let child = spawn(command.stderr(writer))?;
        // Drops the command's own ends of the pipe, so that reading ends with the tool.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        reader.read_to_end(&mut printed)?;
        wait(child)
    });
    if let Err(error) = ended {
        let text = text(command);
        let name = text.split(' ').next().unwrap_or_default();
        return Err(Failure::new(Exit::Failed, format!("{name}: {error}")));
    }
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// Runs a tool and returns its output to stdout.
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

/// Shows the command, runs it, and shows its duration.
///
/// # Errors
/// Fails if the command does not succeed.
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
    let (status, value) =
        ended.map_err(|error| Failure::new(Exit::Failed, format!("{name}: {error}")))?;
    if !status.success() {
        let what = format!("{name} failed after {took:.1} s: {status}");
        return Err(Failure::new(Exit::Failed, what));
    }
    output::note(format!("{name}: {took:.1} s"));
    Ok(value)
}

/// Formats a command approximately as a user would type it.
fn text(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words: Vec<_> = std::iter::once(program)
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    words.join(" ")
}

/// Returns whether the installation is older than its list, or missing.
pub(super) fn is_stale(list: &Path, installed: &Path) -> bool {
    match (modified(list), modified(installed)) {
        (Some(list), Some(installed)) => list > installed,
        _ => true,
    }
}

fn modified(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|data| data.modified()).ok()
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
        let both = complaints(Command::new("sh").args(["-c", "echo a; echo b >&2; exit 7"]));
        assert_eq!(both.unwrap(), "a\nb\n");
    }

    #[test]
    fn finding_24_failure_is_explained_by_the_tools_output() {
        for (words, ending) in [
            ("a known failure", "exit status: 3; do this"),
            ("another one", "exit status: 3"),
        ] {
            let mut command = Command::new("sh");
            command.args(["-c", "echo \"$0\" >&2; exit 3", words]);
            let failed = run_or_hint(&mut command, |heard| {
                heard.contains("known").then(|| "do this".to_owned())
            });
            let lines = failed.unwrap_err().lines;
            assert!(lines[0].ends_with(ending), "{lines:?}");
        }
        let mut good = Command::new("sh");
        good.args(["-c", "echo known >&2"]);
        run_or_hint(&mut good, |_| Some("never".into())).unwrap();
    }

    #[test]
    fn version_is_read_as_each_tool_prints_it() {
        for (printed, version) in [
            ("go1.19.8\n", Some((1, 19))),
            ("v18.19.0\n", Some((18, 19))),
            ("Python 3.9.2\n", Some((3, 9))),
            ("devel +abc", None),
            ("", None),
        ] {
            assert_eq!(version_in(printed), version, "{printed}");
        }
    }

    #[test]
    fn installation_before_a_change_of_the_list_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = [("old", 100), ("new", 200)].map(|(name, at)| {
            let path = folder.path().join(name);
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(at);
            let file = std::fs::File::create(&path).unwrap();
            file.set_modified(time).unwrap();
            path
        });
        assert!(is_stale(&new, &old));
        assert!(!is_stale(&old, &new));
        assert!(is_stale(&old, &folder.path().join("never")));
    }
}
