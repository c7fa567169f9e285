//! A guest reaches nothing outside but the clock and chance.

use super::*;

fn is_shut(body: &str) {
    let answer = rejection(&verdicts(), body);
    assert!(!answer.starts_with("got"), "{body}: {answer}");
}

#[test]
fn files_are_denied_by_default() {
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
fn clock_and_random_are_available() {
    let before = clock::wall_clock_now();
    let answer = rejection(&verdicts(), "time");
    let seen: u64 = answer.strip_prefix("got ").unwrap().parse().unwrap();
    assert!(
        seen >= before.0 && seen <= clock::wall_clock_now().0 + 1,
        "{seen}"
    );
    let chance = || rejection(&verdicts(), "random");
    assert_ne!(chance(), chance());
}
