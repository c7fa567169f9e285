//! What a service manager such as systemd is notified of (`Type=notify`).

use crate::scene::guest;
use dispatcher_tests::PATIENCE;
use dispatcher_tests::child::{Program, RunningProgram, Signal};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The socket that a service manager listens on.
struct Manager(UnixDatagram);

impl Manager {
    fn listen(at: &Path) -> Self {
        let socket = UnixDatagram::bind(at).expect("a free path");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self(socket)
    }

    /// The states of the next notification, one a line.
    fn next(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let length = self.0.recv(&mut bytes).expect("a notification in time");
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        text.lines().map(str::to_owned).collect()
    }
}

/// A run of a configuration file, with the manager that is told of it.
fn started() -> (RunningProgram, Manager, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let manager = Manager::listen(&path);
    let file = guest("hello");
    let config = format!(
        "[plugin.hello]\nfile = {file:?}\n[[route]]\nplugin = \"hello\"\nqueues = [\"local:default\"]\n"
    );
    let running = Program::new(["run", "--config", "dispatcher.toml"])
        .file("dispatcher.toml", &config)
        .env("NOTIFY_SOCKET", path.to_str().expect("UTF-8"))
        .start();
    (running, manager, folder)
}

#[test]
fn service_manager_is_notified_of_start_reload_and_stop() {
    let (mut running, manager, _folder) = started();
    assert_eq!(manager.next(), ["READY=1", "STATUS=handling messages"]);
    running.wait_for_line(|line| line.contains("running"));

    running.signal(Signal::HUP);
    let reloading = manager.next();
    assert_eq!(reloading[0], "RELOADING=1");
    assert!(reloading[1].starts_with("MONOTONIC_USEC="), "{reloading:?}");
    assert_eq!(manager.next(), ["READY=1", "STATUS=handling messages"]);

    let broken = running.data().path().join("dispatcher.toml");
    std::fs::write(broken, "[nonsense]\n").expect("written");
    running.signal(Signal::HUP);
    assert_eq!(manager.next()[0], "RELOADING=1");
    let unchanged = manager.next();
    assert!(unchanged[1].contains("not reloaded"), "{unchanged:?}");

    running.signal(Signal::TERM);
    let stopping = manager.next();
    assert_eq!(stopping[0], "STOPPING=1");
    // A stop takes 24 s at most here, and the end of the process gets five more.
    assert_eq!(stopping[1], "EXTEND_TIMEOUT_USEC=29000000");
    assert_eq!(running.wait_exit(), 0);
}

#[test]
fn service_manager_that_is_gone_stops_nothing() {
    let mut running = Program::new(["run", "--plugin", &guest("hello")])
        .env("NOTIFY_SOCKET", "/nowhere/notify")
        .start();
    running.wait_for_line(|line| line.contains("service manager not notified"));
    let sent = Program::new(["send", "local:default", "hello"])
        .sharing(running.data())
        .run();
    running.wait_for_line(|line| line.contains(sent.stdout.trim()));
    running.signal(Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
}
