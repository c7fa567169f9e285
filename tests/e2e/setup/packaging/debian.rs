//! The Debian package: built by its script, checked by lintian, its unit by systemd, installed, run,
//! removed and purged in a minimal system.

use super::tools::search_path_of;
use super::{ConfinedProgram, main_job_is_done};
use dispatcher_tests::packaging::{
    MinimalRoot, as_root, checker, minimal_root, output_of, script, stripped,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Which user the service has here; systemd chooses one.
const USER: u32 = 64_321;

/// Builds the package of a program; the script says each step.
fn build(program: &Path) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut build = Command::new(script("debian/build"));
    build.arg(program).arg(folder.path());
    // The quickest that a checker accepts.
    build.env("DEB_COMPRESSION", "gzip").env("DEB_LEVEL", "1");
    let path = search_path_of("debian/build");
    build.env("PATH", path.path());
    let built = build.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, steps) = (text(&built.stdout), text(&built.stderr));
    assert!(built.status.success(), "{steps}");
    assert!(
        steps.lines().all(|line| line.starts_with("debian/build: ")),
        "{steps}"
    );
    for step in ["stripping", "compressing"] {
        assert!(steps.contains(step), "{steps}");
    }
    (folder, PathBuf::from(printed.trim()))
}

/// The package, built once.
pub(super) fn package() -> &'static Path {
    static BUILT: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| build(&stripped()));
    &BUILT.1
}

#[test]
fn package_is_the_same_when_it_is_built_twice() {
    let bytes = |package: &Path| fs::read(package).expect("a package");
    let (_folder, again) = build(&stripped());
    assert!(bytes(package()) == bytes(&again));
}

/// The same package as one of this version, in which what a new release changes is changed: the
/// program, the unit, and a configuration file. Nothing but its version is compared by who installs it.
pub(super) fn repacked(version: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    let mut unpack = Command::new("dpkg-deb");
    output_of(unpack.arg("--raw-extract").arg(package()).arg(&tree));
    let change = |file: &str, edit: &dyn Fn(String) -> String| {
        let file = tree.join(file);
        let text = fs::read_to_string(&file).expect("a file of the package");
        fs::write(&file, edit(text)).expect("written");
    };
    change("DEBIAN/control", &|text| {
        let is_other = |line: &&str| !line.starts_with("Version:");
        let lines: Vec<&str> = text.lines().filter(is_other).collect();
        format!("Version: {version}\n{}\n", lines.join("\n"))
    });
    let mark = |text: String| format!("{text}# As of {version}.\n");
    change("lib/systemd/system/dispatcher.service", &mark);
    change("etc/default/dispatcher", &mark);
    change("etc/dispatcher/dispatcher.toml", &mark);
    change("DEBIAN/md5sums", &|text| {
        let is_other = |line: &&str| !line.ends_with("dispatcher.service");
        let lines = text.lines().filter(is_other);
        lines.map(|line| format!("{line}\n")).collect()
    });
    let repacked = folder.path().join("dispatcher.deb");
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zgzip", "-z1", "--build"]);
    output_of(build.arg(&tree).arg(&repacked));
    (folder, repacked)
}

/// A release candidate is older than its release, which an upgrade takes for newer.
#[test]
fn release_candidate_is_older_than_its_release() {
    let folder = tempfile::tempdir().expect("a folder");
    let candidate = folder.path().join("dispatcher");
    fs::write(&candidate, "#!/bin/sh\necho dispatcher 0.2.0-rc.1\n").expect("written");
    let mut executable = Command::new("chmod");
    output_of(executable.arg("755").arg(&candidate));
    // Such a program has no libraries that the whole script could list: its lines about versions.
    let script = fs::read_to_string(script("debian/build")).expect("the script");
    let lines = script.lines().filter(|line| line.starts_with("version="));
    let lines: Vec<_> = lines.collect();
    let mut shell = Command::new("bash");
    shell.env("binary", &candidate);
    let printed = output_of(shell.args(["-c", &format!("{}\necho $version", lines.join("\n"))]));
    let mut compare = Command::new("dpkg");
    output_of(compare.args(["--compare-versions", printed.trim(), "lt", "0.2.0"]));
    assert_eq!(printed.trim(), "0.2.0~rc.1");
}

