//! Where to forward to, from environment variables that the host sets. Knows nothing of messages.

/// Where to forward to, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The service's URL.
    pub url: String,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// The key that signs requests, if they are signed.
    pub signing_key: Option<Vec<u8>>,
    /// Whether every request carries a batch, also where it has one message.
    pub batches: bool,
}

impl Settings {
    /// Reads `URL`, `HEADERS` (a line each, `NAME: VALUE`), `SIGNING_KEY` and `BATCHES` by way of
    /// `variable`.
    ///
    /// # Errors
    /// Every problem in one line.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut problems = Vec::new();
        let url = set("URL").unwrap_or_default();
        if url.is_empty() {
            problems.push("URL is not set: wanted the service's URL".to_owned());
        }
        let mut headers = Vec::new();
        for line in set("HEADERS").unwrap_or_default().lines() {
            match line.split_once(':') {
                Some((name, value)) => {
                    headers.push((name.trim().to_owned(), value.trim().to_owned()));
                }
                None => problems.push(format!("HEADERS has the line {line:?}: wanted NAME: VALUE")),
            }
        }
        let batches = match set("BATCHES").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                problems.push(format!("BATCHES is {other:?}: wanted true or false"));
                false
            }
        };
        if !problems.is_empty() {
            return Err(problems.join("; "));
        }
        Ok(Self {
            url,
            headers,
            signing_key: set("SIGNING_KEY").map(String::into_bytes),
            batches,
        })
    }

    /// Whether every request has a header of this name already.
    pub fn has_header(&self, name: &str) -> bool {
        let mut headers = self.headers.iter();
        headers.any(|(found, _)| found.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Settings::read(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn only_the_url_is_required() {
        let least = read(&[("URL", "http://127.0.0.1:1/jobs")]).expect("complete");
        assert_eq!(least.url, "http://127.0.0.1:1/jobs");
        assert!(least.headers.is_empty() && least.signing_key.is_none() && !least.batches);
        let all = [
            ("URL", "http://h"),
            ("HEADERS", "Authorization: Bearer a:b\nx-tenant:1"),
            ("SIGNING_KEY", "secret"),
            ("BATCHES", "true"),
        ];
        let all = read(&all).expect("complete");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let wanted = [pair("Authorization", "Bearer a:b"), pair("x-tenant", "1")];
        assert_eq!(all.headers, wanted);
        assert!(all.has_header("authorization") && !all.has_header("x-other"));
        assert!(all.batches && all.signing_key.is_some());
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let bad = [("HEADERS", "none"), ("BATCHES", "yes")];
        assert_eq!(
            read(&bad),
            Err("URL is not set: wanted the service's URL; \
                 HEADERS has the line \"none\": wanted NAME: VALUE; \
                 BATCHES is \"yes\": wanted true or false"
                .into())
        );
    }
}
