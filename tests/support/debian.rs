//! Programs that tests start. Where one is not installed, Debian's package is fetched once
//! per machine, without root. Knows no protocol.

use crate::servers::tools_folder;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program and the packages that hold it.
#[derive(Debug)]
pub struct DebianProgram {
    /// Its name, and that of the folder where its packages are unpacked.
    pub program: &'static str,
    /// What is fetched where the program is not installed.
    pub packages: &'static [&'static str],
    /// What it loads and a machine may have already; not every Debian has all of them.
    pub libraries: &'static [&'static str],
}

impl DebianProgram {
    /// How it is started: as it is installed, else from its packages, which whichever test comes
    /// first unpacks beside the other tools.
    pub fn command(&self) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = std::env::split_paths(&path)
            .map(|folder| folder.join(self.program))
            .find(|file| file.exists());
        if let Some(program) = installed {
            return Command::new(program);
        }
        let root = self.folder();
        let machine = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        let mut command = Command::new(root.join("usr/bin").join(self.program));
        command.env("LD_LIBRARY_PATH", root.join(machine));
        command
    }

    /// Where its packages are unpacked, whether or not it is installed.
    pub fn folder(&self) -> PathBuf {
        self.try_folder().unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same where others can do without the program.
    ///
    /// # Errors
    /// Why its packages cannot be had.
    pub fn try_folder(&self) -> Result<PathBuf, String> {
        self.unpacked(&tools_folder(), &[])
    }

    /// The folder in which its packages are unpacked, with all that they need and the machine lacks.
    pub fn unpacked_with_libraries(&self) -> PathBuf {
        let mut apt = Command::new("apt-get");
        apt.args(["install", "--simulate", "--no-install-recommends"]);
        let needed = || {
            let planned = apt.args(self.packages).output();
            let planned = planned.map(|output| output.stdout).unwrap_or_default();
            let planned = String::from_utf8_lossy(&planned).into_owned();
            let installs = planned
                .lines()
                .filter_map(|line| line.strip_prefix("Inst "));
            let names = installs.filter_map(|line| line.split(' ').next());
            names.map(str::to_owned).collect()
        };
        let tools = tools_folder();
        let is_there = tools.join(self.program).join("complete").exists();
        let needed: Vec<String> = (!is_there).then(needed).unwrap_or_default();
        let unpacked = self.unpacked(&tools, &needed);
        unpacked.unwrap_or_else(|why| panic!("{why}"))
    }

    fn unpacked(&self, tools: &Path, needed: &[String]) -> Result<PathBuf, String> {
        let root = tools.join(self.program);
        let complete = root.join("complete");
        fs::create_dir_all(&root)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", root.display()));
        let lock = File::create(tools.join(format!("{}-lock", self.program)));
        let lock = lock.expect("the folder is ours");
        lock.lock().expect("a local file can be locked");
        if complete.exists() {
            return Ok(root);
        }
        let fetch = |packages: &[&str]| {
            let mut apt = Command::new("apt-get");
            apt.arg("download").args(packages).current_dir(&root);
            apt.output().is_ok_and(|output| output.status.success())
        };
        let needed = needed.iter().map(String::as_str);
        let needed = needed.filter(|package| !self.packages.contains(package));
        let all: Vec<_> = self.packages.iter().copied().chain(needed).collect();
        // One call for all: each reads the lists of packages, which takes seconds.
        if !fetch(&all) {
            for package in self.packages {
                if !fetch(&[package]) {
                    let program = self.program;
                    return Err(format!(
                        "{program} is needed, and `apt-get download {package}` failed"
                    ));
                }
            }
            // What is missing shows when the program starts.
            for package in &all[self.packages.len()..] {
                fetch(&[package]);
            }
        }
        for package in self.libraries {
            fetch(&[package]);
        }
        for entry in fs::read_dir(&root).expect("the folder is ours").flatten() {
            if entry.path().extension().is_some_and(|kind| kind == "deb") {
                let mut unpack = Command::new("dpkg");
                unpack.arg("-x").arg(entry.path()).arg(&root);
                let done = unpack.status().is_ok_and(|status| status.success());
                assert!(done, "dpkg -x of {}", entry.path().display());
            }
        }
        File::create(&complete).expect("the folder is ours");
        Ok(root)
    }
}
