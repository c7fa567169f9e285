//! A client of another process's admin address, for commands.

use crate::config::AdminPlace;
use crate::error::{Exit, Failure};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// How long the other side may take: it waits for its backends itself.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most bytes of an answer that are read.
const LONGEST: usize = 1 << 20;

/// The admin address of a process.
pub(super) struct AdminClient {
    base: String,
    token: Option<String>,
    patience: Duration,
}

/// An answer.
pub(super) struct AdminAnswer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl AdminClient {
    /// Of the settings; `None` where they have no address.
    ///
    /// # Errors
    /// The address or the token cannot be used.
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

    /// The same with another patience.
    pub(super) fn within(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Where it is, for messages.
    pub(super) fn place(&self) -> &str {
        &self.base
    }

    pub(super) async fn get(&self, path: &str) -> Result<AdminAnswer, Failure> {
        self.ask(http::Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<AdminAnswer, Failure> {
        self.ask(http::Method::POST, path, Some(body)).await
    }

    /// Opens a stream: what comes as it comes, however long it takes.
    pub(super) async fn stream(&self, path: &str) -> Result<AdminStream, Failure> {
        let lost = |error| self.lost(error);
        let client = client().connect_timeout(self.patience).build();
        let url = format!("{}{path}", self.base);
        let mut request = client.map_err(lost)?.get(url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let mut answer = request.send().await.map_err(lost)?;
        let status = answer.status().as_u16();
        if status != 200 {
            let body = answer.chunk().await.map_err(lost)?.unwrap_or_default();
            let body = body.to_vec();
            AdminAnswer { status, body }.json()?;
        }
        Ok(AdminStream {
            answer,
            base: self.base.clone(),
        })
    }

    fn lost(&self, error: reqwest::Error) -> Failure {
        let mut why = error.without_url().to_string();
        if error_is_timeout(&why) {
            why = format!("no answer within {} s", self.patience.as_secs());
        }
        Failure::new(Exit::Unreachable, format!("{}: {why}", self.base))
    }

    async fn ask(
        &self,
        method: http::Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<AdminAnswer, Failure> {
        let lost = |error| self.lost(error);
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

/// A client for a place on this machine, or one that whoever runs the command has named. The admin
/// address has no TLS: a machine without certificates can be asked too.
fn client() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().tls_certs_only([])
}

/// An answer that goes on.
pub(super) struct AdminStream {
    answer: reqwest::Response,
    base: String,
}

impl AdminStream {
    /// The next piece; nothing at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let piece = self.answer.chunk().await.map_err(|error| {
            let line = format!("{}: {}", self.base, error.without_url());
            Failure::new(Exit::Unreachable, line)
        })?;
        Ok(piece.map(|piece| piece.to_vec()))
    }
}

fn error_is_timeout(why: &str) -> bool {
    why.contains("timed out")
}

impl AdminAnswer {
    /// Its JSON.
    ///
    /// # Errors
    /// The other side refused; exit code 2, since something else must be asked for.
    pub(super) fn json(self) -> Result<Value, Failure> {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        if (200..300).contains(&self.status) {
            return Ok(body);
        }
        let detail = body["detail"].as_str().unwrap_or("no reason given");
        let exit = match self.status {
            500.. => Exit::Unreachable,
            _ => Exit::Usage,
        };
        Err(Failure::new(exit, format!("{}: {detail}", self.status)))
    }
}

/// `ADDRESS:PORT` or `http://HOST:PORT`, as a URL. What listens everywhere is asked on loopback.
fn base(address: &str) -> Result<String, String> {
    if let Ok(mut at) = address.parse::<SocketAddr>() {
        match at.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => at.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => at.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        return Ok(format!("http://{at}"));
    }
    let rest = address
        .strip_prefix("http://")
        .map(|rest| rest.trim_end_matches('/'));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains(['/', '?', '#', '@', ' ']) => {
            Ok(format!("http://{rest}"))
        }
        _ => Err(format!(
            "--admin: `{address}` cannot be asked; wanted ADDRESS:PORT or http://HOST:PORT, as in \
             127.0.0.1:9090"
        )),
    }
}

fn token(file: &Path) -> Result<String, Failure> {
    let failed = |why: String| {
        let line = format!("--admin-token-file: {}: {why}", file.display());
        Failure::new(Exit::Usage, line)
    };
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    match text.trim() {
        "" => Err(failed("it is empty".to_owned())),
        token => Ok(token.to_owned()),
    }
}

/// A name as a part of a path.
pub(super) fn in_path(name: &str) -> String {
    let encoded = form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>();
    // What stands for a blank in a form does not in a path.
    encoded.replace('+', "%20")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_queue_of_any_name_is_one_part_of_a_path() {
        assert_eq!(in_path("local:a-b_c.fifo"), "local%3Aa-b_c.fifo");
        assert_eq!(in_path("http://a/1 2"), "http%3A%2F%2Fa%2F1%202");
    }
}
