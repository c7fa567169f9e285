//! The real program as a child process: its own data folder, a clean environment, every line of
//! output kept. Knows nothing of what the program does.

use crate::servers::caches_folder;
use crate::{MOST_PATIENCE, PATIENCE};
pub use rustix::process::Signal;
use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::Instant;

/// This many lines of a program are shown when its test fails.
const SHOWN: usize = 60;

/// Where the program keeps compiled plugins in its data folder.
const COMPILED: &str = "compiled";

/// Where all programs of the tests keep them: each plugin is compiled once, not once per test, which
/// took most of the tests' time.
fn compiled() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = caches_folder().join("compiled");
        fs::create_dir_all(&folder).expect("a folder of the tests");
        // As the program makes it. One that others may write is not trusted.
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("it is ours");
        folder
    });
    &FOLDER
}

/// How to start the program.
#[derive(Debug)]
pub struct Program {
    command: Command,
    data: Arc<tempfile::TempDir>,
    stdin: Option<String>,
}

impl Program {
    /// With these arguments and its own data folder.
    pub fn new<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        Self::of(binary(), arguments)
    }

    /// The same of this file.
    pub fn of<S: AsRef<OsStr>>(
        binary: impl AsRef<Path>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
        symlink(compiled(), data.path().join(COMPILED)).expect("the folder is new");
        let mut command = Command::new(binary.as_ref());
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if ["AWS_", "DISPATCHER_", "OTEL_", "WORKERLESS_"]
                .iter()
                .any(|own| name.starts_with(own))
            {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .env("DISPATCHER_DATA", data.path())
            // Neither the person's own profiles nor the machine's role.
            .env("AWS_CONFIG_FILE", "/dev/null")
            .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .current_dir(data.path());
        Self {
            command,
            data,
            stdin: None,
        }
    }

    /// With nothing compiled before it starts.
    pub fn compiling(self) -> Self {
        fs::remove_file(self.data.path().join(COMPILED)).expect("no start has replaced the link");
        self
    }

    /// In the data folder of another start, whose queues it then shares.
    pub fn sharing(mut self, other: &Arc<tempfile::TempDir>) -> Self {
        self.data = Arc::clone(other);
        self.command
            .env("DISPATCHER_DATA", other.path())
            .current_dir(other.path());
        self
    }

    /// With one more environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// After a step that a shell takes in the same process.
    pub fn after(mut self, step: &str) -> Self {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("{step} && exec \"$0\" \"$@\""));
        command
            .arg(self.command.get_program())
            .args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.data.path());
        self.command = command;
        self
    }

    /// With a file in its data folder, which is where it runs.
    pub fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.data.path().join(name), text).expect("the folder is ours");
        self
    }

    /// With an emulator's endpoint, and credentials that it accepts.
    pub fn aws(self, endpoint_url: &str) -> Self {
        self.env("AWS_ENDPOINT_URL", endpoint_url)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
    }

    /// With this on standard input, which otherwise is empty.
    pub fn stdin(mut self, text: &str) -> Self {
        self.stdin = Some(text.to_owned());
        self
    }

    /// For whoever starts it himself, in this data folder.
    pub fn into_command(self) -> (Command, Arc<tempfile::TempDir>) {
        (self.command, self.data)
    }

    /// Starts it and reads along.
    pub fn start(self) -> RunningProgram {
        let input = match self.stdin {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        };
        self.start_reading(input)
    }

    /// The same with a standard input of the test's own.
    pub fn start_reading(mut self, input: impl Into<Stdio>) -> RunningProgram {
        let mut child = self
            .command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {:?}: {error}", self.command));
        let output = Arc::new(Output::default());
        output.follow(Stream::Out, child.stdout.take().expect("it is piped"));
        output.follow(Stream::Err, child.stderr.take().expect("it is piped"));
        if let (Some(text), Some(mut pipe)) = (self.stdin, child.stdin.take()) {
            // The program may stop reading before the end; what it says then is the test's matter.
            std::thread::spawn(move || pipe.write_all(text.as_bytes()));
        }
        RunningProgram {
            child,
            output,
            data: self.data,
        }
    }

    /// Starts it and waits for its end.
    pub fn run(self) -> ExitedProgram {
        let mut running = self.start();
        let code = running.wait_exit();
        ExitedProgram {
            code,
            stdout: running.text(Stream::Out),
            stderr: running.text(Stream::Err),
        }
    }
}

