//! Checks the accounts, and the routes and plugins that name one. Opens nothing.

use super::Check;
use crate::backends::unnamed;
use crate::file::File;
use crate::flags::Flags;
use crate::name::QueueName;
use crate::problem::Problem;
use crate::section::{Layers, Section, WrittenValue};
use crate::value;
use dispatcher_core::account::{Accounts, AssumedRole, AwsAccount, DeclaredAccount, NamePattern};

/// The name of sessions if none is set.
const SESSION: &str = "dispatcher";

impl Check {
    /// Reads the accounts, in the order of their names. What a route or a plugin with an account
    /// names belongs to it.
    pub(super) fn accounts(&mut self, flags: &Flags, file: &File) -> Accounts {
        let sections = file.accounts.iter();
        let mut accounts: Vec<DeclaredAccount> = sections
            .map(|(name, section)| self.account(name, section))
            .collect();
        for section in &file.routes {
            let Some(account) = self.account_of(section, &accounts) else {
                continue;
            };
            // Flags are for the only route.
            let both = [&flags.route, section];
            let (queues, dead) = (
                Layers(&both).list("queues"),
                Layers(&both).one("dead-letter"),
            );
            let given = queues.unwrap_or_default().iter();
            let names = given.map(|given| QueueName::split_weight(given.text.trim()).0);
            let dead = dead.map(|given| given.text.trim());
            for name in names.chain(dead) {
                let account = &mut accounts[account];
                account
                    .queues
                    .push(NamePattern::of_name(without_backend(name)));
                self.problems.extend(without_accounts(section, name));
            }
        }
        for section in file.plugins.values() {
            let Some(account) = self.account_of(section, &accounts) else {
                continue;
            };
            let function = section.one("function").into_iter();
            let allowed = section.list("allow-lambda").unwrap_or_default();
            let names = function.chain(allowed).map(|given| given.text.trim());
            let functions = &mut accounts[account].functions;
            functions.extend(names.map(NamePattern::of_name));
        }
        accounts.into_iter().collect()
    }

    fn account(&mut self, name: &str, section: &Section) -> DeclaredAccount {
        let arn = self.read(section.one("role"), role);
        for key in ["external-id", "session-name"] {
            if let (Some(given), None) = (section.one(key), section.one("role")) {
                let found = format!("`{key}` without a role");
                self.problems
                    .push(Problem::new(&given.at, found, "a role as well"));
            }
        }
        let external_id = self.text(section, "external-id");
        let session_name = self.text(section, "session-name");
        DeclaredAccount {
            account: AwsAccount {
                name: name.to_owned(),
                role: arn.map(|arn| AssumedRole {
                    arn,
                    external_id,
                    session_name: session_name.unwrap_or_else(|| SESSION.to_owned()),
                }),
                profile: self.text(section, "profile"),
                region: self.text(section, "region"),
                endpoint_url: self.read(section.one("endpoint-url"), value::url),
            },
            queues: self.patterns(section, "queues"),
            functions: self.patterns(section, "functions"),
        }
    }

    fn text(&mut self, section: &Section, key: &str) -> Option<String> {
        self.read(section.one(key), |given| value::text(given, "a text"))
    }

    fn patterns(&mut self, section: &Section, key: &str) -> Vec<NamePattern> {
        let given = section.list(key).unwrap_or_default().iter();
        let patterns = given.filter_map(|given| self.read(Some(given), pattern));
        patterns.collect()
    }

    /// Returns the index of the account that a route or a plugin names.
    fn account_of(&mut self, section: &Section, accounts: &[DeclaredAccount]) -> Option<usize> {
        let given = section.one("account")?;
        let names = accounts.iter().map(|one| one.account.name.as_str());
        let place = names.clone().position(|name| name == given.text);
        if place.is_none() {
            let found = format!("no account `{}`", given.text);
            let wanted = "the name of an [account.NAME] of the file";
            let problem = Problem::new(&given.at, found, wanted);
            self.problems.push(problem.nearest(&given.text, names));
        }
        place
    }
}

/// Returns a problem if a route with an account has a queue that belongs to none.
fn without_accounts(section: &Section, name: &str) -> Option<Problem> {
    let given = section.one("account")?;
    let queue: QueueName = name.parse().ok()?;
    (!queue.backend.facts().has_accounts).then(|| {
        let found = format!("an account for `{queue}`");
        Problem::new(&given.at, found, "a route whose queues are all of AWS")
    })
}

/// Returns the name of a queue as it is shown: without its backend, if that need not be named.
fn without_backend(name: &str) -> &str {
    let rest = name.strip_prefix(unnamed());
    rest.and_then(|rest| rest.strip_prefix(':')).unwrap_or(name)
}

fn pattern(given: &WrittenValue) -> Result<NamePattern, Problem> {
    let text = without_backend(given.text.trim());
    NamePattern::parse(text).ok_or_else(|| {
        let found = format!("`{text}` is not a pattern");
        Problem::new(
            &given.at,
            found,
            "a name in which no two `*` follow each other",
        )
    })
}

fn role(given: &WrittenValue) -> Result<String, Problem> {
    let text = given.text.trim();
    let parts: Vec<&str> = text.splitn(6, ':').collect();
    let is_role = matches!(
        &parts[..],
        ["arn", partition, "iam", "", id, name]
            if partition.starts_with("aws")
                && id.len() == 12
                && id.bytes().all(|byte| byte.is_ascii_digit())
                && name.strip_prefix("role/").is_some_and(|name| !name.is_empty())
    );
    if is_role {
        return Ok(text.to_owned());
    }
    let found = format!("`{text}` is not the ARN of a role");
    let wanted = "arn:aws:iam::ACCOUNT:role/NAME, with the twelve digits of the account";
    Err(Problem::new(&given.at, found, wanted))
}
