//! On a terminal a run shows its progress.

use crate::scene::{guest, send};
use dispatcher_tests::child::binary;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

#[tokio::test]
async fn progress_line_counts_completed_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&ours).expect("granted");
    unlockpt(&ours).expect("unlocked");
    let name = ptsname(&ours, Vec::new()).expect("it has a name");
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().expect("UTF-8"));
    let mut running = Command::new(binary())
        .args(["run", "--plugin", &guest("bench-noop"), "--data"])
        .arg(folder.path())
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(theirs.expect("the other end"))
        .spawn()
        .expect("it starts");
    send(folder.path(), "default", (0..300).map(|n| n.to_string())).await;
    let mut terminal = File::from(ours);
    let (mut shown, mut buffer) = (String::new(), [0; 4_096]);
    while !(shown.contains("300 done") && shown.contains("msg/s")) {
        let read = terminal.read(&mut buffer).expect("it writes on");
        shown.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    running.kill().expect("it runs");
    running.wait().expect("it ends");
}
