//! The grant of one host and the variables for the built-in component that forwards to an HTTP
//! service. Opens no connection.

use dispatcher_config::{HttpForward, Route, Secret, header_of_file};
use dispatcher_core::clock;
use dispatcher_core::telemetry::log_throttle::LogThrottle;
use dispatcher_wasm::capability::http::{AddedHeaders, AllowedHosts};
use dispatcher_wasm::capability::registry::Grants;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use std::time::Duration;

/// The component, built by `plugins/build`.
pub(super) const COMPONENT: &[u8] =
    include_bytes!("../../../../../plugins/prebuilt/http-forward.wasm");

/// Adds the grants for forwarding, for attempts of `timeout`.
pub(super) fn grant(grants: &mut Grants, route: &Route, forward: &HttpForward, timeout: Duration) {
    grants.http = AllowedHosts {
        hosts: vec![forward.url.host()],
        longest: timeout,
        attempts: Some(route.settings.concurrency),
        headers: added_headers(&route.plugin.name, forward),
    };
    grants.env.0.extend(variables(route, forward));
}

/// Returns the headers from files. The files are read again while requests are sent, since tokens
/// are renewed.
fn added_headers(plugin: &str, forward: &HttpForward) -> AddedHeaders {
    let secrets = forward.secret_headers.clone();
    if secrets.is_empty() {
        return AddedHeaders::default();
    }
    let all = secrets
        .iter()
        .filter_map(|(name, value)| entry(name, value.reveal()));
    let first = all.collect();
    let plugin = plugin.to_owned();
    let known = Mutex::new((secrets, LogThrottle::default()));
    AddedHeaders::new(first, move || {
        let mut known = known.lock();
        let (secrets, logged) = &mut *known;
        read_again(&plugin, secrets, logged)
    })
}

/// Reads the header files again, and returns the headers if one has changed. A file that cannot be
/// used changes nothing.
fn read_again(
    plugin: &str,
    secrets: &mut [(String, Secret)],
    logged: &mut LogThrottle,
) -> Option<HeaderMap> {
    let mut has_changed = false;
    for (header, secret) in secrets.iter_mut() {
        match header_of_file(header, secret.file()) {
            Ok(read) if read != *secret => {
                tracing::info!(plugin, header = &**header, "forward header replaced");
                *secret = read;
                has_changed = true;
            }
            Ok(_) => {}
            Err(problem) => {
                if logged.should_log(clock::now()) {
                    tracing::error!(
                        plugin,
                        %problem,
                        "forward header not replaced; the old value stays"
                    );
                }
            }
        }
    }
    let all = secrets
        .iter()
        .filter_map(|(name, value)| entry(name, value.reveal()));
    has_changed.then(|| all.collect())
}

/// Returns a header of every request. Names and values were checked when they were read.
fn entry(name: &str, value: String) -> Option<(HeaderName, HeaderValue)> {
    let mut value = HeaderValue::try_from(value).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::try_from(name).ok()?, value))
}

/// Returns the variables of the component, see its `settings.rs`.
fn variables(route: &Route, forward: &HttpForward) -> impl Iterator<Item = (String, String)> {
    let headers: Vec<_> = forward
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let key = forward.key.as_ref();
    [
        ("URL", forward.url.to_string()),
        ("HEADERS", headers.join("\n")),
        // Every request has the same form, for one message or many.
        ("BATCHES", (route.settings.batch_size > 1).to_string()),
    ]
    .into_iter()
    .chain(key.map(|key| ("SIGNING_KEY", key.reveal())))
    .map(|(name, value)| (name.to_owned(), value))
}
