//! Settings written out as a file that says everything and leaves nothing to defaults.

use crate::backends;
use crate::declared::{self, Shape};
use crate::name::QueueName;
use crate::{
    Code, FleetPlace, HttpHost, LogFormat, MetricsSink, Peer, Place, PluginConfig, Route, Secret,
    Settings, ShedAction, UnmatchedAction, WeightedQueue,
};
use dispatcher_core::account::{DeclaredAccount, NamePattern};

use dispatcher_core::backend::{QueueDeclaration, SectionValues};
use dispatcher_core::envelope::{Envelope, S3Pointers};
use dispatcher_core::filter::Filter;
use dispatcher_core::fleet::WhenAway;
use dispatcher_core::fleet::limit::{Limit, LimitNumbers, LimitWeight};
use dispatcher_core::message::place::{MessageKey, MessagePlace};
use dispatcher_core::queue::sharing::Priority;
use dispatcher_core::scheduler::ready::Sequence;
use dispatcher_core::telemetry::readiness::ReadyWhen;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// The whole file.
pub(super) fn file(settings: &Settings) -> String {
    let mut out = WrittenLines::default();
    out.line("[dispatcher]");
    out.text("data", &settings.stores.data.to_string_lossy());
    out.option("endpoint-url", settings.stores.endpoint_url.as_ref());
    out.all(settings.program.written());
    out.all(settings.log.written());
    let sink = settings.metrics.map(|metrics| metrics.sink);
    out.text(
        "metrics",
        match sink {
            None => "none",
            Some(MetricsSink::CloudWatch) => "cloudwatch",
            Some(MetricsSink::EmbeddedFormat) => "emf",
        },
    );
    if let Some(metrics) = settings.metrics {
        out.time("metrics-interval", metrics.interval);
    }
    if let Some(traces) = &settings.otlp.traces {
        let url = traces.signal.url.strip_suffix("/v1/traces");
        out.option("otlp-endpoint", url.map(str::to_owned).as_ref());
        let terms = traces.terms;
        out.text(
            "trace-sampler",
            if terms.sampler.follows_parent {
                "parentbased_traceidratio"
            } else {
                "traceidratio"
            },
        );
        out.text("trace-share", &terms.sampler.share.to_string());
        let errors = if terms.keeps_failures {
            "always"
        } else {
            "sampled"
        };
        out.text("trace-errors", errors);
        let parent = if terms.continues_trace {
            "message"
        } else {
            "link"
        };
        out.text("trace-parent", parent);
    }
    if let Some(admin) = &settings.admin {
        out.text("admin", &admin.address.to_string());
        out.list("admin-host", admin.hosts.iter().cloned());
        if let Some(file) = &admin.token_file {
            out.text("admin-token-file", &file.to_string_lossy());
        }
    }
    out.option("schedule-table", settings.schedule_table.as_ref());
    for (backend, values) in &settings.stores.sections {
        out.line(&format!("[backend.{backend}]"));
        section(&mut out, backend, values);
    }
    out.line("[fleet]");
    for (key, value) in settings.fleet.written() {
        let key = key.trim_start_matches("fleet-");
        value
            .into_iter()
            .for_each(|value| out.line(&format!("{key} = {value}")));
    }
    named_tables(&mut out, settings);
    for (at, one) in settings.routes.iter().enumerate() {
        plugin(&mut out, at, &one.plugin);
        route(&mut out, at, one);
        out.list(
            "limits",
            settings.limits_of(one).map(|limit| limit.name.clone()),
        );
    }
    out.0
}

fn named_tables(out: &mut WrittenLines, settings: &Settings) {
    for one in settings.stores.accounts.declared() {
        account(out, one);
    }
    for one in &settings.limits {
        limit(out, one);
    }
    for queue in &settings.queues {
        declared_queue(out, queue);
    }
}

