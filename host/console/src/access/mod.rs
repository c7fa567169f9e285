//! Access control of the admin address: the accepted host names, the web pages that may act, and
//! the tokens with their roles. Decides from a request's head alone, and reads the token files.

mod proxy_keys;
mod signed_header;
mod token_file;
mod wrong_tokens;

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
use dispatcher_core::telemetry::escape::escape_control_characters;
use parking_lot::Mutex;
use signed_header::TrustedProxy;
use std::borrow::Cow;
use std::sync::Arc;
pub(crate) use token_file::KnownToken;
use token_file::TokenFile;
use tokio_util::sync::CancellationToken;
pub(crate) use wrong_tokens::WrongTokens;

/// The maximum number of ended sessions that are remembered; the oldest is forgotten first.
const ENDED_SESSIONS: usize = 1_000;

/// The access rules of the admin address.
#[derive(Debug, Default)]
pub struct Access {
    /// The accepted host names besides IP addresses and loopback names, in lower case.
    hosts: Vec<String>,
    tokens: Vec<TokenFile>,
    proxy: Option<TrustedProxy>,
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
    /// The name of its token.
    token: Option<Arc<str>>,
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

    /// Returns its name for the log: the user name and that of the token, or which kind of caller it
    /// is.
    pub fn name(&self) -> Cow<'_, str> {
        match (&self.user, &self.token, self.role) {
            (Some(user), Some(token), _) => format!("{user} ({token})").into(),
            (Some(user), None, _) => user.into(),
            (None, Some(token), _) => (&**token).into(),
            (None, None, Some(_)) => "token".into(),
            (None, None, None) => "anyone".into(),
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
    /// A browser may have sent the request from any page: it does not say which.
    NoPage,
    /// The request would act, and no token is configured.
    NoTokenConfigured,
    /// The request would act, but its token only permits reading.
    ReadOnly(Caller),
    /// The request would do something else than send messages, but its token only permits sending.
    SendOnly(Caller),
    /// The request has no token, or a wrong one.
    Unauthorized,
    /// The request has a token of the trusted proxy that is not valid.
    InvalidProxyToken(String),
    /// The trusted proxy says who sent the request, and gives the person no role.
    NoRole(Caller),
}

impl Access {
    /// Creates the access rules from the configuration.
    ///
    /// # Errors
    /// Returns a problem for each file that cannot be read, is not valid, or has a token of another.
    pub fn open(settings: &Admin) -> Result<Self, Vec<Problem>> {
        let files = [
            (Role::Operate, &settings.token_file),
            (Role::Read, &settings.read_token_file),
            (Role::Send, &settings.send_token_file),
        ];
        let mut tokens: Vec<TokenFile> = Vec::new();
        let mut problems = Vec::new();
        for (role, file) in files {
            let of_role = match file.as_deref().map(|file| TokenFile::open(role, file)) {
                Some(Ok(of_role)) => of_role,
                Some(Err(problem)) => {
                    problems.push(problem);
                    continue;
                }
                None => continue,
            };
            if let Some(other) = tokens.iter().find(|other| other.shares(&of_role)) {
                let found = format!("it holds the token of {}", other.role.flag());
                problems.push(Problem::new(role.flag(), found, "another token"));
            }
            tokens.push(of_role);
        }
        let proxy = match settings.proxy.as_ref().map(TrustedProxy::open) {
            Some(Err(problem)) => {
                problems.push(problem);
                None
            }
            opened => opened.and_then(Result::ok),
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            hosts: settings.hosts.clone(),
            tokens,
            proxy,
            ended: Mutex::default(),
        })
    }

    /// Creates access rules with the operator token in this file.
    #[cfg(test)]
    pub(super) fn of_token(file: &std::path::Path) -> Self {
        let token = TokenFile::open(Role::Operate, file).expect("a token");
        Self {
            tokens: vec![token],
            ..Self::default()
        }
    }

