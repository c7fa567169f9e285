//! The certificate authorities that AWS clients trust: those of the system, or those of a bundle
//! that `AWS_CA_BUNDLE` or the profile's `ca_bundle` names, as in the AWS CLI. Makes no calls.

use super::profiles::Profiles;
use aws_smithy_http_client::tls::{TlsContext, TrustStore};
use dispatcher_core::files::bounded::{self, Limits};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::PathBuf;

/// A file of certificate authorities.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CaBundle {
    /// The setting that names the file.
    named_by: String,
    path: PathBuf,
}

/// Returns the configured bundle. The variable has priority over the profile.
pub(crate) fn bundle(
    variable: impl Fn(&str) -> Option<String>,
    profiles: &Profiles,
) -> Option<CaBundle> {
    if let Some(path) = variable("AWS_CA_BUNDLE") {
        return Some(CaBundle {
            named_by: "AWS_CA_BUNDLE".to_owned(),
            path: path.into(),
        });
    }
    let name = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    let path = profiles.get(&name)?.get("ca_bundle")?;
    Some(CaBundle {
        named_by: format!("ca_bundle of the profile `{name}`"),
        path: path.into(),
    })
}

impl CaBundle {
    /// Returns the content of the file, which must consist of valid certificates.
    ///
    /// # Errors
    /// Returns the reason why it cannot be used, with the setting that names it.
    pub(crate) fn certificates(&self) -> Result<Vec<u8>, String> {
        let pem = bounded::read(&self.path, Limits::SMALL).map_err(|error| self.failed(&error))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| self.failed(&error))?;
            roots
                .add(certificate)
                .map_err(|error| self.failed(&error))?;
        }
        if roots.is_empty() {
            return Err(self.failed(&"no certificate in it"));
        }
        Ok(pem)
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> String {
        format!("{}: {}: {why}", self.named_by, self.path.display())
    }
}

/// Returns the trust store of clients: only the configured bundle, or else the system's
/// authorities. An invalid bundle is not passed on, since the SDK would panic; `environment::check`
/// refuses it.
pub(crate) fn context() -> TlsContext {
    let bundle = bundle(variable, &Profiles::read(variable));
    let trusted = bundle.and_then(|bundle| bundle.certificates().ok());
    let store = trusted.map_or_else(TrustStore::default, |pem| {
        TrustStore::empty().with_pem_certificate(pem)
    });
    let context = TlsContext::builder().with_trust_store(store).build();
    context.unwrap_or_default()
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_outranks_the_profile_and_only_the_selected_one_counts() {
        let config = "[default]\nca_bundle = /d.pem\n[profile work]\nca_bundle = /w.pem\n";
        let profiles = Profiles::of_texts(config, "");
        let work = ("AWS_PROFILE", "work");
        for (pairs, wanted) in [
            (vec![], Some("/d.pem")),
            (vec![work], Some("/w.pem")),
            (vec![work, ("AWS_CA_BUNDLE", "/v.pem")], Some("/v.pem")),
            (vec![("AWS_PROFILE", "none")], None),
        ] {
            let found = bundle(
                |name| {
                    let pair = pairs.iter().find(|(one, _)| *one == name);
                    pair.map(|(_, value)| (*value).to_owned())
                },
                &profiles,
            );
            let path = found.map(|bundle| bundle.path.display().to_string());
            assert_eq!(path.as_deref(), wanted, "{pairs:?}");
        }
    }

    #[test]
    fn bundle_without_certificates_is_refused_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ca.pem");
        let bundle = CaBundle {
            named_by: "AWS_CA_BUNDLE".to_owned(),
            path: path.clone(),
        };
        let why = bundle.certificates().expect_err("it is not there");
        assert!(why.starts_with("AWS_CA_BUNDLE: "), "{why}");
        for text in [
            "",
            "no certificate",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "-----BEGIN CERTIFICATE-----\nAAAA\n",
        ] {
            std::fs::write(&path, text).expect("written");
            let why = bundle.certificates().expect_err("it has none");
            assert!(why.contains("ca.pem"), "{why}");
        }
    }
}
