//! JavaScript and TypeScript: npm for the tools, which are the project's own, componentize-qjs for
//! the component and, before it, the TypeScript compiler.

use super::{Project, tool};
use crate::cli::plugin::language::Language;
use crate::error::{Exit, Failure};
use crate::files::bounded::{self, Limits};
use std::path::PathBuf;
use std::process::Command;

const INSTALL: &str = "Node.js 20 or later (Debian: apt-get install nodejs npm)";
/// The entry of a project whose package.json names none.
const ENTRY: &str = "handler.js";

pub(super) fn build(project: &Project, is_typed: bool) -> Result<PathBuf, Failure> {
    install(project)?;
    let lang = match is_typed {
        true => Language::TypeScript,
        false => Language::JavaScript,
    };
    let component = project.component(lang)?;
    if is_typed {
        let tsc = installed(project, "tsc", "typescript")?;
        tool::run(Command::new(tsc).current_dir(&project.folder))?;
    }
    let convert = installed(project, "componentize-qjs", "componentize-qjs")?;
    let mut convert = Command::new(convert);
    convert.current_dir(&project.folder);
    convert.args(["--sync", "--wit", "wit", "--js", &entry(project)?, "-o"]);
    tool::run(convert.arg(&component))?;
    Ok(component)
}

/// Installs what package.json lists, unless it is there.
fn install(project: &Project) -> Result<(), Failure> {
    tool::need("node", INSTALL)?;
    let list = project.folder.join("package.json");
    let installed = project.folder.join("node_modules/.package-lock.json");
    if !tool::is_stale(&list, &installed) {
        return Ok(());
    }
    let npm = tool::need("npm", INSTALL)?;
    let mut npm = Command::new(npm);
    let quiet = ["install", "--no-audit", "--no-fund"];
    tool::run(npm.current_dir(&project.folder).args(quiet))
}

/// A tool of the project's own.
fn installed(project: &Project, name: &str, package: &str) -> Result<PathBuf, Failure> {
    let file = project.folder.join("node_modules/.bin").join(name);
    if file.exists() {
        return Ok(file);
    }
    let list = project.folder.join("package.json");
    let what = format!("{}: does not list {package}", list.display());
    let install = format!("install it: npm install --save-dev {package}");
    Err(Failure::new(
        Exit::Unreachable,
        format!("{what}; {install}"),
    ))
}

/// The file that exports the handler: `main` in package.json.
fn entry(project: &Project) -> Result<String, Failure> {
    let list = project.folder.join("package.json");
    let unusable = |why: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, format!("{}: {why}", list.display()))
    };
    let bytes = bounded::read(&list, Limits::SMALL).map_err(|error| unusable(&error))?;
    entry_of(&bytes).map_err(|error| unusable(&error))
}

fn entry_of(package: &[u8]) -> Result<String, serde_json::Error> {
    let package: serde_json::Value = serde_json::from_slice(package)?;
    Ok(package["main"].as_str().unwrap_or(ENTRY).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_is_the_packages_main() {
        let of = |text: &str| entry_of(text.as_bytes()).ok();
        assert_eq!(of(r#"{"main": "a.js"}"#), Some("a.js".into()));
        assert_eq!(of("{}"), Some(ENTRY.into()));
        assert_eq!(of("{"), None);
    }
}
