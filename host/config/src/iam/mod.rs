//! Derives the IAM policy of a run from its settings, as narrow as they allow. If the settings
//! contain no region or account, the policy is for all of them. Pure.

use super::function::FunctionName;
use super::{Code, MetricsSink, Settings};
use crate::backends;
use crate::name::QueueName;
use dispatcher_core::account::{AssumedRole, AwsAccount};
use dispatcher_core::backend::{Permission, Purpose, QueueKey};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The default partition.
const PARTITION: &str = "aws";

const VERSION: &str = "2012-10-17";

/// The process that assumes a role, in a trust policy. The settings do not have it.
const CALLER: &str = "ACCOUNT-OF-THE-PROCESS:role/ROLE-OF-THE-PROCESS";
/// The owner of a profile that assumes a role, in a trust policy. The settings do not have it.
const PROFILE: &str = "ACCOUNT-OF-THE-PROFILE:role/ROLE-OF-THE-PROFILE";

const ASSUME: &[&str] = &["sts:AssumeRole"];
const INVOKE: &[&str] = &["lambda:InvokeFunction"];
/// The actions for reading a function's timeout, which limits attempts, and its reserved
/// concurrency.
const LOOK: &[&str] = &[
    "lambda:GetFunctionConcurrency",
    "lambda:GetFunctionConfiguration",
];
const PUBLISH: &[&str] = &["cloudwatch:PutMetricData"];
/// The actions for encrypted queues: a receive decrypts, a send also generates a data key
/// ("Configuring KMS permissions for Amazon SQS" in its developer guide).
const USE_KEY: &[&str] = &["kms:Decrypt", "kms:GenerateDataKey"];

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Policy<S = Statement> {
    version: &'static str,
    statement: Vec<S>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Statement {
    sid: &'static str,
    effect: &'static str,
    action: &'static [&'static str],
    resource: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<Condition>,
}

type Condition = BTreeMap<&'static str, BTreeMap<&'static str, serde_json::Value>>;

/// The policies of a run that uses accounts.
#[derive(Serialize)]
struct Policies<'a> {
    /// The policy of the process itself, which assumes the roles.
    process: Policy,
    accounts: BTreeMap<&'a str, AccountPolicy<'a>>,
}

/// The policy of an account, and who uses it.
#[derive(Serialize)]
struct AccountPolicy<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a str>,
    /// The trust policy of the role.
    #[serde(skip_serializing_if = "Option::is_none")]
    trust: Option<Policy<TrustStatement>>,
    policy: Policy,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct TrustStatement {
    sid: &'static str,
    effect: &'static str,
    principal: BTreeMap<&'static str, String>,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<Condition>,
}

/// The keys of encrypted queues by the account that they are used in; `None` is the process itself.
pub type AccountKeys = BTreeMap<Option<AwsAccount>, Vec<QueueKey>>;

/// Returns the policy as indented JSON; the same settings always give the same text. It has no
/// statements for unused services. If the settings have accounts, returns the policy of the process,
/// and for each account the policy and the trust policy of its role. `keys` are those of the settings'
/// encrypted queues.
pub fn policy(settings: &Settings, keys: &AccountKeys) -> String {
    let accounts: Vec<&AwsAccount> = settings.stores.accounts.iter().collect();
    let mut process = of_account(settings, None, keys);
    let text = if accounts.is_empty() {
        serde_json::to_string_pretty(&process)
    } else {
        let roles = accounts.iter().filter(|account| account.profile.is_none());
        let roles = roles.filter_map(|account| Some(account.role.as_ref()?.arn.clone()));
        let assume = statement("AssumeRoles", ASSUME, roles.collect());
        if !assume.resource.is_empty() {
            process.statement.push(assume);
        }
        let accounts = accounts.into_iter().map(|account| {
            let of_account = AccountPolicy {
                role: account.role.as_ref().map(|role| role.arn.as_str()),
                profile: account.profile.as_deref(),
                trust: account.role.as_ref().map(|role| trust(role, account)),
                policy: of_account(settings, Some(account), keys),
            };
            (account.name.as_str(), of_account)
        });
        serde_json::to_string_pretty(&Policies {
            process,
            accounts: accounts.collect(),
        })
    };
    text.expect("texts in lists are JSON")
}

/// Returns the trust policy of a role: who may assume it.
fn trust(role: &AssumedRole, account: &AwsAccount) -> Policy<TrustStatement> {
    let partition = of_arn(&role.arn).unwrap_or(PARTITION);
    let caller = match account.profile {
        Some(_) => PROFILE,
        None => CALLER,
    };
    let principal = format!("arn:{partition}:iam::{caller}");
    let id = role.external_id.clone();
    let condition = id.map(|id| BTreeMap::from([("sts:ExternalId", id.into())]));
    Policy {
        version: VERSION,
        statement: vec![TrustStatement {
            sid: "TrustDispatcher",
            effect: "Allow",
            principal: BTreeMap::from([("AWS", principal)]),
            action: ASSUME[0],
            condition: condition.map(|equals| BTreeMap::from([("StringEquals", equals)])),
        }],
    }
}

