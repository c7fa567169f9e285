//! Sidekiq, as it is installed, else from Debian's packages, which are unpacked beside the tools of the
//! tests. Knows no measurement.

use crate::debian::DebianProgram;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

const WORKER: &str = include_str!("peers/worker.rb");
const PACKAGES: DebianProgram = DebianProgram {
    program: "sidekiq",
    packages: &[
        "ruby-sidekiq",
        "ruby-redis",
        "ruby-connection-pool",
        "ruby-rack",
        "ruby3.1",
        "libruby3.1",
        "ruby-rubygems",
        "rubygems-integration",
    ],
    libraries: &["libyaml-0-2", "libgmp10", "libffi8"],
};

/// Sidekiq, ready to run.
pub(crate) struct Sidekiq {
    /// Where its packages are unpacked; `None` where it is installed.
    root: Option<PathBuf>,
    folder: tempfile::TempDir,
}

impl Sidekiq {
    /// Looks for it, and fetches it where `apt-get` can.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(crate) fn find() -> Result<Self, String> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_installed = std::env::split_paths(&path).any(|one| one.join("sidekiq").exists());
        let root = if is_installed {
            None
        } else {
            Some(PACKAGES.try_folder()?)
        };
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let worker = folder.path().join("worker.rb");
        std::fs::write(worker, WORKER).map_err(|error| error.to_string())?;
        let found = Self { root, folder };
        found.version().map(|_| found)
    }

    /// What it calls itself.
    ///
    /// # Errors
    /// Why it does not start.
    pub(crate) fn version(&self) -> Result<String, String> {
        let output = self.command().arg("--version").output();
        let output = output.map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// A worker with so many threads.
    pub(crate) fn worker(&self, redis: &str, queue: &str, threads: usize) -> Command {
        let mut command = self.command();
        command
            .args(["-r", "./worker.rb", "-q", queue, "-c", &threads.to_string()])
            .env("REDIS_URL", redis);
        command
    }

    fn command(&self) -> Command {
        let mut command = match &self.root {
            None => Command::new("sidekiq"),
            Some(root) => {
                let gems = root.join("usr/share/rubygems-integration/all");
                let libraries = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
                let own: OsString = std::env::join_paths([
                    root.join("usr/lib/ruby/3.1.0"),
                    libraries.join("ruby/3.1.0"),
                    root.join("usr/lib/ruby/vendor_ruby"),
                ])
                .expect("paths without colons");
                let mut command = Command::new(root.join("usr/bin/ruby3.1"));
                command
                    .env("GEM_PATH", gems)
                    .env("GEM_HOME", self.folder.path())
                    .env("RUBYLIB", own)
                    .env("LD_LIBRARY_PATH", libraries)
                    .arg(root.join("usr/bin/sidekiq"));
                command
            }
        };
        command.current_dir(self.folder.path());
        command
    }
}
