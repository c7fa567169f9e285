//! The accounts of a run: finds those that give no credentials, whose queues are left out until they
//! do.

use dispatcher_aws as aws;
use dispatcher_config::{Route, Settings};
use dispatcher_core::account::AwsAccount;
use dispatcher_core::tasks;
use dispatcher_core::telemetry::readiness::{Readiness, ReadyWhen};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The interval at which accounts that give no credentials are asked again.
pub(crate) const RETRY: Duration = Duration::from_secs(15);

/// The accounts that give no credentials, each with the reason.
pub(crate) type UnusableAccounts = BTreeMap<AwsAccount, String>;

/// The settings that an operator wants, and the accounts whose queues are not in force.
#[derive(Clone)]
pub(crate) struct LeftOut {
    pub wanted: Settings,
    pub unusable: UnusableAccounts,
}

impl LeftOut {
    /// Creates the readiness of a process that starts with these settings.
    pub(crate) fn readiness(&self, ready_when: ReadyWhen) -> Arc<Readiness> {
        let readiness = Readiness::new(ready_when);
        show_left_out(&readiness, &self.unusable);
        Arc::new(readiness)
    }
}

/// Asks the accounts that routes need, and that `is_asked` chooses, for credentials. Returns those
/// that give none.
pub(crate) async fn unusable(
    settings: &Settings,
    is_asked: impl Fn(&AwsAccount) -> bool,
) -> UnusableAccounts {
    let routes = settings.routes.iter();
    let all = routes.flat_map(|route| accounts_of(settings, route));
    let accounts: BTreeSet<&AwsAccount> = all.filter(|account| is_asked(account)).collect();
    let endpoint_url = settings.stores.endpoint_url.as_deref();
    let answers = accounts.into_iter().map(|account| async move {
        let config = aws::account_configuration(endpoint_url, Some(account)).await;
        let error = aws::accounts::check(&config).await.err()?;
        Some((account.clone(), error.message))
    });
    let answers = tasks::all(answers.collect()).await;
    answers.into_iter().flatten().collect()
}

/// Asks the accounts in which queues of patterns may be for credentials. Returns those that give
/// none.
pub(crate) async fn of_patterns(settings: &Settings) -> UnusableAccounts {
    let patterns = settings.patterns();
    let all = patterns.flat_map(|pattern| pattern.accounts(&settings.stores.accounts));
    let accounts: BTreeSet<&AwsAccount> = all.flatten().collect();
    unusable(settings, |account| accounts.contains(account)).await
}

/// Returns settings without the queues of these accounts, and without the routes that are left with
/// none or whose function, target or dead-letter queue is in one of them.
pub(crate) fn usable(settings: &Settings, unusable: &UnusableAccounts) -> Settings {
    let mut left = settings.clone();
    left.routes.retain_mut(|route| {
        let mut common = common_accounts(settings, route);
        if common.any(|account| unusable.contains_key(account)) {
            return false;
        }
        let had_none = route.queues.is_empty();
        route.queues.retain(|queue| {
            let account = queue.name.account_in(&settings.stores.accounts);
            account.is_none_or(|account| !unusable.contains_key(account))
        });
        had_none || !route.queues.is_empty()
    });
    left
}

/// Returns settings as [`usable`] does, and without the routes whose patterns match no queue.
pub(crate) fn without(settings: &Settings, unusable: &UnusableAccounts) -> Settings {
    let mut left = usable(settings, unusable);
    left.routes.retain(|route| !route.queues.is_empty());
    left
}

/// Makes the process not ready because of these accounts alone.
pub(crate) fn show_left_out(readiness: &Readiness, unusable: &UnusableAccounts) {
    let accounts = unusable.iter();
    let reasons = accounts.map(|(account, reason)| (account.name.clone(), reason.clone()));
    readiness.replace("queues of account", reasons);
}

/// Iterates over the accounts that a route needs.
fn accounts_of<'a>(
    settings: &'a Settings,
    route: &'a Route,
) -> impl Iterator<Item = &'a AwsAccount> {
    let queues = route.queues.iter();
    let of_queues = queues.filter_map(|queue| queue.name.account_in(&settings.stores.accounts));
    let patterns = route.patterns.iter();
    let of_patterns = patterns.flat_map(|pattern| pattern.accounts(&settings.stores.accounts));
    of_queues
        .chain(of_patterns.flatten())
        .chain(common_accounts(settings, route))
}

/// Iterates over the accounts that all queues of a route need: those of its dead-letter queue and of
/// the function or the queue that it forwards to.
fn common_accounts<'a>(
    settings: &'a Settings,
    route: &Route,
) -> impl Iterator<Item = &'a AwsAccount> + use<'a> {
    let of_all = route.dead_letter.iter().chain(route.plugin.code.target());
    let of_queues: Vec<_> = of_all
        .filter_map(|name| name.account_in(&settings.stores.accounts))
        .collect();
    let function = route.plugin.code.function();
    let of_function =
        function.and_then(|function| settings.account_of_function(&route.plugin, function));
    of_queues.into_iter().chain(of_function)
}
