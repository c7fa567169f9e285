//! Fetches the keys of a trusted proxy from their URL.

use super::signed_header::TrustedProxy;
use dispatcher_core::clock;
use dispatcher_core::telemetry::error_text::with_sources;
use reqwest::Client;
use reqwest::redirect::Policy;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long keys are used before they are fetched again.
const FRESH: Duration = Duration::from_hours(1);
/// The shortest time between two fetches while there is a key.
const PAUSE: Duration = Duration::from_secs(10);
/// The time after which a failed fetch is repeated while there is no key at all.
const FIRST_RETRY: Duration = Duration::from_secs(5);
/// The time limit of a fetch.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of the keys.
const MOST_BYTES: usize = 1 << 20;

/// Fetches the keys at once, every hour, and when a token names a key that is not known. Logs what
/// fails; the keys that are there stay valid.
pub(super) async fn keep(proxy: &TrustedProxy, url: &str, stop: CancellationToken) {
    loop {
        let fetched = tokio::select! {
            () = stop.cancelled() => return,
            fetched = fetch(url) => fetched,
        };
        let replaced = fetched.and_then(|keys| proxy.replace_keys(&keys));
        match &replaced {
            Ok(()) => tracing::info!(url, "proxy keys fetched"),
            Err(error) => tracing::error!(url, error, "proxy keys not fetched"),
        }
        let now = clock::now();
        let again = match replaced {
            Ok(()) => FRESH,
            Err(_) if proxy.has_keys() => PAUSE,
            Err(_) => FIRST_RETRY,
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = clock::sleep_until(Some(now + again)) => {}
            () = unknown_key(proxy), if again > PAUSE => {}
        }
    }
}

/// Waits for a token with an unknown key, and at least for the pause between two fetches.
async fn unknown_key(proxy: &TrustedProxy) {
    clock::sleep_until(Some(clock::now() + PAUSE)).await;
    proxy.unknown_key.notified().await;
}

async fn fetch(url: &str) -> Result<Vec<u8>, String> {
    let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none());
    let client = client.build().map_err(|error| with_sources(&error))?;
    let sent = client.get(url).send().await;
    let accepted = sent.and_then(reqwest::Response::error_for_status);
    let mut answer = accepted.map_err(|error| with_sources(&error.without_url()))?;
    let mut keys = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(|error| with_sources(&error))? {
        keys.extend_from_slice(&piece);
        if keys.len() > MOST_BYTES {
            return Err(format!("the answer has more than {MOST_BYTES} bytes"));
        }
    }
    Ok(keys)
}
