//! Loads the handlers that the settings name: components from files, and the built-in ones that
//! forward to Lambda and to HTTP services. Opens no queue.

use super::Backends;
use super::grants::{self, Buckets};
use super::outlet::OpenedQueues;
use super::schedule::Schedules;
use super::service;
use crate::config::problem::Problem;
use crate::config::{Code, Forward, PluginConfig as PluginSettings, Route, Settings, TIMEOUT};
use dispatcher_aws as aws;
use dispatcher_aws::lambda::{Function, Lambda};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::handler::{Handler, TimeLimit};
use dispatcher_core::lambda::Invoke;
use dispatcher_core::rollout::{Rollout, shadow};
use dispatcher_core::telemetry::counters::Counters;
use dispatcher_core::{clock, files, tasks};
use dispatcher_wasm::capability::lambda::Functions;
use dispatcher_wasm::capability::queues;
use dispatcher_wasm::load;
use dispatcher_wasm::load::{LoadError, LoadedPlugin, PluginOptions};
use dispatcher_wasm::runtime::{Runtime, RuntimeOptions, Spawn};
use dispatcher_wasm::tally::Tally;
use dispatcher_wasm::warm::Warm;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// The component that forwards messages to Lambda; `plugins/build` makes it.
const FORWARDER: &[u8] = include_bytes!("../../../../../plugins/prebuilt/lambda-forward.wasm");

/// The longest that Lambda lets any function run.
const LONGEST_RUN: Duration = Duration::from_secs(900);
/// How much longer than the function may run an attempt waits: the way there and back, and the time
/// before a cold function starts, which its own timeout does not count.
const LONGER: Duration = Duration::from_secs(30);
/// What is left of an attempt's time to the component after an invocation was given up: a tenth of
/// it, and at most so much.
const MOST_SPARE: Duration = Duration::from_secs(10);

/// A component that is in the cache is loaded sooner, also on a busy machine.
const NOTICEABLE: Duration = Duration::from_millis(300);
/// How often it is logged that a component is still being compiled.
const PROGRESS: Duration = Duration::from_secs(5);

/// Loads handlers, one after the other; connects to Lambda when the first needs it.
pub struct Loader {
    settings: Settings,
    backends: Arc<Backends>,
    pub(super) runtime: Runtime,
    pub(super) spawn: Spawn,
    /// Ends what runs beside the messages' own attempts.
    pub(super) over: CancellationToken,
    counters: Arc<Counters>,
    lambda: OnceCell<Arc<Lambda>>,
    pub(super) buckets: Buckets,
    /// The instance counts of each route's plugin.
    tallies: Mutex<BTreeMap<String, Arc<Tally>>>,
    /// Held by whoever compiles a component.
    pub(super) compiling: tokio::sync::Mutex<()>,
}

/// A handler, and how long one attempt of it may take.
pub struct Loaded {
    /// What handles messages.
    pub handler: Arc<dyn Handler>,
    /// The longest that an attempt may take.
    pub timeout: TimeLimit,
    /// The handler, if its versions can be replaced.
    pub rollout: Option<Arc<Rollout>>,
}

impl Loader {
    /// Starts the engine, with room for the instances of all routes. `over` ends what runs beside
    /// the messages' own attempts.
    pub fn start(
        settings: &Settings,
        backends: Arc<Backends>,
        counters: Arc<Counters>,
        spawn: Spawn,
        over: CancellationToken,
    ) -> Result<Self, Problem> {
        let options = RuntimeOptions {
            instances: settings.routes.iter().map(instances).sum(),
            max_memory: settings
                .routes
                .iter()
                .map(|route| route.plugin.max_memory())
                .max()
                .unwrap_or_default(),
            cache: Some(cache(&settings.stores.data)),
            functions: settings.functions.clone(),
        };
        let runtime = Runtime::start(options, Handle::current(), spawn.clone())
            .map_err(|error| Problem::new("the plugin engine", error.to_string(), ""))?;
        Ok(Self {
            settings: settings.clone(),
            runtime,
            spawn,
            over,
            counters,
            lambda: OnceCell::new(),
            buckets: Buckets::on(backends.clone()),
            backends,
            tallies: Mutex::default(),
            compiling: tokio::sync::Mutex::default(),
        })
    }

