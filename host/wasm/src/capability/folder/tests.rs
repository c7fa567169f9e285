//! A folder: none until it is granted, and then to be read alone.

use crate::tests::*;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("menu.txt"), "soup").unwrap();
    std::fs::create_dir(folder.path().join("inner")).unwrap();
    std::fs::write(folder.path().join("inner/deep.txt"), "salt").unwrap();
    folder
}

fn reading(folder: &std::path::Path) -> PluginOptions {
    granting(|grants| grants.folder = Some(folder.to_owned()))
}

#[test]
fn without_a_folder_grant_there_are_no_files() {
    let plugin = capable(options());
    for body in ["read /menu.txt", "list /", "write /x", "read menu.txt"] {
        let says = rejection(&plugin, body);
        assert!(!says.starts_with("got"), "{body}: {says}");
    }
}

#[test]
fn read_grant_allows_reading_and_not_writing() {
    let folder = folder();
    let (refused, count) = counting();
    let plugin = capable(PluginOptions {
        refused: count,
        ..reading(folder.path())
    });
    assert_eq!(rejection(&plugin, "read /menu.txt"), "got soup");
    assert_eq!(rejection(&plugin, "read menu.txt"), "got soup");
    assert_eq!(
        rejection(&plugin, "read inner/../inner/deep.txt"),
        "got salt"
    );
    assert_eq!(rejection(&plugin, "list /"), "got inner,menu.txt");
    assert!(!rejection(&plugin, "read /none.txt").starts_with("got"));
    assert_eq!(refused.load(Ordering::SeqCst), 0);
    let changes = [
        "write /menu.txt",
        "write /new.txt",
        "make /new",
        "remove /menu.txt",
        "rename /menu.txt /other.txt",
    ];
    for (number, body) in changes.into_iter().enumerate() {
        let says = rejection(&plugin, body);
        assert_eq!(refused.load(Ordering::SeqCst), number + 1, "{body}");
        assert!(
            says.contains("not permitted") || says.contains("Read-only") || says.contains("denied"),
            "{body}: {says}"
        );
    }
    assert!(!rejection(&plugin, "read /../secret").starts_with("got"));
    assert_eq!(refused.load(Ordering::SeqCst), changes.len() + 1);
    assert_eq!(rejection(&plugin, "list /"), "got inner,menu.txt");
    assert_eq!(
        std::fs::read_to_string(folder.path().join("menu.txt")).unwrap(),
        "soup"
    );
}

#[test]
fn no_path_leads_out_of_the_folder() {
    let (outside, folder) = (tempfile::tempdir().unwrap(), folder());
    let secret = outside.path().join("secret.txt");
    std::fs::write(&secret, "secret").unwrap();
    let link = |to: &std::path::Path, name: &str| {
        std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
    };
    link(&secret, "absolute");
    link(outside.path(), "folder");
    let up = std::path::Path::new("..").join(outside.path().file_name().unwrap());
    link(&up.join("secret.txt"), "relative");
    link(std::path::Path::new("inner/deep.txt"), "inside");
    let plugin = capable(reading(folder.path()));
    let up = up.join("secret.txt");
    for path in [
        "/absolute",
        "/folder/secret.txt",
        "/relative",
        &up.display().to_string(),
        "/../../../../etc/passwd",
    ] {
        let says = rejection(&plugin, &format!("read {path}"));
        assert!(!says.starts_with("got"), "{path}: {says}");
    }
    assert_eq!(rejection(&plugin, "read /inside"), "got salt");
}

#[test]
fn missing_folder_is_a_problem_at_start() {
    let folder = folder();
    for (path, why) in [("nowhere", "No such file"), ("menu.txt", "Not a directory")] {
        let path = folder.path().join(path);
        let error = runtime(1)
            .load(&prebuilt("capable"), reading(&path))
            .unwrap_err();
        let told = error.to_string();
        assert!(
            told.contains("cannot be opened") && told.contains(why),
            "{told}"
        );
    }
}

#[test]
fn pipe_in_the_folder_blocks_no_attempt_beyond_its_timeout() {
    let folder = folder();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let plugin = capable(PluginOptions {
        reuse: reusing(10).reuse,
        ..reading(folder.path())
    });
    let held = held(&plugin);
    assert_eq!(rejection(&plugin, "read /menu.txt"), "got soup");
    // It is given up, whatever its thread still waits for.
    drop(held);
    release(&pipe);
}

/// Begins an attempt that reads the pipe in the folder, to which nobody writes: whoever opens it waits.
fn held(plugin: &LoadedPlugin) -> impl Sized {
    // From then on there is an instance whose folder is open, so that the pipe is all that is waited for.
    assert_eq!(rejection(plugin, "read /menu.txt"), "got soup");
    let plugin = plugin.clone();
    let reads = async move { plugin.handle(attempt(&["read /pipe"], LONG)).await };
    drive_until_it_waits(Box::pin(reads))
}

/// So that the thread that waits for a writer comes to its end.
fn release(pipe: &std::path::Path) {
    let mut both = std::fs::OpenOptions::new();
    drop(both.read(true).write(true).open(pipe));
}

#[test]
fn files_that_never_open_block_no_thread_of_the_host() {
    let folder = folder();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let mut control = tokio::runtime::Builder::new_multi_thread();
    let control = control.worker_threads(1).max_blocking_threads(1).build();
    let control = control.unwrap();
    let options = RuntimeOptions {
        instances: 4,
        max_memory: MAX_MEMORY,
        cache: None,
        functions: None,
    };
    let runtime = Runtime::start(options, control.handle().clone(), spawn()).unwrap();
    let options = PluginOptions {
        reuse: reusing(10).reuse,
        ..reading(folder.path())
    };
    let plugin = load(&runtime, "capable", options);
    let held = held(&plugin);
    let (free, is_free) = std::sync::mpsc::channel();
    control.spawn_blocking(move || free.send(()));
    let free = is_free.recv_timeout(Duration::from_secs(10));
    drop(held);
    release(&pipe);
    assert_eq!(free, Ok(()));
}

#[test]
fn deleted_folder_is_a_host_failure_and_not_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let granted = folder.path().join("granted");
    let fill = || {
        std::fs::create_dir(&granted).unwrap();
        std::fs::write(granted.join("menu.txt"), "soup").unwrap();
    };
    fill();
    let plugin = capable(reading(&granted));
    std::fs::remove_dir_all(&granted).unwrap();
    let FailureReason::Host(why) = failure_reason(one(&plugin, "read /menu.txt")) else {
        panic!("it is not the guest's fault");
    };
    assert!(why.contains("cannot be opened now: No such file"), "{why}");
    fill();
    assert_eq!(rejection(&plugin, "read /menu.txt"), "got soup");
}
