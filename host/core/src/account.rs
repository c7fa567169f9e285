//! Accounts of AWS: the credentials, region and endpoint of calls for some queues and functions.
//! Pure.

use crate::filter::text::Wildcard;
use std::fmt;
use std::sync::Arc;

/// How calls for some queues and functions are made.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AwsAccount {
    /// The name in the configuration.
    pub name: String,
    /// The role to assume.
    pub role: Option<AssumedRole>,
    /// The profile of the credentials, or of those that assume the role.
    pub profile: Option<String>,
    /// The region, if it differs from that of the profile or the process.
    pub region: Option<String>,
    /// The endpoint of all calls, if it differs from that of the process.
    pub endpoint_url: Option<String>,
}

/// An account with the queues and functions that belong to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclaredAccount {
    /// The account.
    pub account: AwsAccount,
    /// The queues, by their names in the configuration.
    pub queues: Vec<NamePattern>,
    /// The functions, by their names or ARNs in the configuration.
    pub functions: Vec<NamePattern>,
}

/// The accounts of a configuration. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts(Arc<[DeclaredAccount]>);

/// The use of an account by this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountFigures {
    /// How often it gave no credentials.
    pub failures: u64,
    /// Why it gave none the last time it was asked.
    pub failure: Option<String>,
}

/// A role that is assumed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssumedRole {
    /// Its ARN.
    pub arn: String,
    /// The external id that its trust policy demands.
    pub external_id: Option<String>,
    /// The name of the sessions, which CloudTrail shows.
    pub session_name: String,
}

/// Whether a text is the id of an account: twelve digits.
pub fn is_account_id(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the twelve digits of the account in an ARN, or in the URL of a queue.
fn account_id(name: &str) -> Option<&str> {
    let id = if name.starts_with("arn:") {
        name.split(':').nth(4)?
    } else {
        let (_, rest) = name.split_once("://")?;
        rest.split('/').nth(1)?
    };
    is_account_id(id).then_some(id)
}

/// Returns the backend that a name begins with, if it begins with one.
fn backend(name: &str) -> Option<&str> {
    let (backend, _) = name.split_once(':')?;
    (!["arn", "http", "https"].contains(&backend)).then_some(backend)
}

/// A name in which `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamePattern {
    text: String,
    /// The text as a wildcard, unless it can only be a name.
    wildcard: Option<Wildcard>,
}

impl NamePattern {
    /// Parses a pattern. Returns `None` if two `*` follow each other.
    pub fn parse(text: &str) -> Option<Self> {
        let pattern = Self::of_name(text);
        pattern.wildcard.is_some().then_some(pattern)
    }

    /// Returns the pattern of a single name.
    pub fn of_name(name: &str) -> Self {
        Self {
            text: name.to_owned(),
            wildcard: Wildcard::parse(name),
        }
    }

    /// Whether a name matches. A pattern without a backend does not match a name with one.
    pub fn matches(&self, name: &str) -> bool {
        let wildcard = self.wildcard.as_ref();
        let is_match = wildcard.is_some_and(|wildcard| wildcard.is(name));
        self.text == name || (is_match && backend(&self.text) == backend(name))
    }

    /// Whether a name may match both patterns. Only tells patterns apart whose names begin or end
    /// differently.
    fn may_meet(&self, other: &Self) -> bool {
        let (own, others) = (self.ends(), other.ends());
        let begins = own.0.starts_with(others.0) || others.0.starts_with(own.0);
        begins && (own.1.ends_with(others.1) || others.1.ends_with(own.1))
    }

