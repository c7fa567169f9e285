//! Python: componentize-py, installed with everything else in requirements.txt into the project's
//! environment.

use super::{Project, adapter, tool};
use crate::cli::plugin::language::Language;
use crate::error::{Exit, Failure};
use std::path::{Path, PathBuf};
use std::process::Command;

const INSTALL: &str = "Python 3.10 or later with venv (Debian: apt-get install python3-venv)";
const OLDEST: (u32, u32) = (3, 10);
/// Hints on lines that the interpreter prints; the first match applies.
const HINTS: [(&str, &str); 8] = [
    ("cannot call out over the network", NO_HTTP),
    ("No module named '_ssl'", NO_HTTP),
    ("wasi:http", NO_HTTP),
    (
        "has no threads and no processes",
        "do the work in `handle`, one step after the other; more instances handle more messages at \
         once (--concurrency)",
    ),
    (
        "is compiled code",
        "use a package of pure Python, or leave that work to another service or a Lambda function",
    ),
    (
        "No module named '_",
        "the Python within a component has no such module: it is compiled code, processes or threads",
    ),
    (
        "No module named '",
        "add the package to requirements.txt; only pure Python can be part of the component, \
         compiled code cannot",
    ),
    (
        "has no files to import from",
        "imports within functions are loaded when the component is built, and this one cannot be; \
         put it in a `try` with `except ImportError` if the function can do without it",
    ),
];
const NO_HTTP: &str = "call HTTP through the contract: `from dispatcher_guest import http`, and \
                       run with --allow-http; `send` and \
                       `invoke` reach queues and Lambda functions";

pub(super) fn build(project: &Project) -> Result<PathBuf, Failure> {
    let environment = project.folder.join(".venv");
    install(project, &environment)?;
    let convert = environment.join("bin/componentize-py");
    if !convert.exists() {
        let list = project.folder.join("requirements.txt");
        let what =
            "does not list componentize-py; install it: add the line componentize-py==0.25.1";
        let line = format!("{}: {what}", list.display());
        return Err(Failure::new(Exit::Unreachable, line));
    }
    let mut convert = Command::new(convert);
    // componentize-py takes the project's installed modules from there.
    convert.env("VIRTUAL_ENV", &environment);
    convert.current_dir(&project.folder);
    // A backtrace of componentize-py does not help the author of the handler.
    convert.env("RUST_LIB_BACKTRACE", "0");
    let modules = adapter::python(project)?;
    let mut check = Command::new(environment.join("bin/python"));
    check.current_dir(&project.folder).arg("-B");
    tool::run_or_hint(check.arg(modules.join(adapter::PYTHON_CHECK)), hint)?;
    convert.args(["--wit-path", "wit", "componentize", "--python-path", "."]);
    convert.arg("--python-path").arg(modules);
    convert.args([adapter::PYTHON_MODULE, "-o"]);
    project.place(Language::Python, |component| {
        tool::run_or_hint(convert.arg(component), hint)
    })
}

fn hint(heard: &str) -> Option<String> {
    let mut hints = HINTS.iter();
    let found = hints.find(|(words, _)| heard.contains(words));
    found.map(|(_, hint)| (*hint).to_owned())
}

/// Installs the packages of requirements.txt, unless they are installed.
fn install(project: &Project, environment: &Path) -> Result<(), Failure> {
    let list = project.folder.join("requirements.txt");
    let done = environment.join("installed");
    if !tool::is_stale(&list, &done) {
        return Ok(());
    }
    let python = environment.join("bin/python");
    if !python.exists() {
        let own = tool::need_version("python3", &["--version"], OLDEST, INSTALL)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(heard: &str) -> String {
        hint(heard).unwrap_or_default()
    }

    #[test]
    fn finding_24_python_errors_are_explained() {
        assert!(told("ModuleNotFoundError: No module named '_ssl'").contains("http"));
        assert!(told("ModuleNotFoundError: No module named 'yaml'").contains("requirements.txt"));
        let late = "No module named 'yaml'; a component has no files to import from while it runs";
        assert!(told(late).contains("requirements.txt"));
        let renamed =
            "cannot import name 'a'; a component has no files to import from while it runs";
        assert!(told(renamed).contains("except ImportError"));
        let compiled = "No module named 'x._x'; the package x is compiled code, which";
        assert!(told(compiled).contains("pure Python"));
        assert!(told("has no threads and no processes").contains("--concurrency"));
        assert_eq!(hint("SyntaxError: invalid syntax"), None);
    }
}
