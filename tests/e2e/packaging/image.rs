//! The container image: built by its script without a daemon, twice the same, and run as a container
//! would run it.

use super::{Confined, main_job_is_done};
use dispatcher_tests::packaging::{as_root, output_of, script, stripped};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const USER: u32 = 65_532;

/// The layout in a new folder, and the digest that the script printed.
fn built(folder: &Path, name: &str) -> (PathBuf, String) {
    let layout = folder.join(name);
    let mut build = Command::new(script("image/build"));
    build.arg(stripped()).arg(&layout).env("IMAGE_GZIP", "1");
    build.env("IMAGE_REVISION", "0123abc");
    let printed = output_of(&mut build);
    (layout, printed.trim().to_owned())
}

fn blob(layout: &Path, digest: &str) -> PathBuf {
    layout.join("blobs").join(digest.replace(':', "/"))
}

fn read(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).expect("JSON")
}

/// Every file of a folder, by its path there, with its content.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a readable folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("below").to_owned();
                found.push((name, fs::read(&path).expect("readable")));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn image_is_the_same_when_built_twice_and_does_the_main_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let (layout, digest) = built(folder.path(), "first");
    let (again, _) = built(folder.path(), "second");
    assert!(contents(&layout) == contents(&again), "the two differ");

    let index = read(&layout.join("index.json"));
    assert_eq!(index["manifests"][0]["digest"], json!(digest));
    let manifest = read(&blob(&layout, &digest));
    let config = manifest["config"]["digest"].as_str().expect("a digest");
    let config = read(&blob(&layout, config));
    assert_eq!(config["config"]["User"], json!("65532:65532"));
    assert_eq!(
        config["config"]["Entrypoint"],
        json!(["/usr/bin/dispatcher"])
    );
    let labels = &config["config"]["Labels"];
    assert_eq!(
        labels["org.opencontainers.image.revision"],
        json!("0123abc")
    );

    let Some(mut unpack) = as_root("sh", "running the image") else {
        return;
    };
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("a folder");
    let layers = manifest["layers"].as_array().expect("layers");
    let layers = layers.iter().map(|layer| {
        let digest = layer["digest"].as_str().expect("a digest");
        let file = blob(&layout, digest);
        format!("tar -xzpf {} -C {}", file.display(), root.display())
    });
    let layers: Vec<_> = layers.collect();
    output_of(unpack.args(["-c", &layers.join(" && ")]));
    fs::copy(
        dispatcher_tests::guests::guest("hello"),
        folder.path().join("hello.wasm"),
    )
    .expect("copied");
    let plugin = folder.path().join("hello.wasm");
    let mut mounted = as_root("cp", "running the image").expect("as before");
    output_of(mounted.arg(&plugin).arg(root.join("etc/dispatcher")));

    let variables = config["config"]["Env"].as_array().expect("variables");
    let variables = variables.iter().filter_map(Value::as_str);
    let container = Confined {
        root: &root,
        user: USER,
        writable: "var/lib/dispatcher",
        environment: variables.map(str::to_owned).collect(),
    };
    main_job_is_done(&container, "run --plugin /etc/dispatcher/hello.wasm");
    let mut remove = as_root("rm", "this").expect("as before");
    output_of(remove.arg("-rf").arg(&root));
}
