//! Decides who may use the admin address: accepted host names, cross-site requests, and the token.
//! Decides from a request's head alone; reads one file, the token's.

use crate::config::Admin;
use crate::config::problem::Problem;
use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::Limits;
use sha2::{Digest, Sha256};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// What a token may have at most, in bytes: a header holds little more.
const LONGEST_TOKEN: usize = 4_096;
/// The file can be read by every user of the machine.
const WORLD_READABLE: u32 = 0o004;

/// Who may use the admin address.
#[derive(Debug, Default)]
pub struct Access {
    /// Names that it answers to besides IP addresses and those of loopback, in lower case.
    hosts: Vec<String>,
    token: Option<Token>,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It names no host, or one that is not this program's: it may come from a web page whose name
    /// was pointed at this address (DNS rebinding).
    Host(String),
    /// A page of another site has made a browser send it.
    OtherSite(String),
    /// It would act, and no token is configured.
    NoTokenConfigured,
    /// It has no token, or a wrong one.
    Unauthorized,
}

impl Access {
    /// As configured.
    ///
    /// # Errors
    /// The token cannot be read, or is none.
    pub fn open(settings: &Admin) -> Result<Self, Problem> {
        let token = settings
            .token_file
            .as_deref()
            .map(Token::open)
            .transpose()?;
        Ok(Self {
            hosts: settings.hosts.clone(),
            token,
        })
    }

    /// Reads the token's file again, if there is one, and logs what came of it. A file that holds no
    /// token changes nothing.
    pub fn reload(&self) {
        let Some(token) = &self.token else { return };
        let file = token.file.display();
        match token.reload() {
            Ok(true) => tracing::info!(%file, "admin token replaced"),
            Ok(false) => tracing::debug!(%file, "admin token unchanged"),
            Err(error) => {
                tracing::error!(%file, %error, "admin token not replaced; the old one stays valid");
            }
        }
    }

    /// Whether a request may be answered. Probes and metrics do not ask this.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(&self, request: &Parts) -> Result<(), Refusal> {
        let host = self.host(request)?;
        let acts = !matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS);
        if acts {
            same_site(&request.headers, &host)?;
        }
        match &self.token {
            Some(token) if token.is_in(&request.headers) => Ok(()),
            Some(_) => Err(Refusal::Unauthorized),
            None if acts => Err(Refusal::NoTokenConfigured),
            None => Ok(()),
        }
    }

    /// The host and port that a request was sent to, if that is this program.
    fn host(&self, request: &Parts) -> Result<Authority, Refusal> {
        let mut named = request.headers.get_all(HOST).iter();
        let (first, more) = (named.next(), named.next());
        let text = first
            .and_then(|host| host.to_str().ok())
            .unwrap_or_default();
        let refused = || Refusal::Host(text.to_owned());
        let host: Authority = text.parse().map_err(|_| refused())?;
        // An absolute URI names it as well (RFC 9112, 3.2.2).
        let in_uri = request.uri.authority();
        let same = in_uri.is_none_or(|other| other.as_str().eq_ignore_ascii_case(text));
        let good = more.is_none() && same && !text.contains('@') && self.is_ours(host.host());
        good.then_some(host).ok_or_else(refused)
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let in_brackets = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        in_brackets.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok())
            || name.parse::<Ipv4Addr>().is_ok()
            // Browsers resolve these to loopback by themselves (RFC 6761, 6.3).
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.hosts.contains(&name)
    }
}

/// Whether a request that acts comes from no web page, or from one that was served here.
fn same_site(headers: &HeaderMap, host: &Authority) -> Result<(), Refusal> {
    for site in headers.get_all("sec-fetch-site") {
        if !["same-origin", "none"].iter().any(|good| site == good) {
            return Err(Refusal::OtherSite(lossy(site.as_bytes())));
        }
    }
    for origin in headers.get_all(ORIGIN) {
        let origin = lossy(origin.as_bytes());
        let place = origin.split_once("://").map(|(_, place)| place);
        if !place.is_some_and(|place| place.eq_ignore_ascii_case(host.as_str())) {
            return Err(Refusal::OtherSite(origin));
        }
    }
    Ok(())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Refusal {
    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::OtherSite(_) | Self::NoTokenConfigured => StatusCode::FORBIDDEN,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
        }
    }

    /// What to do about it, for the person who asked.
    pub fn detail(&self) -> String {
        match self {
            Self::Host(host) => format!(
                "This address does not accept the host name `{host}`. Use an IP address or \
                 localhost, or name the host with --admin-host."
            ),
            Self::OtherSite(site) => {
                format!("Cross-site actions are refused; this request comes from `{site}`.")
            }
            Self::NoTokenConfigured => "Actions need a token. Start the program with \
                 --admin-token-file FILE and send the token in the file as `Authorization: Bearer \
                 TOKEN`."
                .to_owned(),
            Self::Unauthorized => "Send the token of --admin-token-file as `Authorization: Bearer \
                 TOKEN`, or as the password of basic authentication with any user name."
                .to_owned(),
        }
    }
}

