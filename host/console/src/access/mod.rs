//! Access control of the admin address: the accepted host names, the web pages that may act, and
//! the tokens with their roles. Decides from a request's head alone, and reads the token files.

use super::host::NamedHost;
use super::session::{LASTS, Session, cookies};
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatcher_config::Admin;
use dispatcher_config::problem::Problem;
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::files::bounded;
use dispatcher_core::files::bounded::Limits;
use dispatcher_core::telemetry::escape::escape_control_characters;
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The maximum size of a token, in bytes: a header holds little more.
const LONGEST_TOKEN: usize = 4_096;
/// The maximum number of ended sessions that are remembered; the oldest is forgotten first.
const ENDED_SESSIONS: usize = 1_000;
/// The mode bit of a file that every user of the machine can read.
const WORLD_READABLE: u32 = 0o004;

/// The access rules of the admin address.
#[derive(Debug, Default)]
pub struct Access {
    /// The accepted host names besides IP addresses and loopback names, in lower case.
    hosts: Vec<String>,
    tokens: Vec<(Role, Token)>,
    /// The sessions that users ended here: the value of the cookie, and when each would expire.
    ended: Mutex<Vec<(Timestamp, String)>>,
}

/// The permissions of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May only send messages.
    Send,
    /// May only read.
    Read,
    /// May read and act.
    Operate,
}

impl Role {
    /// Returns its name in the log and in the description of the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }

    /// Returns the flag of the file that holds its token.
    const fn flag(self) -> &'static str {
        match self {
            Self::Send => "--admin-send-token-file",
            Self::Read => "--admin-read-token-file",
            Self::Operate => "--admin-token-file",
        }
    }
}

/// The client that makes a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// The role of its token, or `None` if it has no token because reading needs none.
    role: Option<Role>,
    /// The user name of basic authentication. It is not checked, only logged.
    user: Option<String>,
}

impl Caller {
    /// Returns its role, for the log.
    pub fn role_name(&self) -> Option<&'static str> {
        self.role.map(Role::name)
    }

    /// Returns whether it may act.
    pub fn can_act(&self) -> bool {
        self.role == Some(Role::Operate)
    }

    /// Returns its name for the log: the user name, or which kind of caller it is.
    pub fn name(&self) -> &str {
        match (&self.user, self.role) {
            (Some(user), _) => user,
            (None, Some(_)) => "token",
            (None, None) => "anyone",
        }
    }
}

/// The reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The request names no host, or a host that is not this program's: it may come from a web page
    /// whose name was pointed at this address (DNS rebinding).
    Host(String),
    /// A browser sent the request from a page of another site.
    OtherSite(String),
    /// The request would act, and no token is configured.
    NoTokenConfigured,
    /// The request would act, but its token only permits reading.
    ReadOnly(Caller),
    /// The request would do something else than send messages, but its token only permits sending.
    SendOnly(Caller),
    /// The request has no token, or a wrong one.
    Unauthorized,
}

