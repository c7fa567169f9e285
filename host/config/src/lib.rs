//! Settings: file < environment < flags, parsed into types, with all problems reported at once.
//! Opens no queue and no plugin and makes no calls; `app` does that with the settings.

pub mod backends;
mod check;
pub mod classic;
pub mod declared;
pub mod discovery;
mod file;
pub mod flags;
pub mod function;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod iam;
mod image;
pub mod name;
pub mod otel;
mod prefix;
pub mod prices;
pub mod problem;
mod queues;
pub mod reload;
pub mod secret;
pub mod section;
pub mod service;
pub mod signed_header;
pub mod tokens;
pub mod value;

pub use declared::{
    FleetSettings, LogSettings, PluginSettings, ProgramSettings, RouteSettings, TIMEOUT,
};
use discovery::{FoundQueues, QueuePattern};
use dispatcher_core::account::{Accounts, AwsAccount};
use dispatcher_core::backend::{BackendConfig, BackendFacts, QueueDeclaration, SectionValues};
use dispatcher_core::envelope::S3Pointers;
use dispatcher_core::files::bounded::{Limits as FileLimits, read_text};
use dispatcher_core::fleet::limit::Limit;
use dispatcher_core::message::place::MessageKey;
use dispatcher_core::queue::prefix::QueuePrefix;
use dispatcher_core::scheduler::SchedulerLimits;
use dispatcher_core::scheduler::lane::LaneLimits;
pub use dispatcher_core::settlement::decide::{ShedAction, ShedPolicy, UnmatchedAction};
use dispatcher_telemetry::depths::DepthTerms;
pub use dispatcher_telemetry::log::LogFormat;
pub use dispatcher_trials::recording::RecordingTerms;
pub use dispatcher_trials::rollout::canary::Share;
pub use dispatcher_wasm::{HttpHost, Peer, Reuse};
use flags::Flags;
pub use image::ImageName;
use name::QueueName;
pub use name::{FleetPlace, Place};
use prices::Prices;
use problem::Problem;
pub use secret::Secret;
use section::Layers;
pub use service::{HttpForward, ServiceUrl, header_of_file};
use signed_header::SignedHeader;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The settings of one `run`.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The settings of the program that do not depend on others.
    pub program: ProgramSettings,
    /// The settings of the log.
    pub log: LogSettings,
    /// The settings of the backends.
    pub stores: StoreConfig,
    /// The destination of metrics; `None`: they are not published.
    pub metrics: Option<Metrics>,
    /// The settings of the OTLP export.
    pub otlp: otel::Otlp,
    /// The address of `/healthz`, `/readyz`, `/metrics` and more; `None`: they are not served.
    pub admin: Option<Admin>,
    /// The settings for metrics that are served or exported by OTLP.
    pub metric_terms: MetricTerms,
    /// The DynamoDB table for scheduled SQS messages. `None`: each queue has a table with its name.
    pub schedule_table: Option<String>,
    /// The declared embedded queues.
    pub queues: Vec<QueueDeclaration>,
    /// The store of limits that hold for all processes together.
    pub fleet: FleetSettings,
    /// These limits, with different names.
    pub limits: Vec<Limit>,
    /// The routes: at least one, with different names and no common queues.
    pub routes: Vec<Route>,
    /// The folder of compiled functions, which only `dispatcher dev` uses.
    pub functions: Option<PathBuf>,
}

impl Settings {
    /// Iterates over the queues of the routes, in their order.
    pub fn queue_names(&self) -> impl Iterator<Item = &QueueName> {
        let queues = self.routes.iter().flat_map(|route| &route.queues);
        queues.map(|queue| &queue.name)
    }

    /// Iterates over the patterns of queues of the routes, in their order.
    pub fn patterns(&self) -> impl Iterator<Item = &QueuePattern> {
        self.routes.iter().flat_map(|route| &route.patterns)
    }

    /// Returns the account of a function that a plugin calls: the plugin's own, else the function's.
    pub fn account_of_function(
        &self,
        plugin: &PluginConfig,
        function: &str,
    ) -> Option<&AwsAccount> {
        let of_function = self.stores.accounts.of_function(function);
        self.account_of(plugin).or(of_function)
    }

    /// Returns the account of all functions that a plugin calls, if it names one.
    pub fn account_of(&self, plugin: &PluginConfig) -> Option<&AwsAccount> {
        self.stores
            .accounts
            .named(plugin.settings.account.as_ref()?)
    }

