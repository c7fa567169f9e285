//! On a terminal a run shows its progress, and so do commands that take long.

use crate::handlers::replay::record;
use crate::scene::{guest, send};
use dispatcher_tests::child::binary;
use dispatcher_tests::terminal;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A command whose stderr is a terminal, and what it shows there.
struct TerminalOutput {
    ours: File,
    child: Child,
    shown: String,
}

impl TerminalOutput {
    fn of(data: &Path, arguments: &[&str]) -> Self {
        let (ours, theirs) = terminal::open();
        let child = Command::new(binary())
            .args(arguments)
            .arg("--data")
            .arg(data)
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(theirs)
            .spawn()
            .expect("it starts");
        Self {
            ours,
            child,
            shown: String::new(),
        }
    }

    /// Reads until all of it was shown, or the command has ended.
    fn until(&mut self, wanted: &[&str]) {
        let mut buffer = [0; 4_096];
        while !wanted.iter().all(|text| self.shown.contains(text)) {
            // The end of the command is an error here.
            let Ok(read @ 1..) = self.ours.read(&mut buffer) else {
                panic!("wanted {wanted:?}: {}", self.shown);
            };
            self.shown
                .push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    }
}

impl Drop for TerminalOutput {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn progress_line_counts_completed_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = ["run", "--plugin", &guest("bench-noop")];
    let mut running = TerminalOutput::of(folder.path(), &run);
    send(folder.path(), "default", (0..300).map(|n| n.to_string())).await;
    running.until(&["300 done", "msg/s"]);
}

#[tokio::test]
async fn a_redrive_shows_how_far_it_has_looked() {
    let folder = tempfile::tempdir().expect("a folder");
    let bodies = (0..2_000).map(|n| n.to_string());
    send(folder.path(), "q.dead", bodies).await;
    let mut looking = TerminalOutput::of(folder.path(), &["redrive", "local:q.dead"]);
    looking.until(&["/2,000", "/s"]);
}

#[test]
fn a_replay_shows_that_it_compiles_and_how_far_it_is() {
    let recorded = record();
    let folder = tempfile::tempdir().expect("a folder");
    let path = recorded.path();
    let replay = ["plugin", "replay", &guest("order-check"), &path];
    let mut replaying = TerminalOutput::of(folder.path(), &replay);
    replaying.until(&["compiling", "/2 "]);
}
