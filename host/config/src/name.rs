//! Parses queue names into the backend and the queue's name there. Opens nothing.

use crate::backends;
use dispatcher_core::account::{Accounts, AwsAccount};
use dispatcher_core::backend::Backend;
use dispatcher_core::keyvalue::is_bucket;

/// The name of a queue in the configuration: `name`, an SQS URL or ARN, `local:name`, `redis:name`
/// or `dynamodb:table`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName {
    /// The backend of the prefix; without a prefix, the one that needs none.
    pub backend: &'static dyn Backend,
    /// The name, URL or ARN without the backend's prefix.
    pub name: String,
}

/// Returns the queue whose own dead letters have this name.
fn dead_letters_of<'a>(backend: &dyn Backend, name: &'a str) -> Option<&'a str> {
    let (queue, part) = name.split_once('/')?;
    (backend.facts().dead_letter_part == Some(part)).then_some(queue)
}

impl QueueName {
    /// Returns the account that calls for the queue are made in, unless it is the process's own.
    pub fn account_in<'a>(&self, accounts: &'a Accounts) -> Option<&'a AwsAccount> {
        if !self.backend.facts().has_accounts {
            return None;
        }
        accounts.of_queue(&self.to_string())
    }

    /// Returns the queue whose own dead letters have this name, if the backend keeps them in the
    /// queue.
    pub fn dead_letters_of(&self) -> Option<Self> {
        let queue = dead_letters_of(self.backend, &self.name)?;
        Some(Self {
            backend: self.backend,
            name: queue.to_owned(),
        })
    }

    /// Returns the queue of this backend that is the source of a dead letter.
    pub fn of_source(backend: &'static dyn Backend, source: &str) -> Option<Self> {
        let name = backend.queue_of_source(source)?;
        Some(Self { backend, name })
    }

    /// Splits off a trailing `:N`, the queue's weight: `payments:3`, `local:default:2`, an ARN or
    /// URL followed by `:3`. Does not check whether `N` is a valid weight.
    pub fn split_weight(text: &str) -> (&str, Option<&str>) {
        let plain_colons = if text.starts_with("arn:") {
            5
        } else if let Some(at) = text.find("://") {
            let path = text[at + 3..]
                .find('/')
                .map_or(text.len(), |slash| at + 3 + slash);
            text[..path].matches(':').count()
        } else if text
            .split_once(':')
            .is_some_and(|(word, _)| backends::is_name(word))
        {
            1
        } else {
            0
        };
        match text.match_indices(':').nth(plain_colons) {
            Some((colon, _)) => (&text[..colon], Some(&text[colon + 1..])),
            None => (text, None),
        }
    }
}

impl std::str::FromStr for QueueName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Names have neither, and log lines that quote them must have neither.
        if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err(format!(
                "`{text}` is not a queue name; wanted a name without spaces and control characters"
            ));
        }
        let is_address = ["arn:", "http://", "https://"]
            .iter()
            .any(|start| text.starts_with(start));
        if is_address {
            let backend = find(text, backends::unnamed())?;
            backend.check_address(text)?;
            return Ok(Self {
                backend,
                name: text.to_owned(),
            });
        }
        let (prefix, name) = text.split_once(':').unwrap_or((backends::unnamed(), text));
        let backend = find(text, prefix)?;
        let queue = dead_letters_of(backend, name).unwrap_or(name);
        let lengths = &backend.facts().name_length;
        if !lengths.contains(&queue.len())
            || !queue
                .chars()
                .all(|c: char| c.is_ascii_alphanumeric() || "-_.".contains(c))
        {
            let part = backend
                .facts()
                .dead_letter_part
                .map(|part| format!(", followed by `/{part}` for its dead letters"));
            return Err(format!(
                "`{text}` is not a queue name; wanted {} to {} letters, digits, `-`, `_` or `.`{}",
                lengths.start(),
                lengths.end(),
                part.unwrap_or_default()
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
        if self.backend.name() == backends::unnamed() {
            return out.write_str(&self.name);
        }
        write!(out, "{}:{}", self.backend.name(), self.name)
    }
}

/// Returns the backend of this name, for a queue with this text.
fn find(text: &str, backend: &str) -> Result<&'static dyn Backend, String> {
    backends::find(backend).map_err(|absent| {
        if absent.is_left_out() {
            format!("`{text}` names a queue of {absent}")
        } else {
            format!(
                "`{text}` names {absent}; \
             wanted NAME, an SQS URL or ARN, local:NAME, redis:NAME, postgres:NAME or dynamodb:TABLE"
            )
        }
    })
}

/// The place of a bucket: `local:NAME` or `redis:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The backend of the bucket.
    pub backend: &'static dyn Backend,
    /// The bucket's name in the backend.
    pub bucket: String,
}

