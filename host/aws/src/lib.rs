//! Configures every AWS client of the program: credentials, region, endpoint, timeouts and the
//! SDK's own retries; classifies failures of its calls; and contains the clients of Lambda and
//! CloudWatch, each in its own file. Knows nothing else of this program.

pub mod accounts;
pub mod cloudwatch;
mod credentials;
pub mod environment;
pub mod failure;
mod http;
pub mod lambda;
mod profiles;
#[cfg(test)]
mod test_server;
mod trust;
mod words;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
pub use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use dispatcher_core::account::AwsAccount;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
pub use words::{hide_userinfo, one_line};

/// The maximum number of attempts of a call by the SDK, including the first. Two attempts are
/// enough if the server has just closed a pooled connection, and few enough that an error is
/// reported while a lease can still be saved. The caller, who knows the deadline, decides about
/// further attempts.
pub const ATTEMPTS: u32 = 2;

/// The maximum time before the SDK's second attempt. The SDK's default of one second is for callers
/// without their own back-off.
const SECOND_ATTEMPT: Duration = Duration::from_millis(200);

/// The time limit of connecting: the SDK's default.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(3_100);

/// The time limit for the response to a call that the service answers at once.
pub const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for the response to a long poll of SQS, which may take 20 s.
const LONG_POLL_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The time limit for receiving the response to a long poll, which may have 10 MiB.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);

/// The region for signing requests to an emulator if none is configured.
const EMULATOR_REGION: &str = "us-east-1";

/// The configurations that this process has loaded, by endpoint and account.
static LOADED: Mutex<BTreeMap<ConfigurationKey, Arc<OnceCell<SdkConfig>>>> =
    Mutex::new(BTreeMap::new());

type ConfigurationKey = (Option<String>, Option<AwsAccount>);

/// Returns the configuration for an endpoint, which is loaded when the first client of the process
/// needs it. All clients share its credentials and its HTTP client, whose connections belong to the
/// runtime that opens them: a process has one runtime for AWS.
pub async fn shared_configuration(endpoint_url: Option<&str>) -> SdkConfig {
    account_configuration(endpoint_url, None).await
}

/// Returns the configuration for an account, or for the process itself, as `shared_configuration`
/// does.
pub async fn account_configuration(
    endpoint_url: Option<&str>,
    account: Option<&AwsAccount>,
) -> SdkConfig {
    let loaded = {
        let key = (endpoint_url.map(str::to_owned), account.cloned());
        Arc::clone(LOADED.lock().entry(key).or_default())
    };
    loaded
        .get_or_init(|| async {
            // Boxed, because the SDK's futures are deeply nested.
            match account {
                Some(account) => Box::pin(accounts::configuration(endpoint_url, account)).await,
                None => Box::pin(configuration(endpoint_url)).await,
            }
        })
        .await
        .clone()
}

/// Loads the configuration that all AWS clients share: the SDK's chain of credentials and profiles,
/// and its `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_<SERVICE>` variables, which `endpoint_url`
/// overrides. If no region is configured, it uses `us-east-1`, but only with a configured endpoint:
/// on AWS itself, a guessed region would select the wrong queue. Never fails: the first call that
/// needs a missing setting reports it.
pub async fn configuration(endpoint_url: Option<&str>) -> SdkConfig {
    load(endpoint_url, None, http::client()).await
}

async fn load(
    endpoint_url: Option<&str>,
    profile: Option<&str>,
    http_client: SharedHttpClient,
) -> SdkConfig {
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http_client);
    if let Some(profile) = profile {
        loader = accounts::with_profile(loader, profile);
    }
    if let Some(url) = endpoint_url {
        loader = loader.endpoint_url(url);
    }
    if endpoint_url.is_some() || names_endpoint(std::env::vars_os().map(|(name, _)| name)) {
        // Skips the instance metadata service at the end of the SDK's default chain: outside AWS it
        // takes seconds and never responds.
        let chain = match profile {
            Some(profile) => accounts::region_of(profile),
            None => RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
                .or_else(ProfileFileRegionProvider::new()),
        };
        loader = loader.region(chain.or_else(Region::from_static(EMULATOR_REGION)));
    }
    let files = profiles::files(|name| std::env::var(name).ok());
    let versions = credentials::versions(&files);
    let config = with_limits(&loader.load().await);
    let config = credentials::renewed(config, profile, files, versions);
    if config.region().is_none() && config.endpoint_url().is_some() {
        return for_endpoint(&config, None);
    }
    config
}

/// Returns the configuration with this program's attempts and timeouts.
pub fn with_limits(config: &SdkConfig) -> SdkConfig {
    config
        .to_builder()
        .retry_config(retries())
        .timeout_config(timeouts(READ_TIMEOUT, Duration::ZERO))
        // The protection wakes up twice a second for every call; the attempt timeout ends stalled
        // calls.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .build()
}

/// Returns the configuration for calls that may take as long as a long poll.
pub fn for_long_polls(config: &SdkConfig) -> SdkConfig {
    config
        .to_builder()
        .timeout_config(timeouts(LONG_POLL_READ_TIMEOUT, ARRIVAL_TIMEOUT))
        .build()
}

/// Returns the configuration for another region.
pub fn for_region(config: &SdkConfig, region: &str) -> SdkConfig {
    config
        .to_builder()
        .region(Region::new(region.to_owned()))
        .build()
}

