//! Decides how new settings apply to a run: to its routes while they run, to new versions of them, or
//! after a restart. Pure; the owner of the running parts applies them.

use super::declared::{self, Reload, Setting, SettingPart, Table};
use super::otel::Otlp;
use super::{
    Admin, Code, MetricTerms, PluginConfig, Retry, Route, Secret, Settings, StoreConfig,
    WeightedQueue,
};
use crate::name::QueueName;
use crate::signed_header::SignedHeader;
use dispatcher_core::account::AwsAccount;
use dispatcher_core::backend::{QueueDeclaration, SectionValues};
use dispatcher_core::scheduler::SchedulerLimits;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

/// The difference between the settings of a run and new settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// The limits of every route that goes on, in the order of the new settings. Includes those of
    /// unchanged routes.
    pub limits: Vec<RouteLimits>,
    /// The plugins that these routes use from now on; only components.
    pub plugins: Vec<(String, PluginConfig)>,
    /// The new routes.
    pub started: Vec<String>,
    /// The routes that are replaced by new versions, each with the keys of the changed settings.
    pub replaced: Vec<(String, Vec<&'static str>)>,
    /// The routes that are gone.
    pub ended: Vec<String>,
    /// The queues that are declared now and that no route had.
    pub declared: Vec<QueueDeclaration>,
    /// A clause with the name of every changed setting that applies after a restart.
    pub needs_restart: Vec<String>,
}

/// The limits of a route.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteLimits {
    /// The name.
    pub route: String,
    /// The limits: not more attempts than before.
    pub limits: SchedulerLimits,
}

/// Compares the settings of a run, whose routes are those of the last reload, to new settings
/// without problems. Routes match by their names. Those that are `waiting` do not run yet with the
/// old settings, so that a new version must apply any change.
pub fn changes(old: &Settings, new: &Settings, waiting: &[String]) -> Changes {
    let gone = old.routes.iter().map(|route| &route.name);
    let gone = gone.filter(|name| new.routes.iter().all(|route| route.name != **name));
    let mut changes = Changes {
        limits: Vec::new(),
        plugins: Vec::new(),
        started: Vec::new(),
        replaced: Vec::new(),
        ended: gone.cloned().collect(),
        declared: Vec::new(),
        needs_restart: program(old, new),
    };
    for now in &new.routes {
        let name = now.name.clone();
        let Some(was) = old.routes.iter().find(|route| route.name == name) else {
            changes.started.push(name);
            continue;
        };
        let keys = replacing((old, was), (new, now), waiting.contains(&name));
        if !keys.is_empty() {
            changes.replaced.push((name, keys));
            continue;
        }
        let plugin = matches!(now.plugin.code, Code::Component(_)).then(|| now.plugin.clone());
        changes
            .plugins
            .extend(plugin.map(|plugin| (name.clone(), plugin)));
        changes.limits.push(RouteLimits {
            route: name,
            limits: now.limits(),
        });
    }
    for declared in &new.queues {
        let was = old.queues.iter().find(|was| was.name == declared.name);
        let is_used = old
            .queue_names()
            .any(|queue| queue.backend.facts().is_embedded && queue.name == declared.name);
        match was {
            Some(was) if without_place(was) == without_place(declared) => {}
            None if !is_used => changes.declared.push(declared.clone()),
            _ => changes
                .needs_restart
                .push(format!("[queue.{}] has changed", declared.name)),
        }
    }
    if old.limits != new.limits {
        let line = "[limit.…] has changed".to_owned();
        changes.needs_restart.push(line);
    }
    changes
}

fn program(old: &Settings, new: &Settings) -> Vec<String> {
    let compared = compare_program(old, new);
    changed(SettingPart::Program, &compared, &[Reload::Restart])
        .map(|setting| {
            let table = setting.tables.first().copied().unwrap_or(Table::Dispatcher);
            let key = setting.key_in(table).unwrap_or(setting.key);
            format!("`{key}` of {} has changed", table.title())
        })
        .collect()
}

