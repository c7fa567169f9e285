//! The configuration of accounts other than the process's own: a profile, a region, an endpoint and
//! a role, whose credentials the SDK requests again before they end. Remembers which of them give no
//! credentials.

use super::{for_region, load, words};
use aws_config::SdkConfig;
use aws_config::sts::AssumeRoleProvider;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use dispatcher_core::account::{AccountFigures, AwsAccount};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The figures of the accounts that this process has used, by name.
static USED: Mutex<BTreeMap<String, AccountFigures>> = Mutex::new(BTreeMap::new());

/// Returns the figures of the accounts that this process has used, by name.
pub fn used() -> BTreeMap<String, AccountFigures> {
    USED.lock().clone()
}

/// Requests the credentials of an account, to see whether there are any.
///
/// # Errors
/// Returns why there are none.
pub async fn check(config: &SdkConfig, account: &AwsAccount) -> Result<(), CallError> {
    let Some(provider) = config.credentials_provider() else {
        return Ok(());
    };
    let asked = provider.provide_credentials().await;
    asked.map(drop).map_err(|error| {
        let (reason, prefix) = (why(&error), without_any(&account.name));
        CallError {
            kind: ErrorKind::AccessDenied,
            message: reason.strip_prefix(&prefix).unwrap_or(&reason).to_owned(),
        }
    })
}

fn without_any(account: &str) -> String {
    format!("account `{account}` gives none: ")
}

/// Returns why there are no credentials.
fn why(error: &CredentialsError) -> String {
    words::without_credentials_prefix(&words::chain(error)).to_owned()
}

/// Loads the configuration of an account: that of the process with the account's profile, region and
/// endpoint, and with the credentials of its role.
pub(super) async fn configuration(endpoint_url: Option<&str>, account: &AwsAccount) -> SdkConfig {
    let endpoint_url = account.endpoint_url.as_deref().or(endpoint_url);
    let mut config = load(endpoint_url, account.profile.as_deref()).await;
    if let Some(region) = &account.region {
        config = for_region(&config, region);
    }
    let provider = match &account.role {
        Some(role) => {
            let mut builder = AssumeRoleProvider::builder(&role.arn)
                .session_name(&role.session_name)
                .configure(&config);
            if let Some(id) = &role.external_id {
                builder = builder.external_id(id);
            }
            SharedCredentialsProvider::new(builder.build().await)
        }
        None => match config.credentials_provider() {
            Some(provider) => provider,
            None => return config,
        },
    };
    let provider = SharedCredentialsProvider::new(WatchedCredentials {
        account: account.name.clone(),
        provider,
    });
    config.to_builder().credentials_provider(provider).build()
}

/// Credentials that remember whether they could be provided.
#[derive(Debug)]
struct WatchedCredentials {
    account: String,
    provider: SharedCredentialsProvider,
}

impl WatchedCredentials {
    async fn credentials(&self) -> Result<Credentials, CredentialsError> {
        let asked = self.provider.provide_credentials().await;
        let asked = asked.map_err(|error| why(&error));
        let account = &self.account;
        let mut used = USED.lock();
        let figures = used.entry(account.clone()).or_default();
        match &asked {
            Ok(_) => {
                if figures.failure.take().is_some() {
                    tracing::info!(account, "account usable again");
                }
            }
            Err(reason) => {
                if figures.failure.is_none() {
                    tracing::error!(
                        account,
                        reason,
                        "account unusable: its queues and functions wait"
                    );
                }
                figures.failures += 1;
                figures.failure = Some(reason.clone());
            }
        }
        asked.map_err(|reason| CredentialsError::provider_error(without_any(account) + &reason))
    }
}

impl ProvideCredentials for WatchedCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.credentials())
    }
}
