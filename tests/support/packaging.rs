//! What tests of packages need: the program without symbols, a command as root, Debian's checker of
//! packages, and a minimal Debian to install into. Knows no package.

use crate::child::binary;
use crate::debian::DebianProgram;
use crate::servers::{run, tools_folder};
use crate::skip::skip;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// A script of `host/packaging`.
pub fn script(path: &str) -> PathBuf {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/packaging");
    packaging.join(path)
}

/// The program without its symbols, as a release has it: half the size.
pub fn stripped() -> PathBuf {
    static STRIPPED: LazyLock<PathBuf> = LazyLock::new(|| {
        let built = binary();
        let stripped = built.with_file_name("dispatcher-stripped");
        let lock = File::create(built.with_file_name("dispatcher-stripped-lock"));
        lock.expect("the target folder is ours")
            .lock()
            .expect("a local file can be locked");
        let time = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
        if time(&stripped) < time(&built) {
            let mut strip = Command::new("strip");
            strip.arg("-o").arg(&stripped).arg(&built);
            run(&mut strip, "these tests need strip (Debian: binutils)");
        }
        stripped
    });
    STRIPPED.clone()
}

/// A command as root: directly, or by `sudo` where that asks for no password. Says so and answers
/// with nothing where neither is possible; under `CI=true` that is a failure.
pub fn as_root(program: &str, what: &str) -> Option<Command> {
    if rustix::process::geteuid().is_root() {
        return Some(Command::new(program));
    }
    let allowed = Command::new("sudo").args(["-n", "true"]).output();
    if allowed.is_ok_and(|output| output.status.success()) {
        let mut command = Command::new("sudo");
        command.args(["-n", "--preserve-env", program]);
        return Some(command);
    }
    skip(&format!("{what} needs root or sudo without a password"));
    None
}

/// Runs it to its end and answers with what it printed; fails with that if it fails.
pub fn output_of(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{out}{err}",
        output.status
    );
    out + &err
}

const LINTIAN: DebianProgram = DebianProgram {
    program: "lintian",
    packages: &["lintian", "mandoc"],
    libraries: &[],
};

/// A program of Debian's checkers: `lintian` or `mandoc`.
pub fn checker(program: &str) -> Command {
    let root = LINTIAN.unpacked_with_libraries();
    let machine = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let mut perl = vec![root.join("usr/share/perl5")];
    let compiled = fs::read_dir(root.join(&machine).join("perl5"));
    let compiled = compiled.into_iter().flatten().flatten();
    perl.extend(compiled.map(|version| version.path()));
    let join = |folders: Vec<PathBuf>| std::env::join_paths(folders).expect("no colon in them");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(root.join("usr/bin")).chain(std::env::split_paths(&path));
    let mut command = Command::new(root.join("usr/bin").join(program));
    command
        .env("PATH", join(folders.collect()))
        .env("PERL5LIB", join(perl))
        .env("LD_LIBRARY_PATH", root.join(machine))
        .env("LINTIAN_BASE", root.join("usr/share/lintian"));
    command
}

const MMDEBSTRAP: DebianProgram = DebianProgram {
    program: "mmdebstrap",
    packages: &["mmdebstrap"],
    libraries: &[],
};

/// A folder with a minimal system of this machine's Debian: essential packages and nothing else. It
/// is made once and unpacked for each caller. Needs root, as `as_root` says.
pub fn minimal_root(what: &str) -> Option<MinimalRoot> {
    as_root("true", what)?;
    let tools = tools_folder();
    fs::create_dir_all(&tools).expect("the folder is ours");
    let archive = tools.join("minimal-root.tar");
    let lock = File::create(tools.join("minimal-root-lock")).expect("the folder is ours");
    lock.lock().expect("a local file can be locked");
    if !archive.exists() {
        let program = MMDEBSTRAP.command();
        let program = program.get_program().to_string_lossy().into_owned();
        let mut make = as_root(&program, what)?;
        let partial = tools.join("minimal-root-partial.tar");
        make.args(["--mode=root", "--variant=essential", "--include=libgcc-s1"]);
        make.arg(codename()).arg(&partial).args(sources());
        run(&mut make, "a minimal system could not be made");
        fs::rename(&partial, &archive).expect("the folder is ours");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut unpack = as_root("tar", what)?;
    unpack.arg("-xf").arg(&archive).arg("-C").arg(folder.path());
    unpack.arg("--exclude=./dev/*");
    output_of(&mut unpack);
    Some(MinimalRoot { folder })
}

/// What this Debian is called where packages are fetched from.
fn codename() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.expect("the system says what it is called").to_owned()
}

/// Where this machine fetches its own packages from.
fn sources() -> Vec<String> {
    let known = [
        "/etc/apt/sources.list.d/debian.sources",
        "/etc/apt/sources.list.d/ubuntu.sources",
        "/etc/apt/sources.list",
    ];
    let there = known.iter().filter(|file| Path::new(file).exists());
    there.take(1).map(|file| (*file).to_owned()).collect()
}

/// An unpacked system, deleted when dropped.
#[derive(Debug)]
pub struct MinimalRoot {
    folder: tempfile::TempDir,
}

impl MinimalRoot {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A program of it, run by its root.
    pub fn command(&self, program: &str) -> Command {
        let mut command = as_root("chroot", "this").expect("the root was made by root");
        command.arg(self.path()).arg(program);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

impl Drop for MinimalRoot {
    fn drop(&mut self) {
        // Files of root that the folder itself could not remove.
        if let Some(mut remove) = as_root("rm", "this") {
            let _ = remove.arg("-rf").arg(self.path()).output();
        }
    }
}

/// A command line for `sh` that runs a program of the system in `root` as this user, sees all of it
/// read-only but `writable` (a folder of it), and keeps the process id. Its mounts end with it.
pub fn confined(root: &Path, user: u32, writable: &str, program: &str) -> String {
    let root = root.display();
    format!(
        "mount --bind {root} {root} && mount --bind {root}/{writable} {root}/{writable} \
         && mount -o remount,ro,bind {root} && mount --rbind /proc {root}/proc \
         && exec chroot --userspec={user}:{user} {root} {program}"
    )
}
