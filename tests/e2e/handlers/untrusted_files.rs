//! What is at a plugin's path, in the cache of compiled plugins and in the way of address space is not
//! ours to choose: none of it stops what works.

use crate::backends::redis::scene::RedisScene;
use crate::lambda::scene::admin;
use crate::scene::{guest, printed, send};
use dispatcher_tests::child::{Program, RunningProgram, binary};
use dispatcher_tests::http;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn replaced(line: &str) -> bool {
    line.contains("replaced: new attempts run this version")
}

fn refused(line: &str) -> bool {
    line.contains("not replaced, the old version stays")
}

/// Puts what `make` makes at a path in the place of a file in one step.
fn swap(file: &Path, make: impl FnOnce(&Path)) {
    let beside = file.with_extension("new");
    make(&beside);
    std::fs::rename(&beside, file).expect("renamed");
}

fn copy(name: &str) -> impl FnOnce(&Path) {
    let from = guest(name);
    move |to| {
        std::fs::copy(from, to).expect("copied");
    }
}

fn pipe(path: &Path) {
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, path, FileType::Fifo, mode, 0).expect("a named pipe");
}

fn zero(path: &Path) {
    symlink("/dev/zero", path).expect("linked");
}

fn socket(path: &Path) {
    // It stays when nobody listens any more.
    drop(std::os::unix::net::UnixListener::bind(path).expect("bound"));
}

async fn prints(running: &RunningProgram, queue: &str, body: &str) {
    let data = running.data().path();
    send(data, queue, [body.to_owned()]).await;
    // `hello` prints the whole body, `verdicts` what it is told to.
    let word = body.strip_prefix("print:").unwrap_or(body);
    running.wait_for_line(|line| printed(line) && line.contains(word));
}

/// Puts something at a path.
type Make = fn(&Path);

/// Spoils something, or mends it.
type Change<'a> = Box<dyn Fn() + 'a>;

#[tokio::test]
async fn finding_08_pipe_or_device_as_a_plugin_is_refused_and_blocks_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    for file in [&one, &other] {
        copy("hello")(file);
    }
    let text = format!(
        "[plugin.one]\nfile = {one:?}\n[plugin.other]\nfile = {other:?}\n\
         [[route]]\nplugin = \"one\"\nqueues = [\"local:one\"]\n\
         [[route]]\nplugin = \"other\"\nqueues = [\"local:other\"]\n"
    );
    let arguments = [
        "run",
        "--config",
        "d.toml",
        "--log-format",
        "json",
        "--admin",
        "127.0.0.1:0",
        "--admin-token-file",
        "token",
    ];
    let program = Program::new(arguments).file("d.toml", &text);
    let mut running = program.file("token", "secret").start();
    running.wait_for_line(|line| line.contains("\"message\":\"running\""));
    let address = admin(&running);
    let kinds: [(Make, &str); 3] = [
        (pipe, "a named pipe where a regular file is wanted"),
        (zero, "a character device where a regular file is wanted"),
        (socket, "a socket or device where a regular file is wanted"),
    ];
    for (round, (make, found)) in kinds.into_iter().enumerate() {
        swap(&one, make);
        let line = running.wait_for_line(|line| refused(line) && line.contains(found));
        assert!(line.contains(&one.display().to_string()), "{line}");
        // By the watch, by the request below, and once more by the watch after it: not at every look.
        assert!(running.lines(refused).len() <= 3 * round + 1);
        // Whoever asks is answered, the admin address too.
        let bearer = [("Authorization", "Bearer secret")];
        let told = http::post(&format!("{address}/plugins"), &bearer, "");
        assert!(told.status == 422 && told.body.contains(found), "{told:?}");
        assert_eq!(http::get(&format!("{address}/healthz")).status, 200);
        // The old version stays, and the neighbour is replaced meanwhile.
        prints(&running, "one", &format!("print:old {round}")).await;
        swap(&other, copy(["verdicts", "hello", "verdicts"][round]));
        running.wait_for_lines(2 * round + 1, replaced);
        prints(&running, "other", &format!("print:neighbour {round}")).await;
        // A good file is taken again, without a restart.
        swap(&one, copy(["verdicts", "hello", "verdicts"][round]));
        running.wait_for_lines(2 * round + 2, replaced);
        prints(&running, "one", &format!("print:new {round}")).await;
        assert_eq!(http::get(&format!("{address}/healthz")).status, 200);
    }
    running.stop();
}

#[test]
fn finding_08_no_command_waits_for_a_pipe_or_reads_a_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let [fifo, device] = ["fifo", "device"].map(|name| folder.path().join(name));
    pipe(&fifo);
    zero(&device);
    for (path, found) in [(&fifo, "a named pipe"), (&device, "a character device")] {
        let path = path.display().to_string();
        for arguments in [
            vec!["run", "--plugin", &path],
            vec!["plugin", "check", &path],
            vec!["plugin", "invoke", &path, "body"],
            vec!["plugin", "replay", &guest("hello"), &path],
        ] {
            let ended = Program::new(&arguments).run();
            assert_ne!(ended.code, 0, "{arguments:?}");
            assert!(
                ended.stderr.contains(found),
                "{arguments:?}: {}",
                ended.stderr
            );
        }
    }
    // A shell's `<(command)` is a pipe with a writer; this one has none.
    for (path, found) in [
        (&fifo, "a pipe without a writer"),
        (&device, "a character device"),
    ] {
        let path = path.display().to_string();
        for arguments in [
            vec!["run", "--config", &path],
            vec!["send", "local:q", "--file", &path],
        ] {
            let ended = Program::new(&arguments).run();
            assert_eq!(ended.code, 2, "{arguments:?}: {}", ended.stderr);
            assert!(
                ended.stderr.contains(found),
                "{arguments:?}: {}",
                ended.stderr
            );
        }
    }
}

