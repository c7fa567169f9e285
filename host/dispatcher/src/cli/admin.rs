//! A client of the admin address of another process, for commands.

use super::{LooseArguments, flags};
use crate::error::{Exit, Failure};
use clap::parser::ValueSource;
use dispatcher_config::{AdminPlace, tokens};
use dispatcher_console::reached_here;
use dispatcher_core::telemetry::error_text::with_sources;
use dispatcher_core::telemetry::escape::escape_control_characters;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The time limit of an answer: the process waits for its backends itself.
const PATIENCE: Duration = Duration::from_secs(20);
/// The maximum size of an answer, in bytes.
const LONGEST: usize = 1 << 20;

/// The admin address of a process.
pub(super) struct AdminClient {
    base: String,
    token: Option<String>,
    patience: Duration,
}

/// Reads the address and the token of a command.
fn place(typed: &LooseArguments) -> Result<AdminPlace, Failure> {
    let (place, problems) = flags::admin(&typed.matches);
    if problems.is_empty() {
        Ok(place)
    } else {
        Err(problems.into())
    }
}

/// An answer.
pub(super) struct AdminAnswer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl AdminClient {
    /// Creates a client for the address of a command that needs one.
    ///
    /// # Errors
    /// Fails if there is no address, or if it or the token cannot be used.
    pub(super) fn required(typed: &LooseArguments) -> Result<Self, Failure> {
        Self::at(&place(typed)?)
    }

    /// Creates the same client without a token, which probes do not need.
    ///
    /// # Errors
    /// Fails if there is no address, or if it cannot be used.
    pub(super) fn required_without_token(typed: &LooseArguments) -> Result<Self, Failure> {
        Self::at(&AdminPlace {
            token_file: None,
            ..place(typed)?
        })
    }

    fn at(place: &AdminPlace) -> Result<Self, Failure> {
        Self::of(place)?.ok_or_else(|| {
            let line = "--admin: no address; wanted ADDRESS:PORT, as in 127.0.0.1:9090, by the \
                        flag, DISPATCHER_ADMIN or the file of --config";
            Failure::new(Exit::Usage, line)
        })
    }

    /// Creates a client for the configured address, or returns `None` if there is none.
    ///
    /// # Errors
    /// Fails if the address or the token cannot be used.
    pub(super) fn of(place: &AdminPlace) -> Result<Option<Self>, Failure> {
        let Some(address) = &place.address else {
            return Ok(None);
        };
        let base = base(address).map_err(|why| Failure::new(Exit::Usage, why))?;
        let token = place.token_file.as_deref().map(token).transpose()?;
        Ok(Some(Self {
            base,
            token,
            patience: PATIENCE,
        }))
    }

    /// Creates a client for the address on the command line. Ignores an address that a file or a
    /// variable configures for other commands.
    ///
    /// # Errors
    /// Fails if the address or the token cannot be used.
    pub(super) fn typed(typed: &LooseArguments) -> Result<Option<Self>, Failure> {
        if typed.matches.value_source("admin") != Some(ValueSource::CommandLine) {
            return Ok(None);
        }
        let (place, problems) = flags::admin(&typed.matches);
        if !problems.is_empty() {
            return Err(problems.into());
        }
        Self::of(&place)
    }

    /// Sets the time limit of an answer.
    pub(super) fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns its address, for messages.
    pub(super) fn place(&self) -> &str {
        &self.base
    }

    pub(super) async fn get(&self, path: &str) -> Result<AdminAnswer, Failure> {
        self.ask(http::Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<AdminAnswer, Failure> {
        self.ask(http::Method::POST, path, Some(body)).await
    }

    /// Opens a stream, without a time limit.
    pub(super) async fn stream(&self, path: &str) -> Result<AdminStream, Failure> {
        let lost = |error| self.lost(error, false);
        let client = client().connect_timeout(self.patience).build();
        let url = format!("{}{path}", self.base);
        let mut request = client.map_err(lost)?.get(url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let mut answer = request.send().await.map_err(lost)?;
        let status = answer.status().as_u16();
        if status != 200 {
            let body = answer
                .chunk()
                .await
                .map_err(lost)?
                .unwrap_or_default()
                .to_vec();
            AdminAnswer { status, body }.json()?;
        }
        Ok(AdminStream {
            answer,
            base: self.base.clone(),
        })
    }

    /// Returns the failure of a request without an answer. `acts`: the request was for an action.
    fn lost(&self, error: reqwest::Error, acts: bool) -> Failure {
        let is_sent = !error.is_connect() && !error.is_builder();
        let why = if error.is_timeout() {
            format!("no answer within {} s", self.patience.as_secs())
        } else {
            with_sources(&error.without_url())
        };
        let doubt = if acts && is_sent {
            "; the action may have been taken"
        } else {
            ""
        };
        Failure::new(Exit::Unreachable, format!("{}: {why}{doubt}", self.base))
    }

    async fn ask(
        &self,
        method: http::Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<AdminAnswer, Failure> {
        let acts = method != http::Method::GET;
        let lost = |error| self.lost(error, acts);
        let client = client().timeout(self.patience).build();
        let url = format!("{}{path}", self.base);
        let mut request = client.map_err(lost)?.request(method, url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body.to_string());
        }
        let mut answer = request.send().await.map_err(lost)?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(lost)? {
            if body.len() + piece.len() > LONGEST {
                let line = format!("{}: its answer is too long", self.base);
                return Err(Failure::new(Exit::Failed, line));
            }
            body.extend_from_slice(&piece);
        }
        Ok(AdminAnswer { status, body })
    }
}

/// Builds a client without proxies, since the address is local or named by the user. The admin
/// address has no TLS, so a machine without certificates works as well.
fn client() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().tls_certs_only([])
}

/// A streamed answer.
pub(super) struct AdminStream {
    answer: reqwest::Response,
    base: String,
}

impl AdminStream {
    /// Returns the next chunk, or `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let piece = self.answer.chunk().await.map_err(|error| {
            let line = format!("{}: {}", self.base, with_sources(&error.without_url()));
            Failure::new(Exit::Unreachable, line)
        })?;
        Ok(piece.map(|piece| piece.to_vec()))
    }
}

