//! The scripts of `host/packaging` name a tool that is missing and how to get it, in one line, before
//! they do anything; and they need no other.

use dispatcher_tests::packaging::script;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

/// What every system has that has bash: the scripts use these without asking.
const EVERYWHERE: [&str; 41] = [
    "awk",
    "basename",
    "bash",
    "cat",
    "chmod",
    "cp",
    "cut",
    "date",
    "dirname",
    "env",
    "find",
    "git",
    "grep",
    "gzip",
    "head",
    "id",
    "install",
    "ln",
    "ls",
    "md5sum",
    "mkdir",
    "mktemp",
    "mv",
    "perl",
    "printf",
    "realpath",
    "rm",
    "rmdir",
    "sed",
    "sh",
    "sha256sum",
    "sort",
    "stat",
    "tail",
    "tar",
    "touch",
    "tr",
    "true",
    "uname",
    "wc",
    "xargs",
];

/// Each script, and arguments that it takes.
const SCRIPTS: [(&str, &[&str]); 7] = [
    ("debian/build", &["/nowhere/dispatcher", "/nowhere/folder"]),
    ("image/build", &["/nowhere/dispatcher", "/nowhere/folder"]),
    (
        "release/assemble",
        &["/nowhere/dispatcher", "/nowhere/folder"],
    ),
    (
        "release/push",
        &["registry.example.com/dispatcher", "0.1.0", "/nowhere"],
    ),
    ("release/publish-sdks", &["--dry-run"]),
    ("release/rehearse", &["/nowhere/dispatcher"]),
    ("release/smoke", &["/nowhere"]),
];

/// The tools that a script asks for.
pub(super) fn needs(name: &str) -> Vec<String> {
    let text = fs::read_to_string(script(name)).expect("the script");
    let line = text.lines().find_map(|line| line.strip_prefix("needs=("));
    let line = line.unwrap_or_else(|| panic!("{name} says what it needs"));
    let tools = line.trim_end_matches(')').split(' ');
    tools
        .map(|tool| tool.split(':').next().expect("a name").to_owned())
        .collect()
}

fn found(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(tool))
        .find(|file| file.is_file())
}

/// A folder with what is everywhere and these tools, as a search path.
pub(super) fn search_path<'a>(tools: impl IntoIterator<Item = &'a str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for tool in EVERYWHERE.into_iter().chain(tools) {
        let place = folder.path().join(tool);
        if let Some(file) = found(tool).filter(|_| !place.exists()) {
            symlink(file, place).expect("linked");
        }
    }
    folder
}

/// The same with all that the script asks for, and nothing else.
pub(super) fn search_path_of(name: &str) -> tempfile::TempDir {
    search_path(needs(name).iter().map(String::as_str))
}

#[test]
fn every_script_names_a_missing_tool_and_how_to_get_it_in_one_line() {
    for (name, arguments) in SCRIPTS {
        let needs = needs(name);
        assert!(!needs.is_empty());
        for missing in &needs {
            // What is not on this machine is there for the script.
            let path = search_path([]);
            for tool in needs.iter().filter(|tool| *tool != missing) {
                let place = path.path().join(tool);
                let stand_in = found("true").expect("it is everywhere");
                symlink(stand_in, place).expect("linked");
            }
            let mut command = Command::new(script(name));
            let ended = command.args(arguments).env("PATH", path.path()).output();
            let ended = ended.expect("it starts");
            let text = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(2), "{name}: {text}");
            assert_eq!(text.lines().count(), 1, "{name}: {text}");
            let begins = format!("error: {missing} is missing; get it ");
            assert!(text.starts_with(&begins), "{name}: {text}");
        }
    }
}

#[test]
fn image_of_other_packages_needs_no_apt() {
    let needs = needs("image/build");
    let path = search_path(needs.iter().map(String::as_str));
    let build = |packages: Option<&str>| {
        let mut build = Command::new(script("image/build"));
        build.args(["/nowhere/dispatcher", "/nowhere/folder"]);
        build.env("PATH", path.path());
        if let Some(folder) = packages {
            build.env("IMAGE_PACKAGES", folder);
        }
        let ended = build.output().expect("it starts");
        String::from_utf8_lossy(&ended.stderr).into_owned()
    };
    let without = build(None);
    assert!(without.starts_with("error: apt-get is missing; get it by running this on Debian"));
    assert!(without.contains("IMAGE_PACKAGES"), "{without}");
    let with = build(Some("/nowhere/packages"));
    assert!(with.contains("is no program"), "{with}");
}
