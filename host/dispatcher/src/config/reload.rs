//! Decides which new settings apply to a run, and which need a restart. Pure; the owner of the
//! running parts applies them.

use super::declared::{self, Reload, Setting, SettingPart, Table};
use super::otel::Otlp;
use super::{
    Admin, Code, Forward, HttpForward, MetricTerms, PluginConfig, Record, Retry, Reuse, Route,
    Settings, StoreConfig, Trials, WeightedQueue,
};
use crate::name::QueueName;
use dispatcher_core::backend::{QueueDeclaration, SectionValues};
use dispatcher_core::scheduler::SchedulerLimits;
use dispatcher_core::telemetry::trace::TraceTerms;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// The difference between the settings that a run was started with and others.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Changes {
    /// What holds from now on, for every route of the run that the new settings have as well, in
    /// the run's order; also where nothing is different, since it may have been changed before.
    pub routes: Vec<RouteLimits>,
    /// The plugins of the same routes as they are to be run from now on: components only.
    pub plugins: Vec<(String, PluginConfig)>,
    /// A clause for every other setting that is different, naming it: it waits for the next start.
    pub needs_restart: Vec<String>,
}

/// The limits of a route.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RouteLimits {
    /// Its name.
    pub route: String,
    /// At most as many attempts as at the start; queues in the order of the start.
    pub limits: SchedulerLimits,
}

/// Compares the settings that a run was **started** with to new ones without problems. Routes are
/// the same if their names are.
pub(crate) fn changes(old: &Settings, new: &Settings) -> Changes {
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
    if old
        .queues
        .iter()
        .map(declared)
        .ne(new.queues.iter().map(declared))
    {
        lines.push("what [queue.…] declares has changed".to_owned());
    }
    for route in &new.routes {
        if !old.routes.iter().any(|was| was.name == route.name) {
            lines.push(format!("route `{}` is new", route.name));
        }
    }
    changes
}

fn program(old: &Settings, new: &Settings) -> Vec<String> {
    waiting(
        SettingPart::Program,
        &compare_program(old, new),
        &[Reload::Restart],
    )
    .map(|setting| {
        let table = setting.tables.first().copied().unwrap_or(Table::Dispatcher);
        let key = setting.key_in(table).unwrap_or(setting.key);
        format!("`{key}` of {} has changed", table.title())
    })
    .collect()
}

/// Each key, and whether its value is another. Takes every field apart, as the functions below do,
/// so that one that is added later is not forgotten here.
fn compare_program(old: &Settings, new: &Settings) -> Vec<(&'static str, bool)> {
    let Settings {
        program,
        log,
        stores,
        metrics,
        otlp,
        admin,
        metric_terms,
        schedule_table,
        queues: _,
        routes: _,
        functions: _,
    } = old;
    let StoreConfig {
        data,
        endpoint_url,
        sections,
        refused: _,
    } = stores;
    let interval = |settings: &Settings| settings.metrics.map(|metrics| metrics.interval);
    let sink = |settings: &Settings| settings.metrics.map(|metrics| metrics.sink);
    let apart = metrics.is_some() && new.metrics.is_some();
    let together = vec![
        ("data", *data != new.stores.data),
        ("endpoint-url", *endpoint_url != new.stores.endpoint_url),
        ("metrics", sink(old) != sink(new)),
        ("metrics-interval", apart && interval(old) != interval(new)),
        ("schedule-table", *schedule_table != new.schedule_table),
    ];
    [
        program.compare(&new.program),
        log.compare(&new.log),
        together,
        compare_sections(sections, &new.stores.sections),
        compare_admin(admin.as_ref(), new.admin.as_ref()),
        compare_metric_terms(metric_terms, &new.metric_terms),
        compare_traces(otlp, &new.otlp),
    ]
    .concat()
}

/// What is set in the section of each backend.
type Sections = BTreeMap<&'static str, SectionValues>;

/// The same of the sections of backends.
fn compare_sections(old: &Sections, new: &Sections) -> Vec<(&'static str, bool)> {
    let declared = declared::of_backends();
    let compared = declared.map(|(backend, key, setting)| {
        let value = |sections: &Sections| sections.get(backend)?.get(key).cloned();
        (setting.key, value(old) != value(new))
    });
    compared.collect()
}

