//! Who may use the admin address: which names it answers to, which web pages may act, and the tokens
//! with their roles. Decides from a request's head alone; reads the tokens' files.

use super::session::{LASTS, Session, cookies};
use crate::config::Admin;
use crate::config::problem::Problem;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::Limits;
use dispatcher_core::telemetry::escape::escape_control_characters;
use sha2::{Digest, Sha256};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

/// What a token may have at most, in bytes: a header holds little more.
const LONGEST_TOKEN: usize = 4_096;
/// How many sessions are remembered as ended; the longest ended one is forgotten first.
const ENDED_SESSIONS: usize = 1_000;
/// The file can be read by every user of the machine.
const WORLD_READABLE: u32 = 0o004;

/// Who may use the admin address.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// Names that it answers to besides IP addresses and those of loopback, in lower case.
    hosts: Vec<String>,
    tokens: Vec<(Role, Token)>,
    /// The sessions that their users have ended here, as in the cookie, and until when each would last.
    ended: Mutex<Vec<(Timestamp, String)>>,
}

/// What a token permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// To look.
    Read,
    /// To look and to act.
    Operate,
}

impl Role {
    /// The flag of the file that holds its token.
    const fn flag(self) -> &'static str {
        match self {
            Self::Read => "--admin-read-token-file",
            Self::Operate => "--admin-token-file",
        }
    }
}

/// Who makes a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    /// What its token permits; nothing where reading needs none.
    role: Option<Role>,
    /// The user name of basic authentication, which is not checked: it is for the log.
    user: Option<String>,
}

impl Caller {
    /// Its role, for the log.
    pub(crate) fn role_name(&self) -> Option<&'static str> {
        self.role.map(|role| match role {
            Role::Read => "read",
            Role::Operate => "operate",
        })
    }

    /// Whether it may act.
    pub(crate) fn can_act(&self) -> bool {
        self.role == Some(Role::Operate)
    }

    /// What to call it.
    pub(crate) fn name(&self) -> &str {
        match (&self.user, self.role) {
            (Some(user), _) => user,
            (None, Some(_)) => "token",
            (None, None) => "anyone",
        }
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It names no host, or one that is not this program's: it may come from a web page whose name
    /// was pointed at this address (DNS rebinding).
    Host(String),
    /// A page of another site has made a browser send it.
    OtherSite(String),
    /// It would act, and no token is configured.
    NoTokenConfigured,
    /// It would act, and its token permits reading alone.
    ReadOnly(Caller),
    /// It has no token, or a wrong one.
    Unauthorized,
}

