//! The configuration of accounts other than the process's own: a profile, a region, an endpoint and
//! a role, whose credentials the SDK requests again before they end. Remembers which of them give no
//! credentials.

use super::{for_region, http, load, words};
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::sts::AssumeRoleProvider;
use aws_config::{ConfigLoader, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use dispatcher_core::account::{AccountFigures, Accounts, AwsAccount};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// The time within which an account must give credentials when it is checked: a process that a
/// profile names may never end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The figures of the accounts that this process has used.
static USED: Mutex<BTreeMap<AwsAccount, AccountFigures>> = Mutex::new(BTreeMap::new());

/// The accounts of the settings in force.
static IN_FORCE: Mutex<Vec<AwsAccount>> = Mutex::new(Vec::new());

/// Returns the figures of the accounts in force that this process has used, by name.
pub fn used() -> BTreeMap<String, AccountFigures> {
    let in_force = IN_FORCE.lock();
    let used = USED.lock();
    let pairs = in_force.iter().filter_map(|account| {
        let figures = used.get(account)?;
        Some((account.name.clone(), figures.clone()))
    });
    pairs.collect()
}

/// Records that these are the accounts in force, and forgets all about others.
pub fn put_in_force(accounts: &Accounts) {
    let accounts: Vec<AwsAccount> = accounts.iter().cloned().collect();
    USED.lock().retain(|account, _| accounts.contains(account));
    super::LOADED.lock().retain(|(_, account), _| {
        let account = account.as_ref();
        account.is_none_or(|account| accounts.contains(account))
    });
    *IN_FORCE.lock() = accounts;
}

/// The clients of each account, and of the process itself.
#[derive(Debug)]
pub struct AccountClients<T> {
    endpoint_url: Option<String>,
    clients: Mutex<BTreeMap<Option<AwsAccount>, Arc<T>>>,
}

impl<T> AccountClients<T> {
    /// Creates no client yet. `endpoint_url` is that of the process.
    pub fn new(endpoint_url: Option<String>) -> Self {
        Self {
            endpoint_url,
            clients: Mutex::default(),
        }
    }

    /// Returns the client of this account, or of the process itself, which `connect` creates when it
    /// is first needed.
    pub async fn of(
        &self,
        account: Option<&AwsAccount>,
        connect: impl FnOnce(&SdkConfig) -> T,
    ) -> Arc<T> {
        let endpoint_url = self.endpoint_url.as_deref();
        let config = super::account_configuration(endpoint_url, account).await;
        let mut clients = self.clients.lock();
        let client = clients.entry(account.cloned());
        Arc::clone(client.or_insert_with(|| Arc::new(connect(&config))))
    }
}

/// An account gave no credentials.
#[derive(Debug, thiserror::Error)]
#[error("account `{account}` gives none: {reason}")]
pub(super) struct AccountRefusal {
    account: String,
    reason: String,
}

/// Requests the credentials of an account, to see whether there are any.
///
/// # Errors
/// Returns why there are none.
pub async fn check(config: &SdkConfig) -> Result<(), CallError> {
    let Some(provider) = config.credentials_provider() else {
        return Ok(());
    };
    let asked = tokio::time::timeout(PATIENCE, provider.provide_credentials()).await;
    let message = match asked {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => reason_of(&error),
        Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
    };
    Err(CallError {
        kind: ErrorKind::AccessDenied,
        message,
    })
}

/// Returns the refusal of an account that an error comes from.
pub(super) fn refusal_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a AccountRefusal> {
    words::links(error).find_map(|link| link.downcast_ref())
}

/// Returns the reason why there are no credentials.
fn reason_of(error: &CredentialsError) -> String {
    match refusal_of(error) {
        Some(refusal) => refusal.reason.clone(),
        None => words::without_credentials_prefix(&words::chain(error)).to_owned(),
    }
}

/// Loads the configuration of an account: that of the process with the account's profile, region and
/// endpoint, and with the credentials of its role, which is assumed at the endpoint of the process.
pub(super) async fn configuration(endpoint_url: Option<&str>, account: &AwsAccount) -> SdkConfig {
    let process = super::shared_configuration(endpoint_url).await;
    let http_client = process.http_client().unwrap_or_else(http::client);
    let mut config = load(endpoint_url, account.profile.as_deref(), http_client).await;
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
            Some(SharedCredentialsProvider::new(builder.build().await))
        }
        None => config.credentials_provider(),
    };
    let mut builder = config.to_builder();
    if let Some(provider) = provider {
        builder.set_credentials_provider(Some(SharedCredentialsProvider::new(
            WatchedCredentials {
                account: account.clone(),
                provider,
            },
        )));
    }
    match &account.endpoint_url {
        Some(url) => super::for_endpoint(&builder.build(), Some(url)),
        None => builder.build(),
    }
}

/// Lets a loader use the credentials and the region of a profile, before those of the environment.
pub(super) fn with_profile(loader: ConfigLoader, profile: &str) -> ConfigLoader {
    let credentials = ProfileFileCredentialsProvider::builder().profile_name(profile);
    loader
        .profile_name(profile)
        .credentials_provider(credentials.build())
        .region(region_of(profile).or_default_provider())
}

/// Returns the region of a profile, or else of the environment.
pub(super) fn region_of(profile: &str) -> RegionProviderChain {
    let of_profile = ProfileFileRegionProvider::builder().profile_name(profile);
    RegionProviderChain::first_try(of_profile.build())
        .or_else(EnvironmentVariableRegionProvider::new())
}

/// Credentials that remember whether they could be provided.
#[derive(Debug)]
struct WatchedCredentials {
    account: AwsAccount,
    provider: SharedCredentialsProvider,
}

impl WatchedCredentials {
    async fn credentials(&self) -> Result<Credentials, CredentialsError> {
        let asked = self.provider.provide_credentials().await;
        let asked = asked.map_err(|error| reason_of(&error));
        let account = self.account.name.as_str();
        let mut used = USED.lock();
        let figures = used.entry(self.account.clone()).or_default();
        match &asked {
            Ok(_) => {
                if figures.failure.take().is_some() {
                    tracing::info!(account, "account gives credentials again");
                }
            }
            Err(reason) => {
                if figures.failure.is_none() {
                    tracing::error!(account, reason, "account gives no credentials");
                }
                figures.failures += 1;
                figures.failure = Some(reason.clone());
            }
        }
        asked.map_err(|reason| {
            let account = account.to_owned();
            CredentialsError::provider_error(AccountRefusal { account, reason })
        })
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
