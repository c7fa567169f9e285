//! The prefix of queue names, with which one configuration and one handler serve several
//! environments. Pure.

/// The text that every queue name of the configuration stands behind: with `prod-`, `redis:orders`
/// is `redis:prod-orders`. By default there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueuePrefix(String);

impl QueuePrefix {
    /// Creates a prefix.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the full name of a queue, given its name in the configuration. An ARN or a URL is
    /// complete.
    pub fn full(&self, bare: &str) -> String {
        match parts(bare) {
            Some((backend, name)) => format!("{backend}{}{name}", self.0),
            None => bare.to_owned(),
        }
    }

    /// Returns the name of a queue in the configuration, given its full name.
    pub fn bare(&self, full: &str) -> String {
        let bare = parts(full).and_then(|(backend, name)| {
            let rest = name.strip_prefix(&self.0)?;
            Some(format!("{backend}{rest}"))
        });
        bare.unwrap_or_else(|| full.to_owned())
    }
}

impl std::fmt::Display for QueuePrefix {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// Splits a name after the colon of its backend. Returns `None` for an ARN, a URL and a text without
/// a name.
fn parts(name: &str) -> Option<(&str, &str)> {
    if name.starts_with("arn:") || name.contains("://") {
        return None;
    }
    let start = name.find(':').map_or(0, |colon| colon + 1);
    let (backend, rest) = name.split_at(start);
    (!rest.is_empty()).then_some((backend, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_name_and_bare_name_are_of_the_same_queue() {
        let prefix = QueuePrefix::new("prod-");
        for (bare, full) in [
            ("orders", "prod-orders"),
            ("prod-orders", "prod-prod-orders"),
            ("redis:orders-*", "redis:prod-orders-*"),
            ("dynamodb:Jobs/FAILURE", "dynamodb:prod-Jobs/FAILURE"),
            ("arn:aws:sqs:*:1:orders", "arn:aws:sqs:*:1:orders"),
            ("https://sqs/1/orders", "https://sqs/1/orders"),
            ("redis:", "redis:"),
            ("", ""),
        ] {
            assert_eq!(prefix.full(bare), full);
            assert_eq!(prefix.bare(full), bare);
            assert_eq!(QueuePrefix::default().full(bare), bare);
            assert_eq!(QueuePrefix::default().bare(full), full);
        }
        assert_eq!(prefix.bare("test-orders"), "test-orders");
    }
}