    /// What it was started with.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The handler of a route; `None` after a problem.
    pub async fn load(&self, route: &Route, problems: &mut Vec<Problem>) -> Option<Loaded> {
        let plugin = &route.plugin;
        let (loaded, timeout) = match &plugin.code {
            Code::Missing => return None,
            Code::Component(source) => return self.begin(route, source, problems).await,
            Code::Forward(forward) => {
                let runs = self.look(plugin, forward, problems).await;
                let timeout = forward_timeout(plugin, forward, runs);
                let longest = (!forward.asynchronous).then_some(runs + MOST_SPARE);
                let options = PluginOptions {
                    // What matters of an invocation is logged by the host, with all ids.
                    quiet_output: true,
                    ..self.options(route, timeout, longest).await
                };
                let loaded = self.compile("lambda-forward".into(), FORWARDER.into(), options);
                (loaded.await, timeout)
            }
            Code::Http(forward) => {
                let timeout = plugin.settings.timeout.unwrap_or(TIMEOUT);
                let mut options = self.options(route, timeout, None).await;
                service::grant(&mut options.grants, route, forward, timeout);
                let component = service::COMPONENT.into();
                let loaded = self.compile("http-forward".into(), component, options);
                (loaded.await, timeout)
            }
        };
        match loaded {
            Ok(loaded) => {
                if route.settings.batch_size > loaded.batch() {
                    problems.push(needs_batches(route));
                }
                Some(Loaded {
                    handler: Arc::new(loaded),
                    timeout: timeout.into(),
                    rollout: None,
                })
            }
            Err(error) => {
                problems.extend(of_load(&plugin.at, &error));
                None
            }
        }
    }

    /// Compiles a component, or takes it from the cache. Messages, leases and signals continue
    /// meanwhile: it computes for milliseconds to many seconds. What takes noticeably long is
    /// logged.
    pub(super) async fn compile(
        &self,
        file: String,
        bytes: Vec<u8>,
        options: PluginOptions,
    ) -> Result<LoadedPlugin, LoadError> {
        let (plugin, size) = (options.name.clone(), bytes.len());
        let began = clock::now();
        let (runtime, name) = (self.runtime.clone(), file.clone());
        let load = move || runtime.load_bytes(&name, &bytes, options);
        let mut loading = pin!(tasks::blocking(load).finished());
        let mut next = began + NOTICEABLE;
        let loaded = loop {
            tokio::select! {
                biased;
                loaded = &mut loading => break loaded?,
                () = clock::sleep_until(Some(next)) => {}
            }
            let seconds = clock::now().since(began).as_secs_f64();
            tracing::info!(plugin, file, size, seconds, "compiling plugin");
            next = clock::now() + PROGRESS;
        };
        if next > began + NOTICEABLE {
            let seconds = clock::now().since(began).as_secs_f64();
            tracing::info!(plugin, file, seconds, "plugin compiled");
        }
        Ok(loaded)
    }

