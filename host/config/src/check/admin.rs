//! Checks the admin address and its access settings. Opens nothing: the server reads the token's
//! file.

use super::Check;
use crate::name::QueueName;
use crate::prices::Prices;
use crate::problem::Problem;
use crate::section::{Layers, WrittenValue};
use crate::signed_header::{KeyPlace, SignedHeader, WantedClaim};
use crate::value;
use crate::value::BareUnit;
use crate::{Admin, MetricTerms};
use dispatcher_telemetry::depths::{DepthTerms, DepthsOf};
use http::Uri;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The limits of `metrics-depths-interval`.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3_600);

/// The settings of a trusted proxy.
const PROXY: [&str; 7] = [
    "admin-proxy-keys",
    "admin-proxy-issuer",
    "admin-proxy-audience",
    "admin-proxy-header",
    "admin-proxy-name",
    "admin-proxy-operate",
    "admin-proxy-read",
];
/// The number of those that a proxy needs, which are the first.
const NEEDED: usize = 3;

impl Check {
    /// Reads the admin address and its settings. An address that other machines can reach needs a
    /// token; a token or a host name without an address would have no effect.
    pub(crate) fn admin(&mut self, program: Layers<'_>) -> Option<Admin> {
        let named = program.one("admin");
        let address = self.read(named, value::socket);
        let secret = program.one("admin-token-file");
        let token_file = self.read(secret, file);
        let reading = program.one("admin-read-token-file");
        let read_token_file = self.read(reading, file);
        let sending = program.one("admin-send-token-file");
        let send_token_file = self.read(sending, file);
        let proxy = self.proxy(program);
        let listed = program.list("admin-send-queues").unwrap_or_default();
        let mut send_queues = Vec::new();
        for given in listed {
            for name in given.text.split(',') {
                let one = WrittenValue::new(&given.at, name.trim());
                send_queues.extend(self.read(Some(&one), queue));
            }
        }
        let shown = program.one("admin-bodies");
        let bodies = self.read(shown, value::switch).unwrap_or_default();
        let below = program.one("admin-prefix");
        let prefix = self.read(below, path_prefix).unwrap_or_default();
        let called = program.one("admin-environment");
        let environment = self.read(called, environment_name);
        let names = program.list("admin-host").unwrap_or_default();
        let mut hosts = Vec::new();
        for name in names {
            hosts.extend(self.read(Some(name), host));
        }
        if named.is_none() {
            let proxied = PROXY.iter().filter_map(|key| program.one(key));
            let others = [secret, reading, sending, shown, below, called]
                .into_iter()
                .flatten()
                .chain(proxied);
            for given in others.chain(names.first()).chain(listed.first()) {
                let found = "it applies to the admin address, and there is none";
                self.problems
                    .push(Problem::new(&given.at, found, "--admin ADDR as well"));
            }
        }
        let limits_reading = secret.or(reading).or(program.one("admin-proxy-keys"));
        if let (Some(address), Some(given), None) = (address, named, limits_reading)
            && !is_loopback(address)
        {
            self.problems.push(needs_token(given, address));
        }
        address.map(|address| Admin {
            address,
            or_any_port: false,
            prints_sign_in: false,
            token_file,
            read_token_file,
            send_token_file,
            proxy,
            send_queues,
            bodies,
            hosts,
            prefix,
            environment,
        })
    }

