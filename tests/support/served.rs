//! The embedded queue as an SQS server, which is `dispatcher local` as a child process; and the
//! SDKs of other languages that speak to it, each installed once per machine. Knows no test.

use crate::child::{Program, RunningProgram, Signal};
use crate::toolchains::{node_packages, python};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

/// The SDK that speaks JSON, and the last line of those that speak the Query protocol.
pub(crate) const BOTO3: [&str; 1] = ["boto3==1.43.106"];
const OLD_BOTO3: [&str; 1] = ["boto3==1.26.165"];
const JAVASCRIPT: &str = "@aws-sdk/client-sqs@3.1169.0";

/// What precedes the address in the line that it prints for a shell.
const EXPORT: &str = "export AWS_ENDPOINT_URL_SQS=";

/// A running `dispatcher local`. Killed when dropped.
#[derive(Debug)]
pub struct LocalServer {
    running: RunningProgram,
    url: String,
}

impl LocalServer {
    /// With its own data folder, on a free port.
    pub fn start() -> Self {
        Self::of(Program::new(["local", "--listen", "127.0.0.1:0"]))
    }

    /// In the data folder of another program, whose queues it then serves.
    pub fn sharing(folder: &Arc<tempfile::TempDir>) -> Self {
        Self::of(Program::new(["local", "--listen", "127.0.0.1:0"]).sharing(folder))
    }

    /// The same of a command that says otherwise.
    pub fn of(program: Program) -> Self {
        let running = program.start();
        let line = running.wait_for_line(|line| line.starts_with(EXPORT));
        let rest = line.trim_start_matches(EXPORT);
        let url = rest.split_whitespace().next().expect("an address");
        Self {
            url: url.to_owned(),
            running,
        }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its data folder.
    pub fn data(&self) -> &Arc<tempfile::TempDir> {
        self.running.data()
    }

    /// The process.
    pub fn process(&mut self) -> &mut RunningProgram {
        &mut self.running
    }

    /// Kills it as a crash does; its data folder.
    pub fn kill(self) -> Arc<tempfile::TempDir> {
        let folder = Arc::clone(self.running.data());
        self.running.signal(Signal::KILL);
        drop(self.running);
        folder
    }
}

/// An SDK of another language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sdk {
    /// boto3, as it is today.
    Boto3,
    /// boto3 of the time when SQS spoke the Query protocol.
    OldBoto3,
    /// Version 3 of the SDK for JavaScript.
    JavaScript,
}

impl Sdk {
    /// Runs a script against a server and returns its output, or `None` with a line on stderr where
    /// this machine lacks what the language needs.
    pub fn run(self, script: &Path, endpoint: &str) -> Option<Output> {
        let mut command = match self {
            Self::Boto3 => Command::new(python(&BOTO3)),
            Self::OldBoto3 => Command::new(python(&OLD_BOTO3)),
            Self::JavaScript => {
                let modules = node_packages(&[JAVASCRIPT])?;
                // A script finds its packages beside itself.
                let copy = modules.join(script.file_name().expect("a script is a file"));
                fs::copy(script, &copy).expect("the folder is ours");
                let mut command = Command::new("node");
                command.arg(copy);
                return Some(output(command, endpoint));
            }
        };
        command.arg(script);
        Some(output(command, endpoint))
    }
}

fn output(mut command: Command, endpoint: &str) -> Output {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command
        .env("ENDPOINT", endpoint)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_DEFAULT_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "local")
        .env("AWS_SECRET_ACCESS_KEY", "local")
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .output()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}
