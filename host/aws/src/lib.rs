//! Configures every AWS client of the program: credentials, region, endpoint, timeouts and the
//! SDK's own retries; classifies failures of its calls; and contains the clients of Lambda and
//! CloudWatch, each in its own file. Knows nothing else of this program.

pub mod cloudwatch;
pub mod direct;
pub mod failure;
pub mod lambda;
#[cfg(test)]
mod test_server;
mod words;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
pub use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
pub use words::{hide_userinfo, one_line};

/// How often the SDK tries a call, the first time included. Two: enough for a pooled connection
/// that the server has just closed, few enough that a failure is reported while a lease can still
/// be saved. Everything beyond that is decided by the caller, who knows the deadline.
pub const ATTEMPTS: u32 = 2;

/// How long, at most, the SDK waits before its second attempt: its default of one second is meant
/// for callers that do not back off themselves.
const SECOND_ATTEMPT: Duration = Duration::from_millis(200);

/// How long to wait for a connection: the SDK's own default.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(3_100);

/// How long to wait for the answer to a call that the service answers at once.
pub const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for the answer to a long poll of SQS, which may take 20 s.
pub(crate) const LONG_POLL_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The region that requests to an emulator are signed for when none is configured.
const EMULATOR_REGION: &str = "us-east-1";

/// What was loaded in this process, by the endpoint that it was asked for.
static LOADED: Mutex<BTreeMap<Option<String>, Arc<OnceCell<SdkConfig>>>> =
    Mutex::new(BTreeMap::new());

/// The configuration for an endpoint, loaded when the first client of the process needs it. All
/// clients share its credentials and its HTTP client, whose connections belong to the runtime that
/// makes them: there is one for AWS in a process.
pub async fn shared_configuration(endpoint_url: Option<&str>) -> SdkConfig {
    let loaded = {
        let mut all = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = all.entry(endpoint_url.map(str::to_owned)).or_default();
        Arc::clone(loaded)
    };
    let load = || configuration(endpoint_url);
    loaded.get_or_init(load).await.clone()
}

/// The SDK's own HTTP client, which it would make once for each service.
fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().build_with_connector_fn(|settings, components| {
        let provider = Provider::Rustls(CryptoMode::AwsLc);
        let mut connector = Connector::builder().tls_provider(provider);
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(RuntimeComponents::sleep_impl));
        connector.set_proxy_config(Some(ProxyConfig::from_env()));
        connector.build()
    })
}

/// The configuration that all AWS clients share: the SDK's chain of credentials and profiles, and
/// its `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_<SERVICE>` variables, which `endpoint_url`
/// overrides. Without a configured region, `us-east-1` is taken if, and only if, an endpoint is
/// named: on AWS itself a guessed region would be the wrong queue. Never fails: what is missing
/// is reported by the first call that needs it.
pub async fn configuration(endpoint_url: Option<&str>) -> SdkConfig {
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http_client());
    if let Some(url) = endpoint_url {
        loader = loader.endpoint_url(url);
    }
    if endpoint_url.is_some() || names_endpoint(std::env::vars_os().map(|(name, _)| name)) {
        // Without the instance metadata service, which the SDK's default chain ends with: off AWS
        // it costs seconds and answers nothing.
        loader = loader.region(
            RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
                .or_else(ProfileFileRegionProvider::new())
                .or_else(Region::from_static(EMULATOR_REGION)),
        );
    }
    let config = with_limits(&loader.load().await);
    if config.region().is_none() && config.endpoint_url().is_some() {
        return for_endpoint(&config, None);
    }
    config
}

/// The same configuration with this program's attempts and timeouts.
pub fn with_limits(config: &SdkConfig) -> SdkConfig {
    config
        .to_builder()
        .retry_config(
            RetryConfig::standard()
                .with_max_attempts(ATTEMPTS)
                .with_initial_backoff(SECOND_ATTEMPT),
        )
        .timeout_config(timeouts(READ_TIMEOUT))
        .stalled_stream_protection(whole_requests())
        .build()
}

/// Requests here are sent whole, never as a stream, so there is no upload to watch; the SDK's watch
/// over them wakes twice a second for every long outstanding poll. Answers stay watched.
fn whole_requests() -> StalledStreamProtectionConfig {
    StalledStreamProtectionConfig::enabled()
        .upload_enabled(false)
        .download_enabled(true)
        .build()
}

/// The same configuration for calls that may take as long as a long poll.
pub fn for_long_polls(config: &SdkConfig) -> SdkConfig {
    config
        .to_builder()
        .timeout_config(timeouts(LONG_POLL_READ_TIMEOUT))
        .build()
}

/// The same configuration for another region.
pub fn for_region(config: &SdkConfig, region: &str) -> SdkConfig {
    config
        .to_builder()
        .region(Region::new(region.to_owned()))
        .build()
}

/// The same configuration for an endpoint, when one is given, with a region in any case.
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

/// Where calls to a service go, for messages: the endpoint, or the region whose endpoint the SDK
/// knows. `service` as AWS writes it in the names of variables: `SQS`.
pub fn place(config: &SdkConfig, service: &str) -> String {
    // A service's own variable outranks all but an endpoint that we were given ourselves; it is
    // read by the service's client, not into this configuration.
    let loaded = config.service_config().is_some();
    let own = std::env::var(format!("AWS_ENDPOINT_URL_{service}"))
        .ok()
        .filter(|_| loaded && !config.get_origin("endpoint_url").is_client_config());
    let region = config.region().map(AsRef::as_ref);
    match (own.as_deref().or(config.endpoint_url()), region) {
        (Some(url), _) => hide_userinfo(url),
        (None, Some(region)) => format!("{service} in {region}"),
        (None, None) => service.to_owned(),
    }
}

fn timeouts(read: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(read)
        .build()
}

/// Whether one of these environment variables names an endpoint, for all services or for one.
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
        let named = |names: &[&str]| names_endpoint(names.iter().map(Into::into));
        assert!(named(&["HOME", "AWS_ENDPOINT_URL"]));
        assert!(named(&["AWS_ENDPOINT_URL_SQS"]));
        assert!(!named(&["AWS_ENDPOINT", "AWS_REGION"]));
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
    fn client_timeout_allows_a_twenty_second_long_poll() {
        let config = for_long_polls(&SdkConfig::builder().build());
        let read = config
            .timeout_config()
            .and_then(TimeoutConfig::read_timeout);
        assert!(read > Some(Duration::from_secs(20)));
    }
}
