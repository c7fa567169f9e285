//! Finds risks of a run by inspecting its real queues and functions. Receives no message and
//! runs no function. Pure functions judge the findings.

mod limits;
mod repeats;

use super::build::fleet::hides_tenants;
use super::build::plugins::lambda;
use super::build::{Backends, OpenTerms, records};
use super::fleet_link::FleetLink;
use super::live;
use super::stop::{self, Platform, StopPlan};
use dispatcher_aws as aws;
use dispatcher_aws::lambda::Function;
use dispatcher_config::iam::AccountKeys;
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::{Fault, Problem};
use dispatcher_config::{Code, Forward, Route, Settings};
use dispatcher_core::account::AwsAccount;
use dispatcher_core::backend::ServerWarning;
use dispatcher_core::control::QueueControl;
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::files;
use dispatcher_core::queue::{Identity, Queue};
use dispatcher_core::tasks;
pub use repeats::RouteDurations;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The lease duration below which a pause that any machine may have loses the lease.
const SHORT_LEASE: Duration = Duration::from_secs(10);

/// The number of receives up to which a redrive policy can mistake one restart for a bad message.
const FEW_RECEIVES: u32 = 2;

/// The number of queues that are inspected at the same time.
const ABREAST: usize = 16;

/// The number of open files besides the connections of invocations: polls, settlement, metrics, the
/// data folder.
const OTHER_FILES: u64 = 100;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// No problem.
    Ok,
    /// It works now but will cause a problem one day.
    Warn,
    /// It does not work; with the cause.
    Bad(Fault),
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// The subject: `queue payments`, `function my-function`, `--timeout`.
    pub about: String,
    /// The finding, in a clause.
    pub message: String,
}

impl Finding {
    fn new(level: Level, about: &str, message: impl Into<String>) -> Self {
        Self {
            level,
            about: about.to_owned(),
            message: message.into(),
        }
    }
}

impl From<Problem> for Finding {
    fn from(problem: Problem) -> Self {
        let without_place = Problem {
            at: String::new(),
            ..problem.clone()
        };
        let text = without_place.to_string();
        let says = text.trim_start_matches(": ");
        Self::new(Level::Bad(problem.fault), &problem.at, says)
    }
}

/// Inspects everything that valid settings name. A problem that `check` reports has the level
/// `Bad`. `measured` is the report of a process that runs with these settings; empty if none was
/// asked.
pub async fn look(settings: &Settings, measured: &[RouteDurations]) -> Vec<Finding> {
    let backends = Arc::new(Backends::new(settings.stores.clone()));
    let mut findings: Vec<Finding> = match super::examine(settings, &backends).await {
        Ok(plan) => vec![of_stop(plan, super::platform())],
        Err(problems) => problems.into_iter().map(Finding::from).collect(),
    };
    findings.extend(accounts(settings).await);
    let mut of_queues = queues(settings, &backends).await.into_iter();
    for route in &settings.routes {
        findings.extend(of_queues.by_ref().take(route.queues.len()).flatten());
        findings.extend(records::describe(settings, route).map(|says| {
            let about = format!("idempotency of route {}", route.name);
            Finding::new(Level::Ok, &about, says)
        }));
        findings.extend(of_spans(route));
        let grace = settings.program.shutdown_grace;
        findings.extend(repeats::of_route(route, measured, grace));
    }
    findings.extend(limits::look(settings, &backends).await);
    let (controls, _) = live::shared(&backends, settings.queue_names()).await;
    let fleet = FleetLink::open(&backends, settings.fleet.store.as_ref(), None, None).await;
    fleet.look(&mut fleet.turn().await).await;
    let record = fleet.control();
    findings.extend(settings.queue_names().filter_map(|name| {
        let queue = name.to_string();
        let of_backend = controls.get(&queue).copied().unwrap_or_default();
        let ends = [
            format!("`dispatcher resume {queue}`"),
            format!("`dispatcher limit {queue} --reset`"),
        ];
        let set = of_backend.or(record.queue(&queue));
        of_control(&format!("queue {queue}"), &set, ends)
    }));
    findings.extend(settings.routes.iter().filter_map(|route| {
        let name = &route.name;
        let ends = ["resume", "limits"].map(|verb| format!("POST /api/v1/routes/{name}/{verb}"));
        of_control(&format!("route {name}"), &record.route(name), ends)
    }));
    findings.extend(settings.routes.iter().filter_map(|route| {
        let name = &route.name;
        let weights = live::weights_text(&record.weights(name), hides_tenants(route))?;
        let says = format!(
            "its tenants have the live weights {weights} until POST /api/v1/routes/{name}/weights; \
             this applies to all its processes and outlives their restarts"
        );
        Some(Finding::new(Level::Warn, &format!("route {name}"), says))
    }));
    let warnings = warnings(settings, &backends, false).await;
    findings.extend(warnings.into_iter().map(|warning| {
        let ServerWarning { about, message } = warning;
        Finding::new(Level::Warn, about, message)
    }));
    let functions = functions(settings);
    if !functions.is_empty() {
        let lambda = lambda(settings).await;
        for ((function, account), uses) in functions {
            let lambda = lambda.in_account(account);
            let seen = lambda.look(function).await;
            let has_tenant = uses
                .iter()
                .any(|(route, _)| route.plugin.settings.tenant_id);
            let permitted = lambda.try_permission(function, has_tenant).await;
            findings.extend(of_permission(function, permitted.err()));
            findings.extend(of_function(
                function,
                &uses,
                seen,
                settings.program.shutdown_grace,
            ));
        }
    }
    findings.extend(of_files(settings, files::raise_limit().1));
    findings
}