#[test]
fn package_has_no_complaint_of_lintian() {
    let mut lintian = checker("lintian");
    lintian.args(["--profile", "debian", "--allow-root", "--fail-on"]);
    lintian.args(["error,warning", "--tag-display-limit", "0"]);
    let found = output_of(lintian.arg(package()));
    assert_eq!(found, "");
}

#[test]
fn unit_is_valid_and_exposes_little() {
    let unit = script("debian/dispatcher.service");
    let text = fs::read_to_string(&unit).expect("the unit");
    for wanted in [
        "Type=notify\n",
        "ExecReload=/bin/kill -HUP $MAINPID\n",
        "StateDirectoryMode=0700\n",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--no-pager", "--offline=true", "--threshold=15"]);
    output_of(security.arg(&unit));
    // Its program is not installed here.
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("dispatcher.service");
    fs::write(&copy, text.replace("/usr/bin/dispatcher", "/bin/true")).expect("written");
    let mut verify = Command::new("systemd-analyze");
    let complaints = output_of(verify.args(["verify", "--man=no"]).arg(&copy));
    let ours = complaints
        .lines()
        .filter(|line| line.contains("dispatcher.service"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
}

/// Installs a package into a system, or over another version of it, and answers with what that printed.
pub(super) fn install(system: &MinimalRoot, options: &[&str], package: &Path) -> String {
    let mut copy = as_root("cp", "this").expect("the system was made by root");
    output_of(copy.arg(package).arg(system.path().join("dispatcher.deb")));
    let mut dpkg = system.command("dpkg");
    output_of(dpkg.args(options).args(["--install", "/dispatcher.deb"]))
}

/// What systemd makes for the unit: a folder of a user without rights, below one that nobody but root
/// enters.
pub(super) fn make_state_folder(system: &MinimalRoot) {
    let private = ["--directory", "--mode=700", "/var/lib/private"];
    output_of(system.command("install").args(private));
    let link = ["-s", "private/dispatcher", "/var/lib/dispatcher"];
    output_of(system.command("ln").args(link));
    let owner = format!("--owner={USER}");
    let group = format!("--group={USER}");
    let state = ["--directory", "--mode=700", &owner, &group];
    let state = state.iter().chain(&["/var/lib/private/dispatcher"]);
    output_of(system.command("install").args(state));
}

/// Leaves the service's queues as a version would that has another format, 99.
pub(super) fn leave_as_a_later_version(system: &MinimalRoot) {
    let later = "import sqlite3, sys
sqlite3.connect(sys.argv[1]).execute('PRAGMA user_version = 99')";
    let file = system.path().join("var/lib/private/dispatcher/local.db");
    let mut python = as_root("python3", "this").expect("the system was made by root");
    output_of(python.args(["-c", later]).arg(file));
}

/// The program as the unit starts it.
pub(super) fn service(root: &Path) -> ConfinedProgram<'_> {
    ConfinedProgram {
        root,
        user: USER,
        writable: "var/lib/private/dispatcher",
        environment: vec!["XDG_DATA_HOME=/var/lib".into()],
    }
}

#[test]
fn package_is_installed_run_removed_and_purged() {
    let Some(system) = minimal_root("installing the package") else {
        return;
    };
    let root = system.path();
    install(&system, &[], package());
    for file in [
        "etc/dispatcher/dispatcher.toml",
        "lib/systemd/system/dispatcher.service",
        "usr/share/bash-completion/completions/dispatcher",
        "usr/share/man/man1/dispatcher-run.1.gz",
    ] {
        assert!(root.join(file).exists(), "{file}");
    }
    output_of(system.command("dpkg").args(["--verify", "dispatcher"]));

    make_state_folder(&system);
    let service = service(root);
    // An administrator may check as root: nothing is left that the service cannot use.
    let check = ["check", "--config", "/etc/dispatcher/dispatcher.toml"];
    output_of(system.command("dispatcher").args(check));
    let of_root = ["/var/lib/private/dispatcher", "-user", "root"];
    assert_eq!(output_of(system.command("find").args(of_root)), "");
    // systemd shows the service its folder.
    let enter = |mode: &str| {
        let mut change = system.command("chmod");
        output_of(change.args([mode, "/var/lib/private"]));
    };
    enter("755");
    service.run("check --config /etc/dispatcher/dispatcher.toml");
    main_job_is_done(&service, "run --config /etc/dispatcher/dispatcher.toml");
    enter("700");
    let send = "send local:default from-root --data /var/lib/dispatcher";
    output_of(system.command("dispatcher").args(send.split(' ')));
    assert_eq!(output_of(system.command("find").args(of_root)), "");

    let is_there = |path: &str| root.join(path).exists();
    output_of(system.command("dpkg").args(["--remove", "dispatcher"]));
    assert!(!is_there("usr/bin/dispatcher"));
    assert!(is_there("etc/dispatcher/dispatcher.toml"));
    assert!(is_there("var/lib/private/dispatcher/local.db"));
    output_of(system.command("dpkg").args(["--purge", "dispatcher"]));
    for path in [
        "etc/dispatcher",
        "etc/default/dispatcher",
        "var/lib/dispatcher",
        "var/lib/private/dispatcher",
    ] {
        let place = root.join(path);
        assert!(fs::symlink_metadata(place).is_err(), "{path}");
    }
}

/// What an administrator does with a newer package, and with the older one after it.
#[test]
fn package_is_upgraded_and_downgraded_with_what_the_user_has_changed() {
    let Some(system) = minimal_root("upgrading the package") else {
        return;
    };
    let root = system.path();
    let dpkg = |options: &[&str], version: &str| {
        let (_folder, package) = repacked(version);
        install(&system, options, &package)
    };
    let shell = |script: &str| output_of(system.command("sh").args(["-c", script]));
    let read = |file: &str| shell(&format!("cat {file}"));
    let ends_as = |file: &str, version: &str| {
        let text = read(file);
        assert!(text.ends_with(&format!("# As of {version}.\n")), "{text}");
    };
    let (unit, unchanged) = (
        "/lib/systemd/system/dispatcher.service",
        "/etc/default/dispatcher",
    );
    let changed = "/etc/dispatcher/dispatcher.toml";
    let queues = |words: &str| {
        let program = "DISPATCHER_DATA=/var/lib/dispatcher dispatcher";
        shell(&format!("{program} {words}"))
    };
    dpkg(&[], "0.0.8");
    shell(&format!("echo '# mine' >> {changed}"));
    let own = read(changed);
    shell("mkdir /etc/systemd/system/dispatcher.service.d");
    shell("echo '[Service]' > /etc/systemd/system/dispatcher.service.d/mine.conf");
    shell("mkdir -p -m 700 /var/lib/private/dispatcher");
    shell("ln -s private/dispatcher /var/lib/dispatcher");
    queues("send local:default kept");
    let kept = |version: &str| {
        ends_as(unit, version);
        ends_as(unchanged, version);
        assert_eq!(read(changed), own, "of {version}");
        read("/etc/systemd/system/dispatcher.service.d/mine.conf");
        assert!(
            queues("peek local:default").contains("kept"),
            "of {version}"
        );
        let status = shell("dpkg-query --show --showformat '${Status} ${Version}' dispatcher");
        assert_eq!(status, format!("install ok installed {version}"));
    };
    kept("0.0.8");

    // Without a terminal dpkg cannot ask which of two files to take; the other one is kept beside it.
    let keep = ["--force-confold"];
    for version in ["0.0.9~rc.1", "0.0.9"] {
        dpkg(&keep, version);
        kept(version);
        ends_as(&format!("{changed}.dpkg-dist"), version);
    }
    let said = dpkg(&keep, "0.0.8");
    let wanted = "downgrading dispatcher from 0.0.9 to 0.0.8";
    assert!(said.contains(wanted), "{said}");
    kept("0.0.8");
    // What a later program has written is refused.
    leave_as_a_later_version(&system);
    let refused = queues("peek local:default 2>&1 || true");
    let wanted = "written by a newer dispatcher (format 99";
    assert!(refused.contains(wanted), "{refused}");
    output_of(system.command("dpkg").args(["--purge", "dispatcher"]));
    assert!(
        !root
            .join("etc/systemd/system/dispatcher.service.d")
            .exists()
    );
}

#[test]
fn script_refuses_a_binary_that_is_not_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |binary: &str| {
        let mut build = Command::new(script("debian/build"));
        let output = build.arg(binary).arg(folder.path()).output();
        let output = output.expect("it starts");
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let missing = refused("/nowhere/dispatcher");
    assert!(missing.contains("cargo build --release"), "{missing}");
    assert_eq!(missing.lines().count(), 1, "{missing}");
}
