//! Loads the handlers that the settings name: components from files, and the built-in ones that
//! forward to Lambda and to HTTP services.

use super::Backends;
use super::grants::{self, Buckets};
use super::outlet::OpenedQueues;
use super::schedule::Schedules;
use super::service;
use dispatcher_aws as aws;
use dispatcher_aws::lambda::{Function, Lambda};
use dispatcher_config::problem::Problem;
use dispatcher_config::{Code, Forward, PluginConfig as PluginSettings, Route, Settings, TIMEOUT};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::handler::{Handler, TimeLimit};
use dispatcher_core::lambda::Invoke;
use dispatcher_core::queue::Queue;
use dispatcher_core::telemetry::counters::Counters;
use dispatcher_core::{clock, files, tasks};
use dispatcher_trials::rollout::{Rollout, shadow};
use dispatcher_wasm::capability::lambda::Functions;
use dispatcher_wasm::capability::queues;
use dispatcher_wasm::load;
use dispatcher_wasm::load::{LoadError, LoadedPlugin, PluginOptions};
use dispatcher_wasm::runtime::{Runtime, RuntimeOptions, Spawn};
use dispatcher_wasm::tally::Tally;
use dispatcher_wasm::warm::Warm;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// The component that forwards messages to Lambda, built by `plugins/build`.
const FORWARDER: &[u8] = include_bytes!("../../../../../plugins/prebuilt/lambda-forward.wasm");

/// The maximum timeout of a Lambda function.
const LONGEST_RUN: Duration = Duration::from_secs(900);
/// The time that an attempt waits beyond the function's timeout: the network, and the cold start,
/// which the function's timeout does not include.
const LONGER: Duration = Duration::from_secs(30);
/// The maximum time of an attempt that is left to the component after it gives up an invocation. It
/// is a tenth of the attempt's time, up to this.
const MOST_SPARE: Duration = Duration::from_secs(10);

/// The duration above which a compilation is logged. Loading from the cache takes less, even on a
/// busy machine.
const NOTICEABLE: Duration = Duration::from_millis(300);
/// The interval of log lines while a component is being compiled.
const PROGRESS: Duration = Duration::from_secs(5);

/// Loads handlers, one after the other. Connects to Lambda when a handler first needs it.
pub struct Loader {
    settings: Settings,
    pub(super) backends: Arc<Backends>,
    pub(super) runtime: Runtime,
    pub(super) spawn: Spawn,
    /// Ends the work that runs beside the messages' own attempts.
    pub(super) over: CancellationToken,
    counters: Arc<Counters>,
    lambda: OnceCell<Lambda>,
    pub(super) buckets: Buckets,
    /// The instance counts of each route's plugin.
    tallies: Mutex<BTreeMap<String, Arc<Tally>>>,
    /// Held while a component is compiled.
    pub(super) compiling: tokio::sync::Mutex<()>,
}

/// A handler, and the time limit of its attempts.
pub struct LoadedHandler {
    /// The handler of messages.
    pub handler: Arc<dyn Handler>,
    /// The maximum duration of an attempt.
    pub timeout: TimeLimit,
    /// The handler, if its versions can be replaced.
    pub rollout: Option<Arc<Rollout>>,
}

impl Loader {
    /// Starts the engine, with room for the instances of all routes. `over` ends the work that runs
    /// beside the messages' own attempts.
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
                .filter(|route| instances(route) > 0)
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