impl Place {
    /// Describes the form of a place.
    fn wanted() -> String {
        let able: Vec<String> = backends::those(|backend| backend.facts().has_buckets)
            .iter()
            .map(|name| format!("{name}:BUCKET"))
            .collect();
        let forms = able.join(" or ");
        format!("{forms}, the bucket in letters, digits, - _ and .")
    }
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (prefix, bucket) = text.trim().split_once(':').ok_or_else(Self::wanted)?;
        let backend = backends::find(prefix)
            .ok()
            .filter(|backend| backend.facts().has_buckets)
            .ok_or_else(Self::wanted)?;
        if !is_bucket(bucket) {
            return Err(Self::wanted());
        }
        Ok(Self {
            backend,
            bucket: bucket.to_owned(),
        })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}", self.backend.name(), self.bucket)
    }
}

/// The place of a fleet's limits: `local:NAME`, `redis:NAME` or `dynamodb:TABLE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetPlace {
    /// The backend of the store.
    pub backend: &'static dyn Backend,
    /// The fleet's name in the backend. Fleets of different names share nothing.
    pub name: String,
}

/// The name of a fleet that has none.
const FLEET: &str = "default";

impl FleetPlace {
    /// Returns the fleet of all processes of this machine. `None` if this binary has no embedded
    /// backend.
    pub fn of_this_machine() -> Option<Self> {
        let backend = backends::embedded().filter(|backend| backend.facts().has_fleets)?;
        Some(Self {
            backend,
            name: FLEET.to_owned(),
        })
    }

    /// Returns the problem of a text that is no place.
    fn refused(found: String) -> String {
        let able = backends::those(|backend| backend.facts().has_fleets);
        let forms: Vec<String> = able.iter().map(|name| format!("{name}:NAME")).collect();
        let wanted = forms.join(" or ");
        format!(
            "{found}; wanted {wanted}, the name in letters, digits, - _ and .; of DynamoDB a table"
        )
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

impl std::str::FromStr for FleetPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((prefix, name)) = text.split_once(':') else {
            return Err(Self::refused(format!("`{text}` names no store")));
        };
        let backend = match backends::find(prefix) {
            Ok(backend) if backend.facts().has_fleets => backend,
            Ok(_) => {
                return Err(Self::refused(format!(
                    "the backend `{prefix}` stores no limits"
                )));
            }
            Err(absent) if absent.is_left_out() => {
                return Err(Self::refused(format!(
                    "the backend `{prefix}` is not compiled into this binary"
                )));
            }
            Err(absent) => return Err(Self::refused(format!("`{text}` names {absent}"))),
        };
        let lengths = &backend.facts().name_length;
        // A fleet without a name is the default one, where names are not those of tables.
        let name = if name.is_empty() && lengths.contains(&1) {
            FLEET
        } else {
            name
        };
        if !lengths.contains(&name.len()) || !name.chars().all(is_plain) {
            return Err(Self::refused(format!("`{name}` cannot name a fleet there")));
        }
        Ok(Self {
            backend,
            name: name.to_owned(),
        })
    }
}

impl std::fmt::Display for FleetPlace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}", self.backend.name(), self.name)
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
    fn queue_names_round_trip() {
        for text in [
            "payments",
            "local:default",
            "redis:default",
            "dynamodb:QueueTable",
            "dynamodb:QueueTable/FAILURE",
            "arn:aws:sqs:eu-west-1:1:q",
            "https://h/1/q.fifo",
        ] {
            let name: QueueName = text.parse().expect(text);
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn invalid_queue_name_is_refused_with_the_expected_form() {
        for text in [
            "",
            "local:",
            "dynamodb:ab",
            "dynamodb:ab/FAILURE",
            "dynamodb:QueueTable/SUCCESS",
            "local:orders/FAILURE",
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

    #[test]
    fn fleet_is_a_backend_and_a_name() {
        for (text, place) in [
            ("local:", "local:default"),
            ("redis:", "redis:default"),
            ("redis:eu", "redis:eu"),
            ("dynamodb:Limits", "dynamodb:Limits"),
        ] {
            let parsed: FleetPlace = text.parse().expect(text);
            assert_eq!(parsed.to_string(), place);
        }
        let default = FleetPlace::of_this_machine().expect("it is compiled in");
        assert_eq!(default.to_string(), "local:default");
        for (text, found) in [
            ("", "`` names no store"),
            ("redis", "`redis` names no store"),
            ("sqs:a", "`sqs` stores no limits"),
            ("kafka:a", "`kafka`, which this version does not have"),
            ("dynamodb:", "`` cannot name a fleet"),
            ("redis:a b", "`a b` cannot name a fleet"),
            ("local:../x", "`../x` cannot name a fleet"),
        ] {
            let error = text.parse::<FleetPlace>().expect_err(text);
            assert!(error.contains(found) && error.contains("wanted"), "{error}");
        }
    }

    #[test]
    fn store_location_is_a_backend_and_a_bucket() {
        for text in ["local:orders", "redis:a.b-c_9"] {
            let place: Place = text.parse().expect(text);
            assert_eq!(place.to_string(), text);
        }
        let long = format!("local:{}", "a".repeat(81));
        for text in [
            "",
            "orders",
            "local:",
            "sqs:orders",
            "local:a b",
            "local:a/b",
            "redis:{a}",
            &long,
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
