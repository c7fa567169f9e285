//! What of new settings can be applied to a run that goes on, and what needs another start. Pure;
//! whoever holds the running parts applies it.

use super::{Admin, Code, Plugin, Retry, Route, Settings, Shedding, Stores, Trials, WeightedQueue};
use crate::name::QueueName;
use dispatcher_core::scheduler::SchedulerLimits;
use std::num::NonZeroU32;

/// The difference between the settings that a run was started with and others.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// What holds from now on, for every route of the run that the new settings have as well, in
    /// the run's order; also where nothing is different, since it may have been changed before.
    pub routes: Vec<RouteLimits>,
    /// The plugins of the same routes as they are to be run from now on: components only.
    pub plugins: Vec<(String, Plugin)>,
    /// A clause for every other setting that is different, naming it: it waits for the next start.
    pub needs_restart: Vec<String>,
}

/// The limits of a route.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteLimits {
    /// Its name.
    pub route: String,
    /// At most as many attempts as at the start; queues in the order of the start.
    pub limits: SchedulerLimits,
}

/// Compares the settings that a run was **started** with to new ones without problems. Routes are
/// the same if their names are.
pub fn changes(old: &Settings, new: &Settings) -> Changes {
    let mut changes = Changes {
        routes: Vec::new(),
        plugins: Vec::new(),
        needs_restart: program(old, new),
    };
    let lines = &mut changes.needs_restart;
    for was in &old.routes {
        match new.routes.iter().find(|route| route.name == was.name) {
            Some(now) => {
                changes.routes.push(route(was, now, lines));
                let plugin = replaced(&was.plugin, &now.plugin);
                let named = |plugin| (was.name.clone(), plugin);
                changes.plugins.extend(plugin.map(named));
            }
            None => lines.push(format!("route `{}` is gone", was.name)),
        }
    }
    for route in &new.routes {
        if !old.routes.iter().any(|was| was.name == route.name) {
            lines.push(format!("route `{}` is new", route.name));
        }
    }
    changes
}

/// Takes every field apart, so that one that is added later is not forgotten here.
fn program(old: &Settings, new: &Settings) -> Vec<String> {
    let Settings {
        stores,
        shutdown_grace,
        log_format,
        log_level,
        message_memory,
        workers,
        name,
        metrics,
        admin,
        schedule,
        routes: _,
    } = old;
    let Stores {
        data,
        endpoint_url,
        redis,
        dynamodb,
        refused: _,
    } = stores;
    let interval = |settings: &Settings| settings.metrics.map(|metrics| metrics.interval);
    let sink = |settings: &Settings| settings.metrics.map(|metrics| metrics.sink);
    let apart = metrics.is_some() && new.metrics.is_some();
    let address = |admin: &Option<Admin>| admin.as_ref().map(|admin| admin.address);
    let hosts = |admin: &Option<Admin>| admin.as_ref().map(|admin| admin.hosts.clone());
    let token_file = |admin: &Option<Admin>| admin.as_ref()?.token_file.clone();
    let serves = admin.is_some() && new.admin.is_some();
    let different = [
        ("data", *data != new.stores.data),
        ("endpoint-url", *endpoint_url != new.stores.endpoint_url),
        ("redis", *redis != new.stores.redis),
        ("backend.dynamodb", *dynamodb != new.stores.dynamodb),
        ("shutdown-grace", *shutdown_grace != new.shutdown_grace),
        ("log-format", *log_format != new.log_format),
        ("log-level", *log_level != new.log_level),
        ("message-memory", *message_memory != new.message_memory),
        ("workers", *workers != new.workers),
        ("name", *name != new.name),
        ("metrics", sink(old) != sink(new)),
        ("metrics-interval", apart && interval(old) != interval(new)),
        ("admin", address(admin) != address(&new.admin)),
        ("admin-host", serves && hosts(admin) != hosts(&new.admin)),
        (
            "admin-token-file",
            serves && token_file(admin) != token_file(&new.admin),
        ),
        (
            "schedule-interval",
            schedule.interval != new.schedule.interval,
        ),
        ("schedule-table", schedule.table != new.schedule.table),
    ];
    named(&different)
        .map(|key| format!("`{key}` of [dispatcher] has changed"))
        .collect()
}

/// Which queues there are, and what share each has.
fn listed(queues: &[WeightedQueue]) -> Vec<(&QueueName, Option<NonZeroU32>)> {
    let queues = queues.iter();
    queues.map(|queue| (&queue.name, queue.weight)).collect()
}

