//! Browser sessions: a signed cookie with the role of a token and an expiry. Sessions need no
//! storage: they are valid in all processes with the same token, and end when the token is
//! replaced. Pure: the caller passes `now`.

use super::access::{KnownToken, Role};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dispatcher_core::clock::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::time::Duration;

/// The lifetime of a session: a working day.
pub(super) const LASTS: Duration = Duration::from_secs(12 * 3_600);
/// The prefix of everything that is signed, so that a signature is not valid for another purpose.
const PURPOSE: &str = "dispatcher session 1";

/// A signed-in user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    pub role: Role,
    /// The name that the user entered, for the log.
    pub user: Option<String>,
    pub until: Timestamp,
}

impl Session {
    /// Returns the value of the cookie: `ROLE.UNTIL.USER.SIGNATURE`. `key` is the digest of the
    /// role's token.
    pub(super) fn seal(&self, key: &[u8; 32]) -> String {
        let user = URL_SAFE_NO_PAD.encode(self.user.as_deref().unwrap_or_default());
        let said = format!("{}.{}.{user}", letter(self.role), self.until.0);
        let signature = sign(key, &said).finalize().into_bytes();
        format!("{said}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Parses the value of a cookie, if it was signed with the digest of a token of its role and has
    /// not expired. Returns the token as well.
    pub(super) fn open(
        value: &str,
        tokens_of: impl Fn(Role) -> Vec<KnownToken>,
        now: Timestamp,
    ) -> Option<(Self, KnownToken)> {
        let (said, signature) = value.rsplit_once('.')?;
        let mut parts = said.split('.');
        let (role, until, user) = (parts.next()?, parts.next()?, parts.next()?);
        let role = [Role::Read, Role::Operate]
            .into_iter()
            .find(|one| letter(*one) == role)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let mut tokens = tokens_of(role).into_iter();
        let token = tokens.find(|token| {
            let signed = sign(&token.digest, said);
            signed.verify_slice(&signature).is_ok()
        })?;
        let user = String::from_utf8(URL_SAFE_NO_PAD.decode(user).ok()?).ok()?;
        let until = Timestamp(until.parse().ok()?);
        let session = Self {
            role,
            user: Some(user).filter(|user| !user.is_empty()),
            until,
        };
        (now < until).then_some((session, token))
    }
}

const fn letter(role: Role) -> &'static str {
    match role {
        // Never sealed: a token that may only send has no pages.
        Role::Send => "s",
        Role::Read => "r",
        Role::Operate => "o",
    }
}

fn sign(key: &[u8; 32], said: &str) -> Hmac<Sha256> {
    // HMAC also pads a short key with zeros to the size of a block.
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(PURPOSE.as_bytes());
    mac.update(&[0]);
    mac.update(said.as_bytes());
    mac
}

/// Returns the values of the cookies of this name in a header.
pub(super) fn cookies<'a>(header: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    header.split(';').filter_map(move |pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);
    const KEY: [u8; 32] = [7; 32];

    fn session(role: Role) -> Session {
        Session {
            role,
            user: Some("Änn; x=1".to_owned()),
            until: NOW + LASTS,
        }
    }

    fn token() -> KnownToken {
        KnownToken {
            name: None,
            digest: KEY,
        }
    }

    fn open(value: &str, now: Timestamp) -> Option<Session> {
        Session::open(value, tokens_of, now).map(|(session, _)| session)
    }

    fn tokens_of(role: Role) -> Vec<KnownToken> {
        Vec::from_iter((role == Role::Operate).then(token))
    }

    #[test]
    fn a_session_is_what_was_signed_until_it_is_over() {
        let sealed = session(Role::Operate).seal(&KEY);
        assert!(
            sealed
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b";,\"\\".contains(&byte))
        );
        assert_eq!(open(&sealed, NOW), Some(session(Role::Operate)));
        assert_eq!(open(&sealed, NOW + LASTS), None);
    }

    #[test]
    fn a_session_of_another_token_role_or_time_is_none() {
        let sealed = session(Role::Operate).seal(&KEY);
        assert_eq!(open(&session(Role::Operate).seal(&[8; 32]), NOW), None);
        assert_eq!(
            open(&session(Role::Read).seal(&KEY), NOW),
            None,
            "there is no such token"
        );
        let changed = sealed.replacen("o.", "r.", 1);
        assert_eq!(Session::open(&changed, |_| vec![token()], NOW), None);
        let until = NOW + LASTS;
        let longer = sealed.replacen(&until.0.to_string(), &(until.0 + 1).to_string(), 1);
        assert_eq!(open(&longer, NOW), None);
        for bad in ["", ".", "...", "o.1.2", "o.x.x.x", &sealed[1..]] {
            assert_eq!(open(bad, NOW), None, "{bad}");
        }
    }

    #[test]
    fn cookies_are_found_by_their_name() {
        let header = "a=1; session=x.y; b=2; session=z; sessions=w; session";
        assert_eq!(cookies(header, "session").collect::<Vec<_>>(), ["x.y", "z"]);
    }
}