    /// Reads the settings of a trusted proxy: its keys, issuer and audience, and what may be left out.
    fn proxy(&mut self, program: Layers<'_>) -> Option<SignedHeader> {
        let first = PROXY.iter().find_map(|key| program.one(key))?;
        for key in &PROXY[..NEEDED] {
            if program.one(key).is_none() {
                let found = format!("a trusted proxy without `{key}`");
                let problem = Problem::new(&first.at, found, format!("`{key}` as well"));
                self.problems.push(problem);
            }
        }
        let [keys, issuer, audience, header, name, ..] = PROXY.map(|key| program.one(key));
        let keys = self.read(keys, key_place);
        let [issuer, audience] =
            [issuer, audience].map(|given| self.read(given, |given| value::text(given, "a text")));
        let header = self.read(header, header_name);
        let name = self.read(name, |given| value::text(given, "the name of a claim"));
        let [operate, read] = ["admin-proxy-operate", "admin-proxy-read"].map(|key| {
            let given = program.list(key).unwrap_or_default().iter();
            let claims = given.filter_map(|given| self.read(Some(given), wanted_claim));
            claims.collect()
        });
        Some(SignedHeader {
            keys: keys?,
            header: header.unwrap_or_else(|| "authorization".to_owned()),
            issuer: issuer?,
            audience: audience?,
            name: name.unwrap_or_else(|| "email".to_owned()),
            operate,
            read,
        })
    }

    /// Reads the settings of metrics. `is_exported` is true if metrics are exported by OTLP. If
    /// metrics are neither served nor exported, these settings have no effect.
    pub(crate) fn metric_terms(&mut self, program: Layers<'_>, is_exported: bool) -> MetricTerms {
        let words = [
            ("free", DepthsOf::Free),
            ("cheap", DepthsOf::Cheap),
            ("all", DepthsOf::All),
            ("none", DepthsOf::None),
        ];
        let (chosen, interval) = (
            program.one("metrics-depths"),
            program.one("metrics-depths-interval"),
        );
        let of = self.read(chosen, |given| value::choice(given, &words));
        let range = SHORTEST..=LONGEST;
        let every = self.read(interval, |given| {
            value::duration(given, BareUnit::Seconds, &range)
        });
        let priced = program.list("call-price").unwrap_or_default();
        let mut prices = Vec::new();
        for price in priced {
            prices.extend(self.read(Some(price), Prices::entry));
        }
        if !is_exported && program.one("admin").is_none() {
            let given = [chosen, interval, priced.first()].into_iter().flatten();
            for given in given {
                let found = "it applies to metrics, and none are served or exported by OTLP";
                let wanted = "--admin ADDR or --otlp-endpoint URL as well";
                self.problems.push(Problem::new(&given.at, found, wanted));
            }
        }
        let usual = DepthTerms::default();
        MetricTerms {
            depths: DepthTerms {
                of: of.unwrap_or(usual.of),
                every: every.unwrap_or(usual.every),
            },
            prices: Prices::new(prices),
        }
    }
}

/// Parses the file or the URL of keys. On a network, keys without TLS could be anyone's.
fn key_place(given: &WrittenValue) -> Result<KeyPlace, Problem> {
    let text = value::text(given, "a file or a URL")?;
    if !text.contains("://") {
        return Ok(KeyPlace::File(text.into()));
    }
    let url: Option<Uri> = text.parse().ok();
    let is_safe = url.as_ref().is_some_and(|url| match url.scheme_str() {
        Some("https") => true,
        Some("http") => url.host().is_some_and(is_this_machine),
        _ => false,
    });
    if is_safe {
        return Ok(KeyPlace::Url(text));
    }
    let found = format!("`{text}` is not a place of keys that can be trusted");
    let wanted = "a file, an https:// URL, or an http:// URL on this machine";
    Err(Problem::new(&given.at, found, wanted))
}

/// Whether a host of a URL is this machine.
fn is_this_machine(host: &str) -> bool {
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    host == "localhost" || address.is_some_and(|ip| is_loopback((ip, 0).into()))
}

fn wanted_claim(given: &WrittenValue) -> Result<WantedClaim, Problem> {
    WantedClaim::parse(&given.text).ok_or_else(|| {
        let found = format!("`{}` is not a claim with its value", given.text);
        Problem::new(&given.at, found, "CLAIM=VALUE, as in groups=operators")
    })
}

fn header_name(given: &WrittenValue) -> Result<String, Problem> {
    let name = given.text.trim().to_ascii_lowercase();
    let mut others = name.chars().filter(|c| !c.is_ascii_alphanumeric());
    if !name.is_empty() && others.all(|c| "-_".contains(c)) {
        return Ok(name);
    }
    let found = format!("`{}` is not the name of a header", given.text);
    Err(Problem::new(&given.at, found, "letters, digits and dashes"))
}

