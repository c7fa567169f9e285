//! Fetches components from OCI registries, once: a fetched component is cached in a folder and
//! checked against its digest whenever it is read. Knows no WebAssembly.

use dispatcher_config::ImageName;
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::Limits;
use dispatcher_core::files::owner;
use dispatcher_core::telemetry::error_text::with_sources;
use dispatcher_core::{clock, files, tasks};
use docker_credential::{CredentialRetrievalError, DockerCredential};
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciError, OciErrorCode};
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

/// The media types of layers that are components: of the CNCF's Wasm OCI Artifact guidance, and of
/// older tools.
const COMPONENTS: [&str; 2] = [
    "application/wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
];
const CONNECT: Duration = Duration::from_secs(10);
/// The maximum time without data.
const READ: Duration = Duration::from_secs(60);
/// The maximum time of a whole download: a registry that sends a byte a minute must not block
/// forever.
const WHOLE: Duration = Duration::from_secs(600);
/// The maximum size of a component, in bytes.
const MOST: usize = 512 << 20;
/// The maximum size of a manifest, in bytes: the limit of registries.
const MANIFEST: usize = 4 << 20;

/// The reason why there is no component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchError {
    /// The registry could not be reached, or failed. A retry may help.
    Unreachable(String),
    /// The artefact does not exist or cannot be used.
    Refused(String),
}

impl FetchError {
    fn unreachable(name: &ImageName, why: &str) -> Self {
        Self::Unreachable(format!("{name}: {why}"))
    }

    fn refused(name: &ImageName, why: &str) -> Self {
        Self::Refused(format!("{name}: {why}"))
    }
}

impl std::fmt::Display for FetchError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Unreachable(why) | Self::Refused(why)) = self;
        out.write_str(why)
    }
}

/// Returns the bytes of a component: from `folder` if it was fetched before, otherwise from the
/// registry. Uses the credentials that `docker login` stores. A registry on this machine's loopback
/// interface is called without TLS.
///
/// # Errors
/// Returns one line that names the component.
pub(crate) async fn fetch(name: &ImageName, folder: &Path) -> Result<Vec<u8>, FetchError> {
    let kept = Arc::new(CachedComponent::of(name, folder));
    let (looked, of) = (kept.clone(), name.clone());
    let place = folder.to_owned();
    // Reading and hashing take a while, and may wait for a disk.
    let found = tasks::blocking(move || {
        owner::check(&place)?;
        Ok(looked.read(&of))
    });
    let found: Result<_, owner::TrustProblem> = found.finished().await;
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
            let why = format!("not downloaded after {} s", WHOLE.as_secs());
            return Err(FetchError::unreachable(name, &why));
        }
    };
    if is_ours && let Err(error) = kept.write(&manifest, &component) {
        let folder = folder.display();
        tracing::warn!(path = %folder, image = %name, %error, "image not cached: the next start fetches it again");
    }
    Ok(component)
}

async fn pull(name: &ImageName) -> Result<(Vec<u8>, Vec<u8>), FetchError> {
    let reference: Reference = name
        .reference()
        .parse()
        .map_err(|error| FetchError::refused(name, &format!("not a registry name: {error}")))?;
    let client = Client::new(ClientConfig {
        protocol: if is_here(&name.host) {
            ClientProtocol::Http
        } else {
            ClientProtocol::Https
        },
        connect_timeout: Some(CONNECT),
        read_timeout: Some(READ),
        ..ClientConfig::default()
    });
    let host = name.host.clone();
    // A credential helper may run a program.
    let found = tasks::blocking(move || credentials(&host)).finished().await;
    let credentials = found.map_err(|why| FetchError::refused(name, &why))?;
    let token = client
        .auth(&reference, &credentials, RegistryOperation::Pull)
        .await
        .map_err(|error| of_client(name, &error))?;
    let manifest = manifest(name, &reference, &credentials, token).await?;
    if files::digest(&manifest) != name.digest {
        let found = files::digest(&manifest);
        let why = format!("the registry returned another manifest, sha256:{found}");
        return Err(FetchError::refused(name, &why));
    }
    let layer = layer(&manifest).map_err(|why| FetchError::refused(name, &why))?;
    let size = usize::try_from(layer.size)
        .ok()
        .filter(|size| *size <= MOST);
    let Some(size) = size else {
        let size = layer.size;
        let why = format!("{size} bytes, and at most {MOST} are allowed");
        return Err(FetchError::refused(name, &why));
    };
    let mut component = BoundedBuffer(Vec::new(), size);
    let pulled = client.pull_blob(&reference, &layer, &mut component).await;
    if component.0.len() > size {
        let why =
            format!("the registry returned more than the {size} bytes that the manifest names");
        return Err(FetchError::refused(name, &why));
    }
    pulled.map_err(|error| of_client(name, &error))?;
    if is_of(&layer, &component.0) {
        Ok((manifest, component.0))
    } else {
        let why = "the registry returned bytes whose digest differs from that in the manifest";
        Err(FetchError::refused(name, why))
    }
}