fn section(out: &mut WrittenLines, backend: &str, values: &SectionValues) {
    for (name, key, setting) in declared::of_backends() {
        let set = values.get(key).filter(|_| name == backend);
        for value in set.into_iter().flatten() {
            match (setting.shape, value.rsplit_once('=')) {
                (Shape::Map, Some((queue, word))) => {
                    out.text(&format!("{key}.{}", quoted(queue)), word);
                }
                _ => out.text(key, value),
            }
        }
    }
}

fn declared_queue(out: &mut WrittenLines, queue: &QueueDeclaration) {
    out.line(&format!("[queue.{:?}]", queue.name));
    out.line(&format!("fifo = {}", queue.fifo));
    let times = [
        ("visibility", queue.visibility),
        ("delay", queue.delay),
        ("retention", queue.retention),
    ];
    for (key, time) in times {
        time.into_iter().for_each(|time| out.time(key, time));
    }
    if let Some((dead_letter, most)) = &queue.redrive {
        out.text("redrive.dead-letter", dead_letter);
        out.text("redrive.max-receives", &most.to_string());
    }
}

fn account(out: &mut WrittenLines, declared: &DeclaredAccount) {
    let DeclaredAccount {
        account,
        queues,
        functions,
    } = declared;
    out.line(&format!("[account.{}]", quoted(&account.name)));
    if let Some(role) = &account.role {
        out.text("role", &role.arn);
        out.text("session-name", &role.session_name);
        out.option("external-id", role.external_id.as_ref());
    }
    out.option("profile", account.profile.as_ref());
    out.option("region", account.region.as_ref());
    out.option("endpoint-url", account.endpoint_url.as_ref());
    out.list("queues", queues.iter().map(ToString::to_string));
    out.list("functions", functions.iter().map(ToString::to_string));
}

fn limit(out: &mut WrittenLines, limit: &Limit) {
    out.line(&format!("[limit.{}]", limit.name));
    numbers(out, "", &limit.numbers);
    match &limit.key {
        None => {}
        Some(key) => out.text("key", &key.to_string()),
    }
    match &limit.weight {
        LimitWeight::Fixed(weight) => out.text("weight", &weight.to_string()),
        LimitWeight::Place(place) => out.text("weight", &place.to_string()),
    }
    out.line(&format!("shadow = {}", limit.shadow));
    let sorted: BTreeMap<_, _> = limit.overrides.iter().collect();
    for (key, own) in sorted {
        numbers(out, &format!("override.{}.", quoted(key)), own);
    }
}

fn numbers(out: &mut WrittenLines, before: &str, numbers: &LimitNumbers) {
    out.option(
        &format!("{before}concurrency"),
        numbers.concurrency.as_ref(),
    );
    if let Some(rate) = numbers.rate {
        out.text(&format!("{before}rate"), &format!("{}/s", rate.per_second));
        out.text(&format!("{before}burst"), &rate.burst.to_string());
    }
}

/// A queue and its weight; with the backend in front, without which `sqs:local:3` would be another.
pub(super) fn queue(queue: &WeightedQueue) -> String {
    let name = &queue.name;
    let plain = !name.name.contains(':');
    let before = match name.backend.name() {
        backend if plain && backend == backends::unnamed() => format!("{backend}:"),
        _ => String::new(),
    };
    match queue.weight {
        Some(weight) => format!("{before}{name}:{weight}"),
        None => format!("{before}{name}"),
    }
}

