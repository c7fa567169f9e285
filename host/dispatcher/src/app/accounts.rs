//! The accounts of a run: finds those that give no credentials, whose queues are left out until they
//! do, and shows them in the readiness.

use dispatcher_aws as aws;
use dispatcher_config::name::QueueName;
use dispatcher_config::{Route, Settings};
use dispatcher_core::account::AwsAccount;
use dispatcher_core::clock;
use dispatcher_core::tasks;
use dispatcher_core::telemetry::readiness::{Readiness, ReadyWhen};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The interval at which accounts that give no credentials are asked again.
pub(crate) const RETRY: Duration = Duration::from_secs(15);

/// The interval at which the readiness follows the accounts.
const LOOK: Duration = Duration::from_secs(1);

/// The accounts that give no credentials, each with the reason.
pub(crate) type UnusableAccounts = BTreeMap<AwsAccount, String>;

/// The settings that an operator wants, and the accounts whose queues are not in force.
pub(crate) struct LeftOut {
    pub wanted: Settings,
    pub unusable: UnusableAccounts,
}

impl LeftOut {
    /// Creates the readiness of a process that starts with these settings.
    pub(crate) fn readiness(&self, ready_when: ReadyWhen) -> Arc<Readiness> {
        let readiness = Readiness::new(ready_when);
        show_left_out(&readiness, &UnusableAccounts::new(), &self.unusable);
        Arc::new(readiness)
    }
}

/// Asks the accounts of the settings' queues for credentials, if they are `asked`. Returns those that
/// give none.
pub(crate) async fn unusable(
    settings: &Settings,
    asked: impl Fn(&AwsAccount) -> bool,
) -> UnusableAccounts {
    let queues = settings.routes.iter().flat_map(queues);
    let all = queues.filter_map(|name| of(settings, name));
    let accounts: BTreeSet<&AwsAccount> = all.filter(|account| asked(account)).collect();
    let endpoint_url = settings.stores.endpoint_url.as_deref();
    let answers = accounts.into_iter().map(|account| async move {
        let config = aws::account_configuration(endpoint_url, Some(account)).await;
        let error = aws::accounts::check(&config, account).await.err()?;
        Some((account.clone(), error.message))
    });
    let answers = tasks::all(answers.collect()).await;
    answers.into_iter().flatten().collect()
}

/// Returns settings without the queues of these accounts, and without the routes that are left with
/// none.
pub(crate) fn without(settings: &Settings, unusable: &UnusableAccounts) -> Settings {
    let mut left = settings.clone();
    for route in &mut left.routes {
        let dead_letter = route.dead_letter.iter();
        if dead_letter
            .clone()
            .any(|name| needs(settings, name, unusable))
        {
            route.queues.clear();
        }
        let queues = &mut route.queues;
        queues.retain(|queue| !needs(settings, &queue.name, unusable));
    }
    left.routes.retain(|route| !route.queues.is_empty());
    left
}

/// Whether a queue belongs to one of these accounts.
fn needs(settings: &Settings, queue: &QueueName, unusable: &UnusableAccounts) -> bool {
    of(settings, queue).is_some_and(|account| unusable.contains_key(account))
}

/// Makes the process not ready until these accounts have given credentials.
pub(crate) fn show_left_out(
    readiness: &Readiness,
    before: &UnusableAccounts,
    now: &UnusableAccounts,
) {
    for account in before.keys().filter(|one| !now.contains_key(*one)) {
        readiness.clear(&left_out(account));
    }
    for (account, reason) in now {
        readiness.set(left_out(account), reason);
    }
}

fn left_out(account: &AwsAccount) -> String {
    format!("queues of account {}", account.name)
}

/// Shows in the readiness which accounts give no credentials, until cancelled.
pub(crate) async fn watch(readiness: Arc<Readiness>, over: CancellationToken) {
    while !over.is_cancelled() {
        for (account, figures) in aws::accounts::used() {
            match figures.failure {
                Some(reason) => readiness.close_account(&account, &reason),
                None => readiness.reopen_account(&account),
            }
        }
        tokio::select! {
            () = over.cancelled() => {}
            () = clock::sleep_until(Some(clock::now() + LOOK)) => {}
        }
    }
}

/// Iterates over the queues of a route and its dead-letter queue.
fn queues(route: &Route) -> impl Iterator<Item = &QueueName> {
    let queues = route.queues.iter().map(|queue| &queue.name);
    queues.chain(&route.dead_letter)
}

fn of<'a>(settings: &'a Settings, queue: &QueueName) -> Option<&'a AwsAccount> {
    let has_accounts = queue.backend.facts().has_accounts;
    let accounts = &settings.stores.accounts;
    has_accounts.then(|| accounts.of_queue(&queue.to_string()))?
}
