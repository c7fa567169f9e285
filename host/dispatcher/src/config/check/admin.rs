//! Checks the admin address and its access settings. Opens nothing: the server reads the token's
//! file.

use super::Check;
use crate::config::Admin;
use crate::config::problem::Problem;
use crate::config::section::{Given, Layers};
use crate::config::value;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

impl Check {
    /// The admin address, if one is served. Off loopback it needs a token; a token or a host name
    /// without an address would have no effect.
    pub(super) fn admin(&mut self, program: Layers<'_>) -> Option<Admin> {
        let named = program.one("admin");
        let address = self.read(named, value::socket);
        let secret = program.one("admin-token-file");
        let file = |given: &Given| value::text(given, "a file").map(PathBuf::from);
        let token_file = self.read(secret, file);
        let reading = program.one("admin-read-token-file");
        let read_token_file = self.read(reading, file);
        let shown = program.one("admin-bodies");
        let bodies = self.read(shown, value::switch).unwrap_or_default();
        let names = program.list("admin-host").unwrap_or_default();
        let mut hosts = Vec::new();
        for name in names {
            hosts.extend(self.read(Some(name), host));
        }
        if named.is_none() {
            let others = [secret, reading, shown].into_iter().flatten();
            for given in others.chain(names.first()) {
                let found = "it applies to the admin address, and none is served";
                self.problems
                    .push(Problem::new(&given.at, found, "--admin ADDR as well"));
            }
        }
        if let (Some(address), Some(given), None) = (address, named, secret.or(reading))
            && !is_loopback(address)
        {
            self.problems.push(needs_token(given, address));
        }
        address.map(|address| Admin {
            address,
            or_any_port: false,
            token_file,
            read_token_file,
            bodies,
            hosts,
        })
    }
}

/// Whether only this machine reaches the address.
fn is_loopback(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.to_canonical().is_loopback(),
    }
}

fn needs_token(given: &Given, address: SocketAddr) -> Problem {
    let found = format!("other machines can reach `{address}`, and there is no token");
    let wanted = "--admin-token-file FILE, or an address of loopback such as 127.0.0.1:9090";
    let hint = "/healthz, /readyz and /metrics need no token";
    Problem::new(&given.at, found, wanted).hint(hint)
}

/// A host name, without a port.
fn host(given: &Given) -> Result<String, Problem> {
    let name = given.text.trim();
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty() && name.len() < 254 && name.chars().all(legal) {
        true => Ok(name),
        false => {
            let found = format!("`{}` is not a host name", given.text);
            let problem = Problem::new(&given.at, found, "a name without a scheme and a port");
            Err(problem.hint("written like dispatcher.example.com"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::section::Section;

    fn read(flags: &[(&str, &str)]) -> (Option<Admin>, Vec<String>) {
        let mut section = Section::new("flags");
        for (key, text) in flags {
            section.push(*key, Given::new(format!("--{key}"), *text));
        }
        let mut check = Check::default();
        let admin = check.admin(Layers(&[&section]));
        let problems = check.problems.iter().map(ToString::to_string);
        (admin, problems.collect())
    }

    #[test]
    fn finding_18_token_is_required_off_loopback() {
        for loopback in [
            "127.0.0.1:9",
            "127.3.2.1:0",
            "[::1]:9",
            "[::ffff:127.0.0.1]:9",
        ] {
            let (admin, problems) = read(&[("admin", loopback)]);
            assert_eq!((admin.is_some(), problems.len()), (true, 0), "{loopback}");
        }
        for public in ["0.0.0.0:9", "10.0.0.1:9", "[::]:9", "[::ffff:0.0.0.0]:9"] {
            let (_, problems) = read(&[("admin", public)]);
            let wanted = format!(
                "--admin: other machines can reach `{public}`, and there is no token; wanted \
                 --admin-token-file FILE, or an address of loopback such as 127.0.0.1:9090; \
                 /healthz, /readyz and /metrics need no token"
            );
            assert_eq!(problems, [wanted]);
            let (admin, problems) = read(&[("admin", public), ("admin-token-file", "t")]);
            assert_eq!(problems, [""; 0]);
            assert_eq!(admin.expect("it is good").token_file, Some("t".into()));
        }
    }

    #[test]
    fn admin_settings_without_an_address_are_refused() {
        let (admin, problems) = read(&[("admin-token-file", "t"), ("admin-host", "a")]);
        assert_eq!(admin, None);
        assert_eq!(
            problems,
            ["--admin-token-file", "--admin-host"].map(|flag| format!(
                "{flag}: it applies to the admin address, and none is served; wanted --admin ADDR as well"
            ))
        );
    }

    #[test]
    fn host_names_have_no_port() {
        let base = ("admin", "127.0.0.1:9");
        let (admin, problems) = read(&[
            base,
            ("admin-host", "Queues.Example.com."),
            ("admin-host", "a"),
        ]);
        assert_eq!(problems, [""; 0]);
        assert_eq!(
            admin.expect("it is good").hosts,
            ["queues.example.com", "a"]
        );
        for bad in ["", "a:9090", "http://a", "*", "a b"] {
            let (_, problems) = read(&[base, ("admin-host", bad)]);
            assert_eq!(problems.len(), 1, "{bad}");
        }
    }
}