/// The token that is in a file.
#[derive(Debug)]
struct Token {
    file: PathBuf,
    /// SHA-256, so that a comparison takes as long whatever is the same.
    digest: RwLock<[u8; 32]>,
}

impl Token {
    fn open(file: &Path) -> Result<Self, Problem> {
        let digest = read(file).map_err(|why| {
            let found = format!("{}: {why}", file.display());
            Problem::new("--admin-token-file", found, "a file with a token")
                .hint("make one with `openssl rand -hex 32`")
        })?;
        Ok(Self {
            file: file.to_owned(),
            digest: RwLock::new(digest),
        })
    }

    /// Whether it is another one now.
    fn reload(&self) -> Result<bool, String> {
        let digest = read(&self.file)?;
        let mut current = self.digest.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = *current != digest;
        *current = digest;
        Ok(is_other)
    }

    /// Whether a request carries it.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => offered(value.as_bytes()).is_some_and(|one| self.is(&one)),
            _ => false,
        }
    }

    fn is(&self, offered: &[u8]) -> bool {
        let offered = Sha256::digest(offered);
        let digest = self.digest.read().unwrap_or_else(PoisonError::into_inner);
        let pairs = digest.iter().zip(offered.iter());
        pairs.fold(0, |other, (a, b)| other | (a ^ b)) == 0
    }
}

/// The token of a header: `Bearer TOKEN`, or `Basic` with the token as the password.
fn offered(value: &[u8]) -> Option<Vec<u8>> {
    let value = std::str::from_utf8(value).ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.into());
    }
    let pair = scheme.eq_ignore_ascii_case("basic").then_some(rest)?;
    let pair = STANDARD.decode(pair).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// The digest of the token in a file. Warns if every user of the machine can read it.