    /// Iterates over the limits of a route.
    pub fn limits_of<'a>(&'a self, route: &'a Route) -> impl Iterator<Item = &'a Limit> {
        route.limits.iter().map(|index| &self.limits[*index])
    }

    /// Whether any route has limits.
    pub fn is_limited(&self) -> bool {
        self.routes.iter().any(|route| !route.limits.is_empty())
    }

    /// Returns the store of the fleet if machines share it.
    pub fn shared_fleet(&self) -> Option<&FleetPlace> {
        let store = self.fleet.store.as_ref();
        store.filter(|place| !place.backend.facts().is_embedded)
    }

    /// Iterates over the limits that no route has.
    pub fn unused_limits(&self) -> impl Iterator<Item = &Limit> {
        let limits = self.limits.iter().enumerate();
        limits.filter_map(|(index, limit)| {
            let mut routes = self.routes.iter();
            let is_used = routes.any(|route| route.limits.contains(&index));
            (!is_used).then_some(limit)
        })
    }
}

/// The settings of all backends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreConfig {
    /// The folder of the embedded queues and of compiled plugins, which may not exist yet.
    pub data: PathBuf,
    /// The `http://` or `https://` address for every AWS service; `None`: the SDK decides.
    pub endpoint_url: Option<String>,
    /// The accounts of queues and functions.
    pub accounts: Accounts,
    /// The values in the section of each backend, by its name.
    pub sections: BTreeMap<&'static str, SectionValues>,
    /// Whether some value was invalid and a default is in its place: no queue may be opened.
    pub refused: bool,
}

impl StoreConfig {
    /// Returns the configuration of a backend, given its name.
    pub fn config_of(&self, backend: &str) -> BackendConfig {
        BackendConfig {
            data: self.data.clone(),
            endpoint_url: self.endpoint_url.clone(),
            accounts: self.accounts.clone(),
            section: self.sections.get(backend).cloned().unwrap_or_default(),
        }
    }

    /// Returns the facts about a queue.
    pub fn facts_of(&self, queue: &QueueName) -> &'static BackendFacts {
        let backend = queue.backend;
        backend.facts_of(&queue.name, &self.config_of(backend.name()))
    }
}

/// The admin address, its tokens and its contents.
#[derive(Debug, Clone, PartialEq)]
pub struct Admin {
    /// The address; one that other machines can reach needs a token.
    pub address: SocketAddr,
    /// Whether another port may be used if this one is in use.
    pub or_any_port: bool,
    /// Whether the log has the address that signs a browser in with the token. For development.
    pub prints_sign_in: bool,
    /// The file with the token. A relative path is relative to the working directory. Without a
    /// token, no client may make changes.
    pub token_file: Option<PathBuf>,
    /// The file with the token for reading only.
    pub read_token_file: Option<PathBuf>,
    /// The file with the token for sending messages only.
    pub send_token_file: Option<PathBuf>,
    /// The trusted proxy that says who sends a request.
    pub proxy: Option<SignedHeader>,
    /// The queues, in addition to those of the routes, that messages may be sent to.
    pub send_queues: Vec<QueueName>,
    /// Whether the bodies of messages are shown.
    pub bodies: bool,
    /// The host names, in lower case, that it accepts in addition to IP addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The path prefix that a proxy uses, as in `/dispatcher`; empty without a proxy.
    pub prefix: String,
    /// The name of the environment on its pages.
    pub environment: Option<String>,
}

/// The settings of metrics that the program does not count itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetricTerms {
    /// The queues whose depths are read before metrics are shown or exported.
    pub depths: DepthTerms,
    /// The prices of calls.
    pub prices: Prices,
}

/// The settings for publishing metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    /// The destination.
    pub sink: MetricsSink,
    /// The interval, 1 s to 1 h.
    pub interval: Duration,
}

/// The destination of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsSink {
    /// CloudWatch, with `PutMetricData`.
    CloudWatch,
    /// Stdout, with one line of Embedded Metric Format per queue and interval.
    EmbeddedFormat,
}