/// Returns the configuration for an endpoint, if one is given, and always with a region.
pub fn for_endpoint(config: &SdkConfig, endpoint_url: Option<&str>) -> SdkConfig {
    let region = config
        .region()
        .cloned()
        .unwrap_or(Region::from_static(EMULATOR_REGION));
    let mut builder = config.to_builder().region(region);
    if let Some(url) = endpoint_url {
        builder = builder.endpoint_url(url);
    }
    builder.build()
}

/// Returns the configuration for an endpoint from a queue's address. A FIPS endpoint needs no FIPS
/// setting, and the SDK refuses such settings together with an endpoint.
pub fn for_named_endpoint(config: &SdkConfig, endpoint_url: &str, is_fips: bool) -> SdkConfig {
    let config = for_endpoint(config, Some(endpoint_url));
    let mut builder = config.to_builder().use_dual_stack(false);
    if is_fips {
        builder.set_use_fips(Some(false));
    }
    builder.build()
}

/// Whether an endpoint is configured for all services or for this one. `service` is the name that
/// AWS uses in variables, for example `SQS`.
pub fn has_endpoint(config: &SdkConfig, service: &str) -> bool {
    config.endpoint_url().is_some() || own_endpoint(config, service).is_some()
}

/// Returns the endpoint in the service's own variable. It has priority over all others except an
/// endpoint that the program sets. The service's client reads the variable; this configuration does
/// not contain it.
fn own_endpoint(config: &SdkConfig, service: &str) -> Option<String> {
    let is_loaded = config.service_config().is_some();
    if !is_loaded || config.get_origin("endpoint_url").is_client_config() {
        return None;
    }
    std::env::var(format!("AWS_ENDPOINT_URL_{service}")).ok()
}

/// Returns the place of calls to a service, for messages: the endpoint, or the region if the SDK
/// derives the endpoint. `service` is the name that AWS uses in variables, for example `SQS`.
pub fn place(config: &SdkConfig, service: &str) -> String {
    let own = own_endpoint(config, service);
    let region = config.region().map(AsRef::as_ref);
    match (own.as_deref().or(config.endpoint_url()), region) {
        (Some(url), _) => hide_userinfo(url),
        (None, Some(region)) => format!("{service} in {region}"),
        (None, None) => service.to_owned(),
    }
}

fn retries() -> RetryConfig {
    RetryConfig::standard()
        .with_max_attempts(ATTEMPTS)
        .with_initial_backoff(SECOND_ATTEMPT)
}

/// Returns the timeouts; `arrival` is the additional time for receiving the response.
fn timeouts(read: Duration, arrival: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(read)
        .operation_attempt_timeout(CONNECT_TIMEOUT + read + arrival)
        .build()
}

/// Whether one of these environment variables sets an endpoint, for all services or for one.
fn names_endpoint(variables: impl Iterator<Item = std::ffi::OsString>) -> bool {
    variables
        .filter_map(|name| name.into_string().ok())
        .any(|name| name == "AWS_ENDPOINT_URL" || name.starts_with("AWS_ENDPOINT_URL_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_read_from_the_environment() {
        let cases: [(&[&str], bool); 3] = [
            (&["HOME", "AWS_ENDPOINT_URL"], true),
            (&["AWS_ENDPOINT_URL_SQS"], true),
            (&["AWS_ENDPOINT", "AWS_REGION"], false),
        ];
        for (names, wanted) in cases {
            let is_named = names_endpoint(names.iter().map(Into::into));
            assert_eq!(is_named, wanted, "{names:?}");
        }
    }

    #[test]
    fn default_region_is_used_only_with_an_endpoint() {
        let bare = SdkConfig::builder().build();
        let url = Some("http://127.0.0.1:1");
        let local = for_endpoint(&bare, url);
        assert_eq!(local.region(), Some(&Region::from_static("us-east-1")));
        assert_eq!(local.endpoint_url(), url);
        let chosen = for_endpoint(&for_region(&bare, "eu-west-1"), url);
        assert_eq!(chosen.region(), Some(&Region::from_static("eu-west-1")));
    }

    #[test]
    fn display_place_is_the_endpoint_or_the_region() {
        let bare = SdkConfig::builder().build();
        assert_eq!(place(&bare, "SQS"), "SQS");
        let region = for_region(&bare, "eu-west-1");
        assert_eq!(place(&region, "SQS"), "SQS in eu-west-1");
        let url = "http://127.0.0.1:1";
        assert_eq!(place(&for_endpoint(&region, Some(url)), "SQS"), url);
    }

    #[test]
    fn endpoint_of_a_queue_needs_no_setting_for_fips_or_dual_stack() {
        let builder = SdkConfig::builder().use_fips(true).use_dual_stack(true);
        let all = for_region(&builder.build(), "us-west-2");
        let url = "https://sqs-fips.us-west-2.api.aws";
        let fips = for_named_endpoint(&all, url, true);
        assert_eq!(fips.endpoint_url(), Some(url));
        assert_eq!(
            (fips.use_fips(), fips.use_dual_stack()),
            (Some(false), Some(false))
        );
        // Whether this is one for FIPS cannot be told, so the SDK refuses it.
        let other = for_named_endpoint(&all, "https://queue.amazonaws.com", false);
        assert_eq!(other.use_fips(), Some(true));
    }

    #[test]
    fn client_timeout_allows_a_twenty_second_long_poll() {
        let config = for_long_polls(&SdkConfig::builder().build());
        let read = config
            .timeout_config()
            .and_then(TimeoutConfig::read_timeout);
        assert!(read > Some(Duration::from_secs(20)));
    }
}