/// The same of traces. Where they begin or end, only that is another value.
fn compare_traces(old: &Otlp, new: &Otlp) -> Vec<(&'static str, bool)> {
    let addresses = |otlp: &Otlp| {
        let traces = otlp.traces.as_ref().map(|traces| &traces.signal);
        let metrics = otlp.metrics.as_ref().map(|metrics| &metrics.signal);
        [traces, metrics].map(|signal| signal.map(|signal| signal.url.clone()))
    };
    let is_elsewhere = addresses(old) != addresses(new);
    let (old, new) = (old.traces.as_ref(), new.traces.as_ref());
    let differs = |is_other: fn(&TraceTerms, &TraceTerms) -> bool| {
        old.zip(new)
            .is_some_and(|(old, new)| is_other(&old.terms, &new.terms))
    };
    vec![
        ("otlp-endpoint", is_elsewhere),
        (
            "trace-sampler",
            differs(|old, new| old.sampler.follows_parent != new.sampler.follows_parent),
        ),
        (
            "trace-share",
            differs(|old, new| old.sampler.share.to_bits() != new.sampler.share.to_bits()),
        ),
        (
            "trace-errors",
            differs(|old, new| old.keeps_failures != new.keeps_failures),
        ),
        (
            "trace-parent",
            differs(|old, new| old.continues_trace != new.continues_trace),
        ),
    ]
}

/// The same of the admin address. Where it begins or ends, only that is another value.
fn compare_admin(old: Option<&Admin>, new: Option<&Admin>) -> Vec<(&'static str, bool)> {
    let address = |admin: Option<&Admin>| admin.map(|admin| admin.address);
    let differs = |is_other: fn(&Admin, &Admin) -> bool| {
        old.zip(new).is_some_and(|(old, new)| is_other(old, new))
    };
    vec![
        ("admin", address(old) != address(new)),
        ("admin-host", differs(|old, new| old.hosts != new.hosts)),
        (
            "admin-token-file",
            differs(|old, new| old.token_file != new.token_file),
        ),
        (
            "admin-read-token-file",
            differs(|old, new| old.read_token_file != new.read_token_file),
        ),
        ("admin-bodies", differs(|old, new| old.bodies != new.bodies)),
        ("admin-prefix", differs(|old, new| old.prefix != new.prefix)),
        (
            "admin-environment",
            differs(|old, new| old.environment != new.environment),
        ),
    ]
}

/// The same of what metrics are made of.
fn compare_metric_terms(old: &MetricTerms, new: &MetricTerms) -> Vec<(&'static str, bool)> {
    vec![
        ("metrics-depths", old.depths.of != new.depths.of),
        (
            "metrics-depths-interval",
            old.depths.every != new.depths.every,
        ),
        ("call-price", old.prices != new.prices),
    ]
}

/// What is declared of a queue, wherever it stands in the file.
fn declared(queue: &QueueDeclaration) -> QueueDeclaration {
    QueueDeclaration {
        at: String::new(),
        ..queue.clone()
    }
}

/// Lists the queues with their shares.
fn listed(queues: &[WeightedQueue]) -> Vec<(&QueueName, Option<NonZeroU32>)> {
    let queues = queues.iter();
    queues.map(|queue| (&queue.name, queue.weight)).collect()
}

fn route(was: &Route, now: &Route, lines: &mut Vec<String>) -> RouteLimits {
    let name = &was.name;
    lines.extend(
        waiting(
            SettingPart::Route,
            &compare_route(was, now),
            &[Reload::Restart],
        )
        .map(|setting| format!("`{}` of route `{name}` has changed", setting.key)),
    );
    let waits: &[Reload] = match replaced(&was.plugin, &now.plugin) {
        Some(_) => &[Reload::Restart],
        None => &[Reload::Restart, Reload::Replace],
    };
    let compared = compare_plugin(&was.plugin, &now.plugin);
    lines.extend(
        waiting(SettingPart::Plugin, &compared, waits).map(|setting| {
            let key = setting.key;
            format!("`{key}` of the plugin of route `{name}` has changed")
        }),
    );
    let (wanted, most) = (now.settings.concurrency, was.settings.concurrency);
    if wanted > most {
        lines.push(format!(
            "`concurrency` of route `{name}` is now {wanted}, and stays at {most}, its value at \
             the start"
        ));
    }
    RouteLimits {
        route: name.clone(),
        limits: limits(was, now),
    }
}

fn compare_route(was: &Route, now: &Route) -> Vec<(&'static str, bool)> {
    let Route {
        name: _,
        at: _,
        queues,
        plugin,
        settings,
        retry: Retry {
            first,
            most,
            attempts,
        },
        dead_letter,
    } = was;
    let together = vec![
        ("queues", listed(queues) != listed(&now.queues)),
        ("plugin", plugin.name != now.plugin.name),
        ("retry.first", *first != now.retry.first),
        ("retry.most", *most != now.retry.most),
        ("retry.attempts", *attempts != now.retry.attempts),
        ("dead-letter", *dead_letter != now.dead_letter),
    ];
    [settings.compare(&now.settings), together].concat()
}

