//! Opens the store of the limits that hold for all processes together, if a route has any, and
//! describes it.

use super::super::messages::known::redaction;
use super::Backends;
use dispatcher_config::problem::Problem;
use dispatcher_config::{FleetPlace, Route, Settings};
use dispatcher_core::clock;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::fleet::FleetStore;
use dispatcher_core::fleet::limit::Limit;
use dispatcher_core::message::place::{MessageKey, MessagePlace, bounded, hash};
use dispatcher_trials::recording::redact::Rule;
use std::sync::Arc;
use std::time::Duration;

/// The most time for the first answer of the store.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens the store, if any route has limits.
pub async fn open(
    settings: &Settings,
    opened: &Backends,
    problems: &mut Vec<Problem>,
) -> Option<Arc<dyn FleetStore>> {
    let mut routes = settings.routes.iter();
    let route = routes.find(|route| !route.limits.is_empty())?;
    let Some(place) = &settings.fleet.store else {
        let found = "limits in a binary without the embedded backend, which is their default store";
        let wanted = "a store in [fleet], or a binary with all features";
        problems.push(Problem::new(&route.at, found, wanted));
        return None;
    };
    let reached = reach(place, opened).await;
    reached
        .map_err(|error| problems.push(not_reached(place, &route.at, &error)))
        .ok()
}

/// Returns the problem of a store that machines share and no route needs for limits. A run starts
/// without it, but shares no pauses and is not shown.
pub async fn unlimited(settings: &Settings, opened: &Backends) -> Option<Problem> {
    if settings.is_limited() {
        return None;
    }
    let place = settings.shared_fleet()?;
    let error = reach(place, opened).await.err()?;
    Some(not_reached(place, "[fleet]", &error))
}

fn not_reached(place: &FleetPlace, at: &str, error: &CallError) -> Problem {
    let found = format!("the store of the fleet {place}: {error}");
    let problem = Problem::new(at, found, "");
    match error.kind {
        ErrorKind::Transient | ErrorKind::Unreachable => problem.unreachable(),
        ErrorKind::NotFound | ErrorKind::AccessDenied | ErrorKind::Invalid => problem,
    }
}

/// Opens the store, and reads a record to see whether it answers.
pub async fn reach(
    place: &FleetPlace,
    opened: &Backends,
) -> Result<Arc<dyn FleetStore>, CallError> {
    let reached = async {
        let client = opened.client(place.backend).await?;
        let store = client.fleet(&place.name).await?;
        store.read(&["start".to_owned()]).await?;
        Ok(store)
    };
    tokio::select! {
        biased; // for an answer just in time
        store = reached => store,
        () = clock::sleep_until(Some(clock::now() + PATIENCE)) => Err(CallError {
            kind: ErrorKind::Unreachable,
            message: format!("no answer within {} s", PATIENCE.as_secs()),
        }),
    }
}

/// Describes the limits of a route, and which processes keep to them together. Returns `None` if it
/// has none.
pub fn describe(settings: &Settings, route: &Route) -> Option<String> {
    let place = settings.fleet.store.as_ref()?;
    let names: Vec<&str> = settings
        .limits_of(route)
        .map(|limit| limit.name.as_str())
        .collect();
    if names.is_empty() {
        return None;
    }
    let shared = if place.backend.facts().is_embedded {
        "the processes on this machine with this data folder"
    } else {
        "all processes that use this store"
    };
    let names = names.join(", ");
    Some(format!("limits {names} in {place}, kept by {shared}"))
}

/// Returns the limits. The keys of those whose place a route redacts are hidden.
pub fn limits(settings: &Settings) -> Vec<Limit> {
    let limits = settings.limits.iter().cloned().enumerate();
    limits
        .map(|(index, limit)| {
            let mut routes = settings.routes.iter();
            let is_private = routes.any(|route| {
                route.limits.contains(&index) && is_private(route, limit.key.as_ref())
            });
            if is_private {
                limit.hiding_keys()
            } else {
                limit
            }
        })
        .collect()
}

/// Whether a route redacts the place at which its messages have this key.
pub fn is_private(route: &Route, key: Option<&MessageKey>) -> bool {
    redaction(route).iter().any(|rule| redacts(rule, key))
}

/// Whether the names of a route's tenants are shown as their hashes, because they are private.
pub fn hides_tenants(route: &Route) -> bool {
    is_private(route, route.settings.tenant.as_ref())
}

/// Returns the name of a tenant as it is shown.
pub fn shown_tenant(tenant: &str, is_private: bool) -> String {
    if is_private && !tenant.is_empty() {
        hash(tenant)
    } else {
        bounded(tenant.to_owned())
    }
}

fn redacts(rule: &Rule, key: Option<&MessageKey>) -> bool {
    match key {
        Some(MessageKey::Place(MessagePlace::Attribute(name))) => rule.covers_attribute(name),
        Some(MessageKey::Place(MessagePlace::Pointer(pointer))) => rule.covers_pointer(pointer),
        Some(MessageKey::Group) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::fleet::limit::{LimitNumbers, LimitWeight};
    use std::collections::HashMap;

    fn limit(place: MessagePlace) -> Limit {
        Limit {
            name: "api".to_owned(),
            numbers: LimitNumbers::default(),
            key: Some(MessageKey::Place(place)),
            overrides: HashMap::new(),
            weight: LimitWeight::Fixed(1),
            shadow: false,
            hides_keys: false,
        }
    }

    #[test]
    fn rule_redacts_the_places_at_and_below_its_own() {
        let customer = limit(MessagePlace::Pointer("/customer/id".to_owned()));
        let tenant = limit(MessagePlace::Attribute("tenant".to_owned()));
        for (rule, hidden) in [
            ("/customer/id", [true, false]),
            ("/customer", [true, false]),
            ("/*/id", [true, false]),
            ("/", [true, false]),
            ("/cust", [false, false]),
            ("/customer/id/part", [false, false]),
            ("attribute:tenant", [false, true]),
            ("attribute:*", [false, true]),
            ("attribute:other", [false, false]),
        ] {
            let parsed: Rule = rule.parse().expect("a rule");
            let found = [&customer, &tenant].map(|limit| redacts(&parsed, limit.key.as_ref()));
            assert_eq!(found, hidden, "{rule}");
        }
    }
}
