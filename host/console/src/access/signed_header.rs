//! The header in which a trusted proxy says who sent a request. Verifies its JSON Web Token with the
//! proxy's keys.

use super::{Caller, Refusal, Role, user_name};
use axum::http::HeaderMap;
use dispatcher_config::problem::Problem;
use dispatcher_config::signed_header::{KeyPlace, SignedHeader, WantedClaim};
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::Limits;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use parking_lot::RwLock;
use serde_json::{Map, Value};
use std::path::Path;
use tokio::sync::Notify;

/// The algorithms with a public key. A shared secret would let this program sign, too.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::EdDSA,
];

/// A trusted proxy.
#[derive(Debug)]
pub(super) struct TrustedProxy {
    terms: SignedHeader,
    /// The keys; none before a URL has answered.
    keys: RwLock<JwkSet>,
    /// Notified if a token names a key that is not known: the proxy may have a new one.
    pub unknown_key: Notify,
}

impl TrustedProxy {
    /// Creates a proxy, with its keys if they are in a file.
    ///
    /// # Errors
    /// Returns what is wrong with the file.
    pub(super) fn open(terms: &SignedHeader) -> Result<Self, Problem> {
        let keys = match &terms.keys {
            KeyPlace::File(file) => read_file(file).map_err(|why| {
                let found = format!("{}: {why}", file.display());
                Problem::new("--admin-proxy-keys", found, "a JSON Web Key Set")
            })?,
            KeyPlace::Url(_) => JwkSet { keys: Vec::new() },
        };
        Ok(Self {
            terms: terms.clone(),
            keys: RwLock::new(keys),
            unknown_key: Notify::new(),
        })
    }

    /// Reads a file of keys again, and logs the result. Does nothing if they are at a URL.
    pub(super) fn reload(&self) {
        let KeyPlace::File(file) = &self.terms.keys else {
            return;
        };
        let (read, file) = (read_file(file), file.display());
        match read {
            Ok(keys) if *self.keys.read() == keys => {
                tracing::debug!(%file, "proxy keys unchanged");
            }
            Ok(keys) => {
                *self.keys.write() = keys;
                tracing::info!(%file, "proxy keys replaced");
            }
            Err(error) => {
                tracing::error!(%file, %error, "proxy keys not replaced; the old ones stay valid");
            }
        }
    }

    /// Replaces the keys by those that a URL has answered.
    ///
    /// # Errors
    /// Returns what is wrong with them; the old ones stay.
    pub(super) fn replace_keys(&self, answer: &[u8]) -> Result<(), String> {
        *self.keys.write() = parse_keys(answer)?;
        Ok(())
    }

    /// Whether it has a key.
    pub(super) fn has_keys(&self) -> bool {
        !self.keys.read().keys.is_empty()
    }

    /// Returns the URL of its keys, unless they are in a file.
    pub(super) fn url(&self) -> Option<&str> {
        match &self.terms.keys {
            KeyPlace::Url(url) => Some(url),
            KeyPlace::File(_) => None,
        }
    }

    /// Whether its people may act.
    pub(super) fn permits_actions(&self) -> bool {
        !self.terms.operate.is_empty()
    }

    /// Whether a request has a token of the proxy, which may be a wrong one.
    pub(super) fn has_sent(&self, headers: &HeaderMap) -> bool {
        self.token(headers).is_some()
    }

    /// Returns the person who sent a request, or `None` if it has no token of the proxy.
    pub(super) fn judge(&self, headers: &HeaderMap) -> Option<Result<Caller, Refusal>> {
        let (token, header) = self.token(headers)?;
        let claims = if headers.get_all(&self.terms.header).iter().count() > 1 {
            Err("the header is there twice".to_owned())
        } else {
            self.claims(token, &header)
        };
        Some(match claims {
            Ok(claims) => self.person(&claims),
            Err(why) => Err(Refusal::InvalidProxyToken(why)),
        })
    }

