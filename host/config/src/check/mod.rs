//! Converts sections into settings: applies file < environment < flags, defaults, and rules between
//! values. Collects every problem; opens nothing.

mod accounts;
mod admin;
mod backends;
mod declared_queues;
mod fleet;
mod limits;
mod order;
mod otlp;
mod plugin;
mod schedule;
mod telemetry;
mod trials;

use super::declared::{
    FleetSettings, LogSettings, ProgramSettings, RouteSettings, SettingPart, Table,
};
use super::discovery::{FoundQueues, QueuePattern};
use super::file::File;
use super::flags::Flags;
use super::otel::Otlp;
use super::problem::Problem;
use super::queues;
use super::queues::RouteQueues;
use super::section::{Layers, Section, WrittenValue};
use super::value::{self, BareUnit};
use super::{Places, PluginConfig, Retry, Route, Settings, StoreConfig};
use crate::name::QueueName;
use dispatcher_core::queue::VISIBILITY_CEILING;
use dispatcher_core::queue::prefix::QueuePrefix;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(900);
const ATTEMPTS: Option<NonZeroU32> = NonZeroU32::new(10);
/// The most messages that an attempt sends to another queue. A queue may take fewer at once.
const RELAYED: usize = 100;
const ANY_TIME: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::MAX;
const WITHIN_LEASE: std::ops::RangeInclusive<Duration> = Duration::ZERO..=VISIBILITY_CEILING;

/// The problems that are found while values are read.
#[derive(Debug, Default)]
pub(super) struct Check {
    pub(super) problems: Vec<Problem>,
    /// The queues that patterns found.
    pub(super) found: FoundQueues,
    /// The prefix that the queue names have already.
    pub(super) prefix: QueuePrefix,
}

impl Check {
    /// Returns the parsed value, or `None` if there is none or it is invalid, which is recorded as
    /// a problem.
    fn read<T>(
        &mut self,
        given: Option<&WrittenValue>,
        parse: impl FnOnce(&WrittenValue) -> Result<T, Problem>,
    ) -> Option<T> {
        parse(given?)
            .map_err(|problem| self.problems.push(problem))
            .ok()
    }

    /// Reads the places of queues and data from flags and the file.
    pub(super) fn places(&mut self, program: Layers<'_>, file: &File) -> Places {
        let given = self.read(program.one("data"), |given| value::text(given, "a folder"));
        let data = given.map_or_else(default_data, PathBuf::from);
        // The cache of compiled plugins needs an absolute path. If there is no working directory,
        // the path stays as it is.
        let data = std::path::absolute(&data).unwrap_or(data);
        let problems = self.problems.len();
        let endpoint_url = self.read(program.one("endpoint-url"), value::url);
        let sections = self.sections(program);
        let accounts = self.accounts(file);
        // The default that replaces an invalid address is another server.
        let refused = self.problems.len() > problems;
        Places {
            stores: StoreConfig {
                data,
                endpoint_url,
                accounts,
                sections,
                refused,
            },
            log: LogSettings::read(program, &mut self.problems),
            schedule_table: self.schedule_table(program),
            queues: self.declared_queues(file),
            fleet: FleetSettings::read(program, &mut self.problems),
            otlp: Otlp::default(),
        }
    }

    /// Reads all settings of a run.
    pub(super) fn settings(&mut self, flags: &Flags, file: &File) -> Settings {
        let both = [&flags.program, &file.program];
        let program = Layers(&both);
        let places = self.places(program, file);
        let own = ProgramSettings::read(program, &mut self.problems);
        let otlp = self.otlp(program, &flags.otel, own.name.as_deref());
        let limits = self.fleet_limits(file);
        let mut routes = self.routes(flags, file, &places.stores);
        self.dead_letters_in_account(&routes, &places.stores.accounts);
        self.limits_of_routes(&mut routes, &file.routes, &limits, &places.stores);
        self.batches_of_tenants(&routes);
        for route in &mut routes {
            let queues = &mut route.queues;
            queues.retain(|queue| !QueuePattern::is_pattern(&queue.name.name));
        }
        Settings {
            stores: places.stores,
            log: places.log,
            metrics: self.metrics(program, own.name.is_some()),
            program: own,
            admin: self.admin(program),
            metric_terms: self.metric_terms(program, otlp.metrics.is_some()),
            otlp,
            schedule_table: places.schedule_table,
            queues: places.queues,
            fleet: places.fleet,
            limits,
            routes,
            functions: None,
        }
    }