/// Returns each key and whether its value has changed. Destructures every field, like the functions
/// below, so that the compiler reports a new field that is not compared.
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
        fleet,
        limits: _,
        routes: _,
        functions: _,
    } = old;
    let StoreConfig {
        data,
        endpoint_url,
        accounts: _,
        sections,
        refused: _,
    } = stores;
    let each_metrics = (metrics.as_ref(), new.metrics.as_ref());
    let both_metrics = metrics.zip(new.metrics);
    let together = vec![
        ("data", *data != new.stores.data),
        ("endpoint-url", *endpoint_url != new.stores.endpoint_url),
        ("metrics", differs(each_metrics, |metrics| metrics.sink)),
        (
            "metrics-interval",
            both_metrics.is_some_and(|(old, new)| old.interval != new.interval),
        ),
        ("schedule-table", *schedule_table != new.schedule_table),
    ];
    [
        program.compare(&new.program),
        log.compare(&new.log),
        fleet.compare(&new.fleet),
        together,
        compare_sections(sections, &new.stores.sections),
        compare_admin(admin.as_ref(), new.admin.as_ref()),
        compare_metric_terms(metric_terms, &new.metric_terms),
        compare_traces(otlp, &new.otlp),
    ]
    .concat()
}

/// The values in the section of each backend.
type Sections = BTreeMap<&'static str, SectionValues>;

/// Compares the sections of backends.
fn compare_sections(old: &Sections, new: &Sections) -> Vec<(&'static str, bool)> {
    let declared = declared::of_backends();
    let compared = declared.map(|(backend, key, setting)| {
        let [was, now] = [old, new].map(|sections| sections.get(backend)?.get(key));
        (setting.key, was != now)
    });
    compared.collect()
}

/// Compares the settings of traces. If the export of traces starts or ends, only the endpoint
/// counts as changed.
fn compare_traces(old: &Otlp, new: &Otlp) -> Vec<(&'static str, bool)> {
    let traces = old.traces.as_ref().zip(new.traces.as_ref());
    let both = traces.map(|(old, new)| (&old.terms, &new.terms));
    let samplers = both.map(|(old, new)| (old.sampler, new.sampler));
    vec![
        ("otlp-endpoint", addresses(old) != addresses(new)),
        (
            "trace-sampler",
            samplers.is_some_and(|(old, new)| old.follows_parent != new.follows_parent),
        ),
        (
            "trace-share",
            samplers.is_some_and(|(old, new)| old.share.to_bits() != new.share.to_bits()),
        ),
        (
            "trace-errors",
            both.is_some_and(|(old, new)| old.keeps_failures != new.keeps_failures),
        ),
        (
            "trace-parent",
            both.is_some_and(|(old, new)| old.continues_trace != new.continues_trace),
        ),
    ]
}

/// Returns the addresses of the traces and of the metrics.
fn addresses(otlp: &Otlp) -> [Option<&str>; 2] {
    let traces = otlp.traces.as_ref().map(|traces| &traces.signal);
    let metrics = otlp.metrics.as_ref().map(|metrics| &metrics.signal);
    [traces, metrics].map(|signal| signal.map(|signal| signal.url.as_str()))
}

/// Compares the settings of the admin address. If the address is added or removed, only the address
/// counts as changed.
fn compare_admin(old: Option<&Admin>, new: Option<&Admin>) -> Vec<(&'static str, bool)> {
    let both = old.zip(new);
    let proxies = both.map(|(old, new)| (old.proxy.as_ref(), new.proxy.as_ref()));
    let mut compared = compare_proxy(proxies.unwrap_or_default());
    compared.extend([
        ("admin", differs((old, new), |admin| admin.address)),
        (
            "admin-host",
            both.is_some_and(|(old, new)| old.hosts != new.hosts),
        ),
        (
            "admin-token-file",
            both.is_some_and(|(old, new)| old.token_file != new.token_file),
        ),
        (
            "admin-read-token-file",
            both.is_some_and(|(old, new)| old.read_token_file != new.read_token_file),
        ),
        (
            "admin-send-token-file",
            both.is_some_and(|(old, new)| old.send_token_file != new.send_token_file),
        ),
        (
            "admin-send-queues",
            both.is_some_and(|(old, new)| old.send_queues != new.send_queues),
        ),
        (
            "admin-bodies",
            both.is_some_and(|(old, new)| old.bodies != new.bodies),
        ),
        (
            "admin-prefix",
            both.is_some_and(|(old, new)| old.prefix != new.prefix),
        ),
        (
            "admin-environment",
            both.is_some_and(|(old, new)| old.environment != new.environment),
        ),
    ]);
    compared
}