fn limits(was: &Route, now: &Route) -> SchedulerLimits {
    // A queue that is gone from the list is read until the next start, with its limits.
    let own = |queue: &WeightedQueue| {
        let now = now.queues.iter().find(|other| other.name == queue.name);
        now.unwrap_or(queue).limits()
    };
    SchedulerLimits {
        attempts: now.settings.concurrency.min(was.settings.concurrency),
        lanes: was.queues.iter().map(own).collect(),
        ..now.limits()
    }
}

/// The new plugin, with what the run has made its plans by as it was. None for what forwards.
fn replaced(was: &PluginConfig, now: &PluginConfig) -> Option<PluginConfig> {
    let both = (&was.code, &now.code);
    matches!(both, (Code::Component(_), Code::Component(_))).then(|| PluginConfig {
        name: was.name.clone(),
        settings: was.settings.reloaded(&now.settings),
        trials: Trials {
            record: was.trials.record.clone(),
            ..now.trials.clone()
        },
        ..now.clone()
    })
}

fn compare_plugin(was: &PluginConfig, now: &PluginConfig) -> Vec<(&'static str, bool)> {
    let PluginConfig {
        name: _,
        at: _,
        code,
        settings,
        reuse,
        trials,
    } = was;
    let component = |code: &Code| code.source().cloned();
    let forward = |code: &Code| match code {
        Code::Forward(forward) => Some(forward.clone()),
        Code::Missing | Code::Component(_) | Code::Http(_) => None,
    };
    let both = forward(code).zip(forward(&now.code));
    let kind = std::mem::discriminant(code) != std::mem::discriminant(&now.code);
    let differs = |different: fn(&Forward, &Forward) -> bool| {
        both.as_ref().is_some_and(|(was, now)| different(was, now))
    };
    let of_service = |different: fn(&HttpForward, &HttpForward) -> bool| match (code, &now.code) {
        (Code::Http(was), Code::Http(now)) => different(was, now),
        _ => false,
    };
    let count = |reuse: &Option<Reuse>| reuse.map(|reuse| reuse.count);
    let age = |reuse: &Option<Reuse>| reuse.map(|reuse| reuse.age);
    let memory = |reuse: &Option<Reuse>| reuse.map(|reuse| reuse.memory);
    let (record, new) = (&trials.record, &now.trials.record);
    let folder = |of: &Option<Record>| of.as_ref().map(|record| record.terms.folder.clone());
    let redact = |of: &Option<Record>| of.as_ref().map(|record| record.terms.redact.clone());
    let share = |of: &Option<Record>| of.as_ref().map(|record| record.share);
    let most = |of: &Option<Record>| of.as_ref().map(|record| record.terms.most);
    let together = vec![
        ("file", kind || component(code) != component(&now.code)),
        ("function", differs(|was, now| was.function != now.function)),
        (
            "invocation",
            differs(|was, now| was.asynchronous != now.asynchronous),
        ),
        (
            "partial-failures",
            differs(|was, now| was.partial_failures != now.partial_failures),
        ),
        ("forward", of_service(|was, now| was.url != now.url)),
        (
            "forward-header",
            of_service(|was, now| was.headers != now.headers),
        ),
        (
            "forward-header-file",
            of_service(|was, now| was.secret_headers != now.secret_headers),
        ),
        (
            "forward-key-file",
            of_service(|was, now| was.key != now.key),
        ),
        ("reuse.count", count(reuse) != count(&now.reuse)),
        ("reuse.age", age(reuse) != age(&now.reuse)),
        ("reuse.memory", memory(reuse) != memory(&now.reuse)),
        ("record.folder", folder(record) != folder(new)),
        ("record.redact", redact(record) != redact(new)),
        ("record.share", share(record) != share(new)),
        ("record.most", most(record) != most(new)),
    ];
    [settings.compare(&now.settings), together].concat()
}

/// The settings among those compared that differ and are of one of these classes.
fn waiting(
    part: SettingPart,
    compared: &[(&'static str, bool)],
    classes: &[Reload],
) -> impl Iterator<Item = &'static Setting> {
    declared::all().filter(move |setting| {
        setting.part == part
            && classes.contains(&setting.reload)
            && compared.contains(&(setting.key, true))
    })
}

#[cfg(test)]
mod tests;