impl Access {
    /// As configured.
    ///
    /// # Errors
    /// Tokens that cannot be read, or are none, or are the same for two roles.
    pub(crate) fn open(settings: &Admin) -> Result<Self, Vec<Problem>> {
        let files = [
            (Role::Operate, &settings.token_file),
            (Role::Read, &settings.read_token_file),
        ];
        let (mut tokens, mut problems) = (Vec::new(), Vec::new());
        for (role, file) in files {
            match file.as_deref().map(|file| Token::open(role, file)) {
                Some(Ok(token)) => tokens.push((role, token)),
                Some(Err(problem)) => problems.push(problem),
                None => {}
            }
        }
        if let [(_, one), (role, other)] = &tokens[..]
            && one.digest() == other.digest()
        {
            let found = "it holds the token of --admin-token-file, which permits actions";
            problems.push(Problem::new(role.flag(), found, "another token"));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            hosts: settings.hosts.clone(),
            tokens,
            ended: Mutex::default(),
        })
    }

    /// With the token for actions in this file.
    #[cfg(test)]
    pub(super) fn of_token(file: &Path) -> Self {
        let token = Token::open(Role::Operate, file).expect("a token");
        Self {
            tokens: vec![(Role::Operate, token)],
            ..Self::default()
        }
    }

    /// Reads the tokens' files again, and logs what came of it. A file that holds no token changes
    /// nothing.
    pub(crate) fn reload(&self) {
        self.tokens
            .iter()
            .for_each(|(_, token)| Self::reload_one(token));
    }

    fn reload_one(token: &Token) {
        let file = token.file.display();
        match token.reload() {
            Ok(true) => tracing::info!(%file, "admin token replaced"),
            Ok(false) => tracing::debug!(%file, "admin token unchanged"),
            Err(error) => {
                tracing::error!(%file, %error, "admin token not replaced; the old one stays valid");
            }
        }
    }

    /// Whether a token permits actions, so that anybody may act.
    pub(crate) fn permits_actions(&self) -> bool {
        self.tokens.iter().any(|(role, _)| *role == Role::Operate)
    }

    /// Whether reading needs a token.
    pub(crate) fn needs_token(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Whether a request may be answered that needs no token: it names this program as its host, and if
    /// it acts, no page of another site sent it.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn judge_without_token(&self, request: &Parts) -> Result<(), Refusal> {
        let host = self.host(request)?;
        if request.method.is_safe() {
            Ok(())
        } else {
            same_site(&request.headers, &host)
        }
    }

    /// The cookie of a browser whose user has entered a token, as a name and a value. `user` is for
    /// the log. Nothing if the token is wrong.
    pub(crate) fn sign_in(
        &self,
        request: &Parts,
        token: &str,
        user: &str,
    ) -> Option<(String, String)> {
        let token = token.trim();
        let matching = self
            .tokens
            .iter()
            .filter(|(_, one)| one.is(token.as_bytes()));
        let (role, token) = matching.max_by_key(|(role, _)| *role)?;
        let session = Session {
            role: *role,
            user: Some(user_name(user.trim())).filter(|user| !user.is_empty()),
            until: clock::wall_clock_now() + LASTS,
        };
        Some((
            session_cookie(&request.headers),
            session.seal(&token.digest()),
        ))
    }

    /// Ends the sessions of a request: in this process they are refused from now on, whoever has them.
    pub(crate) fn sign_out(&self, headers: &HeaderMap) {
        let now = clock::wall_clock_now();
        let sessions = self.sessions(headers);
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.retain(|(until, _)| now < *until);
        ended.extend(
            sessions
                .into_iter()
                .map(|(value, session)| (session.until, value)),
        );
        let too_many = ended.len().saturating_sub(ENDED_SESSIONS);
        ended.drain(..too_many);
    }

    /// Whose session a request carries.
    fn session(&self, headers: &HeaderMap) -> Option<Caller> {
        let sessions = self.sessions(headers).into_iter();
        let sessions = sessions.map(|(_, session)| session);
        let Session { role, user, .. } = sessions.max_by_key(|session| session.role)?;
        Some(Caller {
            role: Some(role),
            user,
        })
    }

    /// The sessions that a request carries and that are not over, with their values in the cookie.
    fn sessions(&self, headers: &HeaderMap) -> Vec<(String, Session)> {
        let name = session_cookie(headers);
        let now = clock::wall_clock_now();
        let key = |role| {
            let token = self.tokens.iter().find(|(one, _)| *one == role);
            token.map(|(_, token)| token.digest())
        };
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let headers = headers.get_all(COOKIE).iter();
        let sessions = headers
            .filter_map(|header| header.to_str().ok())
            .flat_map(|header| cookies(header, &name))
            .filter(|value| !ended.iter().any(|(_, one)| one == value))
            .filter_map(|value| Some((value.to_owned(), Session::open(value, key, now)?)));
        sessions.collect()
    }

    /// Who makes a request, if it may be answered. Probes and metrics do not ask this.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn judge(&self, request: &Parts) -> Result<Caller, Refusal> {
        let acts = acts(request);
        if acts && !self.permits_actions() {
            self.judge_without_token(request)?;
            return Err(Refusal::NoTokenConfigured);
        }
        let caller = self.judge_of_any_role(request)?;
        if acts && caller.role < Some(Role::Operate) {
            return Err(Refusal::ReadOnly(caller));
        }
        Ok(caller)
    }

    /// Who makes a request that every role may make, whatever its method. A browser sends its session
    /// instead of a token.
    ///
    /// # Errors
    /// Why it may not be answered.
    pub(crate) fn judge_of_any_role(&self, request: &Parts) -> Result<Caller, Refusal> {
        let host = self.host(request)?;
        let acts = acts(request);
        if acts {
            same_site(&request.headers, &host)?;
        }
        if self.tokens.is_empty() {
            return Ok(Caller::default());
        }
        let caller = if request.headers.contains_key(AUTHORIZATION) {
            self.caller(&request.headers)
        } else {
            let session = self.session(&request.headers);
            // A browser sends it by itself, so its page must show that it is ours.
            if session.is_some() && acts && !names_own_site(&request.headers) {
                return Err(Refusal::OtherSite("no page".to_owned()));
            }
            session
        };
        caller.ok_or(Refusal::Unauthorized)
    }

    /// Whose token a request carries.
    fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let Offered { user, token } = offered(value.as_bytes())?;
        // All are compared, so that the time tells nothing.
        let matching = self.tokens.iter().filter(|(_, one)| one.is(&token));
        let role = matching.map(|(role, _)| *role).max()?;
        Some(Caller {
            role: Some(role),
            user,
        })
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

fn acts(request: &Parts) -> bool {
    !matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS)
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

/// Whether a browser says that a page from here sent the request. What it says is checked already.
fn names_own_site(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site")
}

/// The name of the cookie with the session. Cookies do not tell the ports of a host apart.
pub(super) fn session_cookie(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host: Option<Authority> = host.and_then(|host| host.parse().ok());
    match host.and_then(|host| host.port_u16()) {
        Some(port) => format!("dispatcher-session-{port}"),
        None => "dispatcher-session".to_owned(),
    }
}