    /// For attempts of `timeout` whose invocations may need `longest`.
    pub(super) async fn options(
        &self,
        route: &Route,
        timeout: Duration,
        longest: Option<Duration>,
    ) -> PluginOptions {
        let plugin = &route.plugin;
        let mut options = grants::options(plugin, timeout, self.counters.clone());
        options.shared_instances = taking(route);
        let warm = &mut options.warm;
        warm.of_heavy = self
            .settings
            .program
            .workers
            .get()
            .min(route.settings.concurrency);
        // More would never be taken.
        warm.count = warm
            .count
            .map(|count| count.min(route.settings.concurrency));
        // Of all versions together, also of those that end with their last attempts.
        options.tally = {
            let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(tallies.entry(route.name.clone()).or_default())
        };
        let backends = || self.backends.clone();
        options.grants.queues = sends(&self.settings, plugin, backends);
        let mut allowed = plugin.settings.allow_lambda.clone();
        if let Code::Forward(forward) = &plugin.code {
            allowed.push(forward.function.clone());
            options.grants.env.0.extend(variables(forward));
        }
        if !allowed.is_empty() {
            let invoker = self.lambda().await.clone();
            options.grants.lambda = Some(Functions {
                longest,
                ..grant(invoker, allowed, timeout, self.counters.clone())
            });
        }
        options
    }

    async fn lambda(&self) -> &Arc<Lambda> {
        let connect = || async {
            files::raise_limit();
            let endpoint = self.settings.stores.endpoint_url.as_deref();
            Arc::new(Lambda::connect(&aws::shared_configuration(endpoint).await))
        };
        self.lambda.get_or_init(connect).await
    }

    /// How long the function may run. Where that cannot be read, as long as any may.
    async fn look(
        &self,
        plugin: &PluginSettings,
        forward: &Forward,
        problems: &mut Vec<Problem>,
    ) -> Duration {
        let seen = self.lambda().await.look(&forward.function).await;
        let at = &plugin.at;
        match seen {
            Ok(Function { timeout, .. }) => return timeout,
            Err(CallError { kind, message }) => match kind {
                ErrorKind::NotFound | ErrorKind::Invalid => {
                    problems.push(Problem::new(at, message, "a function that exists"));
                }
                ErrorKind::Unreachable => {
                    problems.push(Problem::new(at, message, "").unreachable());
                }
                ErrorKind::AccessDenied | ErrorKind::Transient => tracing::info!(
                    function = forward.function,
                    waited = ?LONGEST_RUN,
                    error = message,
                    "time-out of the function not read: the longest is waited for"
                ),
            },
        }
        LONGEST_RUN
    }
}

/// How long an attempt may take whose function may run for `runs`.
fn forward_timeout(plugin: &PluginSettings, forward: &Forward, runs: Duration) -> Duration {
    let needed = match forward.asynchronous {
        true => TIMEOUT,
        false => runs + LONGER,
    };
    let chosen = plugin.settings.timeout.unwrap_or(needed);
    if patience(chosen) < runs && !forward.asynchronous {
        tracing::warn!(
            function = forward.function,
            function_timeout = ?runs,
            timeout = ?chosen,
            "function may outlast its attempt: it may continue while its messages are handled again"
        );
    }
    chosen
}

/// Where compiled plugins are kept.
pub fn cache(data: &Path) -> PathBuf {
    data.join("compiled")
}

/// Where compiled functions are kept for the next version of a component that is being developed: in the
/// user's cache, for all projects, since most of a component is the runtime of its language.
pub fn functions() -> Option<PathBuf> {
    use etcetera::BaseStrategy;
    let strategy = etcetera::choose_base_strategy().ok()?;
    Some(strategy.cache_dir().join("dispatcher"))
}

/// Returns the options of the plugin host for one attempt of `timeout` by hand, with the granted
/// functions and without buckets; opens and calls nothing.
pub async fn options_by_hand(
    settings: &Settings,
    plugin: &PluginSettings,
    timeout: Duration,
) -> PluginOptions {
    let mut options = PluginOptions {
        // It shares its instance with nobody.
        instance_concurrency: 1,
        // And waits for it, which is what may be measured.
        warm: Warm::default(),
        ..grants::options(plugin, timeout, Arc::default())
    };
    let backends = || Arc::new(Backends::new(settings.stores.clone()));
    options.grants.queues = sends(settings, plugin, backends);
    let allowed = plugin.settings.allow_lambda.clone();
    if !allowed.is_empty() {
        let endpoint_url = settings.stores.endpoint_url.as_deref();
        let lambda = Lambda::connect(&aws::shared_configuration(endpoint_url).await);
        options.grants.lambda = Some(grant(Arc::new(lambda), allowed, timeout, Arc::default()));
    }
    options
}