    /// Returns the proxy's token in a request, not verified. Its header may have a token of this
    /// program instead.
    fn token<'a>(&self, headers: &'a HeaderMap) -> Option<(&'a str, Header)> {
        let text = headers.get(&self.terms.header)?.to_str().ok()?.trim();
        let token = text.rsplit(' ').next()?;
        Some((token, decode_header(token).ok()?))
    }

    fn person(&self, claims: &Map<String, Value>) -> Result<Caller, Refusal> {
        let terms = &self.terms;
        let role = if has(claims, &terms.operate) {
            Some(Role::Operate)
        } else if terms.read.is_empty() || has(claims, &terms.read) {
            Some(Role::Read)
        } else {
            None
        };
        let claimed = [&*terms.name, "sub"].into_iter();
        let mut names = claimed
            .filter_map(|claim| claims.get(claim)?.as_str())
            .filter(|name| !name.is_empty());
        let caller = Caller {
            role,
            user: names.next().map(user_name),
            token: Some("proxy".into()),
        };
        if role.is_some() {
            Ok(caller)
        } else {
            Err(Refusal::NoRole(caller))
        }
    }

    /// Returns the claims of a token, or why it is not valid.
    fn claims(&self, token: &str, header: &Header) -> Result<Map<String, Value>, String> {
        let algorithm = header.alg;
        if !ALGORITHMS.contains(&algorithm) {
            return Err(format!(
                "{algorithm:?} is not an algorithm with a public key"
            ));
        }
        let keys = self.keys.read();
        let Some(key) = key_of(header, &keys) else {
            self.unknown_key.notify_one();
            return Err(match (&header.kid, keys.keys.is_empty()) {
                (_, true) => "the keys of the proxy have not been fetched yet".to_owned(),
                (Some(id), false) => format!("its key `{id}` is not known"),
                (None, false) => "it names no key, and there are several".to_owned(),
            });
        };
        let key = DecodingKey::from_jwk(key).map_err(|error| error.to_string())?;
        let mut validation = Validation::new(algorithm);
        validation.set_audience(&[&self.terms.audience]);
        validation.set_issuer(&[&self.terms.issuer]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        decode::<Map<String, Value>>(token, &key, &validation)
            .map(|token| token.claims)
            .map_err(|error| self.reason(error.kind()))
    }

    /// Returns why a token is refused, in words for its person and for the operator.
    fn reason(&self, error: &ErrorKind) -> String {
        match error {
            ErrorKind::ExpiredSignature => "it has expired; sign in again".to_owned(),
            ErrorKind::ImmatureSignature => "it is not valid yet".to_owned(),
            ErrorKind::InvalidSignature => "its signature is not that of its key".to_owned(),
            ErrorKind::InvalidIssuer => format!("its `iss` is not `{}`", self.terms.issuer),
            ErrorKind::InvalidAudience => format!("its `aud` is not `{}`", self.terms.audience),
            ErrorKind::MissingRequiredClaim(claim) => format!("it has no `{claim}`"),
            ErrorKind::InvalidAlgorithm => "its algorithm is not that of its key".to_owned(),
            other => format!("{other:?}"),
        }
    }
}

/// Returns the key that a token names, or the only one if one of them has no name.
fn key_of<'a>(header: &Header, keys: &'a JwkSet) -> Option<&'a Jwk> {
    let named = header.kid.as_ref().and_then(|id| keys.find(id));
    let only = match &*keys.keys {
        [only] if header.kid.is_none() || only.common.key_id.is_none() => Some(only),
        _ => None,
    };
    named.or(only)
}

fn read_file(file: &Path) -> Result<JwkSet, String> {
    let bytes = bounded::read(file, Limits::SMALL).map_err(|error| error.to_string())?;
    parse_keys(&bytes)
}

fn parse_keys(json: &[u8]) -> Result<JwkSet, String> {
    let keys: JwkSet =
        serde_json::from_slice(json).map_err(|error| format!("no JSON Web Key Set: {error}"))?;
    if keys.keys.is_empty() {
        return Err("it has no key".to_owned());
    }
    Ok(keys)
}

/// Whether claims have one of the wanted values, alone or in a list.
fn has(claims: &Map<String, Value>, wanted: &[WantedClaim]) -> bool {
    wanted.iter().any(|wanted| match claims.get(&wanted.claim) {
        Some(Value::Array(list)) => list.iter().any(|one| one == wanted.value.as_str()),
        Some(one) => one == wanted.value.as_str(),
        None => false,
    })
}