    fn routes(&mut self, flags: &Flags, file: &File, stores: &StoreConfig) -> Vec<Route> {
        if file.routes.len() > 1 {
            self.refuse_route_flags(flags, file.routes.len());
        }
        let mut plugins = BTreeMap::new();
        for (name, section) in &file.plugins {
            let is_only_routes = file.routes.len() <= 1
                && plugin::name_of(file.routes.first(), file).is_some_and(|of| of == name);
            let layers: &[&Section] = if is_only_routes {
                &[&flags.plugin, section]
            } else {
                &[section]
            };
            plugins.insert(
                name.as_str(),
                self.plugin(name, &section.at, Layers(layers)),
            );
        }
        let inherited = inherited(&file.program);
        let mut routes = match file.routes.as_slice() {
            [] => vec![self.route(&[&flags.route], &inherited, flags, file, &plugins, stores)],
            [only] => {
                let layers = [&flags.route, only];
                vec![self.route(&layers, &inherited, flags, file, &plugins, stores)]
            }
            several => several
                .iter()
                .map(|section| self.route(&[section], &inherited, flags, file, &plugins, stores))
                .collect(),
        };
        self.unique_names(&mut routes, &file.routes);
        self.disjoint_queues(&routes);
        self.tenant_ids(&routes);
        routes
    }

