//! The addresses of pages, below the prefix that a proxy adds. Pure.

/// Builds the addresses of pages.
#[derive(Debug, Clone, Default)]
pub(super) struct Links {
    prefix: String,
}

impl Links {
    /// Creates links below a prefix such as `/dispatcher`, which may be empty.
    pub(super) fn below(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    /// Returns the address of a path with these parameters.
    pub(super) fn to(&self, path: &str, parameters: &[(&str, &str)]) -> String {
        let mut address = format!("{}{path}", self.prefix);
        if !parameters.is_empty() {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(parameters);
            address.push('?');
            address.push_str(&query.finish());
        }
        address
    }

    /// Returns the address of the page of a queue.
    pub(super) fn queue(&self, queue: &str) -> String {
        self.to("/ui/queue", &[("name", queue)])
    }

    /// Returns the address of the page of an attempt.
    pub(super) fn attempt(&self, id: &str) -> String {
        self.to("/ui/attempt", &[("id", id)])
    }

    /// Returns the path for which browsers send the cookie.
    pub(super) fn cookie_path(&self) -> String {
        self.to("/ui", &[])
    }

    /// Returns `address` if it is one of the dashboard's pages, otherwise the address of the
    /// overview.
    pub(super) fn own(&self, address: &str) -> String {
        let path = address.split(['?', '#']).next().unwrap_or_default();
        let page = path.strip_prefix(self.to("/ui", &[]).as_str());
        let is_page = page.is_some_and(|page| page.is_empty() || page.starts_with('/'));
        let is_plain = address
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
        if is_page && is_plain && !path.contains("//") {
            address.to_owned()
        } else {
            self.to("/ui", &[])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_below_the_prefix_and_encoded() {
        let links = Links::below("/ops");
        assert_eq!(links.to("/ui", &[]), "/ops/ui");
        let queue = links.queue("local:<script>&x");
        assert_eq!(queue, "/ops/ui/queue?name=local%3A%3Cscript%3E%26x");
        assert_eq!(Links::default().attempt("0-1"), "/ui/attempt?id=0-1");
    }

    #[test]
    fn only_own_pages_are_returned_to() {
        let links = Links::below("/ops");
        for own in ["/ops/ui", "/ops/ui?q=1", "/ops/ui/queue?name=http://x"] {
            assert_eq!(links.own(own), own);
        }
        for other in [
            "",
            "/",
            "/ui",
            "/ops/uix",
            "//evil.com/ops/ui",
            "https://evil.com/ops/ui",
            "/ops/ui//evil.com",
            "/ops/ui\\evil",
            "/ops/ui\r\nx",
            "javascript:alert(1)",
        ] {
            assert_eq!(links.own(other), "/ops/ui", "{other}");
        }
    }
}
