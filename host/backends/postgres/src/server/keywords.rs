//! The keywords of a connection, as libpq reads them (PostgreSQL documentation, "Connection
//! Strings", "Environment Variables", "The Connection Service File", "The Password File"): from a URL
//! or a string of keywords, then from a service, then from environment variables. Pure.

use std::collections::BTreeMap;

/// The keywords and their values.
pub(super) type Keywords = BTreeMap<String, String>;

/// The environment variables that libpq reads, and their keywords.
const VARIABLES: &[(&str, &str)] = &[
    ("PGAPPNAME", "application_name"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGDATABASE", "dbname"),
    ("PGHOST", "host"),
    ("PGHOSTADDR", "hostaddr"),
    ("PGOPTIONS", "options"),
    ("PGPASSFILE", "passfile"),
    ("PGPASSWORD", "password"),
    ("PGPORT", "port"),
    ("PGSERVICE", "service"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
    ("PGUSER", "user"),
];

/// Reads an address. The error does not quote it, because it may have a password.
pub(super) fn of_address(text: &str) -> Result<Keywords, String> {
    let text = text.trim();
    let after_scheme = ["postgres://", "postgresql://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    match after_scheme {
        Some(rest) => of_url(rest),
        None if text.contains('=') => of_pairs(text),
        None => Err("it is not an address of PostgreSQL".to_owned()),
    }
}

/// Reads the environment variables.
pub(super) fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Keywords {
    let set = VARIABLES.iter().filter_map(|(name, keyword)| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        Some(((*keyword).to_owned(), value))
    });
    set.collect()
}

/// Adds keywords that are not set.
pub(super) fn complete(keywords: &mut Keywords, defaults: Keywords) {
    for (keyword, value) in defaults {
        keywords.entry(keyword).or_insert(value);
    }
}

/// Reads a URL after its scheme: `[USER[:PASSWORD]@][HOST[:PORT],...][/DATABASE][?KEYWORD=VALUE&...]`.
fn of_url(rest: &str) -> Result<Keywords, String> {
    let mut keywords = Keywords::new();
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = before.split_once('/').unwrap_or((before, ""));
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',').filter(|host| !host.is_empty()) {
        let end = host.rfind(']').map_or(0, |at| at + 1);
        let (name, port) = match host[end..].rfind(':') {
            Some(at) => (&host[..end + at], &host[end + at + 1..]),
            None => (host, ""),
        };
        names.push(decoded(name.trim_matches(['[', ']']))?);
        ports.push(port);
    }
    // Without a port, a service or a variable may name it.
    if ports.iter().all(|port| port.is_empty()) {
        ports.clear();
    }
    let ports = ports
        .iter()
        .map(|port| if port.is_empty() { "5432" } else { port });
    let ports: Vec<&str> = ports.collect();
    let parts = [
        ("user", decoded(user)?),
        ("password", decoded(password)?),
        ("dbname", decoded(database)?),
        ("host", names.join(",")),
        ("port", ports.join(",")),
    ];
    let set = parts.into_iter().filter(|(_, value)| !value.is_empty());
    keywords.extend(set.map(|(keyword, value)| (keyword.to_owned(), value)));
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((keyword, value)) = pair.split_once('=') else {
            return Err("a parameter of the URL has no value".to_owned());
        };
        keywords.insert(decoded(keyword)?, decoded(value)?);
    }
    if keywords.remove("ssl").is_some_and(|value| value == "true") {
        let mode = keywords.entry("sslmode".to_owned());
        mode.or_insert_with(|| "require".to_owned());
    }
    Ok(keywords)
}

