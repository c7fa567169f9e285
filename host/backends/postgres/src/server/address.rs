//! Reads the address of a server. Pure.

use std::time::Duration;
use tokio_postgres::Config;

/// What an address looks like.
pub const WANTED: &str = "postgres://USER:PASSWORD@HOST:PORT/DATABASE, or HOST and more as libpq's \
                          keyword/value string";
/// The time limit for opening a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The time after which a silent connection is probed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Reads an address.
///
/// # Errors
/// Returns what is wrong with it, without its password.
pub fn parse(text: &str) -> Result<Config, String> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    if !is_url && !text.contains('=') {
        return Err("it is not an address of PostgreSQL".to_owned());
    }
    let mut config: Config = text
        .parse()
        .map_err(|error: tokio_postgres::Error| described(&error))?;
    if config.get_application_name().is_none() {
        config.application_name("dispatcher");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    config.keepalives_idle(KEEPALIVE);
    Ok(config)
}

/// The error with its cause. Neither quotes the address.
fn described(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    cause.unwrap_or_else(|| error.to_string())
}

/// Returns a name of the server and the database for messages, without the password.
pub fn place(config: &Config) -> String {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            tokio_postgres::config::Host::Tcp(name) => name.clone(),
            tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    let ports: Vec<String> = config.get_ports().iter().map(ToString::to_string).collect();
    let database = config
        .get_dbname()
        .or(config.get_user())
        .unwrap_or_default();
    let port = ports.first().map_or("5432", String::as_str);
    format!("{}:{port}/{database}", hosts.join(","))
}
