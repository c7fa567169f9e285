//! An OCI registry (Debian's `docker-registry`) as a child process on a free port of the loopback
//! interface, and enough of its protocol to put a component there. Knows no client library.

use crate::PATIENCE;
use crate::debian::DebianProgram;
use crate::http;
use crate::servers::free_port;
use crate::tied::TiedServer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::Instant;

const PROGRAM: DebianProgram = DebianProgram {
    program: "docker-registry",
    packages: &["docker-registry"],
    libraries: &[],
};
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The only user of a registry that has one.
pub const USER: &str = "ann";
/// Their password.
pub const PASSWORD: &str = "secret";
/// The same as registries keep it.
const HASHED: &str = "$2b$04$h2W8f28Nrclkl8MmIKk06upR2Inxn51xEtUXhCKqSo0AVJu/oHLQq";
/// `ann:secret` as HTTP sends it.
const AUTHORIZATION: (&str, &str) = ("Authorization", "Basic YW5uOnNlY3JldA==");

/// A running registry. Ends when dropped; what it holds goes with it.
#[derive(Debug)]
pub struct Registry {
    server: TiedServer,
    port: u16,
    folder: tempfile::TempDir,
}

impl Registry {
    /// One that gives to anybody.
    pub fn open() -> Self {
        Self::start("")
    }

    /// One that gives to its only user.
    pub fn closed() -> Self {
        Self::start("auth: { htpasswd: { realm: test, path: users } }")
    }

    fn start(auth: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        let at = folder.path().display();
        let config = format!(
            "version: 0.1\nlog: {{ level: error }}\n\
             storage: {{ filesystem: {{ rootdirectory: {at}/images }} }}\n\
             http: {{ addr: 127.0.0.1:{port} }}\n{}\n",
            auth.replace("users", &format!("{at}/users"))
        );
        let file = folder.path().join("config.yml");
        std::fs::write(&file, config).expect("written");
        std::fs::write(folder.path().join("users"), format!("{USER}:{HASHED}\n")).expect("written");
        let mut command = PROGRAM.command();
        command.arg("serve").arg(&file);
        let server = TiedServer::start(&command);
        let started = Self {
            server,
            port,
            folder,
        };
        let end = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "the registry does not answer");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        started
    }

    /// `127.0.0.1:PORT`.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Puts a component there; the name to run it by, pinned.
    pub fn push(&self, name: &str, component: &[u8]) -> String {
        let digest = self.push_as(name, "latest", component);
        format!("oci://{}/{name}@{digest}", self.host())
    }

    /// Puts a component or a package of WIT there under this tag as the CNCF's guidance for Wasm
    /// artefacts says; the digest of its manifest.
    pub fn push_as(&self, name: &str, tag: &str, wasm: &[u8]) -> String {
        let layer = self.blob(name, wasm);
        let config = json!({
            "created": "2026-01-01T00:00:00Z",
            "architecture": "wasm",
            "os": "wasip2",
            "layerDigests": [layer],
        });
        let config = config.to_string();
        let config_digest = self.blob(name, config.as_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.wasm.config.v0+json",
                "digest": config_digest,
                "size": config.len(),
            },
            "layers": [{
                "mediaType": "application/wasm",
                "digest": layer,
                "size": wasm.len(),
            }],
        });
        let manifest = manifest.to_string();
        let url = format!("http://{}/v2/{name}/manifests/{tag}", self.host());
        let headers = [AUTHORIZATION, ("Content-Type", MANIFEST)];
        let put = http::put(&url, &headers, manifest.as_bytes());
        assert_eq!(put.status, 201, "{put:?}");
        digest(manifest.as_bytes())
    }

    /// What lies there under this tag, looked up as clients of the guidance do.
    pub fn pull(&self, name: &str, tag: &str) -> Vec<u8> {
        let url = |rest: &str| format!("http://{}/v2/{name}/{rest}", self.host());
        let headers = [AUTHORIZATION, ("Accept", MANIFEST)];
        let manifest = http::bytes(&url(&format!("manifests/{tag}")), &headers);
        let manifest: Value = serde_json::from_slice(&manifest).expect("JSON");
        let layers = manifest["layers"].as_array().expect("a list");
        let [layer] = layers.as_slice() else {
            panic!("one layer: {manifest}");
        };
        assert_eq!(layer["mediaType"], "application/wasm");
        let wanted = layer["digest"].as_str().expect("a digest");
        let wasm = http::bytes(&url(&format!("blobs/{wanted}")), &[AUTHORIZATION]);
        assert_eq!(digest(&wasm), wanted);
        wasm
    }

    /// Changes a component where it lies, as a broken or hostile registry does.
    pub fn falsify(&self, component: &[u8], other: &[u8]) {
        let digest = digest(component).replace("sha256:", "");
        let path = format!(
            "images/docker/registry/v2/blobs/sha256/{}/{digest}/data",
            &digest[..2]
        );
        std::fs::write(self.folder.path().join(path), other).expect("it lies there");
    }

    /// Ends it: nothing answers any more.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    fn blob(&self, name: &str, bytes: &[u8]) -> String {
        let url = format!("http://{}/v2/{name}/blobs/uploads/", self.host());
        let place = http::location(&url, &[AUTHORIZATION]);
        let digest = digest(bytes);
        let url = format!("{place}&digest={digest}");
        let kind = ("Content-Type", "application/octet-stream");
        let put = http::put(&url, &[AUTHORIZATION, kind], bytes);
        assert_eq!(put.status, 201, "{put:?}");
        digest
    }
}

fn digest(bytes: &[u8]) -> String {
    let hash: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hash}")
}