    /// Reads the token files and a file of proxy keys again and logs the result. A file that is not
    /// valid changes nothing.
    pub fn reload(&self) {
        self.tokens.iter().for_each(Self::reload_one);
        if let Some(proxy) = &self.proxy {
            proxy.reload();
        }
    }

    /// Keeps the keys of the trusted proxy up to date until `stop`, if they are at a URL.
    pub(super) async fn keep_proxy_keys(self: Arc<Self>, stop: CancellationToken) {
        if let Some(proxy) = &self.proxy
            && let Some(url) = proxy.url()
        {
            proxy_keys::keep(proxy, url, stop).await;
        }
    }

    fn reload_one(token: &TokenFile) {
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
        let proxy = self.proxy.as_ref();
        proxy.is_some_and(TrustedProxy::permits_actions)
            || self.tokens.iter().any(|one| one.role == Role::Operate)
    }

    /// Returns whether reading needs a token.
    pub fn needs_token(&self) -> bool {
        self.proxy.is_some() || self.tokens.iter().any(|one| one.role != Role::Send)
    }

    /// Returns whether a token exists that permits this request.
    fn permits(&self, request: &Parts) -> bool {
        let can_send = self.tokens.iter().any(|one| one.role == Role::Send);
        // The refusal of a person who may only read names the person.
        self.proxy.is_some() || self.permits_actions() || (can_send && sends(request))
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

    /// Returns the user who entered `token`, and the name and value of the session cookie, or `None`
    /// if the token is wrong. `user` is for the log.
    pub(super) fn sign_in(
        &self,
        request: &Parts,
        token: &str,
        user: &str,
    ) -> Option<(Caller, String, String)> {
        let token = token.trim().as_bytes();
        // A producer's token opens no pages.
        let files = self.tokens.iter().filter(|one| one.role != Role::Send);
        let matching = files.filter_map(|one| Some((one.role, one.matching(token)?)));
        let (role, token) = matching.max_by_key(|(role, _)| *role)?;
        let session = Session {
            role,
            user: Some(user_name(user.trim())).filter(|user| !user.is_empty()),
            until: clock::wall_clock_now() + LASTS,
        };
        let value = session.seal(&token.digest);
        let caller = Caller {
            role: Some(role),
            user: session.user,
            token: token.name,
        };
        Some((caller, session_cookie(&request.headers), value))
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
                .map(|(value, session, _)| (session.until, value)),
        );
        let too_many = ended.len().saturating_sub(ENDED_SESSIONS);
        ended.drain(..too_many);
    }

    /// Returns the caller whose session a request carries.
    fn session(&self, headers: &HeaderMap) -> Option<Caller> {
        let sessions = self.sessions(headers).into_iter();
        let (_, session, token) = sessions.max_by_key(|(_, session, _)| session.role)?;
        Some(Caller {
            role: Some(session.role),
            user: session.user,
            token: token.name,
        })
    }

    /// Returns the valid sessions that a request carries, each with its cookie's value and its token.
    fn sessions(&self, headers: &HeaderMap) -> Vec<(String, Session, KnownToken)> {
        let name = session_cookie(headers);
        let now = clock::wall_clock_now();
        let ended = self.ended.lock();
        let headers = headers.get_all(COOKIE).iter();
        let sessions = headers
            .filter_map(|header| header.to_str().ok())
            .flat_map(|header| cookies(header, &name))
            .filter(|value| !ended.iter().any(|(_, one)| one == value))
            .filter_map(|value| {
                let (session, token) = Session::open(value, |role| self.tokens_of(role), now)?;
                Some((value.to_owned(), session, token))
            });
        sessions.collect()
    }

    fn tokens_of(&self, role: Role) -> Vec<KnownToken> {
        let files = self.tokens.iter().filter(|one| one.role == role);
        files.flat_map(|one| one.tokens().to_vec()).collect()
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
        if has_token && let Some(caller) = self.caller(&request.headers) {
            return Ok(caller);
        }
        if let Some(person) = self.person(&request.headers) {
            return of_own_page(person?, request);
        }
        let is_open = self.tokens.is_empty() && self.proxy.is_none();
        if is_open || (!self.needs_token() && !has_token) {
            return Ok(Caller::default());
        }
        if has_token {
            return Err(Refusal::Unauthorized);
        }
        let session = self.session(&request.headers);
        of_own_page(session.ok_or(Refusal::Unauthorized)?, request)
    }

