//! A guest reaches nothing outside: no files, no network, no variables but those it is lent.

use super::*;
use std::net::TcpListener;

fn is_shut(body: &str) {
    let answer = rejection(&verdicts(), body);
    assert!(!answer.starts_with("got"), "{body}: {answer}");
}

#[test]
fn files_are_shut() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    is_shut(&format!("read:{}", path(file.path())));
    is_shut("list:/");
    is_shut("list:.");
    is_shut(&format!("write:{}", path(&folder.path().join("new"))));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_network_is_shut_and_whoever_tries_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (refused, count) = counting();
    let counted = PluginOptions {
        refused: count,
        ..options()
    };
    let plugin = load(&runtime(1), "verdicts", counted);
    let tries = [
        &format!("connect:{}", listener.local_addr().unwrap()),
        "listen:127.0.0.1:0",
        "resolve:localhost:80",
    ];
    for (number, body) in tries.into_iter().enumerate() {
        let answer = rejection(&plugin, body);
        assert!(!answer.starts_with("got"), "{body}: {answer}");
        assert_eq!(refused.load(Ordering::SeqCst), number + 1, "{body}");
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody called");
}

#[test]
fn only_lent_variables_are_seen() {
    assert!(std::env::vars().count() > 0);
    assert_eq!(rejection(&verdicts(), "env"), "GREETING=hello");
    assert_eq!(rejection(&verdicts(), "arguments"), "");
}

#[test]
fn the_clock_and_chance_are_open() {
    let before = clock::today();
    let answer = rejection(&verdicts(), "time");
    let seen: u64 = answer.strip_prefix("got ").unwrap().parse().unwrap();
    assert!(seen >= before.0 && seen <= clock::today().0 + 1, "{seen}");
    let chance = || rejection(&verdicts(), "random");
    assert_ne!(chance(), chance());
}