#[test]
fn body_and_configuration_can_come_from_a_shell_pipe() {
    let script = r#""$0" send local:q --file <(printf body) && "$0" peek --config <(echo '# nothing') local:q"#;
    let ended = Program::of(
        "/bin/bash",
        ["-c", script, binary().to_str().expect("plain")],
    )
    .run();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("body"), "{}", ended.stdout);
}

/// Every file under a folder with what it says.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(folder).expect("readable") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path)
            } else {
                found.push((path.clone(), std::fs::read(path).expect("readable")))
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn run_takes_from_the_cache_what_invoke_compiled() {
    let plugin = guest("hello");
    let data = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    let invoke = Program::new(["plugin", "invoke", &plugin, "x"]).sharing(&data);
    assert_eq!(invoke.run().code, 0);
    let compiled = || {
        let files = contents(&data.path().join("compiled").join("modules"));
        let names = files.into_iter().map(|(path, _)| path);
        names.collect::<Vec<_>>()
    };
    let before = compiled();
    assert!(!before.is_empty());
    let mut running = Program::new(["run", "--log-format", "json", "--plugin", &plugin])
        .sharing(&data)
        .start();
    prints(&running, "default", "first").await;
    running.stop();
    assert_eq!(compiled(), before, "it was compiled again");
}

#[tokio::test]
async fn finding_17_compiled_plugin_writable_by_another_user_is_not_run() {
    let plugin = guest("hello");
    let program = || Program::new(["run", "--log-format", "json", "--plugin", &plugin]);
    let untrusted = |line: &str| line.contains("compiled-plugin cache refused");
    let mut running = program().compiling().start();
    prints(&running, "default", "first").await;
    running.stop();
    assert_eq!(running.lines(untrusted), Vec::<String>::new());
    let data = Arc::clone(running.data());
    let cache = data.path().join("compiled");
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&cache), 0o700);
    let modules: Vec<_> = contents(&cache.join("modules"));
    let entry = &modules.first().expect("something was compiled").0;
    // As it may be left behind by whoever was let in once.
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    };
    let mut spoilt: Vec<(Change<'_>, Change<'_>, &str)> = vec![(
        Box::new(|| {
            open(&cache, 0o777);
            open(entry, 0o666);
        }),
        Box::new(|| {
            open(entry, 0o600);
            open(&cache, 0o700);
        }),
        "writable by other users",
    )];
    if rustix::process::geteuid().is_root() {
        let owned = |user: u32| chown(entry, Some(user), None).expect("we are root");
        spoilt.push((
            Box::new(move || owned(4711)),
            Box::new(move || owned(0)),
            "owned by user 4711",
        ));
    }
    for (spoil, mend, why) in spoilt {
        spoil();
        let before = contents(&cache);
        let mut running = program().sharing(&data).start();
        prints(&running, "default", "works all the same").await;
        running.stop();
        let lines = running.lines(untrusted);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(why), "{}", lines[0]);
        assert!(
            contents(&cache) == before,
            "nothing is written to a cache that is refused"
        );
        mend();
    }
    let mut running = program().sharing(&data).start();
    prints(&running, "default", "trusted again").await;
    running.stop();
    assert_eq!(running.lines(untrusted), Vec::<String>::new());
}

/// A disk that cannot be written, as under a read-only root: nobody can make a folder in `/proc`. What
/// needs no data folder runs, and what needs one names the setting.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn data_folder_that_cannot_be_made_stops_only_what_needs_it() {
    let scene = RedisScene::plain();
    let nowhere = "/proc/dispatcher";
    let mut running = scene
        .run("hello", &[])
        .env("DISPATCHER_DATA", nowhere)
        .start();
    let line = running.wait_for_line(|line| line.contains("compiled-plugin cache refused"));
    assert!(line.contains(nowhere), "{line}");
    scene.send(["works".to_owned()]).await;
    running.wait_for_line(|line| printed(line) && line.contains("works"));
    running.stop();
    let ended = Program::new(["send", "local:q", "x"])
        .env("DISPATCHER_DATA", nowhere)
        .run();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("--data"), "{}", ended.stderr);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn finding_22_sixteen_gibibytes_of_address_space_are_enough() {
    // KiB, as the shell counts.
    let script = "ulimit -v 16777216 && exec \"$0\" \"$@\"";
    let plugin = guest("hello");
    let program = binary();
    let arguments = [
        "-c",
        script,
        program.to_str().expect("plain"),
        "run",
        "--log-format",
        "json",
        "--plugin",
        &plugin,
    ];
    let mut running = Program::of("/bin/sh", arguments).start();
    prints(&running, "default", "in a small space").await;
    let line = running.wait_for_line(|line| line.contains("address space limited"));
    for word in ["ulimit -v", "concurrency", "max-memory", "17179869184"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.id()));
    let status = status.expect("it runs");
    let mapped = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    println!("mapped at most {mapped:?}");
    running.stop();
}
