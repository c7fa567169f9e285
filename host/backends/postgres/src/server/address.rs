//! Reads the address of a server, with what libpq adds to it: a service, environment variables, a
//! password file, and the names of its modes of TLS.

use super::keywords::{self, Keywords};
use super::tls::{TlsMode, TlsTerms};
use dispatcher_core::files::bounded::{self, Limits};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_postgres::Config;

/// The form of an address.
pub const WANTED: &str =
    "postgres://USER:PASSWORD@HOST:PORT/DATABASE, or libpq's keywords as in host=HOST user=USER";
/// The time limit for opening a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The time after which a silent connection is probed.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The folder of the server's socket, as Debian has it.
const SOCKETS: &str = "/var/run/postgresql";
/// Keywords of libpq that have no effect here: texts are UTF-8, and there is no Kerberos.
const IGNORED: [&str; 7] = [
    "client_encoding",
    "fallback_application_name",
    "gssencmode",
    "gsslib",
    "krbsrvname",
    "sslcompression",
    "sslsni",
];

/// A server that can be connected to.
#[derive(Debug, Clone)]
pub struct Address {
    pub(super) config: Config,
    pub(super) tls: TlsTerms,
}

/// The surroundings of the process.
pub(super) struct Surroundings {
    /// Returns an environment variable.
    pub variable: fn(&str) -> Option<String>,
    /// The home folder of the user.
    pub home: Option<PathBuf>,
}

impl Surroundings {
    pub(super) fn of_process() -> Self {
        fn variable(name: &str) -> Option<String> {
            std::env::var(name).ok()
        }
        Self {
            variable,
            home: std::env::home_dir(),
        }
    }

    /// Returns a file in the home folder, if it is there.
    pub(super) fn in_home(&self, name: &str) -> Option<PathBuf> {
        let file = self.home.as_ref()?.join(name);
        file.exists().then_some(file)
    }
}

/// Checks an address, without the surroundings of the process.
///
/// # Errors
/// Returns what is wrong with it, without its password.
pub fn check(text: &str) -> Result<(), String> {
    let alone = Surroundings {
        variable: |_| None,
        home: None,
    };
    let mut keywords = keywords::of_address(text)?;
    // They are read when the program connects.
    for file in ["service", "passfile", "sslrootcert", "sslcert", "sslkey"] {
        keywords.remove(file);
    }
    connect_terms(keywords, &alone).map(drop)
}

impl Address {
    /// Reads an address; `None` is all as the surroundings say.
    pub(super) fn read(text: Option<&str>, around: &Surroundings) -> Result<Self, String> {
        let mut keywords = match text {
            Some(text) => keywords::of_address(text)?,
            None => Keywords::new(),
        };
        let variables = keywords::of_variables(around.variable);
        let service = keywords.get("service").or(variables.get("service"));
        if let Some(service) = service.cloned() {
            keywords::complete(&mut keywords, read_service(&service, around)?);
        }
        keywords::complete(&mut keywords, variables);
        connect_terms(keywords, around)
    }

    /// Returns a name of the server and the database for messages, without the password.
    pub(super) fn place(&self) -> String {
        let config = &self.config;
        let named = config.get_hosts().iter().map(|host| match host {
            tokio_postgres::config::Host::Tcp(name) => name.clone(),
            tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
        });
        let hosts: Vec<String> = named.collect();
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let database = config.get_dbname().or(config.get_user());
        format!(
            "{}:{port}/{}",
            hosts.join(","),
            database.unwrap_or_default()
        )
    }
}

fn read_service(service: &str, around: &Surroundings) -> Result<Keywords, String> {
    let named = (around.variable)("PGSERVICEFILE").map(PathBuf::from);
    let place = named.or_else(|| around.in_home(".pg_service.conf"));
    let file = place.ok_or("it names a service, and there is no ~/.pg_service.conf")?;
    keywords::of_service(&text(&file)?, service)
        .ok_or_else(|| format!("{}: no service `{service}`", file.display()))
}

/// Returns the address of complete keywords.
fn connect_terms(mut keywords: Keywords, around: &Surroundings) -> Result<Address, String> {
    for ignored in IGNORED.iter().chain(&["service"]) {
        keywords.remove(*ignored);
    }
    if !keywords.contains_key("host") && !keywords.contains_key("hostaddr") {
        let port = keywords.get("port").map_or("5432", String::as_str);
        let has_socket = Path::new(SOCKETS).join(format!(".s.PGSQL.{port}")).exists();
        let host = if has_socket { SOCKETS } else { "localhost" };
        keywords.insert("host".to_owned(), host.to_owned());
    }
    let named = keywords.remove("passfile").map(PathBuf::from);
    let passfile = named.or_else(|| around.in_home(".pgpass"));
    let has_one_host = keywords.get("host").is_none_or(|host| !host.contains(','));
    if let (false, Some(file)) = (keywords.contains_key("password"), passfile)
        && has_one_host
        && is_private(&file)
        && let Some(password) = keywords::password(&text(&file)?, &keywords)
    {
        keywords.insert("password".to_owned(), password);
    }
    let mut tls = TlsTerms::take(&mut keywords, around)?;
    if keywords
        .get("host")
        .is_some_and(|host| host.starts_with('/'))
    {
        // A socket of this machine has no TLS.
        tls.mode = TlsMode::Disable;
    }
    let keeps_alive = keywords.contains_key("keepalives_idle");
    let pairs = keywords.iter().map(|(keyword, value)| {
        let value = value.replace('\\', "\\\\").replace('\'', "\\'");
        format!("{keyword}='{value}'")
    });
    let pairs: Vec<String> = pairs.collect();
    let mut config: Config = pairs.join(" ").parse().map_err(|error| described(&error))?;
    config.ssl_mode(match tls.mode {
        TlsMode::Disable => tokio_postgres::config::SslMode::Disable,
        TlsMode::Prefer => tokio_postgres::config::SslMode::Prefer,
        TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => {
            tokio_postgres::config::SslMode::Require
        }
    });
    if config.get_application_name().is_none() {
        config.application_name("dispatcher");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    if !keeps_alive {
        config.keepalives_idle(KEEPALIVE);
    }
    Ok(Address { config, tls })
}

/// The error with its cause. Neither quotes the address.
fn described(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    cause.unwrap_or_else(|| error.to_string())
}

/// Whether only the user may read a password file. As libpq does, any other one is not read.
fn is_private(file: &Path) -> bool {
    let Ok(found) = file.metadata() else {
        return false;
    };
    let is_private = found.permissions().mode() & 0o077 == 0;
    if !is_private {
        tracing::warn!(
            file = %file.display(),
            "password file of PostgreSQL not used: others may read it; set its mode to 0600"
        );
    }
    is_private
}

/// Reads a file of texts.
fn text(file: &Path) -> Result<String, String> {
    let read = bounded::read(file, Limits::SMALL);
    let bytes = read.map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