    fn refuse_route_flags(&mut self, flags: &Flags, routes: usize) {
        for given in flags.route.all().chain(flags.plugin.all()) {
            let found = format!("it applies to one route, and the file has {routes}");
            let problem = Problem::new(&given.at, found, "the setting in the file's route");
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
    }

    /// Reads a route. `inherited` has the settings of the program's section that apply to all
    /// routes.
    fn route(
        &mut self,
        layers: &[&Section],
        inherited: &Section,
        flags: &Flags,
        file: &File,
        plugins: &BTreeMap<&str, PluginConfig>,
        stores: &StoreConfig,
    ) -> Route {
        let section = layers.last().copied().unwrap_or(&flags.route);
        let with_inherited = [layers, &[inherited]].concat();
        let layers = Layers(&with_inherited);
        let implied = [WrittenValue::new("--queues", queues::DEFAULT_QUEUE)];
        let queues = match layers.list("queues") {
            Some(list) => list,
            None if file.routes.len() > 1 => &[],
            None => &implied,
        };
        if queues.is_empty() {
            let problem = Problem::new(&section.at, "the route has no queues", "at least one");
            self.problems
                .push(problem.hint("written like queues = [\"local:default\"]"));
        }
        let RouteQueues {
            mut queues,
            patterns,
        } = queues::read(queues, &self.found, &mut self.problems);
        self.limits(layers, &mut queues, &patterns);
        let dead_letter = self.read(layers.one("dead-letter"), |given| {
            queues::dead_letter(given, &queues)
        });
        let has_dead_letters = dead_letter.is_some()
            || queues
                .iter()
                .any(|queue| queue.name.backend.has_dead_letters(&queue.name.name));
        self.queue_patterns(layers, &patterns);
        let plugin = match layers.one("send-to") {
            Some(given) => self.relay(given, section, flags, &queues),
            None => self.plugin_for(section, flags, file, plugins),
        };
        let name = self.read(layers.one("name"), |given| value::text(given, "a name"));
        let mut settings = RouteSettings::read(layers, &mut self.problems);
        if plugin.code.target().is_some() && !layers.has("batch-size") {
            settings.batch_size = RELAYED;
        }
        self.batches(layers, &settings);
        self.ordering(layers, &settings, &queues, stores);
        self.shedding(layers);
        self.filtering(layers);
        Route {
            name: name.unwrap_or_else(|| plugin.name.clone()),
            at: section.at.clone(),
            queues,
            patterns,
            plugin,
            settings,
            retry: self.retry(layers, has_dead_letters),
            dead_letter,
            limits: Vec::new(),
        }
    }

    /// Checks the settings that apply to patterns alone.
    fn queue_patterns(&mut self, layers: Layers<'_>, patterns: &[QueuePattern]) {
        let tag = layers.entries("queue-tag").into_values().next();
        let excepted = layers.list("queue-except").unwrap_or_default();
        if patterns.is_empty() {
            let useless = [("a tag", tag), ("`queue-except`", excepted.first())];
            for (what, given) in useless {
                let found = format!("{what} without queues that are looked up");
                let problem = given.map(|given| {
                    Problem::new(&given.at, found, "a pattern such as prod-* in `queues`")
                });
                self.problems.extend(problem);
            }
            return;
        }
        for given in excepted {
            if !patterns.iter().any(|one| one.may_except(given.text.trim())) {
                let found = format!("`{}` names no queue of `{}`", given.text, patterns[0]);
                let wanted = "a name or a pattern on the same backend, one in each entry";
                self.problems.push(Problem::new(&given.at, found, wanted));
            }
        }
        let untagged = patterns.iter().find(|one| !one.backend().facts().has_tags);
        if let Some((tag, pattern)) = tag.zip(untagged) {
            let found = format!("a tag of queues `{pattern}`");
            let wanted = "SQS or the embedded queue, which have tags";
            self.problems.push(Problem::new(&tag.at, found, wanted));
        }
    }

    fn retry(&mut self, layers: Layers<'_>, has_dead_letters: bool) -> Retry {
        let first = self.read(layers.one("retry.first"), pause);
        let most = self.read(layers.one("retry.most"), pause);
        if let (Some(first), Some(most), Some(given)) = (first, most, layers.one("retry.most"))
            && most < first
        {
            let found = format!("`most` is {most:?} and `first` is {first:?}");
            self.problems.push(Problem::new(
                &given.at,
                found,
                "`most` no less than `first`",
            ));
        }
        let attempts = self.read(layers.one("retry.attempts"), |given| {
            value::number(given, &(1..=1_000_000))
        });
        let default = if has_dead_letters { ATTEMPTS } else { None };
        let first = first.unwrap_or_else(|| RETRY_FIRST.min(most.unwrap_or(RETRY_MOST)));
        Retry {
            first,
            most: most.unwrap_or(RETRY_MOST.max(first)),
            attempts: attempts.and_then(NonZeroU32::new).or(default),
        }
    }

    /// Refuses routes with the same configured name, and makes the other names unique.
    fn unique_names(&mut self, routes: &mut [Route], sections: &[Section]) {
        let mut taken = BTreeMap::<String, String>::new();
        for (route, section) in routes.iter().zip(sections) {
            let Some(given) = section.one("name") else {
                continue;
            };
            if let Some(first) = taken.insert(route.name.clone(), given.at.clone()) {
                let found = format!("route `{}` already exists, at {first}", route.name);
                self.problems
                    .push(Problem::new(&given.at, found, "names that differ"));
            }
        }
        for (route, section) in routes.iter_mut().zip(sections) {
            if section.one("name").is_none() {
                let plain = route.name.clone();
                let mut copy = 1;
                while taken.contains_key(&route.name) {
                    copy += 1;
                    route.name = format!("{plain}-{copy}");
                }
                taken.insert(route.name.clone(), route.at.clone());
            }
        }
    }

    /// Refuses `tenant-id` in plugins of routes whose messages have no tenants, and where no function
    /// could be told.
    fn tenant_ids(&mut self, routes: &[Route]) {
        for route in routes.iter().filter(|one| one.plugin.settings.tenant_id) {
            let plugin = &route.plugin;
            if route.settings.tenant.is_none() {
                let found = format!("`tenant-id`, and route `{}` has no `tenant`", route.name);
                let wanted = "the place where its messages name their tenant";
                self.problems.push(Problem::new(&plugin.at, found, wanted));
            }
            let calls_functions =
                plugin.code.function().is_some() || !plugin.settings.allow_lambda.is_empty();
            if !calls_functions {
                let found = "`tenant-id`, but the plugin invokes no function";
                let wanted = "`function`, or `allow-lambda`";
                let problem = Problem::new(&plugin.at, found, wanted);
                if !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
            }
        }
    }

    /// Refuses batches of one tenant where limits of the fleet hold: messages get permits one by one.
    fn batches_of_tenants(&mut self, routes: &[Route]) {
        for route in routes.iter().filter(|route| route.tenant_id().is_some()) {
            if !route.limits.is_empty() && route.settings.batch_size > 1 {
                let found = "`batch-size` with `tenant-id` and `limits`";
                let wanted = "one message at a time, or no `limits`";
                self.problems.push(Problem::new(&route.at, found, wanted));
            }
        }
    }

    fn disjoint_queues(&mut self, routes: &[Route]) {
        let mut taken = BTreeMap::<&QueueName, &str>::new();
        for route in routes {
            for queue in &route.queues {
                match taken.get(&queue.name) {
                    Some(other) if *other != route.name => {
                        let found = format!("`{}` is in route `{other}` already", queue.name);
                        let wanted = "each queue in one route";
                        self.problems
                            .push(Problem::new(&queue.at, found, wanted).of_queue(queue));
                    }
                    _ => {
                        taken.insert(&queue.name, &route.name);
                    }
                }
            }
        }
    }
}

fn pause(given: &WrittenValue) -> Result<Duration, Problem> {
    value::duration(given, BareUnit::Refused, &WITHIN_LEASE)
}

/// Returns the settings in `[dispatcher]` that apply to all routes.
fn inherited(program: &Section) -> Section {
    let mut inherited = Section::new(&program.at);
    for (key, setting) in Table::Dispatcher.settings() {
        if setting.part == SettingPart::Route
            && let Some(given) = program.one(key)
        {
            inherited.push(key, given.clone());
        }
    }
    inherited
}

/// Returns the user's data folder. A user without a home, as in many containers, gets the folder of
/// a service. A command that needs no data folder then starts even if the folder cannot be created.
fn default_data() -> PathBuf {
    use etcetera::BaseStrategy;
    match etcetera::choose_base_strategy() {
        Ok(strategy) => strategy.data_dir().join("dispatcher"),
        Err(_) => PathBuf::from("/var/lib/dispatcher"),
    }
}
