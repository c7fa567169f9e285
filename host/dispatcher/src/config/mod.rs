//! Settings: file < environment < flags, parsed into types with every problem found at once. Opens
//! no queue and no plugin, knows no network; `app` does that with the settings.

mod check;
pub mod classic;
pub mod declared;
mod file;
pub mod flags;
pub mod function;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod iam;
pub mod otel;
pub mod prices;
pub mod problem;
mod queues;
pub mod reload;
pub mod secret;
pub mod section;
pub mod service;
pub mod value;

pub use crate::image::ImageName;
pub use crate::name::Place;
use crate::name::QueueName;
use crate::telemetry::depths::DepthTerms;
pub use crate::telemetry::log::LogFormat;
pub use declared::{LogSettings, PluginSettings, ProgramSettings, RouteSettings, TIMEOUT};
use dispatcher_core::backend::{BackendConfig, QueueDeclaration, SectionValues};
use dispatcher_core::envelope::S3Pointers;
use dispatcher_core::files::bounded::{Limits as FileLimits, read_text};
pub use dispatcher_core::recording::RecordingTerms;
pub use dispatcher_core::rollout::canary::Share;
use dispatcher_core::scheduler::SchedulerLimits;
use dispatcher_core::scheduler::lane::LaneLimits;
pub use dispatcher_core::settlement::decide::{Shed, Shedding, Unmatched};
pub use dispatcher_wasm::{HttpHost, Peer, Reuse};
use flags::Flags;
use prices::Prices;
use problem::Problem;
pub use secret::Secret;
use section::Layers;
pub use service::{HttpForward, ServiceUrl};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// All that one `run` needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What stands alone.
    pub program: ProgramSettings,
    /// What is logged.
    pub log: LogSettings,
    /// Where queues live.
    pub stores: StoreConfig,
    /// Where metrics go; nowhere without.
    pub metrics: Option<Metrics>,
    /// What is exported by OTLP.
    pub otlp: otel::Otlp,
    /// Where `/healthz`, `/readyz`, `/metrics` and more are served; nowhere without.
    pub admin: Option<Admin>,
    /// What metrics are made of, where they are served or exported by OTLP.
    pub metric_terms: MetricTerms,
    /// The table of DynamoDB in which scheduled messages for SQS wait; without it each queue has
    /// one named after it.
    pub schedule_table: Option<String>,
    /// The embedded queues that are declared.
    pub queues: Vec<QueueDeclaration>,
    /// At least one, with different names and without a queue in common.
    pub routes: Vec<Route>,
    /// Where compiled functions are kept; nowhere but for `dispatcher dev`.
    pub functions: Option<PathBuf>,
}

impl Settings {
    /// The queues of the routes, in their order.
    pub fn queue_names(&self) -> impl Iterator<Item = &QueueName> {
        let queues = self.routes.iter().flat_map(|route| &route.queues);
        queues.map(|queue| &queue.name)
    }
}

/// Where queues live, of all backends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreConfig {
    /// The folder of the embedded queue and of compiled plugins. Not created yet.
    pub data: PathBuf,
    /// `http://` or `https://` address for every AWS service; without it, as the SDK decides.
    pub endpoint_url: Option<String>,
    /// What is set in the section of each backend, by its name.
    pub sections: BTreeMap<&'static str, SectionValues>,
    /// Some of this could not be read, and a default is in its place: nothing may be opened.
    pub refused: bool,
}

impl StoreConfig {
    /// What there is to say to a backend, by its name.
    pub(crate) fn config_of(&self, backend: &str) -> BackendConfig {
        BackendConfig {
            data: self.data.clone(),
            endpoint_url: self.endpoint_url.clone(),
            section: self.sections.get(backend).cloned().unwrap_or_default(),
        }
    }
}

/// The admin address, who may use it and what it shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Admin {
    /// Where it is; off loopback only with a token.
    pub address: SocketAddr,
    /// Whether any other port will do where this one is taken.
    pub or_any_port: bool,
    /// The file that holds the token; a relative path is relative to the working directory. Without
    /// it nobody may act.
    pub token_file: Option<PathBuf>,
    /// The same for a token with which one can look and not act.
    pub read_token_file: Option<PathBuf>,
    /// Whether the bodies of messages are shown.
    pub bodies: bool,
    /// Host names that it answers to besides IP addresses and `localhost`, in lower case.
    pub hosts: Vec<String>,
    /// The path below which a proxy serves it, as in `/dispatcher`; empty without one.
    pub prefix: String,
    /// What its pages call the environment.
    pub environment: Option<String>,
}

