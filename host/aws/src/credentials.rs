//! Credentials of the SDK's default chain, which reads the profile files only once. This module
//! creates a new chain when those files change, so that renewed keys are used without a restart.

use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use dispatcher_core::clock;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The time after which the SDK requests credentials again that have no expiry.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The version of a file, which changes with its content.
type FileVersion = Option<(SystemTime, u64)>;

/// Credentials that follow changes of the profile files.
#[derive(Debug)]
pub(crate) struct RenewedCredentials {
    /// The configuration as first loaded. Every chain uses its HTTP client and its region.
    config: SdkConfig,
    /// The profile, if it is not the one of the process.
    profile: Option<String>,
    files: Vec<PathBuf>,
    chain: Mutex<Chain>,
}

/// A chain and the versions of the files that it has read.
#[derive(Debug, Clone)]
struct Chain {
    provider: SharedCredentialsProvider,
    versions: Vec<FileVersion>,
}

/// Returns the configuration with credentials that follow changes of the profile files. `versions`
/// are the versions of the files before the configuration was loaded.
pub(crate) fn renewed(
    config: SdkConfig,
    profile: Option<&str>,
    files: Vec<PathBuf>,
    versions: Vec<FileVersion>,
) -> SdkConfig {
    let Some(provider) = config.credentials_provider() else {
        return config;
    };
    let source = RenewedCredentials {
        config: config.clone(),
        profile: profile.map(str::to_owned),
        files,
        chain: Mutex::new(Chain { provider, versions }),
    };
    let renewed = SharedCredentialsProvider::new(source);
    config.to_builder().credentials_provider(renewed).build()
}

/// Returns the current versions of these files.
pub(crate) fn versions(files: &[PathBuf]) -> Vec<FileVersion> {
    files
        .iter()
        .map(|file: &PathBuf| {
            let about = std::fs::metadata(file).ok()?;
            Some((about.modified().ok()?, about.len()))
        })
        .collect()
}

impl RenewedCredentials {
    /// Returns credentials with an expiry. Keys in a file have none, so this adds one, after which
    /// the SDK requests them again.
    async fn credentials(&self) -> Result<Credentials, CredentialsError> {
        let mut credentials = self.newest().await?;
        let now = Duration::from_millis(clock::wall_clock_now().0);
        let soon = SystemTime::UNIX_EPOCH + now + ASK_AGAIN_AFTER;
        credentials.expiry_mut().get_or_insert(soon);
        Ok(credentials)
    }

    /// Returns the credentials of a new chain if the files have changed and it has any, or else
    /// those of the current chain.
    async fn newest(&self) -> Result<Credentials, CredentialsError> {
        let chain = self.chain.lock().clone();
        let versions = versions(&self.files);
        if versions != chain.versions
            && let Some(provider) = self.new_chain().await
        {
            match provider.provide_credentials().await {
                Ok(credentials) => {
                    tracing::info!("AWS credentials read again");
                    let mut chain = self.chain.lock();
                    *chain = Chain { provider, versions };
                    return Ok(credentials);
                }
                Err(error) => {
                    let error = super::words::chain(&error);
                    tracing::warn!(
                        %error,
                        "changed AWS profile gives no credentials; the earlier ones are used"
                    );
                }
            }
        }
        chain.provider.provide_credentials().await
    }

    async fn new_chain(&self) -> Option<SharedCredentialsProvider> {
        let mut loader =
            aws_config::defaults(BehaviorVersion::latest()).region(self.config.region().cloned());
        if let Some(profile) = &self.profile {
            loader = super::accounts::with_profile(loader, profile);
        }
        if let Some(client) = self.config.http_client() {
            loader = loader.http_client(client);
        }
        loader.load().await.credentials_provider()
    }
}

impl ProvideCredentials for RenewedCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.credentials())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(id: &str, expiry: Option<SystemTime>) -> Credentials {
        Credentials::new(id, "s", None, expiry, "test")
    }

    fn renewed(first: Credentials) -> RenewedCredentials {
        RenewedCredentials {
            config: SdkConfig::builder().build(),
            profile: None,
            files: Vec::new(),
            chain: Mutex::new(Chain {
                provider: SharedCredentialsProvider::new(first),
                versions: Vec::new(),
            }),
        }
    }

    #[tokio::test]
    async fn keys_without_an_end_are_asked_for_again_within_a_minute() {
        let found = renewed(keys("A", None)).credentials().await;
        let expiry = found.expect("it has some").expiry().expect("it is set");
        let now = Duration::from_millis(clock::wall_clock_now().0);
        assert!(expiry <= SystemTime::UNIX_EPOCH + now + ASK_AGAIN_AFTER);
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(9_000_000_000);
        let found = renewed(keys("A", Some(later))).credentials().await;
        assert_eq!(found.expect("it has some").expiry(), Some(later));
    }

    #[test]
    fn version_tells_a_file_that_was_written_anew_or_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = vec![folder.path().join("credentials")];
        let none = versions(&files);
        std::fs::write(&files[0], "[default]").expect("written");
        let short = versions(&files);
        std::fs::write(&files[0], "[default]\nregion = a\n").expect("written");
        let long = versions(&files);
        assert!(none != short && short != long);
        std::fs::remove_file(&files[0]).expect("removed");
        assert_eq!(versions(&files), none);
    }
}