/// A program that has ended.
#[derive(Debug, Clone)]
pub struct ExitedProgram {
    /// As a shell counts: the exit code, or 128 and the signal's number.
    pub code: i32,
    /// Everything it wrote there, as text.
    pub stdout: String,
    /// The same of the other stream.
    pub stderr: String,
}

/// A running program. Killed when dropped.
#[derive(Debug)]
pub struct RunningProgram {
    child: Child,
    output: Arc<Output>,
    data: Arc<tempfile::TempDir>,
}

impl RunningProgram {
    /// Its data folder, for `Program::sharing`.
    pub fn data(&self) -> &Arc<tempfile::TempDir> {
        &self.data
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The first line, of either stream and since the start, for which this holds. Panics with
    /// all output if the program ends without it.
    pub fn wait_for_line(&self, holds: impl Fn(&str) -> bool) -> String {
        let found = self.output.wait(|lines, open| {
            let line = lines.iter().find(|(_, text)| holds(text));
            match line {
                Some((_, text)) => Some(Some(text.clone())),
                None if open == 0 => Some(None),
                None => None,
            }
        });
        found
            .flatten()
            .unwrap_or_else(|| panic!("no such line in the program's output:\n{}", self.output))
    }

    /// All lines so far for which this holds, once they are so many. Panics with all output if the
    /// program ends before.
    pub fn wait_for_lines(&self, count: usize, holds: impl Fn(&str) -> bool) -> Vec<String> {
        let (read, found) = (Cell::new(0), RefCell::new(Vec::new()));
        let enough = self.output.wait(|lines, open| {
            let new = lines[read.get()..].iter().map(|(_, text)| text);
            found
                .borrow_mut()
                .extend(new.filter(|text| holds(text)).cloned());
            read.set(lines.len());
            match found.borrow().len() >= count {
                true => Some(true),
                false if open == 0 => Some(false),
                false => None,
            }
        });
        assert!(
            enough == Some(true),
            "not {count} such lines in the program's output:\n{}",
            self.output
        );
        found.into_inner()
    }

    /// Sends a signal to this process alone.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok();
        let id = id
            .and_then(rustix::process::Pid::from_raw)
            .expect("a process id");
        rustix::process::kill_process(id, signal).expect("it is our child and not yet waited for");
    }

    /// Asks it to stop; it does, without complaint.
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.wait_exit(), 0, "{}", self.output);
    }

    /// Waits for the end; the code as a shell counts.
    pub fn wait_exit(&mut self) -> i32 {
        let ended = self.output.wait(|_, open| (open == 0).then_some(()));
        assert!(
            ended.is_some(),
            "the program does not end:\n{}",
            self.output
        );
        let status = self.child.wait().expect("it is our child");
        shell_code(status)
    }

    /// All lines so far, of either stream, for which this holds.
    pub fn lines(&self, holds: impl Fn(&str) -> bool) -> Vec<String> {
        let state = self.output.state.lock();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let texts = state.lines.iter().map(|(_, text)| text);
        texts.filter(|text| holds(text)).cloned().collect()
    }

    /// All lines of one stream so far.
    pub fn text(&self, stream: Stream) -> String {
        let state = self.output.state.lock();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let of_stream = state.lines.iter().filter(|(of, _)| *of == stream);
        of_stream.map(|(_, text)| format!("{text}\n")).collect()
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            self.output.show();
        }
    }
}

/// Which stream a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