/// Each route has its own plugin here, whose name is thus lost.
fn plugin(out: &mut WrittenLines, at: usize, plugin: &PluginConfig) {
    if plugin.code.target().is_some() {
        return;
    }
    out.line(&format!("[plugin.p{at}]"));
    match &plugin.code {
        Code::Missing | Code::Relay(_) => unreachable!("a problem, or without a plugin"),
        Code::Component(source) => out.text("file", &source.to_string()),
        Code::Forward(forward) => {
            out.text("function", &forward.function);
            out.text(
                "invocation",
                if forward.asynchronous {
                    "async"
                } else {
                    "sync"
                },
            );
            out.line(&format!("partial-failures = {}", forward.partial_failures));
        }
        Code::Http(forward) => {
            out.text("forward", &forward.url.to_string());
            out.all(vec![("forward-header", forward.headers.toml())]);
            out.all(vec![
                ("forward-header-file", forward.secret_headers.toml()),
                ("forward-key-file", forward.key.toml()),
            ]);
        }
    }
    out.all(plugin.settings.written());
    if let Some(canary) = &plugin.trials.canary {
        out.text("canary.file", &canary.source.to_string());
        out.text("canary.share", &canary.share.to_string());
    }
    if let Some(shadow) = &plugin.trials.shadow {
        out.text("shadow.file", &shadow.to_string());
    }
    if let Some(record) = &plugin.trials.record {
        out.text("record.folder", &record.terms.folder.to_string_lossy());
        out.text("record.most", &record.terms.most.to_string());
        out.text("record.share", &record.share.to_string());
        let rules = record.terms.redact.iter().map(ToString::to_string);
        out.list("record.redact", rules);
    }
    if let Some(reuse) = plugin.reuse {
        out.text("reuse.count", &reuse.count.to_string());
        out.time("reuse.age", reuse.age);
        out.text("reuse.memory", &reuse.memory.to_string());
    }
}

fn route(out: &mut WrittenLines, at: usize, route: &Route) {
    out.line("[[route]]");
    out.text("name", &route.name);
    match route.plugin.code.target() {
        Some(target) => out.text("send-to", &target.to_string()),
        None => out.text("plugin", &format!("p{at}")),
    }
    out.list("queues", route.queues.iter().map(queue));
    for queue in &route.queues {
        let name = quoted(&queue.name.to_string());
        if let Some(rate) = queue.rate {
            out.text(&format!("rate.{name}"), &format!("{rate}/s"));
        }
        if let Some(most) = queue.concurrency {
            out.text(&format!("queue-concurrency.{name}"), &most.to_string());
        }
    }
    out.all(route.settings.written());
    out.time("retry.first", route.retry.first);
    out.time("retry.most", route.retry.most);
    out.option("retry.attempts", route.retry.attempts.as_ref());
    out.option("dead-letter", route.dead_letter.as_ref());
}

#[derive(Default)]
struct WrittenLines(String);