fn grant(
    invoker: Arc<dyn Invoke>,
    allowed: Vec<String>,
    timeout: Duration,
    counters: Arc<Counters>,
) -> Functions {
    Functions {
        invoker,
        allowed,
        patience: patience(timeout),
        longest: None,
        failed: Arc::new(move || counters.function_failures.one()),
    }
}

/// The queues that a plugin may send to, if any. Opens none of them.
fn sends(
    settings: &Settings,
    plugin: &PluginSettings,
    backends: impl Fn() -> Arc<Backends>,
) -> Option<queues::QueuesGrant> {
    let allowed: Vec<String> = plugin
        .settings
        .allow_send
        .iter()
        .map(ToString::to_string)
        .collect();
    let schedules = || Schedules::new(backends(), settings.schedule_table.clone());
    (!allowed.is_empty()).then(|| queues::QueuesGrant {
        deliver: Arc::new(OpenedQueues(Arc::new(schedules()))),
        allowed,
    })
}

/// How long an attempt that may take `timeout` waits for one invocation.
fn patience(timeout: Duration) -> Duration {
    timeout - (timeout / 10).min(MOST_SPARE)
}

/// Maximum instances of a route's plugin that take attempts at once. Where many attempts share one,
/// there are some more than they fill: for large messages.
fn taking(route: &Route) -> usize {
    const MORE: usize = 4;
    match route.plugin.instance_concurrency() {
        0 | 1 => route.settings.concurrency,
        shared => {
            (route.settings.concurrency.div_ceil(shared) + MORE).min(route.settings.concurrency)
        }
    }
}

/// The same with those that take no more and end with their last attempt: as many again, where
/// instances are shared, and both again for a version that is on its way out. A shadow's besides.
fn instances(route: &Route) -> usize {
    let taking = taking(route);
    match (&route.plugin.code, route.plugin.instance_concurrency()) {
        (Code::Component(_), 0 | 1) => taking + shadow::AT_ONCE,
        (Code::Component(_), _) => 4 * taking + shadow::AT_ONCE,
        (_, 0 | 1) => taking,
        (_, _) => 2 * taking,
    }
}

/// What the forwarder reads, see its README.
fn variables(forward: &Forward) -> [(String, String); 3] {
    let invocation = if forward.asynchronous {
        "async"
    } else {
        "sync"
    };
    let pair = |name: &str, value: String| (name.to_owned(), value);
    [
        pair("FUNCTION", forward.function.clone()),
        pair("INVOCATION", invocation.to_owned()),
        pair("PARTIAL_FAILURES", forward.partial_failures.to_string()),
    ]
}

pub(super) fn of_load(at: &str, error: &LoadError) -> Vec<Problem> {
    let mut problems = of_file(error);
    for problem in &mut problems {
        problem.found = format!("{}: {}", problem.at, problem.found);
        problem.at = at.to_owned();
    }
    problems
}

/// Why a file is no plugin, where the file is all that was named.
pub fn of_file(error: &LoadError) -> Vec<Problem> {
    let at = error.file.display().to_string();
    let of_line = |line: &load::Problem| Problem {
        hint: line.hint.clone(),
        ..Problem::new(&at, &line.what, "")
    };
    error.problems.iter().map(of_line).collect()
}

pub(super) fn needs_batches(route: &Route) -> Problem {
    let found = format!(
        "batch-size {} for a plugin that handles single messages",
        route.settings.batch_size
    );
    let wanted = "batch-size 1, or a plugin that exports batch-handler";
    Problem::new(&route.at, found, wanted)
}
