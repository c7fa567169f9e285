//! What a release does with a registry and with the names of its files.

use dispatcher_tests::debian::DebianProgram;
use dispatcher_tests::packaging::{output_of, script};
use dispatcher_tests::registry::Registry;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const SKOPEO: DebianProgram = DebianProgram {
    program: "skopeo",
    packages: &["skopeo"],
    libraries: &[],
};

/// Keeps a blob in a layout; what a manifest says of it.
fn keep(layout: &Path, kind: &str, bytes: &[u8]) -> Value {
    let digest = Sha256::digest(bytes);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).expect("made");
    fs::write(blobs.join(&digest), bytes).expect("written");
    let kind = format!("application/vnd.oci.image.{kind}");
    json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len()})
}

/// An image of one file for such machines, as `host/packaging/image/build` lays it out.
fn image(release: &Path, architecture: &str) {
    let layout = tempfile::tempdir().expect("a folder");
    let layout = layout.path();
    let file = layout.join(architecture);
    fs::write(&file, architecture).expect("written");
    let mut pack = Command::new("tar");
    pack.arg("-czf")
        .arg(layout.join("layer"))
        .arg("-C")
        .arg(layout);
    output_of(pack.arg(architecture));
    let layer = fs::read(layout.join("layer")).expect("packed");
    let layer = keep(layout, "layer.v1.tar+gzip", &layer);
    let config = json!({
        "architecture": architecture, "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = keep(layout, "config.v1+json", config.to_string().as_bytes());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config, "layers": [layer],
    });
    let mut entry = keep(layout, "manifest.v1+json", manifest.to_string().as_bytes());
    entry["platform"] = json!({"architecture": architecture, "os": "linux"});
    let index = json!({"schemaVersion": 2, "manifests": [entry]});
    fs::write(layout.join("index.json"), index.to_string()).expect("written");
    let layout_version = r#"{"imageLayoutVersion":"1.0.0"}"#;
    fs::write(layout.join("oci-layout"), layout_version).expect("written");
    let archive = release.join(format!("dispatcher-1.2.3-{architecture}.oci.tar"));
    let mut pack = Command::new("tar");
    pack.arg("-cf").arg(archive).arg("-C").arg(layout);
    output_of(pack.args(["blobs", "index.json", "oci-layout"]));
}

/// A search path that begins with a skopeo which may speak to this registry.
fn with_skopeo(folder: &Path, registry: &Registry) -> std::ffi::OsString {
    let root = SKOPEO.unpacked_with_libraries();
    let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let config = folder.join("registries.conf");
    let trusted = format!(
        "[[registry]]\nlocation = \"{}\"\ninsecure = true\n",
        registry.host()
    );
    fs::write(&config, trusted).expect("written");
    let tools = folder.join("tools");
    fs::create_dir(&tools).expect("made");
    let wrapper = tools.join("skopeo");
    let text = format!(
        "#!/bin/sh\nexport LD_LIBRARY_PATH={}\n\
         exec {}/usr/bin/skopeo --insecure-policy --registries-conf {} \"$@\"\n",
        root.join(libraries).display(),
        root.display(),
        config.display()
    );
    fs::write(&wrapper, text).expect("written");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("ours");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(tools).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).expect("no colon in them")
}

#[test]
fn images_of_all_machines_are_pushed_as_one_and_its_digest_is_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let release = folder.path().join("release");
    fs::create_dir(&release).expect("made");
    for architecture in ["amd64", "arm64"] {
        image(&release, architecture);
    }
    let registry = Registry::open();
    let repository = format!("{}/dispatcher", registry.host());
    let path = with_skopeo(folder.path(), &registry);
    let mut push = Command::new(script("release/push"));
    push.args([&repository, "1.2.3"]).arg(&release);
    let pushed = push.env("PATH", &path).output().expect("it starts");
    let complaint = String::from_utf8_lossy(&pushed.stderr);
    assert!(pushed.status.success(), "{complaint}");
    let digest = String::from_utf8_lossy(&pushed.stdout).trim().to_owned();

    let mut inspect = Command::new(folder.path().join("tools/skopeo"));
    inspect.args(["inspect", "--raw"]);
    let there = output_of(inspect.arg(format!("docker://{repository}@{digest}")));
    let index: Value = serde_json::from_str(&there).expect("an index");
    let machines = index["manifests"].as_array().expect("manifests").iter();
    let machines: Vec<_> = machines
        .map(|one| &one["platform"]["architecture"])
        .collect();
    assert_eq!(machines, [&json!("amd64"), &json!("arm64")]);
    for one in index["manifests"].as_array().expect("manifests") {
        let part = one["digest"].as_str().expect("a digest");
        let mut inspect = Command::new(folder.path().join("tools/skopeo"));
        inspect.args(["inspect", "--raw"]);
        output_of(inspect.arg(format!("docker://{repository}@{part}")));
    }

    // Two for the same machine would hide one another.
    let twice = release.join("dispatcher-1.2.3-amd64-again.oci.tar");
    fs::copy(release.join("dispatcher-1.2.3-amd64.oci.tar"), twice).expect("copied");
    let mut push = Command::new(script("release/push"));
    push.args([&repository, "1.2.4"]).arg(&release);
    let refused = push.env("PATH", &path).output().expect("it starts");
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(complaint.contains("for the same machine"), "{complaint}");
}

#[test]
fn binstall_looks_for_the_archive_that_a_release_has() {
    let root = script("").join("../..");
    let manifest = fs::read_to_string(root.join("host/dispatcher/Cargo.toml")).expect("it");
    let template = manifest.split("pkg-url = \"").nth(1).expect("the address");
    let template = template.split('"').next().expect("its end");
    let (_, file) = template.rsplit_once('/').expect("a path");
    let assemble = fs::read_to_string(script("release/assemble")).expect("the script");
    let name = assemble.lines().find_map(|line| line.strip_prefix("name="));
    let name = name.expect("the name of a release").replace('$', "");
    let wanted = file
        .replace("{ name }", "dispatcher")
        .replace("{ ", "")
        .replace(" }", "");
    assert_eq!(wanted, format!("{name}.tar.gz"));
    assert!(template.contains("/download/v{ version }/"), "{template}");
}
