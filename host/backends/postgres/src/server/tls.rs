//! TLS as libpq's `sslmode` names it: `disable`, `prefer`, `require`, `verify-ca`, `verify-full`.

use super::address::Surroundings;
use super::keywords::Keywords;
use dispatcher_core::files::bounded::{self, Limits};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The proof that a connection needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// No TLS.
    Disable,
    /// TLS if the server has it.
    Prefer,
    /// TLS, with any certificate.
    Require,
    /// A certificate of a known authority.
    VerifyCa,
    /// A certificate of a known authority for the host.
    VerifyFull,
}

/// The terms of TLS.
#[derive(Debug, Clone)]
pub(super) struct TlsTerms {
    pub mode: TlsMode,
    /// The authorities to trust; `None` for those that the system trusts.
    authorities: Option<PathBuf>,
    /// This client's certificate with its chain and its key.
    client: Option<(PathBuf, PathBuf)>,
}

impl TlsTerms {
    /// Takes the keywords of TLS, with libpq's defaults.
    pub(super) fn take(keywords: &mut Keywords, around: &Surroundings) -> Result<Self, String> {
        let root = keywords.remove("sslrootcert");
        let is_system = root.as_deref() == Some("system");
        let named = if is_system {
            None
        } else {
            root.map(PathBuf::from)
        };
        let authorities = named.or_else(|| around.in_home(".postgresql/root.crt"));
        let named_certificate = keywords.remove("sslcert").map(PathBuf::from);
        let certificate =
            named_certificate.or_else(|| around.in_home(".postgresql/postgresql.crt"));
        let named_key = keywords.remove("sslkey").map(PathBuf::from);
        let key = named_key.or_else(|| around.in_home(".postgresql/postgresql.key"));
        let mode = match keywords.remove("sslmode").as_deref() {
            None if is_system => TlsMode::VerifyFull,
            None | Some("prefer" | "allow") => TlsMode::Prefer,
            Some("disable") => TlsMode::Disable,
            // As libpq does: a list of authorities is there to be used.
            Some("require") if authorities.is_some() => TlsMode::VerifyCa,
            Some("require") => TlsMode::Require,
            Some("verify-ca") => TlsMode::VerifyCa,
            Some("verify-full") => TlsMode::VerifyFull,
            Some(other) => {
                return Err(format!(
                    "`{other}` is no sslmode; wanted disable, prefer, require, verify-ca or verify-full"
                ));
            }
        };
        Ok(Self {
            mode,
            authorities: if is_system { None } else { authorities },
            client: certificate.zip(key),
        })
    }

    /// Reads the files. Errors name the file, never its content.
    pub(super) fn connector(&self) -> Result<MakeRustlsConnect, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = self.verifier(&provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match &self.client {
            Some((certificate, key)) if self.mode != TlsMode::Disable => {
                let private = PrivateKeyDer::from_pem_slice(&contents(key)?)
                    .map_err(|error| format!("{}: {error}", key.display()))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, private)
                    .map_err(|error| format!("{}: {error}", certificate.display()))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(MakeRustlsConnect::new(config))
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, String> {
        let checks_name = self.mode == TlsMode::VerifyFull;
        if !checks_name && self.mode != TlsMode::VerifyCa {
            return Ok(Arc::new(ServerVerifier {
                authorities: None,
                provider: provider.clone(),
            }));
        }
        let mut roots = RootCertStore::empty();
        if let Some(file) = &self.authorities {
            for certificate in certificates(file)? {
                let added = roots.add(certificate);
                added.map_err(|error| format!("{}: {error}", file.display()))?;
            }
        } else {
            let found = rustls_native_certs::load_native_certs();
            // A certificate that cannot be read need not be the one that is needed.
            roots.add_parsable_certificates(found.certs);
        }
        let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
        let full = builder.build().map_err(|_| {
            "TLS, and this system has no list of certificate authorities; name a file of them with \
             sslrootcert"
                .to_owned()
        })?;
        if checks_name {
            return Ok(full);
        }
        Ok(Arc::new(ServerVerifier {
            authorities: Some(full),
            provider: provider.clone(),
        }))
    }
}

/// Accepts a certificate of a known authority for any host, or any certificate.
#[derive(Debug)]
struct ServerVerifier {
    /// `None` accepts any certificate.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        match authorities.verify_server_cert(certificate, chain, name, ocsp, now) {
            // The name is checked last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
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
