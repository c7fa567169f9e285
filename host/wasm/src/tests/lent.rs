//! Settings, stores and a folder: shut until they are lent, and then no more than was named.

use super::super::capability::store::Stores;
use super::*;
use dispatcher_core::keyvalue::{Bucket, Page};
use dispatcher_core::trouble::{Failed, Trouble};

fn capable(options: PluginOptions) -> Plugin {
    load(&runtime(4), "capable", options)
}

#[test]
fn settings_are_what_was_set_and_nothing_else() {
    let plain = capable(options());
    assert_eq!(rejection(&plain, "settings"), "got Ok([])");
    assert_eq!(rejection(&plain, "setting colour"), "got Ok(None)");
    let set = capable(PluginOptions {
        settings: vec![("colour".into(), "blue = sky".into())],
        ..options()
    });
    assert_eq!(
        rejection(&set, "setting colour"),
        "got Ok(Some(\"blue = sky\"))"
    );
    assert_eq!(rejection(&set, "setting GREETING"), "got Ok(None)");
    assert_eq!(
        rejection(&set, "settings"),
        "got Ok([(\"colour\", \"blue = sky\")])"
    );
}

/// Fails as a server that is away does.
struct Away;

#[async_trait::async_trait]
impl Bucket for Away {
    async fn get(&self, _: &[String]) -> Result<Vec<Option<Vec<u8>>>, Failed> {
        Err(Failed {
            kind: Trouble::Unreachable,
            message: "nobody answers at 192.0.2.7".into(),
        })
    }

    async fn exists(&self, _: &str) -> Result<bool, Failed> {
        std::future::pending().await
    }

    async fn set(&self, _: &[(String, Vec<u8>)]) -> Result<(), Failed> {
        Ok(())
    }

    async fn delete(&self, _: &[String]) -> Result<(), Failed> {
        panic!("no panic of a store ends the program");
    }

    async fn increment(&self, _: &str, _: i64) -> Result<i64, Failed> {
        Ok(i64::MIN)
    }

    async fn swap(&self, _: &str, _: Option<&[u8]>, _: &[u8]) -> Result<bool, Failed> {
        Ok(false)
    }

    async fn keys(&self, _: Option<u64>) -> Result<Page, Failed> {
        Ok(Page::default())
    }
}

#[test]
fn a_store_opens_by_the_name_it_is_lent_by_and_failures_are_told() {
    let (refused, count) = counting();
    let bucket: Arc<dyn Bucket> = Arc::new(Away);
    let plugin = capable(PluginOptions {
        stores: Stores([("mine".to_owned(), bucket)].into()),
        refused: count,
        ..options()
    });
    assert_eq!(rejection(&plugin, "open mine"), "got it");
    for other in ["", "other", "local:mine", "../mine"] {
        assert_eq!(
            rejection(&plugin, &format!("open {other}")),
            "Error::AccessDenied"
        );
    }
    assert_eq!(refused.load(Ordering::SeqCst), 4);
    let told = rejection(&plugin, "get mine k");
    assert_eq!(told, "Error::Other(\"nobody answers at 192.0.2.7\")");
    assert_eq!(
        rejection(&plugin, "increment mine k 1"),
        "got -9223372036854775808"
    );
    // Limits are the host's, whatever the store.
    assert_eq!(rejection(&plugin, "set-sized mine 1024 1048576"), "got set");
    for (sizes, told) in [
        ("0 1", "a key of 0 bytes; wanted 1 to 1024"),
        ("1025 1", "a key of 1025 bytes; wanted 1 to 1024"),
        (
            "1 1048577",
            "the value of `k` has 1048577 bytes; at most 1048576",
        ),
    ] {
        let says = rejection(&plugin, &format!("set-sized mine {sizes}"));
        assert_eq!(says, format!("Error::Other(\"{told}\")"));
    }
    let many = vec!["k"; 101].join(" ");
    let says = rejection(&plugin, &format!("get-many mine {many}"));
    assert_eq!(says, "Error::Other(\"101 keys in one call; at most 100\")");
}

#[test]
fn a_wait_for_a_store_ends_with_its_attempt() {
    let bucket: Arc<dyn Bucket> = Arc::new(Away);
    let plugin = capable(PluginOptions {
        stores: Stores([("mine".to_owned(), bucket)].into()),
        ..options()
    });
    let waiting = attempt(&["exists mine k"], LONG);
    let future = drive_until_it_waits(Box::pin(plugin.handle(waiting)));
    drop(future);
    assert_eq!(rejection(&plugin, "open mine"), "got it");
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("menu.txt"), "soup").unwrap();
    std::fs::create_dir(folder.path().join("inner")).unwrap();
    std::fs::write(folder.path().join("inner/deep.txt"), "salt").unwrap();
    folder
}

fn reading(folder: &std::path::Path) -> PluginOptions {
    PluginOptions {
        folder: Some(folder.to_owned()),
        ..options()
    }
}

#[test]
fn without_a_folder_there_are_no_files() {
    let plugin = capable(options());
    for body in ["read /menu.txt", "list /", "write /x", "read menu.txt"] {
        let says = rejection(&plugin, body);
        assert!(!says.starts_with("got"), "{body}: {says}");
    }
}

#[test]
fn a_folder_is_read_and_not_written() {
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
fn nothing_leads_out_of_a_folder() {
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
fn a_folder_that_is_not_there_is_a_problem_of_the_start() {
    let folder = folder();
    for (path, why) in [("nowhere", "No such file"), ("menu.txt", "Not a directory")] {
        let path = folder.path().join(path);
        let error = runtime(1)
            .load(&prebuilt("capable"), reading(&path))
            .unwrap_err();
        let told = error.to_string();
        assert!(
            told.contains("cannot be lent") && told.contains(why),
            "{told}"
        );
    }
}

#[test]
fn a_pipe_in_the_folder_holds_no_attempt_beyond_its_time() {
    let folder = folder();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let plugin = capable(PluginOptions {
        folder: Some(folder.path().to_owned()),
        ..reusing(10)
    });
    let held = held(&plugin);
    assert_eq!(rejection(&plugin, "read /menu.txt"), "got soup");
    // It is given up, whatever its thread still waits for.
    drop(held);
    release(&pipe);
}

/// Begins an attempt that reads the pipe in the folder, to which nobody writes: whoever opens it waits.
fn held(plugin: &Plugin) -> impl Sized {
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
fn files_that_never_open_take_no_thread_of_the_programs() {
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
    };
    let runtime = Runtime::start(options, control.handle().clone(), spawn()).unwrap();
    let options = PluginOptions {
        folder: Some(folder.path().to_owned()),
        ..reusing(10)
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
fn a_folder_that_is_gone_is_the_hosts_failure_and_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let lent = folder.path().join("lent");
    let fill = || {
        std::fs::create_dir(&lent).unwrap();
        std::fs::write(lent.join("menu.txt"), "soup").unwrap();
    };
    fill();
    let plugin = capable(reading(&lent));
    std::fs::remove_dir_all(&lent).unwrap();
    let Mishap::Host(why) = mishap(one(&plugin, "read /menu.txt")) else {
        panic!("it is not the guest's fault");
    };
    assert!(why.contains("cannot be lent now: No such file"), "{why}");
    fill();
    assert_eq!(rejection(&plugin, "read /menu.txt"), "got soup");
}