#[derive(Debug, Default)]
struct Output {
    state: Mutex<OutputState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct OutputState {
    lines: Vec<(Stream, String)>,
    /// Streams that have not ended.
    open: usize,
}

impl Output {
    fn follow(self: &Arc<Self>, stream: Stream, pipe: impl Read + Send + 'static) {
        let output = Arc::clone(self);
        output.update(|state| state.open += 1);
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n') {
                let Ok(line) = line else { break };
                let text = String::from_utf8_lossy(&line).into_owned();
                output.update(|state| state.lines.push((stream, text)));
            }
            output.update(|state| state.open -= 1);
        });
    }

    fn update(&self, change: impl FnOnce(&mut OutputState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until the question has an answer; `None` when patience ends, which starts over with
    /// every line, a few times: what continues slowly is not stuck.
    fn wait<T>(&self, ask: impl Fn(&[(Stream, String)], usize) -> Option<T>) -> Option<T> {
        let end = Instant::now() + MOST_PATIENCE;
        let mut deadline = Instant::now() + PATIENCE;
        let mut lines = 0;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(answer) = ask(&state.lines, state.open) {
                return Some(answer);
            }
            if state.lines.len() > lines {
                lines = state.lines.len();
                // A large component compiles for long, in silence.
                let (_, last) = &state.lines[lines - 1];
                let is_compiling = last.contains("compiling plugin");
                let next = Instant::now() + PATIENCE;
                deadline = if is_compiling { end } else { next.min(end) };
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            (state, _) = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Output {
    /// The end of it beside the message of a test that fails.
    #[expect(clippy::print_stderr, reason = "a failing test's output is shown")]
    fn show(&self) {
        let text = self.to_string();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(SHOWN)..];
        eprintln!("the program's last lines:\n{}", last.join("\n"));
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (stream, text) in &state.lines {
            writeln!(out, "{stream:?} {text}")?;
        }
        Ok(())
    }
}

fn shell_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .expect("a process ends by itself or by a signal")
}

/// The program: the file that `DISPATCHER_BINARY` names, else the one that cargo put beside this
/// test. `cargo test --workspace` builds it, since it is a target of a package with tests; where one
/// suite is built alone, `cargo build` comes first.
///
/// # Panics
/// Where it is missing or older than its sources: a test of yesterday's program proves nothing.
pub fn binary() -> PathBuf {
    static FOUND: LazyLock<PathBuf> =
        LazyLock::new(|| std::env::var_os("DISPATCHER_BINARY").map_or_else(built, PathBuf::from));
    FOUND.clone()
}

fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    // TARGET/PROFILE/deps/TEST
    let profile = test.ancestors().nth(2).unwrap_or(Path::new("."));
    let binary = profile.join("dispatcher");
    let sources = fs::read_to_string(profile.join("dispatcher.d")).unwrap_or_default();
    match newer_source(&binary, &sources) {
        Ok(None) => binary,
        Ok(Some(source)) => panic!(
            "{} is older than {}: run `cargo build` first",
            binary.display(),
            source.display()
        ),
        Err(error) => panic!("{}: {error}: run `cargo build` first", binary.display()),
    }
}

/// The first source that changed since the binary was written, of those that cargo lists beside it as
/// `BINARY: SOURCE SOURCE`, with a backslash before a space within a path.
fn newer_source(binary: &Path, listed: &str) -> io::Result<Option<PathBuf>> {
    let written = fs::metadata(binary)?.modified()?;
    let sources = listed.split_once(": ").map_or("", |(_, sources)| sources);
    let sources = sources.replace("\\ ", "\0");
    let changed = |source: &PathBuf| {
        let modified = fs::metadata(source).and_then(|file| file.modified());
        modified.is_ok_and(|modified| modified > written)
    };
    let mut paths = sources
        .split_whitespace()
        .map(|one| PathBuf::from(one.replace('\0', " ")));
    Ok(paths.find(changed))
}

#[cfg(test)]
mod tests;
