//! What others handle messages with, as child processes: npm sqs-consumer, a loop on boto3, an Express
//! application, npm BullMQ, the commands of npm worqr. Installed by npm and pip, once, into the build's
//! folder. Knows no measurement.

use super::program::AWS;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: [(&str, &str); 5] = [
    ("sqs-consumer", "14.2.8"),
    ("@aws-sdk/client-sqs", "3.1169.0"),
    ("express", "5.3.0"),
    ("bullmq", "6.7.0"),
    ("ioredis", "6.0.0"),
];
const BOTO3: &str = "boto3==1.43.106";

/// The peers, ready to run.
pub(crate) struct Peers {
    folder: PathBuf,
}

impl Peers {
    /// Installs those of Node where they are not yet.
    ///
    /// # Errors
    /// The tool that is missing or failed.
    pub(crate) fn install() -> Result<Self, String> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        for (name, text) in [
            ("bullmq.mjs", include_str!("bullmq.mjs")),
            ("consumer.mjs", include_str!("consumer.mjs")),
            ("express.mjs", include_str!("express.mjs")),
            ("loop.py", include_str!("loop.py")),
            ("order.mjs", include_str!("order.mjs")),
            ("worqr.mjs", include_str!("worqr.mjs")),
            ("package.json", "{\"private\": true}"),
        ] {
            std::fs::write(folder.join(name), text).map_err(|error| error.to_string())?;
        }
        let peers = Self { folder };
        // Its packages may outlive it.
        let mut node = Command::new("node");
        node.arg("--version");
        peers.run(node)?;
        let missing = |(name, version)| peers.version(name).as_deref() != Some(version);
        if PACKAGES.into_iter().any(missing) {
            let mut install = Command::new("npm");
            // What they depend on is of one day too, so that runs compare.
            install.args(["install", "--no-audit", "--no-fund", "--before=2026-11-17"]);
            install.args(PACKAGES.map(|(name, version)| format!("{name}@{version}")));
            peers.run(install)?;
        }
        Ok(peers)
    }

    /// Installs boto3 where it is not yet.
    ///
    /// # Errors
    /// The tool that is missing or failed.
    pub(crate) fn install_boto3(&self) -> Result<(), String> {
        if !self.folder.join("venv/bin/boto3").exists() {
            let mut make = Command::new("python3");
            make.args(["-m", "venv", "venv"]);
            self.run(make)?;
            let mut install = Command::new("venv/bin/pip");
            install.args(["install", "--quiet", BOTO3]);
            self.run(install)?;
            std::fs::write(self.folder.join("venv/bin/boto3"), BOTO3)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The version of a package of Node, if it is installed.
    pub(crate) fn version(&self, package: &str) -> Option<String> {
        let file = self.folder.join("node_modules").join(package);
        let text = std::fs::read_to_string(file.join("package.json")).ok()?;
        let package: serde_json::Value = serde_json::from_str(&text).ok()?;
        Some(package["version"].as_str()?.to_owned())
    }

    fn run(&self, mut command: Command) -> Result<(), String> {
        let output = command.current_dir(&self.folder).output();
        let output = output.map_err(|error| format!("{command:?}: {error}"))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(format!(
                "{command:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            ))
        }
    }

    fn command(&self, program: &str, script: &str) -> Command {
        let mut command = Command::new(program);
        command.arg(script).current_dir(&self.folder).envs(AWS);
        command
    }

    /// So many consumers of npm sqs-consumer in one process, with long polls of `wait_s`; `mode`:
    /// `singly` or `batch`.
    pub(crate) fn consumers(
        &self,
        (endpoint, queue): (&str, &str),
        mode: &str,
        count: usize,
        wait_s: u32,
    ) -> Command {
        let mut command = self.command("node", "consumer.mjs");
        command.args([endpoint, queue, mode, &count.to_string()]);
        command.arg(wait_s.to_string());
        command
    }

    /// A worker of npm BullMQ.
    pub(crate) fn bullmq(&self, port: u16, queue: &str, at_once: usize) -> Command {
        self.on_redis("bullmq.mjs", port, queue, at_once)
    }

    /// A worker that sends the commands of npm worqr.
    pub(crate) fn worqr(&self, port: u16, queue: &str, at_once: usize) -> Command {
        self.on_redis("worqr.mjs", port, queue, at_once)
    }

    fn on_redis(&self, script: &str, port: u16, queue: &str, at_once: usize) -> Command {
        let mut command = self.command("node", script);
        command.args([&port.to_string(), queue, &at_once.to_string()]);
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