/// Compares the settings of a trusted proxy. If it is added or removed, only its keys count as
/// changed.
fn compare_proxy(
    (old, new): (Option<&SignedHeader>, Option<&SignedHeader>),
) -> Vec<(&'static str, bool)> {
    let both = old.zip(new);
    vec![
        (
            "admin-proxy-keys",
            differs((old, new), |proxy| proxy.keys.clone()),
        ),
        (
            "admin-proxy-header",
            both.is_some_and(|(old, new)| old.header != new.header),
        ),
        (
            "admin-proxy-issuer",
            both.is_some_and(|(old, new)| old.issuer != new.issuer),
        ),
        (
            "admin-proxy-audience",
            both.is_some_and(|(old, new)| old.audience != new.audience),
        ),
        (
            "admin-proxy-name",
            both.is_some_and(|(old, new)| old.name != new.name),
        ),
        (
            "admin-proxy-operate",
            both.is_some_and(|(old, new)| old.operate != new.operate),
        ),
        (
            "admin-proxy-read",
            both.is_some_and(|(old, new)| old.read != new.read),
        ),
    ]
}

/// Compares the settings of metrics.
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

/// Returns a queue's declaration without its place in the file.
fn without_place(queue: &QueueDeclaration) -> QueueDeclaration {
    QueueDeclaration {
        at: String::new(),
        ..queue.clone()
    }
}

/// Lists the limits of a route by their names: their indexes change with the other limits.
fn limit_names((settings, route): RouteOf<'_>) -> Vec<&str> {
    let limits = settings.limits_of(route);
    limits.map(|limit| limit.name.as_str()).collect()
}

/// Whether a queue that both versions of a route name, or that their plugins send to, belongs to
/// another account.
fn has_other_queue_accounts(old: RouteOf<'_>, new: RouteOf<'_>) -> bool {
    let accounts = [old, new].map(|(settings, route)| {
        let queues = route.queues.iter().map(|queue| &queue.name);
        let named = queues.chain(&route.dead_letter).chain(route.plugin.sends());
        let pairs = named.map(|name| (name, name.account_in(&settings.stores.accounts)));
        pairs.collect::<BTreeMap<_, _>>()
    });
    differ(&accounts)
}

/// Whether a function that both versions of a route call belongs to another account, or one of those
/// that a pattern permits may.
fn has_other_function_accounts(old: RouteOf<'_>, new: RouteOf<'_>) -> bool {
    let accounts = [old, new].map(|(settings, route)| {
        let permitted = route
            .plugin
            .settings
            .allow_lambda
            .iter()
            .map(String::as_str);
        let functions = permitted.chain(route.plugin.code.function());
        let pairs = functions.map(|function| {
            let account = settings.account_of_function(&route.plugin, function);
            (function, account)
        });
        pairs.collect::<BTreeMap<_, _>>()
    });
    let mut permitted = new.1.plugin.settings.allow_lambda.iter();
    let is_open = new.1.plugin.settings.account.is_none() && permitted.any(|one| one.contains('*'));
    let declared = [old, new].map(|(settings, _)| {
        let all = settings.stores.accounts.declared().iter();
        let with_functions = all.filter(|declared| !declared.functions.is_empty());
        let pairs = with_functions.map(|declared| (&declared.account, &declared.functions));
        pairs.collect::<Vec<_>>()
    });
    differ(&accounts) || (is_open && declared[0] != declared[1])
}

/// Whether a name in both maps has different accounts.
fn differ<T: Ord>([was, now]: &[BTreeMap<T, Option<&AwsAccount>>; 2]) -> bool {
    let mut was = was.iter();
    was.any(|(name, account)| now.get(name).is_some_and(|other| other != account))
}

/// Lists the queues with their shares.
fn listed(queues: &[WeightedQueue]) -> Vec<(&QueueName, Option<NonZeroU32>)> {
    let queues = queues.iter();
    queues.map(|queue| (&queue.name, queue.weight)).collect()
}

/// A route with the settings that it is part of.
type RouteOf<'a> = (&'a Settings, &'a Route);

/// Returns the keys of the changed settings that only a new version of the route applies: all of them
/// if the route `waits`.
fn replacing(old: RouteOf<'_>, new: RouteOf<'_>, waits: bool) -> Vec<&'static str> {
    let ((_, was), (_, now)) = (old, new);
    let of_route = compare_route(old, new);
    let of_plugin = compare_plugin(&was.plugin, &now.plugin);
    let both = (&was.plugin.code, &now.plugin.code);
    let by_plugin: &[Reload] = match both {
        _ if waits => &[Reload::Route, Reload::Plugin],
        (Code::Component(_), Code::Component(_)) => &[Reload::Route],
        _ => &[Reload::Route, Reload::Plugin],
    };
    let route = changed(SettingPart::Route, &of_route, &[Reload::Route]);
    let plugin = changed(SettingPart::Plugin, &of_plugin, by_plugin);
    let mut keys: Vec<&'static str> = route.chain(plugin).map(|setting| setting.key).collect();
    if has_other_function_accounts(old, new) && !keys.contains(&"account") {
        keys.push("account");
    }
    // Its plugin has no room for more attempts.
    if now.settings.concurrency > was.settings.concurrency {
        keys.push("concurrency");
    } else if waits && now.limits() != was.limits() {
        keys.push("limits of the route");
    }
    keys
}

