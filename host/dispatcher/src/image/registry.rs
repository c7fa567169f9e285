//! Fetches components from OCI registries, once: a fetched component is cached in a folder and
//! checked against its digest whenever it is read. Knows no WebAssembly.

use super::ImageName;
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::Limits;
use dispatcher_core::files::owner;
use dispatcher_core::{clock, files, tasks};
use docker_credential::{CredentialRetrievalError, DockerCredential};
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{
    IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest,
};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use reqwest::StatusCode;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWrite;

/// How layers that are components are marked (the CNCF's Wasm OCI Artifact guidance), and how older
/// tools mark them.
const COMPONENTS: [&str; 2] = [
    "application/wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
];
const CONNECT: Duration = Duration::from_secs(10);
/// The longest that nothing comes.
const READ: Duration = Duration::from_secs(60);
/// The longest that all of it may take: whoever sends a byte a minute holds nothing up forever.
const WHOLE: Duration = Duration::from_secs(600);
/// The largest component, in bytes.
const MOST: usize = 512 << 20;
/// The largest manifest, in bytes: as large as registries take.
const MANIFEST: usize = 4 << 20;

/// Why there is no component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchError {
    /// The registry could not be reached, or failed; trying again may help.
    Unreachable(String),
    /// What is there, or is not, cannot be used.
    Refused(String),
}

impl std::fmt::Display for FetchError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Unreachable(why) | Self::Refused(why)) = self;
        out.write_str(why)
    }
}

/// The component's bytes: from `folder` if it was fetched before, else from the registry. Users and
/// passwords are those that `docker login` keeps; a registry on this machine's loopback interface is
/// spoken to without TLS.
///
/// # Errors
/// One line that names the component.
pub(crate) async fn fetch(name: &ImageName, folder: &Path) -> Result<Vec<u8>, FetchError> {
    let kept = Arc::new(CachedComponent::of(name, folder));
    let (looked, of) = (kept.clone(), name.clone());
    let place = folder.to_owned();
    // To read and to hash it takes a while, and may wait for a disk.
    let found = tasks::blocking(move || {
        owner::check(&place)?;
        Ok(looked.read(&of))
    });
    let found: Result<_, owner::Untrusted> = found.finished().await;
    let is_ours = found.is_ok();
    match found {
        Ok(Some(component)) => return Ok(component),
        Ok(None) => {}
        Err(untrusted) => tracing::warn!(
            path = %folder.display(),
            reason = %untrusted,
            "image cache refused: components are fetched at every start and nothing is written there"
        ),
    }
    let (manifest, component) = tokio::select! {
        pulled = pull(name) => pulled?,
        () = clock::sleep_until(Some(clock::now() + WHOLE)) => {
            let why = format!("{name}: not here after {} s", WHOLE.as_secs());
            return Err(FetchError::Unreachable(why));
        }
    };
    if is_ours && let Err(error) = kept.write(&manifest, &component) {
        let folder = folder.display();
        tracing::warn!(path = %folder, image = %name, %error, "image not cached: the next start fetches it again");
    }
    Ok(component)
}

async fn pull(name: &ImageName) -> Result<(Vec<u8>, Vec<u8>), FetchError> {
    let refused = |why: String| FetchError::Refused(format!("{name}: {why}"));
    let reference: Reference = name
        .reference()
        .parse()
        .map_err(|error| refused(format!("not a registry name: {error}")))?;
    let failed = |error: OciDistributionError| of_client(name, &error);
    let client = Client::new(ClientConfig {
        protocol: match is_here(&name.host) {
            true => ClientProtocol::Http,
            false => ClientProtocol::Https,
        },
        connect_timeout: Some(CONNECT),
        read_timeout: Some(READ),
        ..ClientConfig::default()
    });
    let host = name.host.clone();
    // It may run a program.
    let credentials = tasks::blocking(move || credentials(&host)).finished().await;
    let credentials = credentials.map_err(refused)?;
    let token = client
        .auth(&reference, &credentials, RegistryOperation::Pull)
        .await;
    let token = token.map_err(failed)?;
    let manifest = manifest(name, &reference, &credentials, token).await?;
    if files::digest(&manifest) != name.digest {
        let found = files::digest(&manifest);
        return Err(refused(format!(
            "the registry returned another manifest, sha256:{found}"
        )));
    }
    let layer = layer(&manifest).map_err(refused)?;
    let size = usize::try_from(layer.size)
        .ok()
        .filter(|size| *size <= MOST);
    let Some(size) = size else {
        let size = layer.size;
        return Err(refused(format!(
            "{size} bytes, and at most {MOST} are allowed"
        )));
    };
    let mut component = Bounded(Vec::new(), size);
    let pulled = client.pull_blob(&reference, &layer, &mut component).await;
    if component.0.len() > size {
        return Err(refused(format!(
            "the registry returned more than the {size} bytes that the manifest names"
        )));
    }
    pulled.map_err(failed)?;
    match is_of(&layer, &component.0) {
        true => Ok((manifest, component.0)),
        false => Err(refused(
            "the registry returned other bytes than the manifest names".into(),
        )),
    }
}