/// Whether functions belong to an account, or to none.
fn has_functions(settings: &Settings, account: Option<&AwsAccount>) -> bool {
    let mut declared = settings.stores.accounts.declared().iter();
    account.is_none_or(|account| {
        declared.any(|one| one.account == *account && !one.functions.is_empty())
    })
}

/// Returns the policy for what belongs to an account, or to the process itself.
fn of_account(settings: &Settings, account: Option<&AwsAccount>, keys: &AccountKeys) -> Policy {
    let partition = &*partition(settings);
    let mut invoke = BTreeSet::new();
    let mut look = BTreeSet::new();
    for route in &settings.routes {
        let allowed = route.plugin.settings.allow_lambda.iter();
        let own = allowed.filter(|pattern| {
            let found = settings.account_of_function(&route.plugin, pattern);
            // The functions of any account may match.
            let is_open = pattern.contains('*') && route.plugin.settings.account.is_none();
            found == account || (is_open && has_functions(settings, account))
        });
        invoke.extend(own.map(|pattern| function_arn(pattern, partition)));
        if let Code::Forward(forward) = &route.plugin.code
            && settings.account_of_function(&route.plugin, &forward.function) == account
        {
            let arn = function_arn(&forward.function, partition);
            // Concurrency is a property of the function, not of its versions.
            look.insert(unqualified(&forward.function, &arn));
            look.insert(arn.clone());
            invoke.insert(arn);
        }
    }
    let mut statement = use_queues(settings, account, partition);
    statement.extend([
        self::statement("InvokeFunctions", INVOKE, invoke),
        self::statement("LookAtFunctions", LOOK, look),
    ]);
    statement.extend(use_fleet(settings, account, partition));
    let keys = keys.get(&account.cloned());
    statement.extend(use_keys(keys.map_or(&[], Vec::as_slice)));
    if account.is_none() {
        statement.extend(publish(settings));
    }
    statement.retain(|statement| !statement.resource.is_empty());
    Policy {
        version: VERSION,
        statement,
    }
}

/// Returns the statements that the backends need for the queues of the settings.
fn use_queues(
    settings: &Settings,
    account: Option<&AwsAccount>,
    partition: &str,
) -> Vec<Statement> {
    const TAKING: &[Purpose] = &[
        Purpose::List,
        Purpose::Find,
        Purpose::Receive,
        Purpose::DeadLetter,
        Purpose::Redrive,
    ];
    let uses = uses(settings, account);
    let mut statements = Vec::new();
    for purposes in [TAKING, &[Purpose::Send]] {
        for backend in backends::all() {
            let config = settings.stores.config_of(backend.name());
            for purpose in purposes {
                let of_both = uses
                    .iter()
                    .filter(|(name, used)| name.backend == *backend && used == purpose);
                let wanted = of_both.filter_map(|(name, _)| {
                    backend.permission(&name.name, *purpose, partition, &config)
                });
                statements.extend(merged(wanted));
            }
        }
    }
    statements
}

/// Returns the statement for the store of the fleet. It has limits, if there are any, pauses and
/// live numbers, and a summary of each process.
fn use_fleet(
    settings: &Settings,
    account: Option<&AwsAccount>,
    partition: &str,
) -> Option<Statement> {
    let place = settings.fleet.store.as_ref()?;
    if settings.stores.accounts.of_queue(&place.to_string()) != account {
        return None;
    }
    let config = settings.stores.config_of(place.backend.name());
    let backend = place.backend;
    let wanted = backend.permission(&place.name, Purpose::Fleet, partition, &config);
    merged(wanted.into_iter())
}

/// Lists the queues of an account in the settings with their purpose. A pattern stands for all queues
/// that it may find.
fn uses<'a>(settings: &'a Settings, account: Option<&AwsAccount>) -> Vec<(&'a QueueName, Purpose)> {
    let accounts = &settings.stores.accounts;
    let mut uses = Vec::new();
    for route in &settings.routes {
        let written = route.queues.iter().filter(|queue| queue.found_by.is_none());
        let mut queues: Vec<&QueueName> = written.map(|queue| &queue.name).collect();
        queues.retain(|name| name.account_in(accounts) == account);
        let patterns = route.patterns.iter();
        let may_find = patterns.filter(|pattern| pattern.accounts(accounts).contains(&account));
        for pattern in may_find {
            let name = pattern.as_queue();
            uses.extend([(name, Purpose::List), (name, Purpose::Find)]);
            queues.push(name);
        }
        uses.extend(queues.iter().map(|name| (*name, Purpose::Receive)));
        match &route.dead_letter {
            Some(name) if name.account_in(accounts) == account => {
                uses.push((name, Purpose::DeadLetter))
            }
            Some(_) => {}
            None => uses.extend(queues.iter().map(|name| (*name, Purpose::Redrive))),
        }
        let of_account = route
            .plugin
            .sends()
            .filter(|name| name.account_in(accounts) == account);
        uses.extend(of_account.map(|name| (name, Purpose::Send)));
    }
    uses
}