fn compare_route(old: RouteOf<'_>, new: RouteOf<'_>) -> Vec<(&'static str, bool)> {
    let ((_, was), (_, now)) = (old, new);
    let Route {
        name: _,
        at: _,
        queues,
        patterns: _,
        plugin,
        settings,
        retry: Retry {
            first,
            most,
            attempts,
        },
        dead_letter,
        limits: _,
    } = was;
    let together = vec![
        ("queues", listed(queues) != listed(&now.queues)),
        ("plugin", plugin.name != now.plugin.name),
        ("send-to", plugin.code.target() != now.plugin.code.target()),
        ("retry.first", *first != now.retry.first),
        ("retry.most", *most != now.retry.most),
        ("retry.attempts", *attempts != now.retry.attempts),
        ("dead-letter", *dead_letter != now.dead_letter),
        ("limits", limit_names(old) != limit_names(new)),
        ("account", has_other_queue_accounts(old, new)),
    ];
    [settings.compare(&now.settings), together].concat()
}

fn compare_plugin(was: &PluginConfig, now: &PluginConfig) -> Vec<(&'static str, bool)> {
    let PluginConfig {
        name: _,
        at: _,
        queue_prefix: _,
        code,
        settings,
        reuse,
        trials,
    } = was;
    let kind = std::mem::discriminant(code) != std::mem::discriminant(&now.code);
    let functions = match (code, &now.code) {
        (Code::Forward(was), Code::Forward(now)) => Some((was, now)),
        _ => None,
    };
    let services = match (code, &now.code) {
        (Code::Http(was), Code::Http(now)) => Some((was, now)),
        _ => None,
    };
    let reuse = (reuse.as_ref(), now.reuse.as_ref());
    let record = (trials.record.as_ref(), now.trials.record.as_ref());
    let together = vec![
        ("file", kind || code.source() != now.code.source()),
        (
            "function",
            functions.is_some_and(|(was, now)| was.function != now.function),
        ),
        (
            "invocation",
            functions.is_some_and(|(was, now)| was.asynchronous != now.asynchronous),
        ),
        (
            "partial-failures",
            functions.is_some_and(|(was, now)| was.partial_failures != now.partial_failures),
        ),
        (
            "forward",
            services.is_some_and(|(was, now)| was.url != now.url),
        ),
        (
            "forward-header",
            services.is_some_and(|(was, now)| was.headers != now.headers),
        ),
        (
            "forward-header-file",
            // The process reads changed texts without a reload.
            services.is_some_and(|(was, now)| {
                files(&was.secret_headers).ne(files(&now.secret_headers))
            }),
        ),
        (
            "forward-key-file",
            services.is_some_and(|(was, now)| was.key != now.key),
        ),
        ("reuse.count", differs(reuse, |reuse| reuse.count)),
        ("reuse.age", differs(reuse, |reuse| reuse.age)),
        ("reuse.memory", differs(reuse, |reuse| reuse.memory)),
        (
            "record.folder",
            differs(record, |record| &record.terms.folder),
        ),
        (
            "record.redact",
            differs(record, |record| &record.terms.redact),
        ),
        ("record.share", differs(record, |record| record.share)),
        ("record.most", differs(record, |record| record.terms.most)),
    ];
    [settings.compare(&now.settings), together].concat()
}

/// Whether a part of a value differs, or only one of the values is there.
fn differs<'a, T, P: PartialEq>(
    (was, now): (Option<&'a T>, Option<&'a T>),
    part: impl Fn(&'a T) -> P,
) -> bool {
    was.map(&part) != now.map(&part)
}

/// Iterates over the names and the files of their values.
fn files(secrets: &[(String, Secret)]) -> impl Iterator<Item = (&String, &Path)> {
    secrets.iter().map(|(name, secret)| (name, secret.file()))
}

/// Iterates over the settings that differ and that a reload applies in one of these ways.
fn changed(
    part: SettingPart,
    compared: &[(&'static str, bool)],
    ways: &[Reload],
) -> impl Iterator<Item = &'static Setting> {
    declared::all().filter(move |setting| {
        setting.part == part
            && ways.contains(&setting.reload())
            && compared.contains(&(setting.key, true))
    })
}

#[cfg(test)]
mod tests;