    /// Returns what stands before the first `*` and after the last.
    fn ends(&self) -> (&str, &str) {
        let text = &*self.text;
        let (first, _) = text.split_once('*').unwrap_or((text, ""));
        let (_, last) = text.rsplit_once('*').unwrap_or(("", text));
        (first, last)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl Accounts {
    /// Returns the accounts with what belongs to them.
    pub fn declared(&self) -> &[DeclaredAccount] {
        &self.0
    }

    /// Iterates over the accounts.
    pub fn iter(&self) -> impl Iterator<Item = &AwsAccount> {
        self.0.iter().map(|declared| &declared.account)
    }

    /// Returns the account of this name.
    pub fn named(&self, name: &str) -> Option<&AwsAccount> {
        self.iter().find(|account| account.name == name)
    }

    /// Returns the account of a queue, by its name in the configuration.
    pub fn of_queue(&self, queue: &str) -> Option<&AwsAccount> {
        self.of(queue, |declared| &declared.queues)
    }

    /// Returns the accounts in which queues of a pattern may be; `None` is that of the process.
    pub fn of_queues<'a>(
        &'a self,
        pattern: &NamePattern,
    ) -> impl Iterator<Item = Option<&'a AwsAccount>> {
        let all = self.0.iter();
        let is_owned = all
            .clone()
            .any(|declared| declared.queues.contains(pattern));
        let matching = all.filter(|declared| {
            let mut queues = declared.queues.iter();
            queues.any(|own| own.may_meet(pattern))
        });
        let named = matching.map(|declared| Some(&declared.account));
        let own = (!is_owned).then_some(None);
        named.chain(own)
    }

    /// Returns the account of a function, by its name or ARN in the configuration.
    pub fn of_function(&self, function: &str) -> Option<&AwsAccount> {
        self.of(function, |declared| &declared.functions)
    }

    /// Returns the account that has a name itself, else the account with the longest pattern that
    /// the name matches. Redrive policies name queues that no pattern matches: for an ARN or a URL,
    /// returns the only account whose role has its twelve digits.
    fn of(
        &self,
        name: &str,
        patterns: impl Fn(&DeclaredAccount) -> &[NamePattern],
    ) -> Option<&AwsAccount> {
        let matching = self.0.iter().filter_map(|declared| {
            let own = patterns(declared).iter();
            let matching = own.filter(|pattern| pattern.matches(name));
            let lengths = matching.map(|pattern| (pattern.text == name, pattern.text.len()));
            Some((lengths.max()?, &declared.account))
        });
        let longest = matching.max_by_key(|(length, _)| *length);
        longest.map(|(_, account)| account).or_else(|| {
            let id = account_id(name)?;
            let mut own = self.iter().filter(|account| {
                let role = account.role.as_ref();
                role.and_then(|role| account_id(&role.arn)) == Some(id)
            });
            match (own.next(), own.next()) {
                (Some(only), None) => Some(only),
                _ => None,
            }
        })
    }
}

impl FromIterator<DeclaredAccount> for Accounts {
    fn from_iter<T: IntoIterator<Item = DeclaredAccount>>(accounts: T) -> Self {
        Self(accounts.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str, id: &str, queues: &[&str]) -> DeclaredAccount {
        let patterns = queues.iter().filter_map(|text| NamePattern::parse(text));
        DeclaredAccount {
            account: AwsAccount {
                name: name.to_owned(),
                role: Some(AssumedRole {
                    arn: format!("arn:aws:iam::{id}:role/dispatcher"),
                    external_id: None,
                    session_name: "dispatcher".to_owned(),
                }),
                ..AwsAccount::default()
            },
            queues: patterns.collect(),
            functions: Vec::new(),
        }
    }

    #[test]
    fn longest_pattern_decides_and_an_arn_names_its_account() {
        let accounts: Accounts = [
            account("all", "111111111111", &["team-*"]),
            account("one", "222222222222", &["team-a-*", "orders"]),
            account("twice", "333333333333", &[]),
            account("again", "333333333333", &["dynamodb:jobs"]),
        ]
        .into_iter()
        .collect();
        for (queue, wanted) in [
            ("team-b-jobs", Some("all")),
            ("team-a-jobs", Some("one")),
            ("orders", Some("one")),
            ("dynamodb:jobs", Some("again")),
            ("others", None),
            ("arn:aws:sqs:eu-west-1:111111111111:dead", Some("all")),
            (
                "https://sqs.eu-west-1.amazonaws.com/111111111111/dead",
                Some("all"),
            ),
            (
                "https://sqs.eu-west-1.amazonaws.com/444444444444/dead",
                None,
            ),
            ("dynamodb:team-a-jobs", None),
            ("arn:aws:sqs:eu-west-1:333333333333:dead", None),
            ("arn:aws:sqs:eu-west-1:444444444444:dead", None),
        ] {
            let found = accounts
                .of_queue(queue)
                .map(|account| account.name.as_str());
            assert_eq!(found, wanted, "{queue}");
        }
        assert_eq!(accounts.of_function("team-a-jobs"), None);
    }
}
