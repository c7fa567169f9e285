//! Python: componentize-py, installed with whatever else requirements.txt lists into an
//! environment of the project's own.

use super::{Project, adapter, tool};
use crate::cli::plugin::language::Language;
use crate::error::{Exit, Failure};
use std::path::{Path, PathBuf};
use std::process::Command;

const INSTALL: &str = "Python 3.10 or later with venv (Debian: apt-get install python3-venv)";
/// What to do about a line of the interpreter's; the first that fits.
const HINTS: [(&str, &str); 6] = [
    ("cannot call out over the network", NO_HTTP),
    ("No module named '_ssl'", NO_HTTP),
    (
        "has no files to import from",
        "move the import to the top of its file: modules are taken in when the component is built, \
         and none can be imported while it runs",
    ),
    (
        "No module named '_",
        "the Python within a component has no such module: it is compiled code, processes or threads",
    ),
    (
        "No module named '",
        "add the package to requirements.txt; pure Python is taken into the component, compiled \
         code is not",
    ),
    ("wasi:http", NO_HTTP),
];
const NO_HTTP: &str = "Python cannot call HTTP yet: there are no TLS and no names of hosts within a \
    component. Remove the import, and write the handler in Rust, or let it send a message \
    (dispatcher:plugin/queues) or invoke a Lambda function (dispatcher:plugin/lambda)";

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
    // Where its own code was is of no use to whoever wrote the handler.
    convert.env("RUST_LIB_BACKTRACE", "0");
    let modules = adapter::python(project)?;
    convert.args(["--wit-path", "wit", "componentize", "--python-path", "."]);
    convert.arg("--python-path").arg(modules);
    convert.args([adapter::PYTHON_MODULE, "-o"]).arg(&component);
    tool::run_or_hint(&mut convert, hint)?;
    Ok(component)
}

fn hint(heard: &str) -> Option<String> {
    let mut hints = HINTS.iter();
    let found = hints.find(|(words, _)| heard.contains(words));
    found.map(|(_, hint)| (*hint).to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_24_python_errors_are_explained() {
        let told = |heard: &str| hint(heard).unwrap_or_default();
        assert!(told("ModuleNotFoundError: No module named '_ssl'").contains("HTTP"));
        assert!(told("ModuleNotFoundError: No module named 'yaml'").contains("requirements.txt"));
        let inside = "a component has no files to import from while it runs";
        assert!(told(inside).contains("top of its file"));
        assert_eq!(hint("SyntaxError: invalid syntax"), None);
    }
}