impl AdminAnswer {
    /// Returns its JSON.
    ///
    /// # Errors
    /// Fails if the process refused the request; the exit code is 2, since the request must be
    /// changed.
    pub(super) fn json(self) -> Result<Value, Failure> {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        if (200..300).contains(&self.status) {
            return Ok(body);
        }
        // Escaped to stay one line: any process may have answered.
        let reason = body["detail"].as_str().unwrap_or("no reason given");
        let detail = escape_control_characters(reason);
        let exit = match self.status {
            500.. => Exit::Unreachable,
            _ => Exit::Usage,
        };
        Err(Failure::new(exit, format!("{}: {detail}", self.status)))
    }
}

impl AdminAnswer {
    /// Parses its JSON.
    ///
    /// # Errors
    /// Fails as `json` does, or if the answer has another form.
    pub(super) fn read<T: DeserializeOwned>(self) -> Result<T, Failure> {
        let value = self.json()?;
        serde_json::from_value(value).map_err(|error| {
            let line = format!("the answer is not as expected: {error}");
            Failure::new(Exit::Failed, line)
        })
    }
}

/// Converts `ADDRESS:PORT` or `http://HOST:PORT` to a URL. An unspecified address becomes loopback.
fn base(address: &str) -> Result<String, String> {
    if let Ok(at) = address.parse::<SocketAddr>() {
        return Ok(format!("http://{}", reached_here(at)));
    }
    let rest = address
        .strip_prefix("http://")
        .map(|rest| rest.trim_end_matches('/'));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains(['/', '?', '#', '@', ' ']) => {
            Ok(format!("http://{rest}"))
        }
        _ => Err(format!(
            "--admin: `{address}` is not an admin address; wanted ADDRESS:PORT or \
             http://HOST:PORT, as in 127.0.0.1:9090"
        )),
    }
}

fn token(file: &Path) -> Result<String, Failure> {
    let why = match std::fs::read_to_string(file) {
        // A file with several is that of a server; the first one is as good as any.
        Ok(text) => match tokens::parse(&text) {
            Ok(tokens) => return Ok(tokens[0].token.to_owned()),
            Err(why) => why,
        },
        Err(error) => error.to_string(),
    };
    let line = format!("--admin-token-file: {}: {why}", file.display());
    Err(Failure::new(Exit::Usage, line))
}

/// Encodes a name as a segment of a path.
pub(super) fn in_path(name: &str) -> String {
    let encoded = form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>();
    // A `+` stands for a blank in a form, but not in a path.
    encoded.replace('+', "%20")
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::telemetry::escape::steers;

    #[test]
    fn an_address_that_listens_everywhere_is_asked_on_loopback() {
        for (address, wanted) in [
            ("127.0.0.1:9090", "http://127.0.0.1:9090"),
            ("0.0.0.0:9090", "http://127.0.0.1:9090"),
            ("[::]:9", "http://[::1]:9"),
            ("http://pod-1.example:9090/", "http://pod-1.example:9090"),
        ] {
            assert_eq!(base(address).as_deref(), Ok(wanted), "{address}");
        }
        for bad in [
            "9090",
            "localhost",
            "https://a:1",
            "http://a/b",
            "http://u@a:1",
            "",
        ] {
            assert!(base(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn reason_of_another_process_is_one_line_that_steers_no_terminal() {
        let detail = "\u{1b}]0;title\u{7} \u{9b}2J\u{202e}\r\nerror: made up";
        let body = serde_json::json!({ "detail": detail })
            .to_string()
            .into_bytes();
        let failure = AdminAnswer { status: 409, body }
            .json()
            .expect_err("refused");
        let line = &failure.lines[0];
        assert!(
            !line.contains(steers) && line.contains("error: made up"),
            "{line:?}"
        );
    }

    #[test]
    fn a_queue_of_any_name_is_one_part_of_a_path() {
        assert_eq!(in_path("local:a-b_c.fifo"), "local%3Aa-b_c.fifo");
        assert_eq!(in_path("http://a/1 2"), "http%3A%2F%2Fa%2F1%202");
    }
}