impl Access {
    /// Creates the access rules from the configuration.
    ///
    /// # Errors
    /// Returns a problem for each token that cannot be read, is not valid, or belongs to two roles.
    pub fn open(settings: &Admin) -> Result<Self, Vec<Problem>> {
        let files = [
            (Role::Operate, &settings.token_file),
            (Role::Read, &settings.read_token_file),
            (Role::Send, &settings.send_token_file),
        ];
        let mut tokens: Vec<(Role, Token)> = Vec::new();
        let mut problems = Vec::new();
        for (role, file) in files {
            let token = match file.as_deref().map(|file| Token::open(role, file)) {
                Some(Ok(token)) => token,
                Some(Err(problem)) => {
                    problems.push(problem);
                    continue;
                }
                None => continue,
            };
            if let Some((other, _)) = tokens
                .iter()
                .find(|(_, other): &&(Role, Token)| other.digest() == token.digest())
            {
                let found = format!("it holds the token of {}", other.flag());
                problems.push(Problem::new(role.flag(), found, "another token"));
            }
            tokens.push((role, token));
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

    /// Creates access rules with the operator token in this file.
    #[cfg(test)]
    pub(super) fn of_token(file: &Path) -> Self {
        let token = Token::open(Role::Operate, file).expect("a token");
        Self {
            tokens: vec![(Role::Operate, token)],
            ..Self::default()
        }
    }

    /// Reads the token files again and logs the result. A file without a valid token changes
    /// nothing.
    pub fn reload(&self) {
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

    /// Returns whether any token permits actions.
    pub fn permits_actions(&self) -> bool {
        self.tokens.iter().any(|(role, _)| *role == Role::Operate)
    }

    /// Returns whether reading needs a token.
    pub fn needs_token(&self) -> bool {
        self.tokens.iter().any(|(role, _)| *role != Role::Send)
    }

    /// Returns whether a token exists that permits this request.
    fn permits(&self, request: &Parts) -> bool {
        let can_send = self.tokens.iter().any(|(role, _)| *role == Role::Send);
        self.permits_actions() || (can_send && sends(request))
    }

    /// Checks a request that needs no token: it must name this program as its host, and if it acts,
    /// it must not come from a page of another site.
    ///
    /// # Errors
    /// Returns the reason why the request is refused.
    pub fn judge_without_token(&self, request: &Parts) -> Result<(), Refusal> {
        let host = self.host(request)?;
        if request.method.is_safe() {
            Ok(())
        } else {
            same_site(&request.headers, &host)
        }
    }

    /// Returns the name and value of the session cookie for a user who entered `token`, or `None`
    /// if the token is wrong. `user` is for the log.
    pub fn sign_in(&self, request: &Parts, token: &str, user: &str) -> Option<(String, String)> {
        let token = token.trim();
        let matching = self
            .tokens
            .iter()
            // A producer's token opens no pages.
            .filter(|(role, one)| *role != Role::Send && one.is(token.as_bytes()));
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

    /// Ends the sessions of a request: this process refuses them from now on, for every client.
    pub fn sign_out(&self, headers: &HeaderMap) {
        let now = clock::wall_clock_now();
        let sessions = self.sessions(headers);
        let mut ended = self.ended.lock();
        ended.retain(|(until, _)| now < *until);
        ended.extend(
            sessions
                .into_iter()
                .map(|(value, session)| (session.until, value)),
        );
        let too_many = ended.len().saturating_sub(ENDED_SESSIONS);
        ended.drain(..too_many);
    }

    /// Returns the caller whose session a request carries.
    fn session(&self, headers: &HeaderMap) -> Option<Caller> {
        let sessions = self
            .sessions(headers)
            .into_iter()
            .map(|(_, session)| session);
        let Session { role, user, .. } = sessions.max_by_key(|session| session.role)?;
        Some(Caller {
            role: Some(role),
            user,
        })
    }

    /// Returns the valid sessions that a request carries, with their cookie values.
    fn sessions(&self, headers: &HeaderMap) -> Vec<(String, Session)> {
        let name = session_cookie(headers);
        let now = clock::wall_clock_now();
        let ended = self.ended.lock();
        let headers = headers.get_all(COOKIE).iter();
        let sessions = headers
            .filter_map(|header| header.to_str().ok())
            .flat_map(|header| cookies(header, &name))
            .filter(|value| !ended.iter().any(|(_, one)| one == value))
            .filter_map(|value| {
                Some((
                    value.to_owned(),
                    Session::open(
                        value,
                        |role| {
                            let token = self.tokens.iter().find(|(one, _)| *one == role);
                            token.map(|(_, token)| token.digest())
                        },
                        now,
                    )?,
                ))
            });
        sessions.collect()
    }

    /// Returns the caller of a request that may be answered. Probes and metrics are not checked
    /// here.
    ///
    /// # Errors
    /// Returns the reason why the request is refused.
    pub fn judge(&self, request: &Parts) -> Result<Caller, Refusal> {
        let acts = acts(request);
        if acts && !self.permits(request) {
            self.judge_without_token(request)?;
            return Err(Refusal::NoTokenConfigured);
        }
        let caller = self.judge_of_any_role(request)?;
        match caller.role {
            Some(Role::Operate) => Ok(caller),
            Some(Role::Send) if sends(request) => Ok(caller),
            Some(Role::Send) => Err(Refusal::SendOnly(caller)),
            Some(Role::Read) if acts => Err(Refusal::ReadOnly(caller)),
            // Without a token for reading, everyone may read.
            None if acts => Err(Refusal::Unauthorized),
            Some(Role::Read) | None => Ok(caller),
        }
    }

    /// Returns the caller of a request that every role may make, with any method. A browser sends
    /// its session instead of a token.
    ///
    /// # Errors
    /// Returns the reason why the request is refused.
    pub fn judge_of_any_role(&self, request: &Parts) -> Result<Caller, Refusal> {
        let host = self.host(request)?;
        let acts = acts(request);
        if acts {
            same_site(&request.headers, &host)?;
        }
        let has_token = request.headers.contains_key(AUTHORIZATION);
        if self.tokens.is_empty() || (!self.needs_token() && !has_token) {
            return Ok(Caller::default());
        }
        let caller = if has_token {
            self.caller(&request.headers)
        } else {
            let session = self.session(&request.headers);
            // A browser attaches the cookie to every request, so the request must come from one of
            // this program's pages.
            if session.is_some() && acts && !names_own_site(&request.headers) {
                return Err(Refusal::OtherSite("no page".to_owned()));
            }
            session
        };
        caller.ok_or(Refusal::Unauthorized)
    }

    /// Returns the caller whose token a request carries.
    fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let OfferedCredentials { user, token } = offered(value.as_bytes())?;
        // Compares with all tokens, so that the duration reveals nothing.
        let matching = self.tokens.iter().filter(|(_, one)| one.is(&token));
        let role = matching.map(|(role, _)| *role).max()?;
        Some(Caller {
            role: Some(role),
            user,
        })
    }

    /// Returns the host and port that a request was sent to, if they are this program's.
    fn host(&self, request: &Parts) -> Result<Authority, Refusal> {
        let mut given = request.headers.get_all(HOST).iter();
        let (first, more) = (given.next(), given.next());
        let text = first
            .and_then(|host| host.to_str().ok())
            .unwrap_or_default();
        // An absolute URI also names the host (RFC 9112, 3.2.2).
        let in_uri = request.uri.authority();
        let same = in_uri.is_none_or(|other| other.as_str().eq_ignore_ascii_case(text));
        let is_ours = NamedHost::read(text).is_some_and(|named| self.is_ours(&named));
        let host: Option<Authority> = text.parse().ok();
        if more.is_none() && same && is_ours {
            host
        } else {
            None
        }
        .ok_or_else(|| Refusal::Host(text.to_owned()))
    }

    fn is_ours(&self, host: &NamedHost) -> bool {
        match host {
            NamedHost::Address => true,
            // Browsers resolve these names to loopback without a lookup (RFC 6761, 6.3).
            NamedHost::Name(name) => {
                name == "localhost" || name.ends_with(".localhost") || self.hosts.contains(name)
            }
        }
    }
}

fn acts(request: &Parts) -> bool {
    !matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Returns whether a request sends messages to a queue.
pub(super) fn sends(request: &Parts) -> bool {
    let path = request.uri.path().strip_prefix("/api/v1/queues/");
    let queue = path.and_then(|path| path.strip_suffix("/messages"));
    request.method == Method::POST
        && queue.is_some_and(|queue| !queue.is_empty() && !queue.contains('/'))
}

/// Checks that a request that acts does not come from a page of another site.
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

/// Returns whether the headers say which page sent the request. Their values are already checked.
fn names_own_site(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site")
}

/// Returns the name of the session cookie. It contains the port, because cookies do not distinguish
/// the ports of a host.
pub(super) fn session_cookie(headers: &HeaderMap) -> String {
    let host: Option<Authority> = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .and_then(|host| host.parse().ok());
    match host.and_then(|host| host.port_u16()) {
        Some(port) => format!("dispatcher-session-{port}"),
        None => "dispatcher-session".to_owned(),
    }
}

/// Returns a user name as it is logged.
fn user_name(user: &str) -> String {
    escape_control_characters(&user.chars().take(64).collect::<String>())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Refusal {
    /// Returns the status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::OtherSite(_)
            | Self::NoTokenConfigured
            | Self::ReadOnly(_)
            | Self::SendOnly(_) => StatusCode::FORBIDDEN,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
        }
    }

    /// Returns advice for the person who made the request.
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
                 --admin-token-file FILE, or, only for sending messages, with \
                 --admin-send-token-file FILE, and send the token in the file as `Authorization: \
                 Bearer TOKEN`."
                .to_owned(),
            Self::ReadOnly(_) => "This token only permits reading. Actions need the token of \
                 --admin-token-file."
                .to_owned(),
            Self::SendOnly(_) => "This token only permits sending messages: POST \
                 /api/v1/queues/{queue}/messages."
                .to_owned(),
            Self::Unauthorized => "Send the token of --admin-token-file, or for reading that of \
                 --admin-read-token-file, or for sending messages that of --admin-send-token-file, as `Authorization: Bearer TOKEN`, or as the password of \
                 basic authentication with any user name."
                .to_owned(),
        }
    }
}

/// The token in a file.
#[derive(Debug)]
struct Token {
    file: PathBuf,
    /// The SHA-256 digest: comparing digests takes the same time however many bytes match.
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