/// Returns the manifest's bytes. Reads them here, since the library reads without a limit. `token`
/// is the registry's token for the credentials, if it issued one.
async fn manifest(
    name: &ImageName,
    reference: &Reference,
    credentials: &RegistryAuth,
    token: Option<String>,
) -> Result<Vec<u8>, FetchError> {
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
    let anonymous = client
        .map_err(|error| lost(name, &error))?
        .get(url)
        .header(http::header::ACCEPT, types.join(", "));
    let request = match (token, credentials) {
        (Some(token), _) => anonymous.bearer_auth(token),
        (None, RegistryAuth::Bearer(token)) => anonymous.bearer_auth(token),
        (None, RegistryAuth::Basic(user, password)) => anonymous.basic_auth(user, Some(password)),
        (None, RegistryAuth::Anonymous) => anonymous,
    };
    let sent = request.send().await;
    let mut answer = sent.map_err(|error| lost(name, &error))?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Err(FetchError::refused(name, NONE)),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err(FetchError::refused(name, &closed(name)));
        }
        status => {
            let why = format!("the registry answered {status}");
            return Err(if status.is_server_error() {
                FetchError::unreachable(name, &why)
            } else {
                FetchError::refused(name, &why)
            });
        }
    }
    let mut manifest = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(|error| lost(name, &error))? {
        if manifest.len() + piece.len() > MANIFEST {
            let why = format!("its manifest has more than {MANIFEST} bytes");
            return Err(FetchError::refused(name, &why));
        }
        manifest.extend_from_slice(&piece);
    }
    Ok(manifest)
}

fn lost(name: &ImageName, error: &reqwest::Error) -> FetchError {
    FetchError::unreachable(name, &with_sources(error))
}

/// The meaning of a 404 from a registry.
const NONE: &str = "the registry has no artefact of this name and digest";

/// Returns the meaning of a 401 from a registry.
fn closed(name: &ImageName) -> String {
    format!(
        "the registry denied access; log in with `docker login {}`",
        name.host
    )
}

/// Collects at most this many bytes, and refuses more.
struct BoundedBuffer(Vec<u8>, usize);

impl AsyncWrite for BoundedBuffer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.extend_from_slice(piece);
        Poll::Ready(if self.0.len() <= self.1 {
            Ok(piece.len())
        } else {
            Err(io::ErrorKind::FileTooLarge.into())
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Returns the only layer of a manifest that is a component.
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
    match error {
        OciDistributionError::RequestError(_) | OciDistributionError::IoError(_) => {
            FetchError::unreachable(name, &with_sources(error))
        }
        OciDistributionError::ServerError { code, .. } if *code >= 500 => {
            FetchError::unreachable(name, &error.to_string())
        }
        OciDistributionError::ImageManifestNotFoundError(_) => FetchError::refused(name, NONE),
        OciDistributionError::UnauthorizedError { .. }
        | OciDistributionError::AuthenticationFailure(_) => {
            FetchError::refused(name, &closed(name))
        }
        OciDistributionError::RegistryError { envelope, .. }
            if has_any(&envelope.errors, &UNKNOWN) =>
        {
            FetchError::refused(name, NONE)
        }
        OciDistributionError::RegistryError { envelope, .. }
            if has_any(&envelope.errors, &DENIED) =>
        {
            FetchError::refused(name, &closed(name))
        }
        _ => FetchError::refused(name, &error.to_string()),
    }
}

/// The codes of a registry that does not have the artefact.
const UNKNOWN: [OciErrorCode; 2] = [OciErrorCode::ManifestUnknown, OciErrorCode::NameUnknown];
/// The codes of a registry that wants other credentials.
const DENIED: [OciErrorCode; 2] = [OciErrorCode::Unauthorized, OciErrorCode::Denied];

fn has_any(errors: &[OciError], codes: &[OciErrorCode]) -> bool {
    errors.iter().any(|error| codes.contains(&error.code))
}

/// Returns whether a registry runs on this machine, so that no network lies in between.
fn is_here(host: &str) -> bool {
    let name = host
        .rsplit_once(':')
        .map_or(host, |(name, _port)| name)
        .trim_matches(['[', ']']);
    let address: Option<std::net::IpAddr> = name.parse().ok();
    name == "localhost" || address.is_some_and(|address| address.is_loopback())
}

/// Returns the credentials that `docker login` stores for the registry. Missing credentials are not
/// an error: many registries permit anonymous access.
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
        // Every helper prints this for an unknown registry.
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

/// The two files of a component: its manifest, pinned by its name, and the component, pinned by the
/// manifest.
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
            // Renames the file, because another process may be reading or writing the same one.
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
        let layers = types.iter().map(|kind| {
            let digest = format!("sha256:{}", files::digest(bytes));
            serde_json::json!({ "mediaType": kind, "digest": digest, "size": bytes.len() })
        });
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "config": { "mediaType": "application/vnd.wasm.config.v0+json", "digest": "sha256:0", "size": 2 },
            "layers": layers.collect::<Vec<_>>(),
        });
        manifest.to_string().into_bytes()
    }

    fn layer_of(types: &[&str]) -> Result<OciDescriptor, String> {
        layer(&manifest(types, b"x"))
    }

    #[test]
    fn single_layer_is_the_component() {
        assert!(layer_of(&[COMPONENTS[0]]).is_ok());
        assert!(layer_of(&["text/plain", COMPONENTS[1]]).is_ok());
        let none = layer_of(&["text/plain"]).expect_err("none");
        assert!(none.contains("none of its layers"));
        let two = layer_of(&[COMPONENTS[0]; 2]).expect_err("two");
        assert!(two.contains("more than one"));
        assert!(layer(b"{}").is_err());
    }

    #[test]
    fn cached_component_is_used_only_while_its_digest_matches() {
        let folder = tempfile::tempdir().expect("a folder");
        let manifest = manifest(&[COMPONENTS[0]], b"component");
        let digest = files::digest(&manifest);
        let text = format!("oci://127.0.0.1:1/a@sha256:{digest}");
        let name: ImageName = text.parse().expect("a name");
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
