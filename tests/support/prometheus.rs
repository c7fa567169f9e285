//! A Prometheus server as a child process on a free port of the loopback interface, and `promtool`:
//! Debian's package. Knows no metric.

use crate::PATIENCE;
use crate::debian::DebianProgram;
use crate::http;
use crate::servers::free_port;
use crate::tied::TiedServer;
use serde_json::Value;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const PROGRAM: DebianProgram = DebianProgram {
    program: "prometheus",
    packages: &["prometheus"],
    libraries: &[],
};

/// How often an answer that is not there yet is asked for again: as often as Prometheus scrapes.
const AGAIN: Duration = Duration::from_millis(200);

/// A running Prometheus. Ends when dropped.
#[derive(Debug)]
pub struct Prometheus {
    _server: TiedServer,
    port: u16,
    _folder: tempfile::TempDir,
}

/// `promtool` with these arguments: whether it had no complaint, and what it said.
pub fn promtool(arguments: &[&str], folder: &Path) -> (bool, String) {
    let program = PROGRAM.folder().join("usr/bin/promtool");
    let mut command = Command::new(program);
    let ended = command.args(arguments).current_dir(folder).output();
    ended_with(ended.expect("promtool starts"))
}

impl Prometheus {
    /// Scrapes the program at this address every second as the job `dispatcher`, and evaluates these
    /// rules. Returns once it answers.
    pub fn start(target: &str, rules: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let configuration = folder.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [\"{}\"]\n\
             scrape_configs: [{{job_name: dispatcher, static_configs: [{{targets: [\"{target}\"]}}]}}]\n",
            rules.display()
        );
        std::fs::write(&configuration, text).expect("the folder is ours");
        let port = free_port();
        let mut command = Command::new(PROGRAM.folder().join("usr/bin/prometheus"));
        command
            .arg("--config.file")
            .arg(&configuration)
            .arg("--storage.tsdb.path")
            .arg(folder.path().join("data"))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(["--enable-feature=exemplar-storage", "--log.level=warn"]);
        let started = Self {
            _server: TiedServer::start(&command),
            port,
            _folder: folder,
        };
        started.wait_until_it_answers();
        http::wait_for_status(&started.url("/-/ready"), 200);
        started
    }

    fn wait_until_it_answers(&self) {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            assert!(Instant::now() < deadline, "Prometheus does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The `data` of an answer of its API.
    pub fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let encoded = parameters
            .iter()
            .map(|(name, value)| format!("{name}={}", encode(value)));
        let query = encoded.collect::<Vec<_>>().join("&");
        let answer = http::get(&self.url(&format!("/api/v1/{path}?{query}")));
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!(body["status"], "success", "{parameters:?}: {body}");
        body["data"].clone()
    }

    /// The series that a query returns now, with their values.
    pub fn query(&self, query: &str) -> Vec<Value> {
        let data = self.api("query", &[("query", query)]);
        data["result"].as_array().cloned().unwrap_or_default()
    }

    /// Asks until there is such an answer.
    ///
    /// # Panics
    /// With what was asked, if there is none in time.
    pub fn wait_for<T>(&self, what: &str, ask: impl Fn(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            assert!(
                Instant::now() < deadline,
                "Prometheus has nothing for {what}"
            );
            std::thread::sleep(AGAIN);
        }
    }
}

/// As a URL's query has it.
fn encode(text: &str) -> String {
    let bytes = text.bytes();
    let each = bytes.map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    each.collect()
}

/// `promtool check metrics` of what a file holds.
pub fn lint(file: &Path) -> (bool, String) {
    let mut command = Command::new(PROGRAM.folder().join("usr/bin/promtool"));
    let metrics = std::fs::File::open(file).expect("the file is there");
    let ended = command.args(["check", "metrics"]).stdin(metrics).output();
    ended_with(ended.expect("promtool starts"))
}

fn ended_with(ended: Output) -> (bool, String) {
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (ended.status.success(), said)
}
