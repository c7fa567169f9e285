//! What `host/packaging` makes, used as its users would: built, checked, installed, run, removed.

mod debian;
mod debian_upgrade;
mod deployed;
mod image;
mod manual;
mod release;
mod sandbox;
mod suites;
mod tools;

use dispatcher_tests::child::{Program, RunningProgram};
use dispatcher_tests::packaging::{as_root, confined};
use dispatcher_tests::servers::free_port;
use std::path::Path;
use std::process::Command;

/// A program in a folder that holds a whole system, of which this user can change one folder alone.
struct ConfinedProgram<'a> {
    root: &'a Path,
    user: u32,
    writable: &'a str,
    /// `NAME=VALUE`, all that its environment has.
    environment: Vec<String>,
}

impl ConfinedProgram<'_> {
    fn command_line(&self, arguments: &str) -> String {
        let program = format!("/usr/bin/dispatcher {arguments}");
        confined(self.root, self.user, self.writable, &program)
    }

    /// Starts `dispatcher`, with these arguments as a shell reads them.
    fn start(&self, arguments: &str) -> RunningProgram {
        let mut command = as_root("unshare", "this").expect("the folder was made by root");
        command
            .args(["--mount", "env", "-i"])
            .args(&self.environment);
        let path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
        command.args([path, "sh", "-c", &self.command_line(arguments)]);
        program_of(&command).start()
    }

    /// Runs it to its end, which must be a success, and answers with what it printed.
    fn run(&self, arguments: &str) -> String {
        let mut running = self.start(arguments);
        let code = running.wait_exit();
        let text = running.lines(|_| true).join("\n");
        assert_eq!(code, 0, "{arguments}: {text}");
        text
    }
}

/// The documents of a YAML text.
pub(crate) fn yaml_documents(text: &str) -> Vec<serde_json::Value> {
    deployed::documents(text, None)
}

fn program_of(command: &Command) -> Program {
    Program::of(command.get_program(), command.get_args())
}

/// Sends a message to a run with the admin address, waits until it is handled, probes and stops it.
fn main_job_is_done(system: &ConfinedProgram<'_>, run: &str) {
    let admin = format!("127.0.0.1:{}", free_port());
    let mut running = system.start(&format!("{run} --log-format json --admin {admin}"));
    running.wait_for_line(|line| line.contains("\"running\""));
    system.run(&format!("health --ready --admin {admin}"));
    system.run("send local:default hello-from-outside --data /var/lib/dispatcher");
    running.wait_for_line(|line| line.contains("hello-from-outside"));
    running.signal(dispatcher_tests::child::Signal::TERM);
    assert_eq!(running.wait_exit(), 0);
    let left = system.run("queues local: --data /var/lib/dispatcher --json");
    assert!(left.contains("default"), "{left}");
}