fn file(given: &WrittenValue) -> Result<PathBuf, Problem> {
    value::text(given, "a file").map(PathBuf::from)
}

/// Whether only this machine can reach the address.
fn is_loopback(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.to_canonical().is_loopback(),
    }
}

fn needs_token(given: &WrittenValue, address: SocketAddr) -> Problem {
    let found = format!("other machines can reach `{address}`, and there is no token");
    let wanted = "--admin-token-file FILE, or an address of loopback such as 127.0.0.1:9090";
    let hint = "/healthz, /readyz and /metrics need no token";
    Problem::new(&given.at, found, wanted).hint(hint)
}

/// Parses a path and removes a slash at its end.
fn path_prefix(given: &WrittenValue) -> Result<String, Problem> {
    let path = given.text.trim().trim_end_matches('/');
    let mut parts = path.split('/');
    let is_path = parts.next() == Some("")
        && parts.all(|part| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && part
                    .chars()
                    .all(|c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c))
        });
    let is_free = !["/api", "/ui", "/healthz", "/readyz", "/metrics", "/plugins"].contains(&path);
    if path.is_empty() || is_path && is_free {
        return Ok(path.to_owned());
    }
    let found = format!("`{}` cannot be a prefix", given.text);
    let wanted =
        "a path of letters, digits, `-`, `_`, `.` and `~` that the address does not serve itself";
    Err(Problem::new(&given.at, found, wanted).hint("written like /dispatcher"))
}

/// Parses the name of an environment.
fn environment_name(given: &WrittenValue) -> Result<String, Problem> {
    let name = given.text.trim();
    let is_short = (1..=32).contains(&name.chars().count());
    if is_short && !name.contains(char::is_control) {
        return Ok(name.to_owned());
    }
    let found = format!(
        "`{}` cannot be shown as the name of an environment",
        given.text
    );
    Err(Problem::new(
        &given.at,
        found,
        "1 to 32 characters, as in production",
    ))
}

/// Parses the name of a queue that messages may be sent to.
fn queue(given: &WrittenValue) -> Result<QueueName, Problem> {
    let read = given.text.parse();
    read.map_err(|found: String| Problem::new(&given.at, found, "the name of a queue"))
}

