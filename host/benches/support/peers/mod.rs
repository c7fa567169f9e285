//! What others handle messages with, as child processes: npm sqs-consumer, a loop on boto3, an Express
//! application, npm BullMQ, the commands of npm worqr, graphile-worker, pg-boss. Installed by npm and pip, once, into the build's
//! folder. Knows no measurement.

use super::program::AWS;
use std::path::{Path, PathBuf};
use std::process::Command;

const ZOD: &str = "4.6.7";
const PACKAGES: [(&str, &str); 8] = [
    ("sqs-consumer", "14.2.8"),
    ("@aws-sdk/client-sqs", "3.1169.0"),
    ("express", "5.3.0"),
    ("bullmq", "6.7.0"),
    ("ioredis", "6.0.0"),
    ("zod", ZOD),
    ("graphile-worker", "0.17.3"),
    // The last major version that runs on Node.js 20.
    ("pg-boss", "10.4.2"),
];
const BOTO3: &str = "boto3==1.43.106";
const MARSHMALLOW: &str = "marshmallow==4.1.0";
/// The SQL of pgmq, and what installs it.
pub(crate) const PGMQ: [&str; 2] = ["pgmq==1.1.4", "psycopg[binary]==3.3.2"];
const INSTALL_PGMQ: &str = "import sys
from pgmq.install import get_embedded_install_sql, install_pgmq_sql
install_pgmq_sql(get_embedded_install_sql(), dsn=sys.argv[1])";
/// The modules with the handlers of the peers: with what the language has, and with a package.
pub(crate) const ORDER: [&str; 2] = ["./order.mjs", "order"];
pub(crate) const ORDER_OF_PACKAGES: [&str; 2] = ["./order_zod.mjs", "order_marshmallow"];