    /// Reads the file again, and returns whether the token changed.
    fn reload(&self) -> Result<bool, String> {
        let digest = read(&self.file)?;
        let mut current = self.digest.write();
        let is_other = *current != digest;
        *current = digest;
        Ok(is_other)
    }

    fn digest(&self) -> [u8; 32] {
        *self.digest.read()
    }

    fn is(&self, offered: &[u8]) -> bool {
        let offered = Sha256::digest(offered);
        let digest = self.digest();
        let pairs = digest.iter().zip(offered.iter());
        pairs.fold(0, |other, (a, b)| other | (a ^ b)) == 0
    }
}

/// The credentials in a header.
struct OfferedCredentials {
    user: Option<String>,
    token: Vec<u8>,
}

/// Parses the token of a header: `Bearer TOKEN`, or `Basic` with the token as the password.
fn offered(value: &[u8]) -> Option<OfferedCredentials> {
    let value = std::str::from_utf8(value).ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(OfferedCredentials {
            user: None,
            token: rest.into(),
        });
    }
    let encoded = scheme.eq_ignore_ascii_case("basic").then_some(rest)?;
    let pair = STANDARD.decode(encoded).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let user = String::from_utf8_lossy(&pair[..colon]);
    Some(OfferedCredentials {
        user: Some(user_name(&user)),
        token: pair[colon + 1..].to_vec(),
    })
}

/// Returns the digest of the token in a file. Warns if every user of the machine can read the file.
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
mod tests;