/// Returns the findings about each queue, in order.
async fn queues(settings: &Settings, backends: &Backends) -> Vec<Vec<Finding>> {
    let routes = settings.routes.iter();
    let names: Vec<(&Route, &QueueName)> = routes
        .flat_map(|route| route.queues.iter().map(move |queue| (route, &queue.name)))
        .collect();
    let mut findings = Vec::with_capacity(names.len());
    for some in names.chunks(ABREAST) {
        let looks = some.iter().map(|(route, name)| async move {
            let terms = OpenTerms {
                dead_letter: route.dead_letter.as_ref(),
                ..OpenTerms::default()
            };
            // `check` reports queues that cannot be opened.
            let Ok(opened) = backends.open(name, terms).await else {
                return Vec::new();
            };
            let kept = dead_letters_kept(backends, &*opened).await;
            let seen = opened.identity();
            let mut findings = of_queue(route, name, seen, kept.as_ref());
            findings.extend(limits::of_redrive(settings, route, name, seen));
            findings
        });
        findings.extend(tasks::all(looks.collect()).await);
    }
    findings
}

/// Returns the keys of the settings' encrypted queues by account, for their policies. If SQS cannot
/// be asked, because the role may not exist yet, logs what is missing from the policy.
pub async fn keys(settings: &Settings) -> AccountKeys {
    let mut by_account: BTreeMap<Option<AwsAccount>, BTreeSet<&QueueName>> = BTreeMap::new();
    for route in &settings.routes {
        let queues = route.queues.iter().map(|queue| &queue.name);
        let sends = route.plugin.sends();
        for name in queues.chain(&route.dead_letter).chain(sends) {
            let account = name.account_in(&settings.stores.accounts);
            by_account.entry(account.cloned()).or_default().insert(name);
        }
    }
    let backends = Backends::new(settings.stores.clone());
    let mut keys = AccountKeys::new();
    let mut errors = Vec::new();
    for (account, names) in by_account {
        let (found, failed) = backends.keys(names).await;
        keys.insert(account, found);
        errors.extend(failed);
    }
    if let Some(reason) = errors.first() {
        tracing::warn!(
            %reason,
            "encryption unknown: if a queue is encrypted with a key of AWS KMS, add \
             kms:Decrypt and kms:GenerateDataKey for it"
        );
    }
    keys
}

/// Returns the findings about the accounts: whether they give credentials.
async fn accounts(settings: &Settings) -> Vec<Finding> {
    let endpoint_url = settings.stores.endpoint_url.as_deref();
    let looks = settings.stores.accounts.iter().map(|account| async move {
        let about = format!("account {}", account.name);
        let config = aws::account_configuration(endpoint_url, Some(account)).await;
        let (level, message) = match aws::accounts::check(&config).await {
            Ok(()) => (Level::Ok, of_usable(account)),
            Err(error) => (Level::Bad(Fault::Settings), without_trust(account, &error)),
        };
        Finding::new(level, &about, message)
    });
    tasks::all(looks.collect()).await
}