fn route(was: &Route, now: &Route, lines: &mut Vec<String>) -> RouteLimits {
    let Route {
        name,
        at: _,
        queues,
        plugin: of,
        batch_size,
        batch_window: _,
        concurrency,
        prefetch: _,
        sequence,
        group_by,
        shedding,
        idempotency,
        visibility,
        poll_for,
        sleep,
        retry: Retry {
            first,
            most,
            attempts,
        },
        dead_letter,
    } = was;
    let max_age = |shedding: &Option<Shedding>| shedding.map(|shedding| shedding.max_age);
    let shed = |shedding: &Option<Shedding>| shedding.map(|shedding| shedding.shed);
    let sheds = shedding.is_some() && now.shedding.is_some();
    let different = [
        ("queues", listed(queues) != listed(&now.queues)),
        ("batch-size", *batch_size != now.batch_size),
        ("order", *sequence != now.sequence),
        ("group-by", *group_by != now.group_by),
        ("max-age", max_age(shedding) != max_age(&now.shedding)),
        ("shed", sheds && shed(shedding) != shed(&now.shedding)),
        ("idempotency", *idempotency != now.idempotency),
        ("visibility", *visibility != now.visibility),
        ("poll-for", *poll_for != now.poll_for),
        ("sleep", *sleep != now.sleep),
        ("retry.first", *first != now.retry.first),
        ("retry.most", *most != now.retry.most),
        ("retry.attempts", *attempts != now.retry.attempts),
        ("dead-letter", *dead_letter != now.dead_letter),
    ];
    lines.extend(named(&different).map(|key| format!("`{key}` of route `{name}` has changed")));
    lines.extend(
        plugin(of, &now.plugin)
            .map(|key| format!("`{key}` of the plugin of route `{name}` has changed")),
    );
    if now.concurrency > *concurrency {
        lines.push(format!(
            "`concurrency` of route `{name}` is now {}, and stays at {concurrency}, its value at \
             the start",
            now.concurrency
        ));
    }
    RouteLimits {
        route: name.clone(),
        limits: limits(was, now),
    }
}

fn limits(was: &Route, now: &Route) -> SchedulerLimits {
    // A queue that is gone from the list is read until the next start, with its limits.
    let own = |queue: &WeightedQueue| {
        let now = now.queues.iter().find(|other| other.name == queue.name);
        now.unwrap_or(queue).limits()
    };
    SchedulerLimits {
        attempts: now.concurrency.min(was.concurrency),
        prefetch: now.prefetch,
        window: now.batch_window,
        lanes: was.queues.iter().map(own).collect(),
    }
}

/// The new plugin, with what the run has made its plans by as it was. None for what forwards.
fn replaced(was: &Plugin, now: &Plugin) -> Option<Plugin> {
    let both = (&was.code, &now.code);
    matches!(both, (Code::Component(_), Code::Component(_))).then(|| Plugin {
        name: was.name.clone(),
        instance_concurrency: was.instance_concurrency,
        timeout: was.timeout,
        max_memory: was.max_memory,
        trials: Trials {
            record: was.trials.record.clone(),
            ..now.trials.clone()
        },
        ..now.clone()
    })
}

/// What of it needs another start.
fn plugin(was: &Plugin, now: &Plugin) -> impl Iterator<Item = &'static str> {
    let Plugin {
        name,
        at: _,
        code,
        allow_lambda,
        allow_send,
        allow_connect,
        allow_http,
        allow_read,
        setting,
        store,
        instance_concurrency,
        timeout,
        max_memory,
        env,
        reuse,
        warm,
        trials,
    } = was;
    let live = replaced(was, now).is_some();
    let (forward, other) = match (code, &now.code) {
        (Code::Forward(was), Code::Forward(now)) => (
            [
                ("function", was.function != now.function),
                ("invocation", was.asynchronous != now.asynchronous),
                (
                    "partial-failures",
                    was.partial_failures != now.partial_failures,
                ),
            ],
            false,
        ),
        (was, now) => (
            [
                ("function", false),
                ("invocation", false),
                ("partial-failures", false),
            ],
            !live && was != now,
        ),
    };
    let different = [
        ("name", *name != now.name),
        ("file", other),
        ("allow-lambda", !live && *allow_lambda != now.allow_lambda),
        ("allow-send", !live && *allow_send != now.allow_send),
        (
            "allow-connect",
            !live && *allow_connect != now.allow_connect,
        ),
        ("allow-http", !live && *allow_http != now.allow_http),
        ("allow-read", !live && *allow_read != now.allow_read),
        ("setting", !live && *setting != now.setting),
        ("store", !live && *store != now.store),
        (
            "instance-concurrency",
            *instance_concurrency != now.instance_concurrency,
        ),
        ("timeout", *timeout != now.timeout),
        ("max-memory", *max_memory != now.max_memory),
        ("env", !live && *env != now.env),
        ("reuse", !live && *reuse != now.reuse),
        ("warm", !live && *warm != now.warm),
        ("record", trials.record != now.trials.record),
    ];
    let keys: Vec<_> = named(&different).chain(named(&forward)).collect();
    keys.into_iter()
}

/// The names of what is different.
fn named<'a>(
    different: &'a [(&'static str, bool)],
) -> impl Iterator<Item = &'static str> + use<'a> {
    let different = different.iter().filter(|(_, different)| *different);
    different.map(|(key, _)| *key)
}

#[cfg(test)]
mod tests;