impl WrittenLines {
    fn all(&mut self, values: Vec<(&'static str, Option<String>)>) {
        for (key, value) in values {
            if let Some(value) = value {
                self.line(&format!("{key} = {value}"));
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn text(&mut self, key: &str, value: &str) {
        self.line(&format!("{key} = {}", quoted(value)));
    }

    fn option(&mut self, key: &str, value: Option<&impl Display>) {
        if let Some(value) = value {
            self.text(key, &value.to_string());
        }
    }

    fn time(&mut self, key: &str, time: Duration) {
        self.text(key, &humantime::format_duration(time).to_string());
    }

    fn list(&mut self, key: &str, values: impl Iterator<Item = String>) {
        let values: Vec<_> = values.map(|value| quoted(&value)).collect();
        self.line(&format!("{key} = [{}]", values.join(", ")));
    }
}

/// A value as the file writes it; `None` if leaving it out says the same.
pub trait Toml {
    /// The text after `key = `.
    fn toml(&self) -> Option<String>;
}

impl<T: Toml> Toml for Option<T> {
    fn toml(&self) -> Option<String> {
        self.as_ref().and_then(Toml::toml)
    }
}

impl Toml for Duration {
    fn toml(&self) -> Option<String> {
        Some(quoted(&humantime::format_duration(*self).to_string()))
    }
}

impl Toml for bool {
    fn toml(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Toml for LogFormat {
    fn toml(&self) -> Option<String> {
        Some(quoted(&format!("{self:?}").to_lowercase()))
    }
}

impl Toml for ReadyWhen {
    fn toml(&self) -> Option<String> {
        Some(quoted(match self {
            Self::AnyRoute => "any-route",
            Self::EveryRoute => "every-route",
        }))
    }
}

impl Toml for WhenAway {
    fn toml(&self) -> Option<String> {
        Some(quoted(&format!("{self:?}").to_lowercase()))
    }
}

impl Toml for Sequence {
    fn toml(&self) -> Option<String> {
        Some(quoted(&format!("{self:?}").to_lowercase()))
    }
}

macro_rules! toml_of_display {
    ($($type:ty),+) => {$(
        impl Toml for $type {
            fn toml(&self) -> Option<String> {
                Some(quoted(&self.to_string()))
            }
        }
    )+};
}

toml_of_display!(
    &'static str,
    u16,
    u32,
    u64,
    usize,
    NonZeroUsize,
    String,
    SocketAddr,
    MessagePlace,
    MessageKey,
    FleetPlace
);

macro_rules! toml_of_list {
    ($($type:ty),+) => {$(
        impl Toml for Vec<$type> {
            fn toml(&self) -> Option<String> {
                let items: Vec<_> = self.iter().map(|item| quoted(&item.to_string())).collect();
                (!items.is_empty()).then(|| format!("[{}]", items.join(", ")))
            }
        }
    )+};
}

toml_of_list!(String, QueueName, NamePattern, Peer, HttpHost, Filter);

macro_rules! toml_of_map {
    ($($type:ty),+) => {$(
        impl Toml for Vec<(String, $type)> {
            fn toml(&self) -> Option<String> {
                let entry = |(key, value): &(String, $type)| {
                    format!("{} = {}", quoted(key), quoted(&value.to_string()))
                };
                let entries: Vec<_> = self.iter().map(entry).collect();
                (!entries.is_empty()).then(|| format!("{{ {} }}", entries.join(", ")))
            }
        }
    )+};
}

toml_of_map!(String, Place, u32);

impl Toml for Vec<(Priority, Duration)> {
    fn toml(&self) -> Option<String> {
        let written = |(priority, wait): &(Priority, Duration)| {
            let number = priority.number().to_string();
            (number, humantime::format_duration(*wait).to_string())
        };
        self.iter().map(written).collect::<Vec<_>>().toml()
    }
}

impl Toml for Secret {
    fn toml(&self) -> Option<String> {
        Some(quoted(&self.file().to_string_lossy()))
    }
}

impl Toml for Vec<(String, Secret)> {
    fn toml(&self) -> Option<String> {
        let file = |(name, secret): &(String, Secret)| {
            (name.clone(), secret.file().to_string_lossy().into_owned())
        };
        self.iter().map(file).collect::<Vec<_>>().toml()
    }
}

impl Toml for ShedAction {
    fn toml(&self) -> Option<String> {
        // The other is refused where no age is given.
        (*self == Self::Drop).then(|| quoted("drop"))
    }
}

impl Toml for Envelope {
    fn toml(&self) -> Option<String> {
        Some(quoted(match self {
            Self::None => "none",
            Self::Sns => "sns",
        }))
    }
}

impl Toml for S3Pointers {
    fn toml(&self) -> Option<String> {
        Some(quoted(match self {
            Self::Pass => "pass",
            Self::DeadLetter => "dead-letter",
        }))
    }
}

impl Toml for UnmatchedAction {
    fn toml(&self) -> Option<String> {
        // The other is refused where there is no filter.
        (*self == Self::DeadLetter).then(|| quoted("dead-letter"))
    }
}

impl Toml for PathBuf {
    fn toml(&self) -> Option<String> {
        Some(quoted(&self.to_string_lossy()))
    }
}

/// A string of TOML in one line.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            c if c.is_control() => {
                write!(out, "\\U{:08X}", u32::from(c)).expect("a string takes any text");
            }
            c => out.push(c),
        }
    }
    out + "\""
}