fn of_usable(account: &AwsAccount) -> String {
    match (&account.role, &account.profile) {
        (Some(role), _) => format!("its role {} can be assumed", role.arn),
        (None, Some(profile)) => format!("profile {profile} gives credentials"),
        (None, None) => "it uses the credentials of the process".to_owned(),
    }
}

fn without_trust(account: &AwsAccount, error: &CallError) -> String {
    let Some(role) = &account.role else {
        return format!("no credentials: {error}");
    };
    let demands = match &role.external_id {
        Some(id) => format!(", with the external id {id}"),
        None => String::new(),
    };
    format!(
        "no credentials: {error}; the trust policy of {} must allow this process sts:AssumeRole\
         {demands}, and so must the policy of the process: `dispatcher doctor --iam` prints both",
        role.arn
    )
}

/// The retention of a queue and of its dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeptTimes {
    dead_letter_queue: String,
    dead_letters: Duration,
    messages: Duration,
}

/// Returns `None` if the retention is unlimited or cannot be determined.
async fn dead_letters_kept(backends: &Backends, queue: &dyn Queue) -> Option<KeptTimes> {
    let messages = queue.retention().await.ok()??;
    let named = queue.dead_letter_queue();
    let dead_letter_queue = named.or_else(|| queue.redrive_policy_target())?;
    let name: QueueName = dead_letter_queue.parse().ok()?;
    let opened = backends.open_existing(&name).await.ok()?;
    let dead_letters = opened.retention().await.ok()??;
    Some(KeptTimes {
        dead_letter_queue,
        dead_letters,
        messages,
    })
}

fn of_queue(
    route: &Route,
    name: &QueueName,
    seen: &Identity,
    kept: Option<&KeptTimes>,
) -> Vec<Finding> {
    let about = format!("queue {name}");
    let mut findings = Vec::new();
    let mut warn = |message: String| findings.push(Finding::new(Level::Warn, &about, message));
    let dead_lettered = seen.dead_letters || seen.most_receives.is_some();
    if !dead_lettered {
        warn(
            "it has no redrive policy and the route no dead-letter queue: a message that always fails is redelivered until its retention ends"
                .to_owned(),
        );
    }
    if let Some(kept) = kept.filter(|kept| kept.dead_letters < kept.messages) {
        let time = humantime::format_duration;
        warn(format!(
            "its dead-letter queue {} keeps messages for {}, the queue itself for {}: a message \
             that a redrive policy moves keeps its age since its first send, so dead letters may \
             be deleted before anyone sees them; give the dead-letter queue a longer retention \
             than the queue",
            kept.dead_letter_queue,
            time(kept.dead_letters),
            time(kept.messages)
        ));
    }
    if let Some(most) = seen.most_receives.filter(|most| *most <= FEW_RECEIVES) {
        let times = if most == 1 { "time" } else { "times" };
        warn(format!(
            "its redrive policy dead-letters a message that was received {most} {times}: one restart or short failure dead-letters a good message; 5 or more is usual"
        ));
    }
    let fifo = seen.ordered_groups && name.backend.facts().has_fifo_queues;
    if fifo && let Some(most) = seen.most_receives {
        if !seen.redrive_target && !seen.dead_letters {
            warn(
                "the target of its redrive policy cannot be opened and the route has no dead-letter \
                 queue: a message that always fails makes the policy dead-letter those behind it in its group, without an attempt; allow sqs:GetQueueUrl, sqs:GetQueueAttributes and \
                 sqs:SendMessage on the target"
                    .to_owned(),
            );
        }
        if most == 1 {
            warn(
                "FIFO with maxReceiveCount 1: every receive is the last, so messages behind a failing one must run before a stop ends, and a crash dead-letters messages that were not attempted"
                    .to_owned(),
            );
        }
    }
    let visibility = route.settings.visibility.unwrap_or(seen.visibility);
    if visibility < SHORT_LEASE {
        let words = humantime::format_duration(visibility);
        warn(format!(
            "the visibility timeout is {words}: if this process pauses for that long, another \
             consumer receives its running messages; --visibility 30 is enough"
        ));
    }
    if fifo && !route.settings.batch_window.is_zero() {
        warn("a FIFO queue with a batch window: every wait delays a whole group".to_owned());
    }
    if findings.is_empty() {
        let words = humantime::format_duration(visibility);
        let fifo = match (fifo, seen.most_receives) {
            (true, Some(most)) => format!(
                "; FIFO: one attempt at a time for each message group, at most {most} for a message \
                 while others of its group wait behind it"
            ),
            (true, None) => "; FIFO: one attempt at a time for each message group".to_owned(),
            (false, _) => String::new(),
        };
        let says = format!("open; a message is leased for {words} at a time{fifo}");
        findings.push(Finding::new(Level::Ok, &about, says));
    }
    findings
}

