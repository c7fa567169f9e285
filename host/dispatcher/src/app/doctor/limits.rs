//! Finds limits of all processes that do not do what they seem to.

use super::{Finding, Level};
use crate::app::build::{Backends, fleet};
use dispatcher_config::name::QueueName;
use dispatcher_config::{Route, Settings};
use dispatcher_core::fleet::limit::{Limit, LimitWeight};
use dispatcher_core::queue::Identity;

/// The number of receives below which a redrive policy may dead-letter a message that only waited
/// for a limit: it goes back to the queue when it has waited long.
const FEW_RECEIVES: u32 = 5;

/// Inspects the limits of all routes, and their store.
pub(super) async fn look(settings: &Settings, backends: &Backends) -> Vec<Finding> {
    let unused = settings.unused_limits().map(|limit| {
        let about = format!("limit {}", limit.name);
        Finding::new(Level::Warn, &about, "no route names it among its limits")
    });
    let mut findings: Vec<Finding> = unused.collect();
    if let Some(place) = &settings.fleet.store
        && (settings.is_limited() || settings.shared_fleet().is_some())
        // `check` reports a store that does not answer.
        && fleet::reach(place, backends).await.is_ok()
    {
        let says = format!("{place} answers");
        findings.push(Finding::new(Level::Ok, "store of the fleet", says));
    }
    for route in &settings.routes {
        findings.extend(of_route(settings, route));
    }
    findings
}

fn of_route(settings: &Settings, route: &Route) -> Vec<Finding> {
    let Some(says) = fleet::describe(settings, route) else {
        return Vec::new();
    };
    let about = format!("limits of route {}", route.name);
    let mut warnings: Vec<String> = elsewhere(settings, route).into_iter().collect();
    let batch = route.settings.batch_size;
    let limits = settings.limits_of(route).filter(|limit| !limit.shadow);
    warnings.extend(limits.filter_map(|limit| small_batches(limit, batch)));
    if warnings.is_empty() {
        return vec![Finding::new(Level::Ok, &about, says)];
    }
    let findings = warnings.into_iter();
    findings
        .map(|says| Finding::new(Level::Warn, &about, says))
        .collect()
}

/// Finds a store that other machines do not have, for a queue that they may read.
fn elsewhere(settings: &Settings, route: &Route) -> Option<String> {
    let place = settings.fleet.store.as_ref()?;
    let mut queues = route.queues.iter();
    let shared = queues.find(|queue| !queue.name.backend.facts().is_embedded)?;
    place.backend.facts().is_embedded.then(|| {
        format!(
            "{place} is for this machine only, and other machines may read `{}`: each machine has \
             the limits for itself; name a store in [fleet] that all machines reach, such as redis: \
             or dynamodb:TABLE",
            shared.name
        )
    })
}

/// Finds a limit that no full batch keeps to.
fn small_batches(limit: &Limit, batch: usize) -> Option<String> {
    let (LimitWeight::Fixed(weight), Some(most)) = (&limit.weight, limit.numbers.concurrency)
    else {
        return None;
    };
    let messages = most / weight;
    let is_less = usize::try_from(messages).is_ok_and(|messages| messages < batch);
    (limit.key.is_none() && is_less).then(|| {
        format!(
            "limit {} lets at most {messages} messages run, so no attempt has {batch} messages, as \
             batch-size allows",
            limit.name
        )
    })
}

/// Finds a redrive policy that counts the receives of messages that only waited for a limit.
pub(super) fn of_redrive(
    settings: &Settings,
    route: &Route,
    name: &QueueName,
    seen: &Identity,
) -> Option<Finding> {
    let most = seen.most_receives.filter(|most| *most < FEW_RECEIVES)?;
    let mut limits = settings.limits_of(route);
    let keyed = limits.find(|limit| limit.key.is_some() && !limit.shadow)?;
    let says = format!(
        "its redrive policy dead-letters a message after {most} receives, and limit {} has keys: a \
         message that waits long for its key goes back to the queue, which uses up a receive; \
         {FEW_RECEIVES} or more is better",
        keyed.name
    );
    Some(Finding::new(Level::Warn, &format!("queue {name}"), says))
}

#[cfg(test)]
mod tests {
    use super::super::tests::seen;
    use super::*;
    use dispatcher_config::flags::Flags;
    use dispatcher_config::section::WrittenValue;

    const LIMITS: &str = "[plugin.p]\nfunction = 'f'\n\
                          [limit.api]\nconcurrency = 5\nweight = 2\n\
                          [limit.customer]\nkey = '/customer'\nconcurrency = 1\n";

    fn settings(text: &str) -> Settings {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("d.toml");
        std::fs::write(&path, format!("{LIMITS}{text}")).expect("written");
        let mut flags = Flags::default();
        let path = path.to_string_lossy();
        flags.take("config", WrittenValue::new("--config", path));
        let (settings, problems) = dispatcher_config::settings(&flags);
        assert_eq!(problems, []);
        settings
    }

    fn of_first(text: &str) -> Vec<(Level, String)> {
        let settings = settings(text);
        let findings = of_route(&settings, &settings.routes[0]).into_iter();
        let pairs = findings.map(|finding| (finding.level, finding.message));
        pairs.collect()
    }

    #[test]
    fn store_of_this_machine_is_reported_where_other_machines_read_the_queue() {
        let route = "[[route]]\nqueues = ['local:a', 'redis:b']\nlimits = ['api']\n";
        let found = of_first(route);
        assert_eq!((found.len(), found[0].0), (1, Level::Warn), "{found:?}");
        let says = "local:default is for this machine only, and other machines may read `redis:b`";
        assert!(found[0].1.starts_with(says), "{found:?}");
        let found = of_first(&format!("[fleet]\nstore = 'redis:'\n{route}"));
        let says = "limits api in redis:default, kept by all processes that use this store";
        assert_eq!(found, [(Level::Ok, says.to_owned())]);
        assert_eq!(of_first("[[route]]\nqueues = ['redis:b']\n"), []);
    }

    #[test]
    fn batches_that_are_never_full_are_reported() {
        fn of(rest: &str) -> (Level, String) {
            of_first(&format!("[[route]]\nqueues = ['local:a']\n{rest}")).remove(0)
        }
        assert_eq!(of("limits = ['api']\nbatch-size = 2").0, Level::Ok);
        assert_eq!(of("limits = ['customer']\nbatch-size = 3").0, Level::Ok);
        let (level, says) = of("limits = ['api']\nbatch-size = 3");
        assert_eq!(level, Level::Warn);
        assert!(
            says.starts_with("limit api lets at most 2 messages run"),
            "{says}"
        );
    }

    #[test]
    fn redrive_policy_that_counts_waiting_for_a_key_is_reported() {
        fn of(limits: &str, most: Option<u32>) -> Option<Finding> {
            let text = format!("[[route]]\nqueues = ['a']\nlimits = [{limits}]\n");
            let (settings, mut seen) = (settings(&text), seen());
            seen.most_receives = most;
            let route = &settings.routes[0];
            of_redrive(&settings, route, &route.queues[0].name, &seen)
        }
        let found = of("'api', 'customer'", Some(4)).expect("a finding");
        assert!(
            found
                .message
                .contains("after 4 receives, and limit customer"),
            "{found:?}"
        );
        for (limits, most) in [
            ("'customer'", Some(5)),
            ("'customer'", None),
            ("'api'", Some(1)),
        ] {
            assert_eq!(of(limits, most), None, "{limits} {most:?}");
        }
    }
}
