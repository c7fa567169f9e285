//! Programs as child processes: their lines, what they cost, their end. Linux only: costs are read
//! from /proc. Knows no queue.

use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Ticks of a second in /proc/stat and /proc/PID/stat, on every Linux that Rust runs on.
pub(crate) const TICKS: f64 = 100.0;

/// Processor time by thread.
pub(crate) type ThreadTimes = HashMap<String, Duration>;

/// A running program. Killed when dropped.
pub(crate) struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<(BootInstant, String)>,
    /// When it was started.
    pub started: BootInstant,
}

impl Program {
    /// Starts it; its lines on both outputs are read at once and kept with their time.
    pub(crate) fn start(mut command: Command) -> Self {
        let started = clock::now();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (sender, lines) = channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|out| Box::new(out) as _),
            child.stderr.take().map(|out| Box::new(out) as _),
        ];
        for output in outputs.into_iter().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send((clock::now(), line)).is_err() {
                        break;
                    }
                }
            });
        }
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
            started,
        }
    }

    /// The next line that holds `part`, and when it came.
    pub(crate) fn line(&mut self, part: &str) -> (BootInstant, String) {
        let mut others = String::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok((at, line)) if line.contains(part) => return (at, line),
                Ok((_, line)) => others = format!("{others}{line}\n"),
                Err(error) => panic!("no line with `{part}`: {error}\n{others}"),
            }
        }
    }

    /// All lines that nobody has asked for yet.
    pub(crate) fn lines_so_far(&self) -> Vec<String> {
        self.lines.try_iter().map(|(_, line)| line).collect()
    }

    /// Returns the lines that have come, each with its time.
    pub(crate) fn timed_lines(&self) -> Vec<(BootInstant, String)> {
        self.lines.try_iter().collect()
    }

    /// Writes one line to its input.
    pub(crate) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("open until the end");
        writeln!(stdin, "{line}").expect("it reads its input");
    }

    /// Processor time of all its threads so far, ended ones included; to 10 ms.
    pub(crate) fn cpu(&self) -> Duration {
        cpu_of(&self.child.id().to_string())
    }

    /// Processor time since then, exact; of threads that have ended meanwhile nothing counts.
    pub(crate) fn cpu_since(&self, before: &ThreadTimes) -> Duration {
        let of_thread = |(id, now): (&String, &Duration)| match before.get(id) {
            Some(then) => now.saturating_sub(*then),
            None => *now,
        };
        self.thread_times().iter().map(of_thread).sum()
    }

    /// What each thread has used so far.
    pub(crate) fn thread_times(&self) -> ThreadTimes {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let time = |path: PathBuf| -> Option<(String, Duration)> {
            let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
            let used = Duration::from_nanos(text.split(' ').next()?.parse().ok()?);
            Some((path.file_name()?.to_string_lossy().into_owned(), used))
        };
        let tasks = tasks.expect("it runs").filter_map(Result::ok);
        tasks.filter_map(|task| time(task.path())).collect()
    }

    /// Resident memory now, and at most so far, in MiB.
    pub(crate) fn memory(&self) -> (f64, f64) {
        let mib = |name: &str| self.status(name) / 1024.0;
        (mib("VmRSS:"), mib("VmHWM:"))
    }

    /// How many threads it has.
    pub(crate) fn threads(&self) -> f64 {
        self.status("Threads:")
    }

    /// A number of /proc/PID/status.
    fn status(&self, name: &str) -> f64 {
        let text = self.proc("status");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.expect("a number")
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).expect("it runs")
    }

    /// Panics with what it has written if it has ended.
    pub(crate) fn assert_running(&mut self) {
        if let Some(status) = self.child.try_wait().expect("our child") {
            // Its outputs end with it.
            let lines: Vec<String> = self.lines.iter().map(|(_, line)| line).collect();
            panic!("the program ended, {status}:\n{}", lines.join("\n"));
        }
    }

    /// Lets it do nothing until it is resumed.
    pub(crate) fn hold(&self) {
        self.signal(Signal::STOP);
    }

    /// Ends a hold.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        let id = Pid::from_raw(id).expect("not zero");
        kill_process(id, signal).expect("it runs");
    }

    /// Asks it to stop and waits for its end; how long that took.
    pub(crate) fn stop(mut self) -> Duration {
        let asked = clock::now();
        self.signal(Signal::TERM);
        let status = self.child.wait().expect("our child");
        let took = clock::now().since(asked);
        assert!(status.success(), "{status}");
        took
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time of a process (its id, or `self`) so far, ended threads included; to 10 ms.
pub(crate) fn cpu_of(process: &str) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let ticks = |place: usize| -> f64 {
        let field = after_name.split_whitespace().nth(place);
        field.and_then(|n| n.parse().ok()).expect("a number")
    };
    Duration::from_secs_f64((ticks(11) + ticks(12)) / TICKS)
}

/// The program that is measured, as this very build made it.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_dispatcher");

/// A command of the program with nothing of this shell's settings.
pub(crate) fn dispatcher(data: &Path, words: &[&str]) -> Command {
    command_of(Path::new(BINARY), data, words)
}

/// The same of another build of the program.
pub(crate) fn command_of(binary: &Path, data: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("DISPATCHER_") || name_text.starts_with("AWS_") {
            command.env_remove(&name);
        }
    }
    command.args(words).env("DISPATCHER_DATA", data);
    for (name, value) in AWS {
        command.env(name, value);
    }
    command
}

/// What an SDK must know to speak to a server that checks nothing.
pub(crate) const AWS: [(&str, &str); 4] = [
    ("AWS_ACCESS_KEY_ID", "bench"),
    ("AWS_SECRET_ACCESS_KEY", "bench"),
    ("AWS_REGION", "us-east-1"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
];

/// A shipped component.
pub(crate) fn plugin(name: &str) -> String {
    format!(
        "{}/../../plugins/prebuilt/{name}.wasm",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// Prints how large the program is.
pub(crate) fn print_size() {
    let bytes = std::fs::metadata(BINARY).expect("cargo built it").len();
    println!("release binary: {:.1} MB", bytes as f64 / 1e6);
}