/// Replaces `%40` and the like.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let code = after
                .get(..2)
                .and_then(|code| std::str::from_utf8(code).ok());
            let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
            bytes.push(byte.ok_or("a `%` without two hexadecimal digits; write `%25`")?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

/// Reads a string of keywords: `host=db user='a b'`. A backslash takes the next character as it is.
fn of_pairs(text: &str) -> Result<Keywords, String> {
    let mut keywords = Keywords::new();
    let mut rest = text.chars().peekable();
    loop {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        let mut keyword = String::new();
        while let Some(c) = rest.next_if(|c| *c != '=') {
            keyword.push(c);
        }
        let keyword = keyword.trim_end().to_owned();
        if rest.next().is_none() {
            return if keyword.is_empty() {
                Ok(keywords)
            } else {
                Err("a keyword has no value".to_owned())
            };
        }
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        let is_quoted = rest.next_if_eq(&'\'').is_some();
        let mut value = String::new();
        loop {
            match rest.next() {
                Some('\\') => value.extend(rest.next()),
                Some('\'') if is_quoted => break,
                Some(c) if c.is_whitespace() && !is_quoted => break,
                Some(c) => value.push(c),
                None if is_quoted => return Err("a quoted value does not end".to_owned()),
                None => break,
            }
        }
        keywords.insert(keyword, value);
    }
}

/// Returns the keywords of a service in the text of a service file, if it is there.
pub(super) fn of_service(file: &str, service: &str) -> Option<Keywords> {
    let mut lines = file.lines().map(str::trim);
    let header = format!("[{service}]");
    lines.find(|line| *line == header)?;
    let own = lines.take_while(|line| !line.starts_with('['));
    let set = own
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='));
    Some(
        set.map(|(keyword, value)| (keyword.trim().to_owned(), value.trim().to_owned()))
            .collect(),
    )
}

/// Returns the password for these keywords in the text of a password file: lines
/// `HOST:PORT:DATABASE:USER:PASSWORD`, where `*` is any.
pub(super) fn password(file: &str, keywords: &Keywords) -> Option<String> {
    let wanted = ["host", "port", "dbname", "user"];
    let defaults = ["localhost", "5432", "", ""];
    let entries = file.lines().filter(|line| !line.starts_with('#'));
    let mut lines = entries.map(fields).filter(|fields| fields.len() == 5);
    let line = lines.find(|fields| {
        let all = wanted.iter().zip(defaults).zip(fields);
        all.into_iter().all(|((keyword, default), field)| {
            let value = keywords.get(*keyword).map_or(default, String::as_str);
            field == "*" || value == field
        })
    });
    line?.pop()
}

/// Splits a line at its colons. A backslash takes the next character as it is.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        let last = fields.len() - 1;
        match c {
            '\\' => fields[last].extend(rest.next()),
            ':' if last < 4 => fields.push(String::new()),
            c => fields[last].push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(keywords: &Keywords) -> Vec<String> {
        let pairs = keywords.iter();
        pairs
            .map(|(keyword, value)| format!("{keyword}={value}"))
            .collect()
    }

    #[test]
    fn addresses_are_read_as_libpq_reads_them() {
        fn read(text: &str) -> Result<String, String> {
            of_address(text).map(|keywords| texts(&keywords).join(" "))
        }
        for (text, wanted) in [
            ("postgres://", ""),
            ("postgresql:///app", "dbname=app"),
            ("postgres://h", "host=h"),
            ("postgres://h?ssl=true", "host=h sslmode=require"),
            (
                "postgres://h?ssl=true&sslmode=verify-full",
                "host=h sslmode=verify-full",
            ),
            ("postgres://u@h:5433/d", "dbname=d host=h port=5433 user=u"),
            (
                "postgres://u:p%40%3a@h/d?sslmode=verify-full&application_name=a%20b",
                "application_name=a b dbname=d host=h password=p@: sslmode=verify-full user=u",
            ),
            ("postgres://a,b:7,[::1]:8/", "host=a,b,::1 port=5432,7,8"),
            ("postgres://%2Fvar%2Frun/d", "dbname=d host=/var/run"),
            ("postgres:///d?host=/tmp", "dbname=d host=/tmp"),
            (
                "host=h  user = 'a \\'b' password=x\\ y",
                "host=h password=x y user=a 'b",
            ),
        ] {
            assert_eq!(read(text).as_deref(), Ok(wanted), "{text}");
        }
        for wrong in [
            "",
            "h",
            "redis://h",
            "postgres://%4",
            "host=h user",
            "a='b",
            "postgres://h?x",
        ] {
            let found = read(wrong).expect_err(wrong);
            assert!(!found.is_empty());
        }
    }

    #[test]
    fn service_and_variables_complete_an_address() {
        let file = "[other]\nhost=x\n[app]\n# a comment\nhost = h\nuser=u\n\n[last]\nuser=z\n";
        let service = of_service(file, "app").expect("it is there");
        assert_eq!(texts(&service), ["host=h", "user=u"]);
        assert_eq!(of_service(file, "none"), None);
        let mut keywords = of_address("postgres://me@/d").expect("a URL");
        complete(&mut keywords, service);
        complete(
            &mut keywords,
            of_variables(|name| (name == "PGPORT").then(|| "6".into())),
        );
        assert_eq!(
            texts(&keywords),
            ["dbname=d", "host=h", "port=6", "user=me"]
        );
    }

    #[test]
    fn password_is_that_of_the_first_line_that_fits() {
        let keywords = of_address("postgres://u@h/d").expect("a URL");
        let file =
            "#h:*:*:u:no\nother:*:*:*:no\nh:5432:d:v:no\n*:5432:*:u:a\\:b\\\\c:d\nh:*:*:*:no";
        assert_eq!(password(file, &keywords).as_deref(), Some("a:b\\c:d"));
        assert_eq!(password("h:5432:d:u", &keywords), None);
    }
}