/// What metrics are made of besides what the program counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetricTerms {
    /// What queues are asked for before metrics are shown or exported.
    pub depths: DepthTerms,
    /// What calls cost.
    pub prices: Prices,
}

/// How metrics are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    /// Where they go.
    pub sink: MetricsSink,
    /// How often, 1 s to 1 h.
    pub interval: Duration,
}

/// Where metrics go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsSink {
    /// To CloudWatch, by `PutMetricData`.
    CloudWatch,
    /// To stdout, one line of Embedded Metric Format per queue and interval.
    EmbeddedFormat,
}

/// Some queues that share a plugin, a priority order and a concurrency.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// Unique; the plugin's name if none was given.
    pub name: String,
    /// Where it was written, for problems found later: `dispatcher.toml:12`, `--queues`.
    pub at: String,
    /// At least one, the most urgent first; all weighted or none.
    pub queues: Vec<WeightedQueue>,
    /// What handles the messages.
    pub plugin: PluginConfig,
    /// What stands alone.
    pub settings: RouteSettings,
    /// What happens to a message that was not handled.
    pub retry: Retry,
    /// Where rejected messages go: on the backend of every queue of the route, and none of them.
    pub dead_letter: Option<QueueName>,
}

/// One queue of a route.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedQueue {
    /// The queue.
    pub name: QueueName,
    /// Its share of the picks, 1 to 1,000,000; `None` in strict order.
    pub weight: Option<NonZeroU32>,
    /// Maximum messages of it that are started in a second, greater than 0.
    pub rate: Option<f64>,
    /// Maximum attempts at its messages at once, besides the route's.
    pub concurrency: Option<usize>,
    /// Where it was written, for problems found later: `dispatcher.toml:12`, `--queues`.
    pub at: String,
}

impl Route {
    /// What may change while it runs.
    pub fn limits(&self) -> SchedulerLimits {
        SchedulerLimits {
            attempts: self.settings.concurrency,
            prefetch: self.settings.prefetch,
            window: self.settings.batch_window,
            lanes: self.queues.iter().map(WeightedQueue::limits).collect(),
        }
    }
}

impl WeightedQueue {
    /// Its own limits, besides the route's.
    pub fn limits(&self) -> LaneLimits {
        LaneLimits {
            rate: self.rate,
            attempts: self.concurrency,
            paused: false,
        }
    }
}

impl Route {
    /// What becomes of a message whose body is in S3. A function or service behind a forwarder gets
    /// what it gets from Lambda's event source mapping.
    pub fn s3_pointers(&self) -> S3Pointers {
        let default = match self.plugin.code.forwards() {
            true => S3Pointers::Pass,
            false => S3Pointers::DeadLetter,
        };
        self.settings.s3_pointers.unwrap_or(default)
    }
}

/// When a message comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The pause after the first attempt; doubles from there.
    pub first: Duration,
    /// The longest pause, at least `first` and at most 12 h.
    pub most: Duration,
    /// The message is dead-lettered after this many attempts; `None`: never, that is left to the
    /// backend's own redrive policy.
    pub attempts: Option<NonZeroU32>,
}

/// A handler and what it may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginConfig {
    /// The name in the file, or the file's stem.
    pub name: String,
    /// Where it was written, for problems found later: `dispatcher.toml:12`, `--plugin`.
    pub at: String,
    /// What it is made of.
    pub code: Code,
    /// What stands alone.
    pub settings: PluginSettings,
    /// How long an instance may live; `None`: one attempt.
    pub reuse: Option<Reuse>,
    /// What is tried, compared and recorded beside it.
    pub trials: Trials,
}

impl PluginConfig {
    /// The most memory of one instance in bytes, 64 KiB to 4 GiB.
    pub fn max_memory(&self) -> usize {
        self.settings.max_memory_of(self.forwards())
    }

    /// Maximum attempts that one instance works on at once, at least 1. More than 1 suits only
    /// components whose handler is `async`.
    pub fn instance_concurrency(&self) -> usize {
        self.settings.instance_concurrency_of(self.forwards())
    }

    /// Whether the spans that its handler is granted are dropped: many attempts share an instance, and
    /// whose span one would be is not known.
    pub(crate) fn drops_spans(&self) -> bool {
        self.settings.allow_spans.is_some() && self.instance_concurrency() > 1
    }

    fn forwards(&self) -> bool {
        self.code.forwards()
    }
}

/// What is tried beside a plugin on the messages that come. Of a forwarder, nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trials {
    /// A version that takes a share of the messages.
    pub canary: Option<Trial>,
    /// A version whose answers are only compared.
    pub shadow: Option<Source>,
    /// Messages that are kept.
    pub record: Option<Record>,
}