/// A group of queues that share a plugin, a priority order and a concurrency.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The unique name; the default is the plugin's name.
    pub name: String,
    /// The place in the configuration, for later problems: `dispatcher.toml:12`, `--queues`.
    pub at: String,
    /// The queues: at least one, the most urgent first; all or none have weights.
    pub queues: Vec<WeightedQueue>,
    /// The patterns of names whose queues it serves. Those that were found are in `queues`.
    pub patterns: Vec<QueuePattern>,
    /// The plugin that handles the messages.
    pub plugin: PluginConfig,
    /// The settings that do not depend on others.
    pub settings: RouteSettings,
    /// The retry settings of messages that were not handled.
    pub retry: Retry,
    /// The queue for rejected messages. It is on the backend of all queues of the route and is not
    /// one of them.
    pub dead_letter: Option<QueueName>,
    /// The limits that hold for all processes together, by their index in `Settings::limits`.
    pub limits: Vec<usize>,
}

/// One queue of a route.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedQueue {
    /// The queue.
    pub name: QueueName,
    /// The weight, 1 to 1,000,000; `None` in strict order.
    pub weight: Option<NonZeroU32>,
    /// The maximum number of its messages that are started per second, greater than 0.
    pub rate: Option<f64>,
    /// The maximum number of concurrent attempts at its messages, in addition to the route's limit.
    pub concurrency: Option<usize>,
    /// The pattern that found it, unless the configuration names it.
    pub found_by: Option<String>,
    /// The place in the configuration, for later problems: `dispatcher.toml:12`, `--queues`.
    pub at: String,
}

impl Route {
    /// Returns where messages name the tenant that functions are told, if they are.
    pub fn tenant_id(&self) -> Option<&MessageKey> {
        if self.plugin.settings.tenant_id {
            self.settings.tenant.as_ref()
        } else {
            None
        }
    }

    /// Returns the limits that a reload may change.
    pub fn limits(&self) -> SchedulerLimits {
        SchedulerLimits {
            attempts: self.settings.concurrency,
            prefetch: self.settings.prefetch,
            window: self.settings.batch_window,
            lanes: self.queues.iter().map(WeightedQueue::limits).collect(),
            weights: self.settings.weight.iter().cloned().collect(),
        }
    }
}

impl WeightedQueue {
    /// Returns the limits of the queue, in addition to the route's.
    pub fn limits(&self) -> LaneLimits {
        LaneLimits {
            rate: self.rate,
            attempts: self.concurrency,
            paused: false,
        }
    }
}

impl Route {
    /// Whether its patterns leave out a queue.
    pub fn excepts(&self, queue: &QueueName) -> bool {
        let name = queue.to_string();
        let mut excepted = self.settings.queue_except.iter();
        excepted.any(|one| one.matches(&name))
    }

    /// Returns the treatment of a message whose body is in S3. A forwarder passes on the message
    /// that Lambda's event source mapping would deliver.
    pub fn s3_pointers(&self) -> S3Pointers {
        let default = if self.plugin.code.forwards() {
            S3Pointers::Pass
        } else {
            S3Pointers::DeadLetter
        };
        self.settings.s3_pointers.unwrap_or(default)
    }
}

/// The retry settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The delay after the first attempt, which doubles after each further attempt.
    pub first: Duration,
    /// The maximum delay, at least `first` and at most 12 h.
    pub most: Duration,
    /// The number of attempts after which the message is dead-lettered; `None`: never, which leaves
    /// it to the backend's own redrive policy.
    pub attempts: Option<NonZeroU32>,
}

/// A handler and the resources that it may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginConfig {
    /// The configured name, or the file's stem.
    pub name: String,
    /// The place in the configuration, for later problems: `dispatcher.toml:12`, `--plugin`.
    pub at: String,
    /// The prefix of queue names, which the code neither sees nor writes.
    pub queue_prefix: QueuePrefix,
    /// The code.
    pub code: Code,
    /// The settings that do not depend on others.
    pub settings: PluginSettings,
    /// The reuse of instances; `None`: an instance makes one attempt.
    pub reuse: Option<Reuse>,
    /// The canary, the shadow and the recording.
    pub trials: Trials,
}

impl PluginConfig {
    /// Returns the maximum memory of one instance in bytes, 64 KiB to 4 GiB.
    pub fn max_memory(&self) -> usize {
        self.settings.max_memory_of(self.forwards())
    }

    /// Returns the maximum number of concurrent attempts of one instance, at least 1. More than 1
    /// is only useful for components whose handler is `async`.
    pub fn instance_concurrency(&self) -> usize {
        self.settings.instance_concurrency_of(self.forwards())
    }

