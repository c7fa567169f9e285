//! A test of the program's own package: for its sake `cargo test` builds the program, which the
//! other suites then start.

#[test]
fn program_is_built_and_starts() {
    let version = std::process::Command::new(env!("CARGO_BIN_EXE_dispatcher"))
        .arg("--version")
        .output()
        .expect("it starts");
    assert!(version.status.success());
    assert!(version.stdout.starts_with(b"dispatcher "));
}
