//! Checks the accounts, and the routes and plugins that name one. Opens nothing.

use super::Check;
use crate::Route;
use crate::discovery::{name_pattern, without_backend};
use crate::file::File;
use crate::name::QueueName;
use crate::problem::Problem;
use crate::section::{Section, WrittenValue};
use crate::value;
use dispatcher_core::account::{
    Accounts, AssumedRole, AwsAccount, DeclaredAccount, NamePattern, is_account_id,
};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The name of sessions if none is set.
const SESSION: &str = "dispatcher";

impl Check {
    /// Reads the accounts, in the order of their names. What a route or a plugin with an account
    /// names belongs to it.
    pub(super) fn accounts(&mut self, file: &File) -> Accounts {
        let sections = file.accounts.iter();
        let mut accounts: Vec<DeclaredAccount> = sections
            .map(|(name, section)| self.account(name, section))
            .collect();
        for section in &file.routes {
            let Some(account) = self.account_of(section, &accounts) else {
                continue;
            };
            let queues = section.list("queues").unwrap_or_default().iter();
            let names = queues.map(|given| QueueName::split_weight(given.text.trim()).0);
            let dead = section.one("dead-letter").map(|given| given.text.trim());
            for name in names.chain(dead) {
                let account = &mut accounts[account];
                account
                    .queues
                    .push(NamePattern::of_name(without_backend(name)));
                self.problems.extend(without_accounts(section, name));
            }
        }
        for section in file.plugins.values() {
            self.account_of(section, &accounts);
        }
        self.unique_patterns(&accounts, file);
        accounts.into_iter().collect()
    }

    /// Reports names and patterns that two accounts have.
    fn unique_patterns(&mut self, accounts: &[DeclaredAccount], file: &File) {
        let mut taken: BTreeMap<(&str, &NamePattern), &str> = BTreeMap::new();
        for declared in accounts {
            let queues = declared.queues.iter().map(|pattern| ("queue", pattern));
            let functions = declared.functions.iter().map(|one| ("function", one));
            for (what, pattern) in queues.chain(functions) {
                let name = declared.account.name.as_str();
                let other = *taken.entry((what, pattern)).or_insert(name);
                if other != name {
                    let at = file.accounts.get(name).map_or("[account]", |one| &one.at);
                    let found = format!("{what} `{pattern}` belongs to account `{other}` already");
                    let wanted = "each name and pattern in one account";
                    self.problems.push(Problem::new(at, found, wanted));
                }
            }
        }
    }

    /// Reports routes whose dead-letter queue is in another account than one of their queues: they
    /// are opened together.
    pub(super) fn dead_letters_in_account(&mut self, routes: &[Route], accounts: &Accounts) {
        for route in routes {
            let Some(target) = &route.dead_letter else {
                continue;
            };
            let own = target.account_in(accounts);
            let queues = route.queues.iter();
            for queue in queues.filter(|queue| queue.name.account_in(accounts) != own) {
                let name = &queue.name;
                let found =
                    format!("dead-letter queue `{target}` in another account than `{name}`");
                let wanted = "both in one account, by its `queues` or by `account` in the route";
                let problem = Problem::new(&route.at, found, wanted);
                self.problems.push(problem.of_queue(queue));
            }
        }
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
        let external_id = self.read(section.one("external-id"), |given| {
            of_characters(given, "an external id", "+=,.@:/-_", &(2..=1_224))
        });
        let session_name = self.read(section.one("session-name"), |given| {
            of_characters(given, "a session name", "+=,.@-_", &(2..=64))
        });
        DeclaredAccount {
            account: AwsAccount {
                name: name.to_owned(),
                role: arn.map(|arn| AssumedRole {
                    arn,
                    external_id,
                    session_name: session_name.unwrap_or_else(|| SESSION.to_owned()),
                }),
                profile: self.text(section, "profile"),
                region: self.read(section.one("region"), |given| {
                    of_characters(given, "a region", "-", &(1..=63))
                }),
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
        let patterns = given.filter_map(|given| self.read(Some(given), name_pattern));
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

/// Reads letters, digits and these other characters.
fn of_characters(
    given: &WrittenValue,
    what: &str,
    others: &str,
    length: &RangeInclusive<usize>,
) -> Result<String, Problem> {
    let text = given.text.trim();
    let mut characters = text.chars();
    if length.contains(&text.len())
        && characters.all(|one| one.is_ascii_alphanumeric() || others.contains(one))
    {
        return Ok(text.to_owned());
    }
    let (least, most) = (length.start(), length.end());
    let wanted = format!("{least} to {most} letters, digits and {others}");
    Err(Problem::new(
        &given.at,
        format!("`{text}` is not {what}"),
        wanted,
    ))
}

fn role(given: &WrittenValue) -> Result<String, Problem> {
    let text = given.text.trim();
    let parts: Vec<&str> = text.splitn(6, ':').collect();
    let is_role = matches!(
        &parts[..],
        ["arn", partition, "iam", "", id, name]
            if partition.starts_with("aws")
                && is_account_id(id)
                && name.strip_prefix("role/").is_some_and(|name| !name.is_empty())
    );
    if is_role {
        return Ok(text.to_owned());
    }
    let found = format!("`{text}` is not the ARN of a role");
    let wanted = "arn:aws:iam::ACCOUNT:role/NAME, with the twelve digits of the account";
    Err(Problem::new(&given.at, found, wanted))
}