    /// Whether the handler's spans are dropped: if several attempts share an instance, it is
    /// unknown to which attempt a span belongs.
    pub fn drops_spans(&self) -> bool {
        self.settings.allow_spans.is_some() && self.instance_concurrency() > 1
    }

    /// Iterates over the queues that messages are sent to on behalf of the route.
    pub fn sends(&self) -> impl Iterator<Item = &QueueName> {
        self.settings.allow_send.iter().chain(self.code.target())
    }

    fn forwards(&self) -> bool {
        self.code.forwards()
    }
}

/// The trials of a plugin with real messages. A forwarder has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trials {
    /// The version that handles a share of the messages.
    pub canary: Option<Trial>,
    /// The version whose results are only compared.
    pub shadow: Option<Source>,
    /// The recording of messages.
    pub record: Option<Record>,
}

/// A version on trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The version.
    pub source: Source,
    /// The share of the messages that it handles.
    pub share: Share,
}

/// The recording of messages and their outcomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The folder and the rules for redaction.
    pub terms: RecordingTerms,
    /// The share of the messages that is recorded.
    pub share: Share,
}

/// The source of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file; a relative path is relative to the working directory.
    File(PathBuf),
    /// An artifact in a registry.
    Image(ImageName),
}

impl Source {
    /// Returns the file, if the source is a file.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file),
            Self::Image(_) => None,
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(file) => write!(out, "{}", file.display()),
            Self::Image(image) => image.fmt(out),
        }
    }
}

/// The code of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    /// No code: none is configured, which was reported as a problem.
    Missing,
    /// A component.
    Component(Source),
    /// The built-in component that forwards messages to a Lambda function.
    Forward(Forward),
    /// The built-in component that forwards messages to an HTTP service.
    Http(HttpForward),
    /// No component: messages are sent to this queue.
    Relay(QueueName),
}

impl Code {
    /// Returns the source of the component, if one is configured.
    pub fn source(&self) -> Option<&Source> {
        match self {
            Self::Component(source) => Some(source),
            Self::Missing | Self::Forward(_) | Self::Http(_) | Self::Relay(_) => None,
        }
    }

    /// Returns the Lambda function that it forwards messages to.
    pub fn function(&self) -> Option<&str> {
        match self {
            Self::Forward(forward) => Some(&forward.function),
            Self::Component(_) | Self::Http(_) | Self::Relay(_) | Self::Missing => None,
        }
    }

    /// Returns the queue that it sends every message to.
    pub fn target(&self) -> Option<&QueueName> {
        match self {
            Self::Relay(target) => Some(target),
            Self::Component(_) | Self::Forward(_) | Self::Http(_) | Self::Missing => None,
        }
    }

    /// Whether it is built in and passes messages on.
    pub fn forwards(&self) -> bool {
        matches!(self, Self::Forward(_) | Self::Http(_) | Self::Relay(_))
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => out.write_str("nothing"),
            Self::Component(source) => source.fmt(out),
            Self::Forward(forward) => write!(out, "Lambda function {}", forward.function),
            Self::Http(forward) => write!(out, "HTTP service {}", forward.url),
            Self::Relay(target) => write!(out, "queue {target}"),
        }
    }
}

/// The settings for forwarding messages to AWS Lambda.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// The function: a name, `name:alias`, `name:version` or an ARN.
    pub function: String,
    /// Whether the invocation is asynchronous and does not wait for the function's response.
    pub asynchronous: bool,
    /// Whether the function's `batchItemFailures` are used.
    pub partial_failures: bool,
}

/// The settings of a command that only inspects queues.
#[derive(Debug, Clone, PartialEq)]
pub struct Places {
    /// The settings of the backends.
    pub stores: StoreConfig,
    /// The settings of the log.
    pub log: LogSettings,
    /// The DynamoDB table for scheduled SQS messages, as in `Settings`.
    pub schedule_table: Option<String>,
    /// The declared embedded queues.
    pub queues: Vec<QueueDeclaration>,
    /// The store of the fleet.
    pub fleet: FleetSettings,
    /// The settings of the OTLP export.
    pub otlp: otel::Otlp,
}

