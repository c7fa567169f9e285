//! Opens a connection to one server: TCP, TLS if configured, login. Independent of the topology.

use super::address::Host;
use dispatcher_core::clock;
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::Limits;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The time limit for opening a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// The TLS files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// The authorities to trust, in PEM; `None` for those that the system trusts.
    pub ca: Option<PathBuf>,
    /// This client's certificate with its chain and its key, in PEM.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// The TLS configuration of connections.
pub(crate) type Tls = Arc<ClientConfig>;

/// Reads the files. Errors name the file, never its content.
pub(crate) fn tls(files: &TlsFiles) -> Result<Tls, String> {
    let mut roots = RootCertStore::empty();
    match &files.ca {
        Some(file) => {
            for certificate in certificates(file)? {
                let added = roots.add(certificate);
                added.map_err(|error| format!("{}: {error}", file.display()))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            // A certificate that cannot be read need not be the one that is needed.
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(
                    "TLS, and this system has no list of certificate authorities; name a file of \
                     them with --redis-ca-file"
                        .into(),
                );
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let config = match &files.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let private = PrivateKeyDer::from_pem_slice(&contents(key)?)
                .map_err(|error| format!("{}: {error}", key.display()))?;
            builder
                .with_client_auth_cert(certificates(certificate)?, private)
                .map_err(|error| format!("{}: {error}", certificate.display()))?
        }
    };
    Ok(Arc::new(config))
}

fn contents(file: &Path) -> Result<Vec<u8>, String> {
    bounded::read(file, Limits::SMALL).map_err(|error| format!("{}: {error}", file.display()))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let contents = contents(file)?;
    let read: Vec<_> = CertificateDer::pem_slice_iter(&contents)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{}: {error}", file.display()))?;
    if read.is_empty() {
        Err(format!("{}: no certificate in it", file.display()))
    } else {
        Ok(read)
    }
}

/// A connection and the task that drives it. The task ends with the last clone.
#[derive(Clone)]
pub(crate) struct LiveConnection {
    /// The connection for commands.
    pub connection: MultiplexedConnection,
    _driver: Arc<Task<()>>,
}

/// Connects and logs in.
pub(crate) async fn dial(
    host: &Host,
    tls: Option<&Tls>,
    login: &RedisConnectionInfo,
    config: &AsyncConnectionConfig,
) -> Result<LiveConnection, RedisError> {
    let dialing = async {
        let tcp = TcpStream::connect((host.name.as_str(), host.port)).await?;
        tcp.set_nodelay(true)?;
        let config = config.clone();
        let Some(tls) = tls else {
            let (connection, driver) =
                MultiplexedConnection::new_with_config(login, tcp, config).await?;
            let _driver = Arc::new(tasks::spawn(driver));
            return Ok(LiveConnection {
                connection,
                _driver,
            });
        };
        let name = ServerName::try_from(host.name.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let stream = TlsConnector::from(tls.clone()).connect(name, tcp).await?;
        let (connection, driver) =
            MultiplexedConnection::new_with_config(login, stream, config).await?;
        let _driver = Arc::new(tasks::spawn(driver));
        Ok(LiveConnection {
            connection,
            _driver,
        })
    };
    tokio::select! {
        dialed = dialing => dialed,
        () = clock::sleep_until(Some(clock::now() + CONNECT)) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time").into())
        }
    }
}
