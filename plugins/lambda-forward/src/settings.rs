//! What to forward to, from environment variables. Knows nothing of messages.

use crate::event::NoDigest;
use dispatcher_guest::lambda::Invocation;

/// Lambda takes less than so many bytes when it is waited for: 6 MB (Invoke's quota; its refusal
/// says "must be smaller than").
const LIMIT_SYNC: usize = 6 * 1024 * 1024;
/// It takes less than so many into its own queue: 1 MB (Invoke's quota).
const LIMIT_ASYNC: usize = 1024 * 1024;
/// The largest event of which a copy is held while the function runs, in bytes. Many may run at
/// once in one instance, and Lambda has never refused a smaller event than it says.
const KEPT_SYNC: usize = 256 * 1024;

/// What to forward to, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name, `name:alias`, `name:version` or ARN.
    pub function: String,
    /// Whether the function's answer is waited for.
    pub invocation: Invocation,
    /// Whether the answer may name the messages that failed (`batchItemFailures`).
    pub partial_failures: bool,
    /// How a record without attributes says so.
    pub no_digest: NoDigest,
}

impl Settings {
    /// Reads `FUNCTION`, `INVOCATION`, `PARTIAL_FAILURES` and `BATCH_WINDOW` by way of `variable`.
    ///
    /// # Errors
    /// Every problem in one line.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut problems = Vec::new();
        let function = set("FUNCTION").unwrap_or_default();
        if function.is_empty() {
            problems.push("FUNCTION is not set: wanted a function's name or ARN".to_owned());
        }
        let invocation = match set("INVOCATION").as_deref() {
            None | Some("sync") => Invocation::RequestResponse,
            Some("async") => Invocation::Event,
            Some(other) => {
                problems.push(format!("INVOCATION is {other:?}: wanted sync or async"));
                Invocation::RequestResponse
            }
        };
        let mut switch = |name: &str| match set(name).as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                problems.push(format!("{name} is {other:?}: wanted true or false"));
                false
            }
        };
        let partial_failures = switch("PARTIAL_FAILURES");
        let no_digest = if switch("BATCH_WINDOW") {
            NoDigest::Null
        } else {
            NoDigest::Absent
        };
        if problems.is_empty() {
            Ok(Self {
                function,
                invocation,
                partial_failures,
                no_digest,
            })
        } else {
            Err(problems.join("; "))
        }
    }

    /// An invocation has fewer bytes than this.
    pub fn limit(&self) -> usize {
        if self.waits() {
            LIMIT_SYNC
        } else {
            LIMIT_ASYNC
        }
    }

    /// The largest event that is kept for halves, in bytes: all that are only queued, which takes
    /// no time.
    pub fn kept(&self) -> usize {
        if self.waits() { KEPT_SYNC } else { LIMIT_ASYNC }
    }

    /// Whether the function's answer is waited for.
    pub fn waits(&self) -> bool {
        matches!(self.invocation, Invocation::RequestResponse)
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
    fn only_the_function_is_required() {
        let least = read(&[("FUNCTION", "f:live")]).expect("complete");
        assert_eq!(least.function, "f:live");
        assert!(least.waits() && !least.partial_failures);
        assert_eq!(least.no_digest, NoDigest::Absent);
        assert_eq!(least.limit(), 6_291_456);
        let all = [
            ("FUNCTION", "f"),
            ("INVOCATION", "async"),
            ("PARTIAL_FAILURES", "true"),
            ("BATCH_WINDOW", "true"),
        ];
        let all = read(&all).expect("complete");
        assert!(!all.waits() && all.partial_failures);
        assert_eq!(all.no_digest, NoDigest::Null);
        assert_eq!(all.limit(), 1_048_576);
    }

    #[test]
    fn all_invalid_settings_are_reported_together() {
        let bad = [("INVOCATION", "later"), ("PARTIAL_FAILURES", "yes")];
        assert_eq!(
            read(&bad),
            Err("FUNCTION is not set: wanted a function's name or ARN; \
                 INVOCATION is \"later\": wanted sync or async; \
                 PARTIAL_FAILURES is \"yes\": wanted true or false"
                .into())
        );
    }
}
