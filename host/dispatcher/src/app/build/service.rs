//! What the built-in component that forwards to an HTTP service gets: the grant of that one host,
//! and the variables that it reads. Opens no connection.

use crate::config::{HttpForward, Route};
use dispatcher_wasm::capability::http::Outgoing;
use dispatcher_wasm::capability::registry::Grants;
use std::time::Duration;

/// The component; `plugins/build` makes it.
pub(super) const COMPONENT: &[u8] =
    include_bytes!("../../../../../plugins/prebuilt/http-forward.wasm");

/// Adds what forwarding needs, for attempts of `timeout`.
pub(super) fn grant(grants: &mut Grants, route: &Route, forward: &HttpForward, timeout: Duration) {
    grants.http = Outgoing {
        hosts: vec![forward.url.host()],
        longest: timeout,
        attempts: Some(route.settings.concurrency),
    };
    grants.env.0.extend(variables(route, forward));
}

/// What the component reads, see its `settings.rs`.
fn variables(route: &Route, forward: &HttpForward) -> impl Iterator<Item = (String, String)> {
    let plain = forward.headers.iter().cloned();
    let secret = forward.secret_headers.iter();
    let headers = plain.chain(secret.map(|(name, value)| (name.clone(), value.reveal())));
    let headers: Vec<_> = headers
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let pair = |name: &str, value: String| (name.to_owned(), value);
    let key = forward.key.as_ref();
    [
        pair("URL", forward.url.to_string()),
        pair("HEADERS", headers.join("\n")),
        // Every request has the same form, however many messages came together.
        pair("BATCHES", (route.settings.batch_size > 1).to_string()),
    ]
    .into_iter()
    .chain(key.map(|key| pair("SIGNING_KEY", key.reveal())))
}