const ORDER_ZOD: &str = include_str!("order_zod.mjs");
const ORDER_MARSHMALLOW: &str = include_str!("order_marshmallow.py");

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
            ("graphile.mjs", include_str!("graphile.mjs")),
            ("order.mjs", include_str!("order.mjs")),
            ("order.py", include_str!("order.py")),
            ("order_marshmallow.py", ORDER_MARSHMALLOW),
            ("order_zod.mjs", ORDER_ZOD),
            ("pgboss.mjs", include_str!("pgboss.mjs")),
            ("worqr.mjs", include_str!("worqr.mjs")),
            ("package.json", "{\"private\": true}"),
        ] {
            std::fs::write(folder.join(name), text).map_err(|error| error.to_string())?;
        }
        let peers = Self { folder };
        // Its packages may outlive it.
        let mut node = Command::new("node");
        node.arg("--version");
        peers.run(&mut node)?;
        let missing = |(name, version)| peers.version(name).as_deref() != Some(version);
        if PACKAGES.into_iter().any(missing) {
            let mut install = Command::new("npm");
            // What they depend on is of one day too, so that runs compare.
            install.args(["install", "--no-audit", "--no-fund", "--before=2026-11-17"]);
            install.args(PACKAGES.map(|(name, version)| format!("{name}@{version}")));
            peers.run(&mut install)?;
        }
        Ok(peers)
    }

    /// Installs boto3 where it is not yet.
    ///
    /// # Errors
    /// The tool that is missing or failed.
    pub(crate) fn install_boto3(&self) -> Result<(), String> {
        self.install_python("boto3", &[BOTO3, MARSHMALLOW])
    }

    /// Installs packages of Python where they are not yet.
    fn install_python(&self, name: &str, packages: &[&str]) -> Result<(), String> {
        let done = self.folder.join("venv").join(name);
        if !done.exists() {
            let mut make = Command::new("python3");
            make.args(["-m", "venv", "venv"]);
            self.run(&mut make)?;
            let mut install = Command::new("venv/bin/pip");
            install.args(["install", "--quiet"]).args(packages);
            self.run(&mut install)?;
            std::fs::write(done, packages.join("\n")).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Installs pgmq's functions, and the tables of graphile-worker and pg-boss, in a database.
    ///
    /// # Errors
    /// The tool that is missing or failed.
    pub(crate) fn install_in(&self, url: &str) -> Result<(), String> {
        self.install_python("pgmq", &PGMQ)?;
        let mut install = Command::new("venv/bin/python");
        self.run(install.args(["-c", INSTALL_PGMQ, url]))?;
        for script in ["graphile.mjs", "pgboss.mjs"] {
            let mut tables = Command::new("node");
            self.run(tables.args([script, url]))?;
        }
        Ok(())
    }

    /// A worker of graphile-worker.
    pub(crate) fn graphile(&self, url: &str, task: &str, at_once: usize) -> Command {
        let mut command = self.command("node", "graphile.mjs");
        command.args([url, task, &at_once.to_string()]);
        command
    }

    /// So many loops on pg-boss.
    pub(crate) fn pg_boss(&self, url: &str, queue: &str, loops: usize) -> Command {
        let mut command = self.command("node", "pgboss.mjs");
        command.args([url, queue, &loops.to_string()]);
        command
    }

    /// The version of a package of Node, if it is installed.
    pub(crate) fn version(&self, package: &str) -> Option<String> {
        let file = self.folder.join("node_modules").join(package);
        let text = std::fs::read_to_string(file.join("package.json")).ok()?;
        let package: serde_json::Value = serde_json::from_str(&text).ok()?;
        Some(package["version"].as_str()?.to_owned())
    }

    fn run(&self, command: &mut Command) -> Result<(), String> {
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
    /// `singly` or `batch`; `module` has the handler.
    pub(crate) fn consumers(
        &self,
        (endpoint, queue): (&str, &str),
        mode: &str,
        count: usize,
        wait_s: u32,
        module: &str,
    ) -> Command {
        let mut command = self.command("node", "consumer.mjs");
        command.args([endpoint, queue, mode, &count.to_string()]);
        command.args([&wait_s.to_string(), module]);
        command
    }

    /// A worker of npm BullMQ.
    pub(crate) fn bullmq(&self, port: u16, queue: &str, at_once: usize) -> Command {
        self.on_redis("bullmq.mjs", port, queue, at_once)
    }

    /// Such a worker, which starts at most `rate` jobs a second with all workers of the queue.
    pub(crate) fn bullmq_limited(
        &self,
        port: u16,
        queue: &str,
        at_once: usize,
        rate: usize,
    ) -> Command {
        let mut command = self.bullmq(port, queue, at_once);
        command.arg(rate.to_string());
        command
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

    /// A loop on boto3 in each of so many threads; `module` has the handler.
    pub(crate) fn boto3(
        &self,
        endpoint: &str,
        queue: &str,
        threads: &str,
        module: &str,
    ) -> Command {
        let python = self.folder.join("venv/bin/python");
        let mut command = self.command(&python.to_string_lossy(), "loop.py");
        command.args([endpoint, queue, threads, module]);
        // It does not read AWS_REGION.
        command.env("AWS_DEFAULT_REGION", "us-east-1");
        command
    }

    /// An application that takes messages by HTTP; it prints `listening PORT`.
    pub(crate) fn express(&self) -> Command {
        self.command("node", "express.mjs")
    }

    /// Builds the components whose handlers use those packages, and returns their paths.
    ///
    /// # Errors
    /// The command that failed.
    pub(crate) fn components(&self, dispatcher: &Path) -> Result<Vec<String>, String> {
        let script = "import { handle } from './order_zod.mjs';\n\
                      export const handler = { handle: (message) => handle(message.body) };\n";
        let app = "from order_marshmallow import look_at\n\n\n\
                   def handle(message):\n    look_at(message.body)\n";
        let javascript = self.project(dispatcher, "javascript", "zod", |project| {
            write(&project.join("handler.js"), script)?;
            write(&project.join("order_zod.mjs"), ORDER_ZOD)?;
            let mut add = Command::new("npm");
            add.args(["install", "--no-audit", "--no-fund", "--prefix"]);
            self.run(add.args([project, Path::new(&format!("zod@{ZOD}"))]))
        })?;
        let python = self.project(dispatcher, "python", "marshmallow", |project| {
            write(&project.join("app.py"), app)?;
            write(&project.join("order_marshmallow.py"), ORDER_MARSHMALLOW)?;
            let list = project.join("requirements.txt");
            let tools = std::fs::read_to_string(&list).map_err(|error| error.to_string())?;
            write(&list, &format!("{tools}\n{MARSHMALLOW}\n"))
        })?;
        let built = [javascript, python];
        Ok(built
            .map(|file| file.to_string_lossy().into_owned())
            .to_vec())
    }

    /// Creates a project of this language, changes it and builds it.
    fn project(
        &self,
        dispatcher: &Path,
        language: &str,
        name: &str,
        change: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<PathBuf, String> {
        let project = self.folder.join(name);
        let built = project.join("build").join(format!("{name}.wasm"));
        if !project.exists() {
            let mut new = Command::new(dispatcher);
            self.run(new.args(["plugin", "new", "--lang", language, name]))?;
            change(&project)?;
        }
        let mut build = Command::new(dispatcher);
        self.run(build.args(["plugin", "build", name]))?;
        Ok(built)
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}