/// Finds a grant without effect.
fn of_spans(route: &Route) -> Option<Finding> {
    let plugin = &route.plugin;
    plugin.drops_spans().then(|| {
        let about = format!("allow-spans of plugin {}", plugin.name);
        let shared = plugin.instance_concurrency();
        let says = format!(
            "up to {shared} attempts share an instance, so it is not known which attempt a span \
             belongs to, and all spans are dropped; use --instance-concurrency 1"
        );
        Finding::new(Level::Warn, &about, says)
    })
}

/// Finds settings of operators on a queue or a route. They outlive the processes that apply them,
/// and these requests end a pause and limits.
fn of_control(about: &str, set: &QueueControl, [resume, reset]: [String; 2]) -> Option<Finding> {
    let QueueControl {
        paused,
        concurrency,
        rate,
        prefetch,
    } = set;
    let limits: Vec<String> = [
        concurrency.map(|most| format!("concurrency {most}")),
        rate.map(|rate| format!("rate {rate}/s")),
        prefetch.map(|most| format!("prefetch {most}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let paused = paused.then(|| format!("it is paused until {resume}"));
    let limited = (!limits.is_empty()).then(|| {
        let limits = limits.join(", ");
        format!("it has the live limits {limits} until {reset}")
    });
    let set: Vec<String> = paused.into_iter().chain(limited).collect();
    (!set.is_empty()).then(|| {
        let says = format!(
            "{}; this applies to all its processes and outlives their restarts",
            set.join(", and ")
        );
        Finding::new(Level::Warn, about, says)
    })
}

fn of_stop(plan: StopPlan, platform: Option<Platform>) -> Finding {
    let about = "stop";
    match stop::advice(plan, platform) {
        Some(says) => Finding::new(Level::Warn, about, says),
        None => {
            let time = humantime::format_duration(plan.total());
            let says = format!(
                "the stop ends within {time} of SIGTERM; the platform must not kill the process \
                         earlier"
            );
            Finding::new(Level::Ok, about, says)
        }
    }
}

/// Returns the problems of the queues' servers that will eventually lose messages. Skips servers
/// that cannot be reached, which `check` reports. `log` says whether to log them.
pub async fn warnings(settings: &Settings, backends: &Backends, log: bool) -> Vec<ServerWarning> {
    let servers: BTreeSet<_> = settings.queue_names().map(|name| name.backend).collect();
    let mut warnings = Vec::new();
    for server in servers {
        warnings.extend(backends.warnings(server, log).await);
    }
    warnings
}

/// A function, and the account that its plugin names.
type NamedFunction<'a> = (&'a str, Option<&'a AwsAccount>);

/// Returns the routes that forward to each function.
fn functions(settings: &Settings) -> BTreeMap<NamedFunction<'_>, Vec<(&Route, &Forward)>> {
    let mut functions = BTreeMap::<NamedFunction<'_>, Vec<(&Route, &Forward)>>::new();
    for route in &settings.routes {
        if let Code::Forward(forward) = &route.plugin.code {
            let account = settings.account_of(&route.plugin);
            let uses = functions.entry((&forward.function, account)).or_default();
            uses.push((route, forward));
        }
    }
    functions
}

/// Judges the answer to the question whether a function may be invoked. Other problems than a
/// missing permission are found by reading the function.
fn of_permission(name: &str, error: Option<CallError>) -> Option<Finding> {
    let CallError { message, .. } = error.filter(|error| error.kind == ErrorKind::AccessDenied)?;
    let says = format!(
        "{message}; its policy needs lambda:InvokeFunction on the function, as `dispatcher doctor \
         --iam` prints it"
    );
    let about = format!("function {name}");
    Some(Finding::new(Level::Bad(Fault::Settings), &about, says))
}

fn of_function(
    name: &str,
    uses: &[(&Route, &Forward)],
    seen: Result<Function, CallError>,
    grace: Duration,
) -> Vec<Finding> {
    let about = format!("function {name}");
    let function = match seen {
        Ok(function) => function,
        Err(CallError { kind, message }) => {
            return match kind {
                ErrorKind::AccessDenied | ErrorKind::Transient => {
                    vec![Finding::new(Level::Bad(Fault::Settings), &about, message)]
                }
                // `check` reports these.
                ErrorKind::NotFound | ErrorKind::Invalid | ErrorKind::Unreachable => Vec::new(),
            };
        }
    };
    let mut said: Vec<(Level, String)> = Vec::new();
    said.extend(of_state(&function));
    let wanted = uses
        .iter()
        .map(|(route, _)| route.settings.concurrency)
        .sum();
    said.extend(of_reserve(&function, wanted));
    let waited = uses.iter().any(|(_, forward)| !forward.asynchronous);
    if waited && grace < function.timeout {
        said.push((
            Level::Warn,
            format!(
                "it may run for {} and a stop waits {}: messages that are still running then are \
                 redelivered only after the function's timeout; --shutdown-grace sets the \
                 wait",
                humantime::format_duration(function.timeout),
                humantime::format_duration(grace)
            ),
        ));
    }
    let routes = uses.iter().copied();
    said.extend(routes.filter_map(|(route, forward)| of_patience(&function, route, forward)));
    if said.is_empty() {
        let timeout = humantime::format_duration(function.timeout);
        said.push((
            Level::Ok,
            format!("found; an invocation may take {timeout}"),
        ));
    }
    let findings = said.into_iter();
    findings
        .map(|(level, says)| Finding::new(level, &about, says))
        .collect()
}

fn of_state(function: &Function) -> Option<(Level, String)> {
    let why = function
        .state_reason
        .as_deref()
        .unwrap_or("no reason given");
    match function.state.as_str() {
        "" | "Active" => None,
        "Failed" => Some((
            Level::Bad(Fault::Settings),
            format!("its state is Failed and it cannot be invoked: {why}"),
        )),
        state => Some((
            Level::Warn,
            format!("its state is {state}, so that the first invocations are refused: {why}"),
        )),
    }
}

/// Judges the reserved concurrency. `wanted` is the number of concurrent invocations of all routes
/// together.
fn of_reserve(function: &Function, wanted: usize) -> Option<(Level, String)> {
    match function.reserved_concurrency {
        Some(0) => Some((
            Level::Bad(Fault::Settings),
            "its reserved concurrency is 0: every invocation is throttled".to_owned(),
        )),
        Some(reserved) if usize::try_from(reserved).is_ok_and(|most| most < wanted) => Some((
            Level::Warn,
            format!(
                "its reserved concurrency is {reserved} and up to {wanted} invocations run concurrently: the others are throttled; use --concurrency {reserved} or less"
            ),
        )),
        _ => None,
    }
}

/// Judges the timeout of a route. A route without a timeout uses the function's.
fn of_patience(function: &Function, route: &Route, forward: &Forward) -> Option<(Level, String)> {
    let timeout = route.plugin.settings.timeout?;
    (!forward.asynchronous && timeout < function.timeout).then(|| {
        let says = format!(
            "it may run for {} and route {} waits {}: an abandoned invocation may continue, and its messages are handled again",
            humantime::format_duration(function.timeout),
            route.name,
            humantime::format_duration(timeout),
        );
        (Level::Warn, says)
    })
}

/// Checks that every invocation can have a connection. `limit` is the limit of open files.
fn of_files(settings: &Settings, limit: u64) -> Option<Finding> {
    let invoking = settings.routes.iter().filter(|route| {
        route.plugin.code.forwards() || !route.plugin.settings.allow_lambda.is_empty()
    });
    let invocations: usize = invoking.map(|route| route.settings.concurrency).sum();
    let needed = u64::try_from(invocations)
        .unwrap_or(u64::MAX)
        .saturating_add(OTHER_FILES);
    let about = "open files";
    Some(match (invocations, limit < needed) {
        (0, _) => return None,
        (_, true) => Finding::new(
            Level::Warn,
            about,
            format!(
                "at most {limit}, and {invocations} concurrent invocations or requests need about {needed}: \
                 raise the hard limit (ulimit -Hn, LimitNOFILE) or lower --concurrency"
            ),
        ),
        (_, false) => Finding::new(
            Level::Ok,
            about,
            format!("enough for {invocations} concurrent invocations or requests"),
        ),
    })
}

#[cfg(test)]
mod tests;
