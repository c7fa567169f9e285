//! What others handle messages of SQS with, as child processes: npm sqs-consumer, a loop on boto3, an
//! Express application. Installed by npm and pip, once, into the build's folder. Knows no measurement.

use super::program::AWS;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: [&str; 3] = [
    "sqs-consumer@14.2.8",
    "@aws-sdk/client-sqs@3.1169.0",
    "express@5.3.0",
];
const BOTO3: &str = "boto3==1.43.106";

/// The peers, ready to run.
pub(crate) struct Peers {
    folder: PathBuf,
}

impl Peers {
    /// Installs them where they are not yet.
    ///
    /// # Errors
    /// The tool that is missing or failed.
    pub(crate) fn install() -> Result<Self, String> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        for (name, text) in [
            ("consumer.mjs", include_str!("peers/consumer.mjs")),
            ("express.mjs", include_str!("peers/express.mjs")),
            ("loop.py", include_str!("peers/loop.py")),
            ("package.json", "{\"private\": true}"),
        ] {
            std::fs::write(folder.join(name), text).map_err(|error| error.to_string())?;
        }
        let peers = Self { folder };
        if !peers.folder.join("node_modules/sqs-consumer").exists() {
            let mut install = Command::new("npm");
            install
                .args(["install", "--no-audit", "--no-fund"])
                .args(PACKAGES);
            peers.run(install)?;
        }
        if !peers.folder.join("venv/bin/boto3").exists() {
            let mut make = Command::new("python3");
            make.args(["-m", "venv", "venv"]);
            peers.run(make)?;
            let mut install = Command::new("venv/bin/pip");
            install.args(["install", "--quiet", BOTO3]);
            peers.run(install)?;
            std::fs::write(peers.folder.join("venv/bin/boto3"), BOTO3)
                .map_err(|error| error.to_string())?;
        }
        Ok(peers)
    }

    fn run(&self, mut command: Command) -> Result<(), String> {
        let output = command.current_dir(&self.folder).output();
        let output = output.map_err(|error| format!("{command:?}: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!(
                "{command:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }

    fn command(&self, program: &str, script: &str) -> Command {
        let mut command = Command::new(program);
        command.arg(script).current_dir(&self.folder).envs(AWS);
        command
    }

    /// So many consumers of npm sqs-consumer in one process; `mode`: `singly` or `batch`.
    pub(crate) fn consumers(
        &self,
        endpoint: &str,
        queue: &str,
        mode: &str,
        count: &str,
    ) -> Command {
        let mut command = self.command("node", "consumer.mjs");
        command.args([endpoint, queue, mode, count]);
        command
    }

    /// A loop on boto3 in each of so many threads.
    pub(crate) fn boto3(&self, endpoint: &str, queue: &str, threads: &str) -> Command {
        let python = self.folder.join("venv/bin/python");
        let mut command = self.command(&python.to_string_lossy(), "loop.py");
        command.args([endpoint, queue, threads]);
        // It does not read AWS_REGION.
        command.env("AWS_DEFAULT_REGION", "us-east-1");
        command
    }

    /// An application that takes messages by HTTP; it prints `listening PORT`.
    pub(crate) fn express(&self) -> Command {
        self.command("node", "express.mjs")
    }
}