fn read(path: &Path) -> Result<[u8; 32], String> {
    let text = bounded::read(path, Limits::SMALL).map_err(|error| error.to_string())?;
    let about = bounded::about(path).map_err(|error| error.to_string())?;
    let token = text.trim_ascii();
    if token.len() > LONGEST_TOKEN {
        return Err(format!("it has more than {LONGEST_TOKEN} bytes"));
    }
    if token.is_empty() {
        return Err("it is empty".to_owned());
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err("it contains more than one word of visible ASCII characters".to_owned());
    }
    let mode = about.permissions().mode() & 0o777;
    if mode & WORLD_READABLE != 0 {
        let (file, mode) = (path.display(), format!("{mode:o}"));
        tracing::warn!(%file, mode, "admin token file is readable by every user; chmod it to 600");
    }
    Ok(Sha256::digest(token).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    /// A request with these headers.
    fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn access(token: Option<&str>) -> Access {
        let token = token.map(|token| Token {
            file: PathBuf::new(),
            digest: RwLock::new(Sha256::digest(token).into()),
        });
        Access {
            hosts: vec!["queues.example.com".into()],
            token,
        }
    }

    #[test]
    fn finding_18_admin_answers_only_ip_literals_loopback_and_configured_hosts() {
        let access = access(None);
        let host = |host: &str| access.judge(&request("GET", "/plugins", &[("host", host)]));
        for good in [
            "127.0.0.1:9090",
            "10.1.2.3",
            "[::1]:9090",
            "[fd00::1]",
            "localhost:9090",
            "LOCALHOST.",
            "admin.localhost:1",
            "Queues.Example.com:9090",
        ] {
            assert_eq!(host(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "evil.example.com",
            "evil.example.com:9090",
            "localhost.evil.com",
            "evillocalhost",
            "127.0.0.1.evil.com",
            "user@127.0.0.1",
            "sub.queues.example.com",
            "[::1",
        ] {
            assert_eq!(host(bad), Err(Refusal::Host(bad.into())), "{bad}");
        }
        let none = access.judge(&request("GET", "/plugins", &[]));
        assert_eq!(none, Err(Refusal::Host(String::new())));
        let two = [("host", "localhost"), ("host", "localhost")];
        assert!(access.judge(&request("GET", "/plugins", &two)).is_err());
        let absolute = request("GET", "http://evil.com/plugins", &[("host", "localhost")]);
        assert!(access.judge(&absolute).is_err());
    }

    #[test]
    fn finding_18_cross_site_requests_are_refused() {
        let access = access(Some("secret"));
        let post = |more: &[(&str, &str)]| {
            let own = [("host", "localhost:9"), ("authorization", "Bearer secret")];
            access.judge(&request("POST", "/plugins", &[&own, more].concat()))
        };
        for good in [
            &[][..],
            &[("origin", "http://localhost:9")],
            &[
                ("origin", "https://LOCALHOST:9"),
                ("sec-fetch-site", "same-origin"),
            ],
            &[("sec-fetch-site", "none")],
        ] {
            assert_eq!(post(good), Ok(()), "{good:?}");
        }
        for bad in [
            &[("origin", "http://evil.com")][..],
            &[("origin", "http://localhost:8")],
            &[("origin", "null")],
            &[
                ("origin", "http://localhost:9"),
                ("origin", "http://evil.com"),
            ],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[
                ("origin", "http://localhost:9"),
                ("sec-fetch-site", "cross-site"),
            ],
        ] {
            assert!(matches!(post(bad), Err(Refusal::OtherSite(_))), "{bad:?}");
        }
    }

    #[test]
    fn finding_18_token_is_accepted_as_bearer_or_basic_password() {
        let ask = |token, method, authorization: &[&str]| {
            let values = authorization.iter().map(|value| ("authorization", *value));
            let headers: Vec<_> = values.chain([("host", "[::1]:9")]).collect();
            access(token).judge(&request(method, "/plugins", &headers))
        };
        let basic = |pair: &str| format!("basic {}", STANDARD.encode(pair));
        let good = [
            "Bearer secret".to_owned(),
            "bearer  secret".to_owned(),
            basic("anybody:secret"),
            basic(":secret"),
        ];
        for good in good {
            for method in ["GET", "POST", "DELETE"] {
                assert_eq!(ask(Some("secret"), method, &[&good]), Ok(()), "{good}");
            }
        }
        let bad = [
            "Bearer".to_owned(),
            "Bearer ".to_owned(),
            "Bearer secre".to_owned(),
            "Bearer secret2".to_owned(),
            "secret".to_owned(),
            basic("secret:"),
            basic("secret"),
            "Basic ?".to_owned(),
        ];
        for bad in bad {
            let got = ask(Some("secret"), "GET", &[&bad]);
            assert_eq!(got, Err(Refusal::Unauthorized), "{bad}");
        }
        let twice = ["Bearer secret", "Bearer secret"];
        let (unsaid, twice) = (
            ask(Some("s"), "GET", &[]),
            ask(Some("secret"), "GET", &twice),
        );
        assert_eq!(
            (unsaid, twice),
            (Err(Refusal::Unauthorized), Err(Refusal::Unauthorized))
        );
        assert_eq!(ask(None, "GET", &[]), Ok(()));
        assert_eq!(ask(None, "POST", &[]), Err(Refusal::NoTokenConfigured));
        assert_eq!(ask(None, "BREW", &[]), Err(Refusal::NoTokenConfigured));
    }

    #[test]
    fn finding_18_file_without_a_token_is_refused_and_the_old_token_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        let write = |text: &[u8]| std::fs::write(&file, text).expect("written");
        write(b"first\n");
        let token = Token::open(&file).expect("a token");
        assert_eq!(token.reload(), Ok(false));
        for bad in [
            &b""[..],
            b" \n",
            b"two words",
            b"one\ntwo\n",
            b"\xff",
            &[b'x'; 5_000],
        ] {
            write(bad);
            assert!(token.reload().is_err(), "{bad:?}");
            assert!(Token::open(&file).is_err(), "{bad:?}");
        }
        assert!(token.is(b"first"));
        write(b"second");
        assert_eq!(token.reload(), Ok(true));
        assert!(token.is(b"second") && !token.is(b"first"));
        assert!(read(folder.path()).is_err(), "a folder");
        assert!(read(&folder.path().join("none")).is_err());
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        let refused = read(&pipe).expect_err("a pipe");
        assert_eq!(refused, "a named pipe where a regular file is wanted");
        assert!(read(Path::new("/dev/zero")).is_err());
    }
}
