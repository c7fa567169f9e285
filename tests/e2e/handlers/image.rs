//! Components from an OCI registry: pinned, checked, kept, and refused in plain words.

use crate::scene::{guest, send};
use dispatcher_tests::child::{ExitedProgram, Program, RunningProgram};
use dispatcher_tests::registry::{PASSWORD, Registry, USER};
use std::sync::Arc;

fn component(name: &str) -> Vec<u8> {
    std::fs::read(guest(name)).expect("the fixture")
}

fn program(name: &str) -> Program {
    // Nobody is logged in, whoever runs the tests.
    Program::new(["run", "--plugin", name]).env("DOCKER_CONFIG", "/nonexistent")
}

async fn answers(running: &mut RunningProgram) {
    let data = running.data().path().to_owned();
    send(&data, "default", ["hello".to_owned()]).await;
    running.wait_for_line(|line| {
        line.contains("dead-lettered") && line.contains("version-000000 hello")
    });
    running.stop();
}

fn refused(ended: &ExitedProgram, code: i32, words: &[&str]) {
    assert_eq!(ended.code, code, "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
}

#[tokio::test]
async fn component_is_fetched_once_and_then_runs_without_the_registry() {
    let mut registry = Registry::open();
    let name = registry.push("team/orders", &component("version"));
    let tagged = name.replace("orders@", "orders:1.2@");
    let mut running = program(&tagged).start();
    answers(&mut running).await;
    registry.kill();
    let data = Arc::clone(running.data());
    let mut again = program(&name).sharing(&data).start();
    answers(&mut again).await;
    // What was kept is run only as long as it is what its name says.
    for kept in std::fs::read_dir(data.path().join("images")).expect("the folder") {
        let path = kept.expect("an entry").path();
        if path.extension().is_some_and(|kind| kind == "wasm") {
            std::fs::write(&path, component("hello")).expect("written");
        }
    }
    let ended = program(&name).sharing(&data).run();
    refused(&ended, 3, &[&name, "error sending request"]);
}

#[test]
fn image_with_a_wrong_digest_is_refused() {
    let registry = Registry::open();
    let version = component("version");
    let name = registry.push("orders", &version);
    let (place, digest) = name.split_once("@sha256:").expect("it is pinned");
    let ended = program(place).run();
    refused(
        &ended,
        2,
        &["oci://HOST/NAME@sha256:DIGEST", "a tag does not"],
    );
    let other = format!(
        "{place}@sha256:{}",
        digest.chars().rev().collect::<String>()
    );
    let ended = program(&other).run();
    refused(
        &ended,
        2,
        &[&other, "has no artefact of this name and digest"],
    );
    let mut other = version.clone();
    other[8] ^= 1;
    registry.falsify(&version, &other);
    refused(&program(&name).run(), 2, &[&name, "igest"]);
    registry.falsify(&version, &[version.clone(), vec![0]].concat());
    let ended = program(&name).run();
    refused(&ended, 2, &[&name, "more than the"]);
    let text = registry.push("text", b"no component at all");
    refused(&program(&text).run(), 2, &[&text, "not WebAssembly"]);
}

#[tokio::test]
async fn private_registry_uses_credentials_of_docker_login() {
    let registry = Registry::closed();
    let name = registry.push("orders", &component("version"));
    refused(&program(&name).run(), 2, &[&name, "docker login"]);
    let folder = tempfile::tempdir().expect("a folder");
    let login = |password: &str| {
        let auth = base64(&format!("{USER}:{password}"));
        let text = format!(
            r#"{{"auths": {{"{}": {{"auth": "{auth}"}}}}}}"#,
            registry.host()
        );
        std::fs::write(folder.path().join("config.json"), text).expect("written");
    };
    let config = folder.path().display().to_string();
    login("wrong");
    let wrong = program(&name).env("DOCKER_CONFIG", &config);
    refused(&wrong.run(), 2, &[&name, "docker login"]);
    login(PASSWORD);
    let mut running = program(&name).env("DOCKER_CONFIG", &config).start();
    answers(&mut running).await;
}

#[tokio::test]
async fn credential_helper_without_an_entry_means_anonymous_access() {
    let registry = Registry::open();
    let name = registry.push("orders", &component("version"));
    let folder = tempfile::tempdir().expect("a folder");
    let helper = folder.path().join("docker-credential-stub");
    // A helper reads what it is asked before it answers. It is written by another process: a file that
    // this one has open for writing, and with it any child that a test beside this one is just
    // starting, cannot be executed (ETXTBSY).
    let write = r#"printf '#!/bin/sh\ncat > /dev/null\necho "credentials not found in native keychain"\nexit 1\n' > "$0" && chmod 755 "$0""#;
    let written = std::process::Command::new("sh")
        .args(["-c", write])
        .arg(&helper)
        .status();
    assert!(written.expect("a shell").success());
    let config = folder.path().join("config.json");
    std::fs::write(config, r#"{"credsStore": "stub"}"#).expect("written");
    let path = std::env::var("PATH").unwrap_or_default();
    let own = folder.path().display();
    let mut running = program(&name)
        .env("DOCKER_CONFIG", &own.to_string())
        .env("PATH", &format!("{own}:{path}"))
        .start();
    answers(&mut running).await;
}

#[test]
fn check_and_invoke_accept_an_image_name() {
    let registry = Registry::open();
    let name = registry.push("orders", &component("version"));
    let checked = Program::new(["plugin", "check", &name]).run();
    assert_eq!(checked.code, 0, "{checked:?}");
    let invoked = Program::new(["plugin", "invoke", &name, "hello"]).run();
    assert!(
        invoked.stdout.contains("version-000000 hello"),
        "{invoked:?}"
    );
}

/// A name and a password, as Docker keeps them.
fn base64(text: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let mut word = [0; 4];
        word[1..=chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes(word);
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            out.push(if place > chunk.len() {
                '='
            } else {
                letter.into()
            });
        }
    }
    out
}
