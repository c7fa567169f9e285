//! Python: componentize-py, installed with whatever else requirements.txt lists into an
//! environment of the project's own.

use super::{Project, tool};
use crate::cli::plugin::language::Language;
use crate::error::{Exit, Failure};
use std::path::{Path, PathBuf};
use std::process::Command;

const INSTALL: &str = "Python 3.10 or later with venv (Debian: apt-get install python3-venv)";
/// The module that holds the class `Handler`.
const ENTRY: &str = "app";

pub(super) fn build(project: &Project) -> Result<PathBuf, Failure> {
    let environment = project.folder.join(".venv");
    install(project, &environment)?;
    let convert = environment.join("bin/componentize-py");
    if !convert.exists() {
        let list = project.folder.join("requirements.txt");
        let what =
            "does not list componentize-py; install it: add the line componentize-py==0.25.1";
        let what = format!("{}: {what}", list.display());
        return Err(Failure::new(Exit::Unreachable, what));
    }
    let component = project.component(Language::Python)?;
    let mut convert = Command::new(convert);
    // It takes the modules that the project has installed from there.
    convert.env("VIRTUAL_ENV", &environment);
    convert.current_dir(&project.folder);
    convert.args(["--wit-path", "wit", "componentize", ENTRY, "-o"]);
    tool::run(convert.arg(&component))?;
    Ok(component)
}

/// Installs what requirements.txt lists, unless it is there.
fn install(project: &Project, environment: &Path) -> Result<(), Failure> {
    let list = project.folder.join("requirements.txt");
    let done = environment.join("installed");
    if !tool::is_stale(&list, &done) {
        return Ok(());
    }
    let python = environment.join("bin/python");
    if !python.exists() {
        let own = tool::need("python3", INSTALL)?;
        tool::run(Command::new(own).args(["-m", "venv"]).arg(environment))?;
    }
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-r",
    ]);
    tool::run(pip.arg(&list))?;
    std::fs::write(&done, "").map_err(|error| super::failed(&done, &error))
}
