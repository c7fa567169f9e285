//! How a queue is named by people: which backend, and which queue there. Parses; opens nothing.

/// Where messages live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// Amazon SQS, or a server that speaks its protocol.
    Sqs,
    /// The embedded queue: one file on this machine.
    Local,
    /// A Redis server.
    Redis,
    /// A table of Amazon DynamoDB, or of a server that speaks its protocol.
    DynamoDb,
}

/// A queue as a person writes it: `name`, an SQS URL or ARN, `local:name`, `redis:name` or
/// `dynamodb:table`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName {
    /// The backend that the prefix names; SQS without one.
    pub backend: Backend,
    /// The name, URL or ARN without the backend's prefix.
    pub name: String,
}

impl QueueName {
    /// Splits a trailing `:N` off, the queue's weight: `payments:3`, `local:default:2`, an ARN or
    /// URL followed by `:3`. Says nothing about whether `N` is a good weight.
    pub fn split_weight(text: &str) -> (&str, Option<&str>) {
        let plain_colons = if text.starts_with("arn:") {
            5
        } else if let Some(at) = text.find("://") {
            let path = text[at + 3..]
                .find('/')
                .map_or(text.len(), |slash| at + 3 + slash);
            text[..path].matches(':').count()
        } else if text.starts_with("sqs:") || Self::other_backend(text).is_some() {
            1
        } else {
            0
        };
        match text.match_indices(':').nth(plain_colons) {
            Some((colon, _)) => (&text[..colon], Some(&text[colon + 1..])),
            None => (text, None),
        }
    }

    fn other_backend(text: &str) -> Option<&str> {
        let (prefix, _) = text.split_once(':')?;
        ["local", "redis", "dynamodb"]
            .contains(&prefix)
            .then_some(prefix)
    }
}

impl std::str::FromStr for QueueName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sqs = |name: &str| Self {
            backend: Backend::Sqs,
            name: name.to_owned(),
        };
        // Neither names nor the lines that quote them have any.
        let strange = |c: char| c.is_control() || c.is_whitespace();
        if text.contains(strange) {
            return Err(format!(
                "`{text}` is not a queue name; wanted no blanks and no control characters in it"
            ));
        }
        if text.starts_with("arn:") {
            let is_sqs = text.split(':').nth(2) == Some("sqs") && text.split(':').count() == 6;
            return is_sqs.then(|| sqs(text)).ok_or_else(|| {
                format!("`{text}` is not the ARN of an SQS queue; wanted arn:aws:sqs:REGION:ACCOUNT:NAME")
            });
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            return Ok(sqs(text));
        }
        let (backend, name) = match text.split_once(':') {
            None => (Backend::Sqs, text),
            Some(("sqs", name)) => (Backend::Sqs, name),
            Some(("local", name)) => (Backend::Local, name),
            Some(("redis", name)) => (Backend::Redis, name),
            Some(("dynamodb", name)) => (Backend::DynamoDb, name),
            Some((other, _)) => {
                return Err(format!(
                    "`{text}` names the backend `{other}`, which this version does not have; \
                     wanted NAME, an SQS URL or ARN, local:NAME, redis:NAME or dynamodb:TABLE"
                ));
            }
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        // What SQS and DynamoDB take ("quotas" in the guides of both).
        let lengths = match backend {
            Backend::DynamoDb => 3..=255,
            _ => 1..=80,
        };
        if !lengths.contains(&name.len()) || !name.chars().all(legal) {
            return Err(format!(
                "`{text}` is not a queue name; wanted {} to {} letters, digits, `-`, `_` or `.`",
                lengths.start(),
                lengths.end()
            ));
        }
        Ok(Self {
            backend,
            name: name.to_owned(),
        })
    }
}

impl std::fmt::Display for QueueName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.backend {
            Backend::Sqs => write!(out, "{}", self.name),
            Backend::Local => write!(out, "local:{}", self.name),
            Backend::Redis => write!(out, "redis:{}", self.name),
            Backend::DynamoDb => write!(out, "dynamodb:{}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_split_off_every_form() {
        let split = QueueName::split_weight;
        assert_eq!(split("payments"), ("payments", None));
        assert_eq!(split("payments:3"), ("payments", Some("3")));
        assert_eq!(split("payments:x"), ("payments", Some("x")));
        assert_eq!(split("local:default"), ("local:default", None));
        assert_eq!(split("local:default:2"), ("local:default", Some("2")));
        assert_eq!(split("dynamodb:Tasks:2"), ("dynamodb:Tasks", Some("2")));
        let arn = "arn:aws:sqs:eu-west-1:123456789012:q";
        assert_eq!(split(arn), (arn, None));
        assert_eq!(split(&format!("{arn}:4")), (arn, Some("4")));
        let url = "http://127.0.0.1:4566/000000000000/q";
        assert_eq!(split(url), (url, None));
        assert_eq!(split(&format!("{url}:4")), (url, Some("4")));
    }

    #[test]
    fn names_round_trip() {
        for text in [
            "payments",
            "local:default",
            "redis:default",
            "dynamodb:QueueTable",
            "arn:aws:sqs:eu-west-1:1:q",
            "https://h/1/q.fifo",
        ] {
            let name: QueueName = text.parse().expect(text);
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_queue_is_refused_with_what_was_wanted() {
        for text in [
            "",
            "local:",
            "dynamodb:ab",
            "a b",
            "https://h/1/a b",
            "https://h/1/q\u{2}",
            "arn:aws:sqs:eu-west-1:1:q\n",
            "kafka:q",
            "arn:aws:sns:eu-west-1:1:topic",
        ] {
            let error = text.parse::<QueueName>().expect_err(text);
            assert!(error.contains("wanted"), "{error}");
        }
    }
}