/// Merges permissions that differ only in their resources into one statement.
fn merged(permissions: impl Iterator<Item = Permission>) -> Option<Statement> {
    permissions.fold(None, |merged, permission| {
        let Permission {
            sid,
            actions,
            resources,
        } = permission;
        let mut one = merged.unwrap_or_else(|| statement(sid, actions, BTreeSet::new()));
        one.resource.extend(resources);
        Some(one)
    })
}

fn statement(
    sid: &'static str,
    action: &'static [&'static str],
    resource: BTreeSet<String>,
) -> Statement {
    Statement {
        sid,
        effect: "Allow",
        action,
        resource,
        condition: None,
    }
}

/// Returns a statement for keys with a known id, and one for keys with an alias. An alias cannot be
/// a resource of a policy, so it is in a condition.
fn use_keys(keys: &[QueueKey]) -> impl Iterator<Item = Statement> {
    let (mut ids, mut places, mut aliases) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for QueueKey { key, queue } in keys {
        let arn = if key.starts_with("arn:") { key } else { queue };
        let mut parts = arn.split(':').skip(1);
        let partition = parts.next().unwrap_or(PARTITION);
        let mut place = parts
            .skip(1)
            .map(|part| if part.is_empty() { "*" } else { part });
        let (region, account) = (place.next().unwrap_or("*"), place.next().unwrap_or("*"));
        let all = format!("arn:{partition}:kms:{region}:{account}:key/");
        let name = key.rsplit(':').next().unwrap_or(key);
        if name.starts_with("alias/") {
            places.insert(format!("{all}*"));
            aliases.insert(name.to_owned());
        } else {
            let id = name.trim_start_matches("key/");
            ids.insert(format!("{all}{id}"));
        }
    }
    let aliases = BTreeMap::from([("kms:ResourceAliases", serde_json::json!(aliases))]);
    let by_alias = Statement {
        condition: Some(BTreeMap::from([("ForAnyValue:StringEquals", aliases)])),
        ..statement("UseKeysByAlias", USE_KEY, places)
    };
    [statement("UseKeys", USE_KEY, ids), by_alias].into_iter()
}

/// Returns the statement for metrics. `PutMetricData` has no resources, so a condition limits the
/// namespace.
fn publish(settings: &Settings) -> Option<Statement> {
    let name = settings.program.name.as_ref()?;
    let sink = settings.metrics?.sink;
    (sink == MetricsSink::CloudWatch).then(|| {
        let value = format!("Dispatcher-{name}").into();
        let namespace = BTreeMap::from([("cloudwatch:namespace", value)]);
        Statement {
            condition: Some(BTreeMap::from([("StringEquals", namespace)])),
            ..statement("PublishMetrics", PUBLISH, BTreeSet::from(["*".to_owned()]))
        }
    })
}

/// Returns the first partition in the settings, since credentials are valid in only one.
fn partition(settings: &Settings) -> String {
    let mut known = settings.routes.iter().flat_map(|route| {
        let queues = route
            .queues
            .iter()
            .map(|queue| &queue.name)
            .chain(&route.dead_letter)
            .chain(route.plugin.code.target())
            .filter_map(|name| name.backend.partition(&name.name));
        let function = route.plugin.code.function().and_then(of_arn);
        let allowed = route.plugin.settings.allow_lambda.iter();
        queues
            .chain(function.map(str::to_owned))
            .chain(allowed.filter_map(|pattern| of_arn(pattern).map(str::to_owned)))
    });
    known.next().unwrap_or_else(|| PARTITION.to_owned())
}

fn of_arn(text: &str) -> Option<&str> {
    let partition = text.strip_prefix("arn:")?.split(':').next()?;
    (partition != "*").then_some(partition)
}

/// Returns the ARN of a function or a pattern; `*` has the same meaning in both.
fn function_arn(text: &str, partition: &str) -> String {
    match text.split_once(":function:") {
        Some((before, _)) if before.starts_with("arn:") => text.to_owned(),
        Some((account, name)) => format!("arn:{partition}:lambda:*:{account}:function:{name}"),
        None if text.starts_with("arn:") => text.to_owned(),
        None => format!("arn:{partition}:lambda:*:*:function:{text}"),
    }
}

/// Returns the ARN without the function's qualifier.
fn unqualified(function: &str, arn: &str) -> String {
    let qualifier = FunctionName::parse(function).and_then(|function| function.qualifier);
    let length = qualifier.map_or(0, |qualifier| qualifier.len() + 1);
    arn[..arn.len() - length].to_owned()
}

#[cfg(test)]
mod tests;