/// The manifest's bytes. Read here, since the library reads as many as it is given. `token` is what the
/// registry gave for the credentials, where it gave any.
async fn manifest(
    name: &ImageName,
    reference: &Reference,
    credentials: &RegistryAuth,
    token: Option<String>,
) -> Result<Vec<u8>, FetchError> {
    let refused = |why: &str| FetchError::Refused(format!("{name}: {why}"));
    let away = |why: &str| FetchError::Unreachable(format!("{name}: {why}"));
    let lost = |error: reqwest::Error| away(&error_chain(&error));
    let scheme = if is_here(&name.host) { "http" } else { "https" };
    let (registry, repository) = (reference.resolve_registry(), reference.repository());
    let url = format!(
        "{scheme}://{registry}/v2/{repository}/manifests/sha256:{}",
        name.digest
    );
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .read_timeout(READ)
        .build();
    let types = [OCI_IMAGE_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE];
    let request = client.map_err(lost)?.get(url);
    let request = request.header(http::header::ACCEPT, types.join(", "));
    let request = match (token, credentials) {
        (Some(token), _) => request.bearer_auth(token),
        (None, RegistryAuth::Bearer(token)) => request.bearer_auth(token),
        (None, RegistryAuth::Basic(user, password)) => request.basic_auth(user, Some(password)),
        (None, RegistryAuth::Anonymous) => request,
    };
    let mut answer = request.send().await.map_err(lost)?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Err(refused(NONE)),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(refused(&closed(name))),
        status if status.is_server_error() => {
            return Err(away(&format!("the registry answered {status}")));
        }
        status => return Err(refused(&format!("the registry answered {status}"))),
    }
    let mut manifest = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(lost)? {
        if manifest.len() + piece.len() > MANIFEST {
            let why = format!("its manifest has more than {MANIFEST} bytes");
            return Err(refused(&why));
        }
        manifest.extend_from_slice(&piece);
    }
    Ok(manifest)
}

/// What a registry says by 404.
const NONE: &str = "the registry has no artefact of this name and digest";

/// What a registry says by 401.
fn closed(name: &ImageName) -> String {
    format!(
        "the registry denied access; log in with `docker login {}`",
        name.host
    )
}