/// A version that is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The version.
    pub source: Source,
    /// On how many of the messages.
    pub share: Share,
}

/// Messages that are kept with what became of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where, and what is left out.
    pub terms: RecordingTerms,
    /// Its share of the messages.
    pub share: Share,
}

/// Where a component comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The file; a relative path is relative to the working directory.
    File(PathBuf),
    /// A registry's artefact.
    Image(ImageName),
}

impl Source {
    /// The file, if it is one.
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

/// What a plugin is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    /// Nothing was named, which is a problem that has been reported.
    Missing,
    /// This component.
    Component(Source),
    /// The component that comes with the program and forwards messages to a Lambda function.
    Forward(Forward),
    /// The component that comes with the program and forwards messages to an HTTP service.
    Http(HttpForward),
}

impl Code {
    /// Where the component comes from, if one was named.
    pub fn source(&self) -> Option<&Source> {
        match self {
            Self::Component(source) => Some(source),
            Self::Missing | Self::Forward(_) | Self::Http(_) => None,
        }
    }

    /// Whether it is one of the components that come with the program and forward messages.
    pub fn forwards(&self) -> bool {
        matches!(self, Self::Forward(_) | Self::Http(_))
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => out.write_str("nothing"),
            Self::Component(source) => source.fmt(out),
            Self::Forward(forward) => write!(out, "Lambda function {}", forward.function),
            Self::Http(forward) => write!(out, "HTTP service {}", forward.url),
        }
    }
}

/// How messages are forwarded to AWS Lambda.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Name, `name:alias`, `name:version` or ARN.
    pub function: String,
    /// Whether to leave Lambda alone with the event, and not to wait for the function's answer.
    pub asynchronous: bool,
    /// Whether the function's `batchItemFailures` are respected.
    pub partial_failures: bool,
}

/// What a command needs that only looks at queues.
#[derive(Debug, Clone, PartialEq)]
pub struct Places {
    /// As in `Settings`.
    pub stores: StoreConfig,
    /// As in `Settings`.
    pub log: LogSettings,
    /// As in `Settings`.
    pub schedule_table: Option<String>,
    /// As in `Settings`.
    pub queues: Vec<QueueDeclaration>,
    /// As in `Settings`.
    pub otlp: otel::Otlp,
}

/// The admin address of a process, for commands that ask it. Whoever asks looks at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AdminPlace {
    /// As it was written.
    pub address: Option<String>,
    /// The file that holds the token for actions.
    pub token_file: Option<PathBuf>,
}

/// Where the admin address is, from flags and the file that they name; as good as `settings`.
pub(crate) fn admin_place(flags: &Flags) -> (AdminPlace, Vec<Problem>) {
    let (file, problems) = load(flags);
    let program = Layers(&[&flags.program, &file.program]);
    let text = |key| program.one(key).map(|given| given.text.clone());
    let place = AdminPlace {
        address: text("admin"),
        token_file: text("admin-token-file").map(PathBuf::from),
    };
    (place, problems)
}

/// The admin address of a command that runs no route: from flags alone, since that in the file is the
/// one of `run`.
#[cfg_attr(
    not(feature = "local"),
    expect(dead_code, reason = "its command needs the embedded queue")
)]
pub(crate) fn served_admin(flags: &Flags, problems: &mut Vec<Problem>) -> Option<Admin> {
    let mut check = check::Check::default();
    let layers = [&flags.program];
    let admin = check.admin(Layers(&layers));
    check.metric_terms(Layers(&layers), false);
    problems.append(&mut check.problems);
    admin
}

/// Everything for a run, from flags and the file that they name. With problems the settings are
/// only good for looking for more of them: what a problem is about is left out or defaulted, and a
/// plugin that names nothing to run is `Code::Missing`.
pub fn settings(flags: &Flags) -> (Settings, Vec<Problem>) {
    let (file, problems) = load(flags);
    let mut check = check::Check { problems };
    let settings = check.settings(flags, &file);
    (settings, check.problems)
}

/// Where the queues are, from flags and the file that they name; as good as `settings`.
pub fn places(flags: &Flags) -> (Places, Vec<Problem>) {
    let (file, problems) = load(flags);
    let mut check = check::Check { problems };
    let layers = [&flags.program, &file.program];
    let mut places = check.places(Layers(&layers), &file);
    places.otlp = check.otlp(Layers(&layers), &flags.otel, None);
    (places, check.problems)
}

fn load(flags: &Flags) -> (file::File, Vec<Problem>) {
    let (file, mut problems) = match &flags.file {
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
    (file, problems)
}

#[cfg(test)]
mod tests;