    /// Whether a request has a token that may be a guess: one that the trusted proxy did not send.
    pub(super) fn offers_token(&self, headers: &HeaderMap) -> bool {
        let by_proxy = self.proxy.as_ref().is_some_and(|one| one.has_sent(headers));
        headers.contains_key(AUTHORIZATION) && !by_proxy
    }

    /// Returns the caller whom the credentials of a request name.
    pub(super) fn identify(&self, headers: &HeaderMap) -> Option<Caller> {
        self.caller(headers)
            .or_else(|| self.person(headers)?.ok())
            .or_else(|| self.session(headers))
    }

    /// Returns the person in the header of the trusted proxy, if a request has one.
    fn person(&self, headers: &HeaderMap) -> Option<Result<Caller, Refusal>> {
        self.proxy.as_ref()?.judge(headers)
    }

    /// Returns the caller whose token a request carries.
    fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let OfferedCredentials { user, token } = offered(value.as_bytes())?;
        // Compares with all tokens, so that the duration reveals nothing.
        let all = self
            .tokens
            .iter()
            .map(|one| (one.role, one.matching(&token)));
        let matching = all.filter_map(|(role, token)| Some((role, token?)));
        let (role, token) = matching.max_by_key(|(role, _)| *role)?;
        Some(Caller {
            role: Some(role),
            user,
            token: token.name,
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

/// Checks an action by a caller whom a browser names in every request, by a cookie of this
/// program or of the proxy: it must come from one of this program's pages.
fn of_own_page(caller: Caller, request: &Parts) -> Result<Caller, Refusal> {
    if acts(request) && !names_own_site(&request.headers) {
        return Err(Refusal::NoPage);
    }
    Ok(caller)
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

/// Returns a user name as it is logged: without the parentheses in which the log has the name of the
/// token.
fn user_name(user: &str) -> String {
    let shown = user.chars().filter(|c| !"()".contains(*c));
    escape_control_characters(&shown.take(64).collect::<String>())
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
            | Self::NoPage
            | Self::NoTokenConfigured
            | Self::ReadOnly(_)
            | Self::SendOnly(_)
            | Self::NoRole(_) => StatusCode::FORBIDDEN,
            Self::Unauthorized | Self::InvalidProxyToken(_) => StatusCode::UNAUTHORIZED,
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
            Self::NoPage => "An action with a session or through a proxy needs the header Origin or \
                 Sec-Fetch-Site, which browsers send. Let a program send a token of its own."
                .to_owned(),
            Self::NoTokenConfigured => "Actions need a token. Start the program with \
                 --admin-token-file FILE, or, only for sending messages, with \
                 --admin-send-token-file FILE, and send the token in the file as `Authorization: \
                 Bearer TOKEN`."
                .to_owned(),
            Self::ReadOnly(_) => "This token only permits reading. Actions need the token of \
                 --admin-token-file, or the claim of --admin-proxy-operate."
                .to_owned(),
            Self::SendOnly(_) => "This token only permits sending messages: POST \
                 /api/v1/queues/{queue}/messages."
                .to_owned(),
            Self::InvalidProxyToken(why) => {
                format!("The token of the trusted proxy is not valid: {why}.")
            }
            Self::NoRole(caller) => format!(
                "{} has neither the claim of --admin-proxy-operate nor that of --admin-proxy-read.",
                caller.name()
            ),
            Self::Unauthorized => "Send the token of --admin-token-file, or for reading that of \
                 --admin-read-token-file, or for sending messages that of --admin-send-token-file, as `Authorization: Bearer TOKEN`, or as the password of \
                 basic authentication with any user name. With --admin-proxy-keys, people come through the proxy."
                .to_owned(),
        }
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

#[cfg(test)]
mod tests;
