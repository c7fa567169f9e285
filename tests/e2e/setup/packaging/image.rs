//! The container image: built by its script without a daemon, twice the same, and run as a container
//! would run it.

use super::tools::{needs, search_path};
use super::{ConfinedProgram, main_job_is_done};
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
    let needs = needs("image/build");
    let path = search_path(needs.iter().map(String::as_str).chain(["apt-get"]));
    build.env("PATH", path.path());
    // Its steps, from stderr, come after the digest.
    let printed = output_of(&mut build);
    let digest = printed.lines().next().unwrap_or_default();
    (layout, digest.to_owned())
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

/// What a Dockerfile's last stage says with this word, in one line each.
fn said<'a>(stage: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = stage.lines();
    lines.filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
}

/// Its commands are run without Docker, in folders in the place of the container's.
fn dockerfile_makes_the_same(folder: &Path, root: &Path, config: &Value) {
    let text = fs::read_to_string(script("image/Dockerfile")).expect("the file");
    let (first, last) = text.split_once("\nFROM scratch\n").expect("two stages");
    let (_, commands) = first
        .split_once("\nRUN /context")
        .expect("it runs the script");
    let context = folder.join("context");
    fs::create_dir(&context).expect("a folder");
    fs::copy(script("image/build"), context.join("build")).expect("copied");
    fs::copy(stripped(), context.join("dispatcher")).expect("copied");
    let commands = format!("/context{commands}").replace("\\\n", "\n");
    let here = |path: &str| folder.join(path).display().to_string();
    let commands = commands
        .replace("/context", &here("context"))
        .replace("/layout", &here("layout"))
        .replace("/image", &here("docker"));
    let mut run = as_root("bash", "this").expect("as before");
    run.args(["-euo", "pipefail", "-c", &commands]);
    output_of(run.env("IMAGE_GZIP", "1"));
    let listed = |root: &Path| {
        let mut list = as_root("sh", "this").expect("as before");
        let every = "cd \"$0\" && find . -mindepth 1 ! -type d -printf '%p %U %m ' -exec md5sum {} \\; | sort; \
                     find . -mindepth 1 -type d -printf '%p %U %m\\n' | sort";
        output_of(list.args(["-c", every]).arg(root))
    };
    let ours = listed(root);
    assert!(ours.contains("/usr/bin/dispatcher"), "{ours}");
    assert_eq!(listed(&folder.join("docker")), ours);
    let mut remove = as_root("rm", "this").expect("as before");
    output_of(remove.arg("-rf").args([here("docker"), here("layout")]));

    let one = |word| said(last, word).next().map(Value::from);
    let list = |word| {
        said(last, word)
            .next()
            .map(|list| serde_json::from_str(list).expect("JSON"))
    };
    let wanted = |name: &str| Some(config[name].clone());
    assert_eq!(one("USER"), wanted("User"));
    assert_eq!(one("WORKDIR"), wanted("WorkingDir"));
    assert_eq!(one("STOPSIGNAL"), wanted("StopSignal"));
    assert_eq!(list("ENTRYPOINT"), wanted("Entrypoint"));
    assert_eq!(list("CMD"), wanted("Cmd"));
    let variables = said(last, "ENV").flat_map(|line| line.split(' '));
    assert_eq!(json!(variables.collect::<Vec<_>>()), config["Env"]);
    let volumes = said(last, "VOLUME").map(|path| (path.to_owned(), json!({})));
    assert_eq!(Value::Object(volumes.collect()), config["Volumes"]);
    let mut labels = config["Labels"].as_object().expect("labels").clone();
    // Docker dates an image itself.
    labels.remove("org.opencontainers.image.created");
    for label in said(last, "LABEL") {
        let (name, value) = label.split_once('=').expect("a value");
        let given = labels.remove(name).expect("the script has it");
        let is_argument = value.starts_with('$');
        assert!(
            is_argument || given == json!(value.trim_matches('"')),
            "{label}"
        );
    }
    assert!(labels.is_empty(), "{labels:?}");
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
    dockerfile_makes_the_same(folder.path(), &root, &config["config"]);
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
    let container = ConfinedProgram {
        root: &root,
        user: USER,
        writable: "var/lib/dispatcher",
        environment: variables.map(str::to_owned).collect(),
    };
    main_job_is_done(&container, "run --plugin /etc/dispatcher/hello.wasm");
    let mut remove = as_root("rm", "this").expect("as before");
    output_of(remove.arg("-rf").arg(&root));
}