/// Collects at most this many bytes, and refuses further pieces.
struct Bounded(Vec<u8>, usize);

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.extend_from_slice(piece);
        Poll::Ready(match self.0.len() <= self.1 {
            true => Ok(piece.len()),
            false => Err(io::ErrorKind::FileTooLarge.into()),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The one layer of a manifest that is a component.
fn layer(manifest: &[u8]) -> Result<OciDescriptor, String> {
    let manifest: OciImageManifest = serde_json::from_slice(manifest)
        .map_err(|error| format!("not a manifest of one artefact: {error}"))?;
    let mut components = manifest
        .layers
        .into_iter()
        .filter(|layer| COMPONENTS.contains(&layer.media_type.as_str()));
    match (components.next(), components.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(format!(
            "none of its layers is a component, {}",
            COMPONENTS[0]
        )),
        (Some(_), Some(_)) => Err("more than one of its layers is a component".into()),
    }
}

fn of_client(name: &ImageName, error: &OciDistributionError) -> FetchError {
    let refused = |why: &str| FetchError::Refused(format!("{name}: {why}"));
    let shut = closed(name);
    match error {
        OciDistributionError::RequestError(_) | OciDistributionError::IoError(_) => {
            FetchError::Unreachable(format!("{name}: {}", error_chain(error)))
        }
        OciDistributionError::ServerError { code, .. } if *code >= 500 => {
            FetchError::Unreachable(format!("{name}: {error}"))
        }
        OciDistributionError::ImageManifestNotFoundError(_) => refused(NONE),
        OciDistributionError::UnauthorizedError { .. }
        | OciDistributionError::AuthenticationFailure(_) => refused(&shut),
        OciDistributionError::RegistryError { envelope, .. } => {
            let has_code = |code| envelope.errors.iter().any(|error| error.code == code);
            match () {
                () if has_code(OciErrorCode::ManifestUnknown) => refused(NONE),
                () if has_code(OciErrorCode::NameUnknown) => refused(NONE),
                () if has_code(OciErrorCode::Unauthorized) => refused(&shut),
                () if has_code(OciErrorCode::Denied) => refused(&shut),
                () => refused(&error.to_string()),
            }
        }
        _ => refused(&error.to_string()),
    }
}

/// An error with what is below it, which names the cause.
fn error_chain(error: &dyn std::error::Error) -> String {
    let below = std::iter::successors(error.source(), |error| error.source());
    below.fold(error.to_string(), |text, error| format!("{text}: {error}"))
}

/// Whether a registry runs on this machine, so that nobody listens in between.
fn is_here(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
    let name = name.trim_matches(['[', ']']);
    let address: Option<std::net::IpAddr> = name.parse().ok();
    name == "localhost" || address.is_some_and(|address| address.is_loopback())
}

/// What `docker login` keeps for the registry. Nothing kept is no failure: many give to anybody.
fn credentials(host: &str) -> Result<RegistryAuth, String> {
    match docker_credential::get_credential(host) {
        Ok(DockerCredential::UsernamePassword(name, password)) => {
            Ok(RegistryAuth::Basic(name, password))
        }
        Ok(DockerCredential::IdentityToken(token)) => Ok(RegistryAuth::Bearer(token)),
        Err(
            CredentialRetrievalError::ConfigNotFound
            | CredentialRetrievalError::ConfigReadError
            | CredentialRetrievalError::NoCredentialConfigured,
        ) => Ok(RegistryAuth::Anonymous),
        // What every helper says of a registry that it knows nothing of.
        Err(CredentialRetrievalError::HelperFailure { stdout, .. })
            if stdout.contains("credentials not found") =>
        {
            Ok(RegistryAuth::Anonymous)
        }
        Err(error) => Err(format!(
            "the credentials of `docker login` cannot be read: {error}"
        )),
    }
}

/// The two files of a component: its manifest, which its name pins, and itself, which that pins.
struct CachedComponent {
    manifest: PathBuf,
    component: PathBuf,
}

impl CachedComponent {
    fn of(name: &ImageName, folder: &Path) -> Self {
        Self {
            manifest: folder.join(format!("{}.json", name.digest)),
            component: folder.join(format!("{}.wasm", name.digest)),
        }
    }

    fn read(&self, name: &ImageName) -> Option<Vec<u8>> {
        let manifest = bounded::read(&self.manifest, Limits::regular(MANIFEST as u64)).ok()?;
        if files::digest(&manifest) != name.digest {
            return None;
        }
        let layer = layer(&manifest).ok()?;
        let component = bounded::read(&self.component, Limits::COMPONENT).ok()?;
        is_of(&layer, &component).then_some(component)
    }

    fn write(&self, manifest: &[u8], component: &[u8]) -> std::io::Result<()> {
        if let Some(folder) = self.manifest.parent() {
            files::make_folder(folder)?;
        }
        for (path, bytes) in [(&self.component, component), (&self.manifest, manifest)] {
            // By way of a rename: another process may be reading, or writing the same.
            let beside = path.with_extension(format!("{}.part", std::process::id()));
            files::write_private(&beside, bytes)?;
            std::fs::rename(&beside, path)?;
        }
        Ok(())
    }
}

fn is_of(layer: &OciDescriptor, bytes: &[u8]) -> bool {
    layer.digest == format!("sha256:{}", files::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(types: &[&str], bytes: &[u8]) -> Vec<u8> {
        let layer = |kind: &&str| {
            let digest = format!("sha256:{}", files::digest(bytes));
            serde_json::json!({ "mediaType": kind, "digest": digest, "size": bytes.len() })
        };
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "config": { "mediaType": "application/vnd.wasm.config.v0+json", "digest": "sha256:0", "size": 2 },
            "layers": types.iter().map(layer).collect::<Vec<_>>(),
        });
        manifest.to_string().into_bytes()
    }

    #[test]
    fn single_layer_is_the_component() {
        let layer = |types: &[&str]| super::layer(&manifest(types, b"x"));
        assert!(layer(&[COMPONENTS[0]]).is_ok());
        assert!(layer(&["text/plain", COMPONENTS[1]]).is_ok());
        assert!(
            layer(&["text/plain"])
                .expect_err("none")
                .contains("none of its layers")
        );
        assert!(
            layer(&[COMPONENTS[0]; 2])
                .expect_err("two")
                .contains("more than one")
        );
        assert!(super::layer(b"{}").is_err());
    }

    #[test]
    fn cached_component_is_used_only_while_its_digest_matches() {
        let folder = tempfile::tempdir().expect("a folder");
        let manifest = manifest(&[COMPONENTS[0]], b"component");
        let digest = files::digest(&manifest);
        let name = format!("oci://127.0.0.1:1/a@sha256:{digest}");
        let name: ImageName = name.parse().expect("a name");
        let kept = CachedComponent::of(&name, folder.path());
        assert_eq!(kept.read(&name), None);
        kept.write(&manifest, b"component").expect("written");
        assert_eq!(kept.read(&name), Some(b"component".to_vec()));
        std::fs::write(&kept.component, b"another").expect("written");
        assert_eq!(kept.read(&name), None);
        kept.write(&manifest, b"component").expect("written");
        std::fs::write(&kept.manifest, b"{}").expect("written");
        assert_eq!(kept.read(&name), None);
    }

    #[test]
    fn plain_http_is_used_only_on_loopback() {
        for (host, here) in [
            ("localhost:5000", true),
            ("127.0.0.1", true),
            ("[::1]:5000", true),
            ("registry.example", false),
            ("localhost.example:5000", false),
            ("10.0.0.1:5000", false),
        ] {
            assert_eq!(is_here(host), here, "{host}");
        }
    }
}