fn host(given: &WrittenValue) -> Result<String, Problem> {
    let text = given.text.trim();
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if !name.is_empty()
        && name.len() < 254
        && name
            .chars()
            .all(|c: char| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        Ok(name)
    } else {
        let found = format!("`{}` is not a host name", given.text);
        let problem = Problem::new(&given.at, found, "a name without a scheme and a port");
        Err(problem.hint("written like dispatcher.example.com"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Section;

    fn section(flags: &[(&str, &str)]) -> Section {
        let mut section = Section::new("flags");
        for (key, text) in flags {
            section.push(*key, WrittenValue::new(format!("--{key}"), *text));
        }
        section
    }

    fn read(flags: &[(&str, &str)]) -> (Option<Admin>, Vec<String>) {
        let mut check = Check::default();
        let admin = check.admin(Layers(&[&section(flags)]));
        let problems = check.problems.iter().map(ToString::to_string);
        (admin, problems.collect())
    }

    fn terms(flags: &[(&str, &str)], is_exported: bool) -> (MetricTerms, Vec<String>) {
        let mut check = Check::default();
        let terms = check.metric_terms(Layers(&[&section(flags)]), is_exported);
        let problems = check.problems.iter().map(ToString::to_string);
        (terms, problems.collect())
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
                "{flag}: it applies to the admin address, and there is none; wanted --admin ADDR \
                 as well"
            ))
        );
    }

    #[test]
    fn trusted_proxy_needs_keys_an_issuer_and_an_audience() {
        let base = [
            ("admin", "0.0.0.0:9"),
            ("admin-proxy-issuer", "https://id.example.com"),
            ("admin-proxy-audience", "dispatcher"),
            ("admin-proxy-operate", "groups=operators"),
        ];
        for good in [
            "keys.json",
            "https://id.example.com/keys",
            "http://[::1]:80/keys",
        ] {
            let (admin, problems) = read(&[&base[..], &[("admin-proxy-keys", good)]].concat());
            assert_eq!(problems, [""; 0], "{good}");
            let proxy = admin.and_then(|admin| admin.proxy).expect("a proxy");
            assert_eq!((&*proxy.header, &*proxy.name), ("authorization", "email"));
        }
        for bad in ["http://id.example.com/keys", "ftp://a/b", "https://"] {
            let (_, problems) = read(&[&base[..], &[("admin-proxy-keys", bad)]].concat());
            assert_eq!(problems.len(), 1, "{bad}");
        }
        let (_, problems) = read(&base[..2]);
        assert_eq!(problems.len(), 3, "{problems:?}");
        let (_, problems) = read(&base[1..]);
        assert_eq!(problems.len(), 4, "{problems:?}");
        let (_, problems) = read(&[
            base[0],
            ("admin-proxy-keys", "k"),
            ("admin-proxy-read", "x"),
        ]);
        assert_eq!(problems.len(), 3, "{problems:?}");
    }

    #[test]
    fn prefixes_are_paths_and_environments_short_names() {
        let base = ("admin", "127.0.0.1:9");
        let all = [
            base,
            ("admin-prefix", "/ops/dispatcher/"),
            ("admin-environment", " production "),
        ];
        let (admin, problems) = read(&all);
        assert_eq!(problems, [""; 0]);
        let admin = admin.expect("it is good");
        assert_eq!(admin.prefix, "/ops/dispatcher");
        assert_eq!(admin.environment.as_deref(), Some("production"));
        for bad in [
            "dispatcher",
            "/a//b",
            "/a b",
            "/..",
            "/ui",
            "/{x}",
            "http://a/b",
        ] {
            let (_, problems) = read(&[base, ("admin-prefix", bad)]);
            assert_eq!(problems.len(), 1, "{bad}");
        }
        for bad in ["", "a\nb", &"x".repeat(33)] {
            let (_, problems) = read(&[base, ("admin-environment", bad)]);
            assert_eq!(problems.len(), 1, "{bad}");
        }
        let (_, problems) = read(&[("admin-prefix", "/a"), ("admin-environment", "b")]);
        assert_eq!(problems.len(), 2);
    }

    #[test]
    fn depths_are_asked_and_calls_priced_as_configured() {
        let base = ("admin", "127.0.0.1:9");
        assert_eq!(terms(&[base], false).0, MetricTerms::default());
        let all = [
            base,
            ("metrics-depths", "all"),
            ("metrics-depths-interval", "5"),
            ("call-price", "sqs=0.3"),
        ];
        // Served, or exported alone.
        for (given, is_exported) in [(&all[..], false), (&all[1..], true)] {
            let (terms, problems) = terms(given, is_exported);
            assert_eq!(problems, [""; 0]);
            let wanted = DepthTerms {
                of: DepthsOf::All,
                every: Duration::from_secs(5),
            };
            assert_eq!(terms.depths, wanted);
            assert_eq!(terms.prices.dollars_per_million_calls("orders"), Some(0.3));
        }
        for bad in [
            ("metrics-depths", "some"),
            ("metrics-depths-interval", "0"),
            ("call-price", "sqs"),
        ] {
            assert_eq!(terms(&[base, bad], false).1.len(), 1, "{bad:?}");
            assert_eq!(terms(&[bad], true).1.len(), 1, "{bad:?}");
            assert_eq!(terms(&[bad], false).1.len(), 2, "{bad:?}");
        }
        let (_, problems) = terms(&all[1..], false);
        assert_eq!(problems.len(), 3, "nobody sees them");
        assert_eq!(
            problems[0],
            "--metrics-depths: it applies to metrics, and none are served or exported by OTLP; wanted \
             --admin ADDR or --otlp-endpoint URL as well"
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