/// A user name as the log has it.
fn user_name(user: &str) -> String {
    escape_control_characters(&user.chars().take(64).collect::<String>())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Refusal {
    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::OtherSite(_) | Self::NoTokenConfigured | Self::ReadOnly(_) => {
                StatusCode::FORBIDDEN
            }
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
        }
    }

    /// What to do about it, for the person who asked.
    pub(crate) fn detail(&self) -> String {
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
            Self::ReadOnly(_) => "This token permits reading alone. Actions need the token of \
                 --admin-token-file."
                .to_owned(),
            Self::Unauthorized => "Send the token of --admin-token-file, or for reading that of \
                 --admin-read-token-file, as `Authorization: Bearer TOKEN`, or as the password of \
                 basic authentication with any user name."
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
    fn open(role: Role, file: &Path) -> Result<Self, Problem> {
        let digest = read(file).map_err(|why| {
            let found = format!("{}: {why}", file.display());
            Problem::new(role.flag(), found, "a file that holds a token")
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

    fn digest(&self) -> [u8; 32] {
        *self.digest.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, offered: &[u8]) -> bool {
        let offered = Sha256::digest(offered);
        let digest = self.digest();
        let pairs = digest.iter().zip(offered.iter());
        pairs.fold(0, |other, (a, b)| other | (a ^ b)) == 0
    }
}

/// What a header offers.
struct Offered {
    user: Option<String>,
    token: Vec<u8>,
}

/// The token of a header: `Bearer TOKEN`, or `Basic` with the token as the password.
fn offered(value: &[u8]) -> Option<Offered> {
    let value = std::str::from_utf8(value).ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Offered {
            user: None,
            token: rest.into(),
        });
    }
    let pair = scheme.eq_ignore_ascii_case("basic").then_some(rest)?;
    let pair = STANDARD.decode(pair).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let user = String::from_utf8_lossy(&pair[..colon]);
    Some(Offered {
        user: Some(user_name(&user)),
        token: pair[colon + 1..].to_vec(),
    })
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
            tokens: token
                .map(|token| (Role::Operate, token))
                .into_iter()
                .collect(),
            ..Access::default()
        }
    }

    #[test]
    fn finding_18_admin_answers_only_ip_literals_loopback_and_configured_hosts() {
        let access = access(None);
        let host = |host: &str| {
            access
                .judge(&request("GET", "/plugins", &[("host", host)]))
                .map(drop)
        };
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
        assert_eq!(none.map(drop), Err(Refusal::Host(String::new())));
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
            access
                .judge(&request("POST", "/plugins", &[&own, more].concat()))
                .map(drop)
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
            access(token)
                .judge(&request(method, "/plugins", &headers))
                .map(drop)
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
    fn a_token_for_reading_permits_no_action_and_names_its_user() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, token: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, token).expect("written");
            Some(path)
        };
        let settings = |token_file, read_token_file| Admin {
            address: "127.0.0.1:9".parse().expect("an address"),
            or_any_port: false,
            token_file,
            read_token_file,
            hosts: Vec::new(),
            bodies: false,
            prefix: String::new(),
            environment: None,
        };
        let both = Access::open(&settings(file("o", "operator"), file("r", "reader")));
        let both = both.expect("two tokens");
        let ask = |access: &Access, method: &str, token: &str| {
            let pair = format!("Basic {}", STANDARD.encode(format!("Ann:{token}")));
            let headers = [("host", "localhost"), ("authorization", &pair)];
            access.judge(&request(method, "/api/v1/queues", &headers))
        };
        let reader = ask(&both, "GET", "reader").expect("it reads");
        assert_eq!((reader.role_name(), reader.name()), (Some("read"), "Ann"));
        let refused = ask(&both, "POST", "reader");
        assert_eq!(refused, Err(Refusal::ReadOnly(reader)));
        let operator = ask(&both, "POST", "operator").expect("it acts");
        assert_eq!(operator.role_name(), Some("operate"));
        assert!(ask(&both, "GET", "nobody").is_err());
        let alone = Access::open(&settings(None, file("r", "reader"))).expect("one token");
        assert!(ask(&alone, "GET", "reader").is_ok());
        let acts = ask(&alone, "POST", "reader");
        assert_eq!(acts, Err(Refusal::NoTokenConfigured));
        let same = Access::open(&settings(file("o", "x"), file("r", "x"))).expect_err("the same");
        assert!(
            same[0].to_string().contains("--admin-read-token-file"),
            "{same:?}"
        );
    }

    #[test]
    fn finding_18_file_without_a_token_is_refused_and_the_old_token_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        let write = |text: &[u8]| std::fs::write(&file, text).expect("written");
        write(b"first\n");
        let token = Token::open(Role::Operate, &file).expect("a token");
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
            assert!(Token::open(Role::Operate, &file).is_err(), "{bad:?}");
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
