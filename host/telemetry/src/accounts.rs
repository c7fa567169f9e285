//! The accounts of AWS that a process uses, as metrics.

use dispatcher_core::account::AccountFigures;
use dispatcher_core::telemetry::metrics::registry::{
    Metric, MetricFamily, MetricSample, MetricValue, Unit,
};
use std::collections::BTreeMap;

/// Returns the figures of the accounts, by name.
pub type UsedAccounts = fn() -> BTreeMap<String, AccountFigures>;

const UNUSABLE: Metric = Metric::gauge(
    "account_unusable",
    Unit::Switch,
    "Whether the account gave no credentials the last time: its role or profile cannot be used.",
);
const FAILURES: Metric = Metric::counter(
    "account_failures",
    Unit::Calls,
    "How often the account gave no credentials.",
);

/// Returns the metrics of the accounts.
pub(crate) fn families(used: Option<UsedAccounts>) -> Vec<MetricFamily> {
    let used = used.map(|used| used()).unwrap_or_default();
    let unusable = used.iter().map(|(name, figures)| {
        let value = f64::from(u8::from(figures.failure.is_some()));
        MetricSample::new([name.as_str()], MetricValue::Level(value))
    });
    let failures = used.iter().map(|(name, figures)| {
        MetricSample::new([name.as_str()], MetricValue::Count(figures.failures))
    });
    vec![
        UNUSABLE.family(&["account"], unusable),
        FAILURES.family(&["account"], failures),
    ]
}