/// The admin address of a process, for commands that call it. The caller validates it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminPlace {
    /// The address as written.
    pub address: Option<String>,
    /// The file with the token for changes.
    pub token_file: Option<PathBuf>,
}

/// Returns the admin address from flags and the file that they name. With problems, the result is
/// as limited as that of [`settings`].
pub fn admin_place(flags: &Flags) -> (AdminPlace, Vec<Problem>) {
    let (written, problems) = load(flags);
    let program = Layers(&[&flags.program, &written.file.program]);
    let (address, token_file) = (program.one("admin"), program.one("admin-token-file"));
    let place = AdminPlace {
        address: address.map(|given| given.text.clone()),
        token_file: token_file.map(|given| PathBuf::from(&given.text)),
    };
    (place, problems)
}

/// Returns the admin address of a command that runs no route. Only flags set it, since the address
/// in the file is that of `run`.
pub fn served_admin(flags: &Flags, problems: &mut Vec<Problem>) -> Option<Admin> {
    let mut check = check::Check::default();
    let layers = [&flags.program];
    let admin = check.admin(Layers(&layers));
    check.metric_terms(Layers(&layers), false);
    problems.append(&mut check.problems);
    admin
}

/// Returns all settings of a run, from flags and the file that they name. With problems, the
/// settings are only useful for finding more problems: an invalid value is left out or defaulted,
/// and a plugin without code has `Code::Missing`.
pub fn settings(flags: &Flags) -> (Settings, Vec<Problem>) {
    SettingsSource::read(flags).written()
}

/// The flags, and the file that they name as it was read.
#[derive(Debug)]
pub struct SettingsSource {
    flags: Flags,
    written: WrittenSettings,
    problems: Vec<Problem>,
}

/// The flags and the file, in which the queue names have the prefix.
#[derive(Debug)]
struct WrittenSettings {
    flags: Flags,
    file: file::File,
    prefix: QueuePrefix,
}

impl SettingsSource {
    /// Reads the file that flags name.
    pub fn read(flags: &Flags) -> Self {
        let (written, problems) = load(flags);
        Self {
            flags: flags.clone(),
            written,
            problems,
        }
    }

    /// Returns the settings without the queues of patterns, and all problems.
    pub fn written(&self) -> (Settings, Vec<Problem>) {
        self.settings(&FoundQueues::new())
    }

    /// Returns the flags as they were given.
    pub fn flags(&self) -> &Flags {
        &self.flags
    }

    /// Returns the settings with the queues that patterns found, and all problems, as [`settings`]
    /// does.
    pub fn settings(&self, found: &FoundQueues) -> (Settings, Vec<Problem>) {
        let mut check = check::Check {
            problems: self.problems.clone(),
            found: found.clone(),
            prefix: self.written.prefix.clone(),
        };
        let settings = check.settings(&self.written.flags, &self.written.file);
        (settings, check.problems)
    }
}

/// Returns the places of queues from flags and the file that they name. With problems, the result
/// is as limited as that of [`settings`].
pub fn places(flags: &Flags) -> (Places, Vec<Problem>) {
    let (written, problems) = load(flags);
    let mut check = check::Check {
        problems,
        ..check::Check::default()
    };
    let WrittenSettings { flags, file, .. } = &written;
    let layers = [&flags.program, &file.program];
    let mut places = check.places(Layers(&layers), file);
    places.otlp = check.otlp(Layers(&layers), &flags.otel, None);
    (places, check.problems)
}

fn load(flags: &Flags) -> (WrittenSettings, Vec<Problem>) {
    let (mut file, mut problems) = match &flags.file {
        None => (file::File::default(), Vec::new()),
        Some(given) => match read_text(Path::new(&given.text), FileLimits::CONFIGURATION) {
            Ok(text) => file::read(Path::new(&given.text), &text),
            Err(error) => {
                let found = format!("cannot read `{}`: {error}", given.text);
                let wanted = "a configuration file in TOML";
                let problem = Problem::new(&given.at, found, wanted);
                let unread = file::File {
                    unread: true,
                    ..file::File::default()
                };
                (unread, vec![problem])
            }
        },
    };
    problems.extend(flags.problems.iter().cloned());
    let mut flags = flags.clone();
    let prefix = prefix::apply(&mut flags, &mut file, &mut problems);
    let written = WrittenSettings {
        flags,
        file,
        prefix,
    };
    (written, problems)
}

#[cfg(test)]
mod tests;