    /// Returns the settings that it was started with.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Loads the handler of a route. Returns `None` after a problem.
    /// `queues` are those that the route reads.
    pub async fn load(
        &self,
        route: &Route,
        queues: &[Arc<dyn Queue>],
        problems: &mut Vec<Problem>,
    ) -> Option<LoadedHandler> {
        let plugin = &route.plugin;
        let (loaded, timeout) = match &plugin.code {
            Code::Missing => return None,
            Code::Component(source) => return self.begin(route, source, problems).await,
            Code::Relay(target) => return self.relay(route, target, queues, problems).await,
            Code::Forward(forward) => {
                let runs = self.look(plugin, forward, problems).await;
                let timeout = forward_timeout(plugin, forward, runs);
                let longest = (!forward.asynchronous).then_some(runs + MOST_SPARE);
                let options = PluginOptions {
                    // The host logs each invocation with all ids.
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
                Some(LoadedHandler {
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

    /// Compiles a component, or takes it from the cache. Compiling takes milliseconds to many
    /// seconds; messages, leases and signals are processed meanwhile. Logs a compilation that takes
    /// noticeably long.
    pub(super) async fn compile(
        &self,
        file: String,
        bytes: Vec<u8>,
        options: PluginOptions,
    ) -> Result<LoadedPlugin, LoadError> {
        let (plugin, size) = (options.name.clone(), bytes.len());
        let began = clock::now();
        let (runtime, name) = (self.runtime.clone(), file.clone());
        let mut loading =
            pin!(tasks::blocking(move || runtime.load_bytes(&name, &bytes, options)).finished());
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

    /// Returns the options for attempts of `timeout` whose invocations may need `longest`.
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
        // More instances would never be used.
        warm.count = warm
            .count
            .map(|count| count.min(route.settings.concurrency));
        // Counts all versions together, including those that end with their last attempts.
        options.tally = {
            let mut tallies = self.tallies.lock();
            Arc::clone(tallies.entry(route.name.clone()).or_default())
        };
        options.grants.queues = sends(&self.settings, plugin, || self.backends.clone());
        let mut allowed = plugin.settings.allow_lambda.clone();
        if let Code::Forward(forward) = &plugin.code {
            allowed.push(forward.function.clone());
            let has_window = !route.settings.batch_window.is_zero();
            options.grants.env.0.extend(variables(forward, has_window));
        }
        if !allowed.is_empty() {
            let invoker = Arc::new(self.lambda_of(plugin).await);
            options.grants.lambda = Some(Functions {
                longest,
                tenant: route.tenant_id().cloned(),
                ..grant(invoker, allowed, timeout, self.counters.clone())
            });
        }
        options
    }

    /// Returns the client for the functions of a plugin.
    async fn lambda_of(&self, plugin: &PluginSettings) -> Lambda {
        let shared = self.lambda.get_or_init(|| async {
            files::raise_limit();
            lambda(&self.settings).await
        });
        shared.await.in_account(self.settings.account_of(plugin))
    }

    /// Returns the timeout of the function, or the maximum timeout if it cannot be read.
    async fn look(
        &self,
        plugin: &PluginSettings,
        forward: &Forward,
        problems: &mut Vec<Problem>,
    ) -> Duration {
        let at = &plugin.at;
        if let Err(error) = aws::environment::check() {
            let wanted = "an environment in which AWS can be called";
            problems.push(Problem::new(at, error.message, wanted));
            return LONGEST_RUN;
        }
        let seen = self.lambda_of(plugin).await.look(&forward.function).await;
        match seen {
            Ok(function) => {
                problems.extend(of_tenants(plugin, forward, &function));
                return function.timeout;
            }
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

/// Returns the problem of a function that must be told the tenant and is not, or is told it and must
/// not: Lambda refuses both.
fn of_tenants(plugin: &PluginSettings, forward: &Forward, function: &Function) -> Option<Problem> {
    let (found, wanted) = match (function.isolates_tenants, plugin.settings.tenant_id) {
        (true, false) => (
            "isolates tenants",
            "`tenant-id = true` in the plugin and `tenant` in its route",
        ),
        (false, true) => (
            "has no tenant isolation",
            "no `tenant-id`, or a function that has it",
        ),
        (true, true) | (false, false) => return None,
    };
    let found = format!("function `{}` {found}", forward.function);
    Some(Problem::new(&plugin.at, found, wanted))
}

/// Returns the time limit of an attempt whose function may run for `runs`.
fn forward_timeout(plugin: &PluginSettings, forward: &Forward, runs: Duration) -> Duration {
    let needed = if forward.asynchronous {
        TIMEOUT
    } else {
        runs + LONGER
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

/// Returns the folder of compiled plugins.
pub fn cache(data: &Path) -> PathBuf {
    data.join("compiled")
}

/// Returns the folder of compiled functions, which speeds up compiling the next version of a
/// component in development. It is in the user's cache and shared by all projects, since most of a
/// component is the runtime of its language.
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
        // The attempt does not share its instance.
        instance_concurrency: 1,
        // The attempt waits for its instance, so that the time can be measured.
        warm: Warm::default(),
        ..grants::options(plugin, timeout, Arc::default())
    };
    options.grants.queues = sends(settings, plugin, || {
        Arc::new(Backends::new(settings.stores.clone()))
    });
    let allowed = plugin.settings.allow_lambda.clone();
    if !allowed.is_empty() {
        let lambda = lambda(settings).await;
        let invoker = Arc::new(lambda.in_account(settings.account_of(plugin)));
        options.grants.lambda = Some(grant(invoker, allowed, timeout, Arc::default()));
    }
    options
}

/// Creates the client of Lambda, with the accounts of the settings.
pub(crate) async fn lambda(settings: &Settings) -> Lambda {
    let stores = &settings.stores;
    let endpoint_url = stores.endpoint_url.as_deref();
    let client = Lambda::connect(&aws::shared_configuration(endpoint_url).await);
    client.with_accounts(endpoint_url, &stores.accounts).await
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
        tenant: None,
        failed: Arc::new(move || counters.function_failures.one()),
    }
}

/// Returns the queues that a plugin may send to, if any. Opens none of them.
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
    (!allowed.is_empty()).then(|| {
        let schedules = Schedules::new(backends(), settings.schedule_table.clone());
        queues::QueuesGrant {
            deliver: Arc::new(OpenedQueues(Arc::new(schedules))),
            allowed,
        }
    })
}

/// Returns how long an attempt that may take `timeout` waits for one invocation.
fn patience(timeout: Duration) -> Duration {
    timeout - (timeout / 10).min(MOST_SPARE)
}

/// Returns the maximum number of instances of a route's plugin that accept attempts. If attempts
/// share instances, there are a few more than they fill, for large messages.
fn taking(route: &Route) -> usize {
    const MORE: usize = 4;
    match route.plugin.instance_concurrency() {
        0 | 1 => route.settings.concurrency,
        shared => {
            (route.settings.concurrency.div_ceil(shared) + MORE).min(route.settings.concurrency)
        }
    }
}

/// Returns the maximum number of instances, including those that accept no more attempts and end
/// with their last one: twice as many if instances are shared, and twice that for a version that is
/// being replaced. The shadow's instances come on top.
fn instances(route: &Route) -> usize {
    let taking = taking(route);
    match (&route.plugin.code, route.plugin.instance_concurrency()) {
        (Code::Relay(_), _) => 0,
        (Code::Component(_), 0 | 1) => taking + shadow::AT_ONCE,
        (Code::Component(_), _) => 4 * taking + shadow::AT_ONCE,
        (_, 0 | 1) => taking,
        (_, _) => 2 * taking,
    }
}

/// Returns the variables of the forwarder, see its README.
fn variables(forward: &Forward, has_window: bool) -> [(String, String); 4] {
    let invocation = if forward.asynchronous {
        "async"
    } else {
        "sync"
    };
    [
        ("FUNCTION", forward.function.clone()),
        ("INVOCATION", invocation.to_owned()),
        ("PARTIAL_FAILURES", forward.partial_failures.to_string()),
        ("BATCH_WINDOW", has_window.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

pub(super) fn of_load(at: &str, error: &LoadError) -> Vec<Problem> {
    let mut problems = of_file(error);
    for problem in &mut problems {
        problem.found = format!("{}: {}", problem.at, problem.found);
        problem.at = at.to_owned();
    }
    problems
}

/// Returns the reasons why a file is not a plugin, with the file as the only location.
pub fn of_file(error: &LoadError) -> Vec<Problem> {
    let at = error.file.display().to_string();
    error
        .problems
        .iter()
        .map(|line: &load::Problem| Problem {
            hint: line.hint.clone(),
            ..Problem::new(&at, &line.what, "")
        })
        .collect()
}

pub(super) fn needs_batches(route: &Route) -> Problem {
    let found = format!(
        "batch-size {} for a plugin that handles single messages",
        route.settings.batch_size
    );
    let wanted = "batch-size 1, or a plugin that exports batch-handler";
    Problem::new(&route.at, found, wanted)
}
