//! Rust: cargo, for the target whose output is a component.

use super::{Project, tool};
use crate::error::{Exit, Failure};
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-wasip2";
const INSTALL: &str = "https://rustup.rs (Rust 1.95 or later)";

pub(super) fn build(project: &Project) -> Result<PathBuf, Failure> {
    let cargo = tool::need("cargo", INSTALL)?;
    let sysroot = standard_library(&project.folder)?;
    let mut command = Command::new(cargo);
    command.current_dir(&project.folder);
    command.args(["build", "--release", "--target", TARGET]);
    command.arg("--message-format=json-render-diagnostics");
    if let Some(sysroot) = sysroot {
        let flags = format!(
            "target.{TARGET}.rustflags = ['--sysroot={}']",
            sysroot.display()
        );
        command.args(["--config", &flags]);
    }
    let messages = tool::read(&mut command)?;
    component(&messages).ok_or_else(|| {
        let manifest = project.folder.join("Cargo.toml");
        let what = "no component was built; wanted [lib] crate-type = [\"cdylib\"]";
        Failure::new(Exit::Failed, format!("{}: {what}", manifest.display()))
    })
}

/// Returns the path of the component from cargo's messages, one JSON value per line. The last one
/// is the project's.
fn component(messages: &[u8]) -> Option<PathBuf> {
    let lines = messages.split(|byte| *byte == b'\n');
    let mut artefacts = lines.filter_map(|line| {
        let message: serde_json::Value = serde_json::from_slice(line).ok()?;
        if message["reason"] != "compiler-artifact" {
            return None;
        }
        let mut files = message["filenames"]
            .as_array()?
            .iter()
            .filter_map(|file| file.as_str());
        files
            .find(|file| file.ends_with(".wasm"))
            .map(PathBuf::from)
    });
    artefacts.next_back()
}

/// Ensures that the target has a standard library: rustup's, or one built by `plugins/build`, whose
/// sysroot is returned.
fn standard_library(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let rustc = tool::need("rustc", INSTALL)?;
    if has_library(&rustc, folder) {
        return Ok(None);
    }
    if let Some(rustup) = tool::find("rustup") {
        let mut add = Command::new(rustup);
        add.current_dir(folder).args(["target", "add", TARGET]);
        // Without access to rustup's server, another library may be available.
        if tool::run(&mut add).is_ok() && has_library(&rustc, folder) {
            return Ok(None);
        }
    }
    let version = printed(&rustc, folder, &["--version"]);
    let own = version.and_then(|version| own_sysroot(&version));
    own.map(Some).ok_or_else(|| {
        let what =
            format!("no standard library for {TARGET}; install it: rustup target add {TARGET}");
        Failure::new(Exit::Unreachable, what)
    })
}

/// Returns what the compiler prints in a folder, where rustup may choose another one.
fn printed(rustc: &Path, folder: &Path, arguments: &[&str]) -> Option<String> {
    tool::printed(Command::new(rustc).current_dir(folder).args(arguments))
}

fn has_library(rustc: &Path, folder: &Path) -> bool {
    let sysroot = printed(rustc, folder, &["--print", "sysroot"]);
    sysroot.is_some_and(|sysroot| has_target(Path::new(&sysroot)))
}

fn has_target(sysroot: &Path) -> bool {
    let library = sysroot.join("lib/rustlib").join(TARGET).join("lib");
    let files = library.read_dir().into_iter().flatten().flatten();
    let mut names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.any(|name| name.starts_with("libstd-"))
}

/// Returns the library that `plugins/build` made from Debian's sources, for exactly this compiler.
fn own_sysroot(version: &str) -> Option<PathBuf> {
    let number = version.split(' ').nth(1)?;
    let tools = PathBuf::from(std::env::var_os("DISPATCHER_TOOLS")?);
    let home = tools.join("guest-std").join(number);
    home.join("complete").exists().then(|| home.join("sysroot"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn component_is_the_last_artifact_of_cargo() {
        let messages = br#"{"reason":"compiler-artifact","filenames":["/t/libserde.rlib"]}
{"reason":"compiler-artifact","filenames":["/t/dependency.wasm"]}
{"reason":"compiler-artifact","filenames":["/t/orders.d","/t/orders.wasm"]}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(component(messages), Some("/t/orders.wasm".into()));
        assert_eq!(component(b"{\"reason\":\"build-finished\"}\n"), None);
    }

    #[test]
    fn missing_target_is_detected_by_its_folder() {
        let sysroot = tempfile::tempdir().unwrap();
        assert!(!has_target(sysroot.path()));
        let library = sysroot.path().join("lib/rustlib").join(TARGET).join("lib");
        std::fs::create_dir_all(&library).unwrap();
        assert!(!has_target(sysroot.path()));
        std::fs::write(library.join("libstd-0123.rlib"), "").unwrap();
        assert!(has_target(sysroot.path()));
    }
}
