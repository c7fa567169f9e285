//! A reload: reads the settings and the admin tokens again, and applies the changes to the running
//! routes. Routes are added, removed and replaced while the others go on. If anything is wrong,
//! nothing changes.

use super::accounts;
use super::accounts::{LeftOut, RETRY};
use super::build::{Parts, RouteBuilder};
use super::discovery;
use super::discovery::Discovery;
use super::live::Live;
use super::replace::ReloadRequests;
use super::routes::RouteSet;
use super::schedule::RunningMovers;
use super::{build, live, service_manager, stop_plan, warn_of_stop};
use dispatcher_aws as aws;
use dispatcher_config::flags::Flags;
use dispatcher_config::problem::Problem;
use dispatcher_config::reload::{Changes, changes};
use dispatcher_config::{Settings, SettingsSource};
use dispatcher_console::access::Access;
use dispatcher_core::account::AwsAccount;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::fleet::limit::Limit;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_operate::objects::{ReloadedSettings, ReplacedRoute};
use dispatcher_operate::problem::{CallProblem, StatusCode};
use serde_json::Value;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot};

/// Handles the signal from now on, so that it does not end the process.
pub(crate) fn listen() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// The parts that a reload changes.
pub(crate) struct ReloadedParts {
    /// The settings at the start of the run.
    pub started: Settings,
    /// The accounts whose queues are left out.
    pub left_out: LeftOut,
    /// The source of these settings.
    pub flags: Flags,
    /// The queues of patterns.
    pub discovery: Discovery,
    pub live: Arc<Live>,
    pub routes: Arc<RouteSet>,
    pub movers: Arc<Mutex<RunningMovers>>,
    pub builder: RouteBuilder,
    /// Replaces plugins of running routes.
    pub plugins: ReloadRequests,
    /// The access rules of the admin address.
    pub access: Arc<Access>,
}

/// The requests to reload. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReloadCalls(UnboundedSender<ReloadCall>);

type ReloadCall = oneshot::Sender<Result<ReloadedSettings, Vec<Problem>>>;

impl ReloadCalls {
    /// Creates the requests, and the receiver for `watch`.
    pub(crate) fn new() -> (Self, UnboundedReceiver<ReloadCall>) {
        let (calls, received) = unbounded_channel();
        (Self(calls), received)
    }

    /// Reloads the settings now.
    pub(crate) async fn reload(&self) -> Result<ReloadedSettings, CallProblem> {
        let (answer, answered) = oneshot::channel();
        let _ = self.0.send(answer);
        let problems = match answered.await {
            Ok(Ok(reloaded)) => return Ok(reloaded),
            Ok(Err(problems)) => problems,
            Err(_) => {
                let why = "The process is stopping; the reload may have been applied.";
                return Err(CallProblem::new(StatusCode::CONFLICT, why));
            }
        };
        let why = "Nothing was reloaded: the settings have problems.";
        let problems: Vec<Value> = problems.iter().map(|one| one.to_string().into()).collect();
        Err(CallProblem {
            more: [("problems".to_owned(), problems.into())]
                .into_iter()
                .collect(),
            ..CallProblem::new(StatusCode::UNPROCESSABLE_ENTITY, why)
        })
    }
}

/// Starts to apply changes, if there is a signal for it or queues are looked up.
pub(crate) fn start(
    signal: Option<Signal>,
    calls: UnboundedReceiver<ReloadCall>,
    reloaded: ReloadedParts,
) -> Option<Task<()>> {
    let may_change = signal.is_some() || reloaded.has_patterns();
    may_change.then(|| tasks::spawn(watch(signal, calls, reloaded)))
}

/// Applies changes at every signal, if there is one, and at every request, until dropped.
async fn watch(
    mut signal: Option<Signal>,
    mut calls: UnboundedReceiver<ReloadCall>,
    mut reloaded: ReloadedParts,
) {
    let mut next_retry = clock::now() + RETRY;
    let mut next_look = reloaded.next_look();
    loop {
        let is_complete = reloaded.left_out.unusable.is_empty();
        let call = tokio::select! {
            signal = received(signal.as_mut()) => match signal {
                Some(()) => None,
                None => return,
            },
            Some(call) = calls.recv() => Some(call),
            () = clock::sleep_until(Some(next_retry)), if !is_complete => {
                reloaded.retry_accounts().await;
                next_retry = clock::now() + RETRY;
                continue;
            }
            () = clock::sleep_until(Some(next_look)), if reloaded.has_patterns() => {
                reloaded.look_up_queues(false).await;
                next_look = reloaded.next_look();
                continue;
            }
        };
        service_manager::reloading();
        let result = reloaded.reload().await;
        match &result {
            Ok(_) => {
                next_look = reloaded.next_look();
                service_manager::ready(service_manager::RUNNING);
            }
            Err(problems) => {
                for problem in problems {
                    tracing::error!(%problem, "setting refused");
                }
                tracing::error!("settings not reloaded: they have problems, nothing changed");
                service_manager::ready(service_manager::NOT_RELOADED);
            }
        }
        if let Some(call) = call {
            // The client may have gone.
            let _ = call.send(result);
        }
    }
}

/// Returns when the signal has come. Without a signal, never.
async fn received(signal: Option<&mut Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

impl ReloadedParts {
    /// Reads the settings and applies them, or returns every problem.
    async fn reload(&mut self) -> Result<ReloadedSettings, Vec<Problem>> {
        let (flags, access) = (self.flags.clone(), self.access.clone());
        // The files may be on a file system that does not respond.
        let read = tasks::blocking(move || {
            access.reload();
            let source = SettingsSource::read(&flags);
            (source.written(), source)
        });
        let ((written, problems), source) = read.finished().await;
        if !problems.is_empty() {
            return Err(problems);
        }
        let accounts = &written.stores.accounts;
        let backends = self.builder.backends.with_accounts(accounts);
        let known = &self.left_out.unusable;
        let unusable = accounts::unusable(&written, |account| known.contains_key(account)).await;
        let before = discovery::found(&self.left_out.wanted);
        let mut discovery = Discovery::new(source);
        let looked = discovery.first_look(written, &backends, &unusable, &before);
        let wanted = looked.await?;
        let mut left_out = LeftOut { wanted, unusable };
        loop {
            if let Some(reloaded) = self.change_or_refuse(&mut left_out, false).await? {
                self.discovery = discovery;
                return Ok(reloaded);
            }
        }
    }

    /// Changes to these settings. Leaves out queues that patterns found and that cannot be served;
    /// then returns `None`, and the change can be tried again.
    async fn change_or_refuse(
        &mut self,
        left_out: &mut LeftOut,
        may_empty: bool,
    ) -> Result<Option<ReloadedSettings>, Vec<Problem>> {
        let before = discovery::found(&self.left_out.wanted);
        match self.change(left_out.clone()).await {
            Ok(reloaded) => {
                discovery::tell_changes(&before, &discovery::found(&left_out.wanted));
                Ok(Some(reloaded))
            }
            Err(problems) if discovery::refuse(&mut left_out.wanted, &problems, may_empty) => {
                Ok(None)
            }
            Err(problems) => Err(problems),
        }
    }

    /// Looks up the queues of patterns, and serves those that have come and not those that are gone.
    /// `is_sure` serves new ones at once.
    async fn look_up_queues(&mut self, is_sure: bool) {
        if let Err(problems) = self.serve_found_queues(is_sure).await {
            // The next lookup tries again.
            for problem in problems {
                tracing::error!(%problem, "queues found and not served: nothing changed");
            }
        }
    }

    async fn serve_found_queues(&mut self, is_sure: bool) -> Result<(), Vec<Problem>> {
        let mut left_out = self.left_out.clone();
        let before = discovery::found(&left_out.wanted);
        let (backends, unusable) = (&self.builder.backends, &left_out.unusable);
        let looked = self
            .discovery
            .look(&left_out.wanted, backends, unusable, is_sure);
        left_out.wanted = looked.await?;
        while discovery::found(&left_out.wanted) != before {
            if self.change_or_refuse(&mut left_out, true).await?.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Whether any route has a pattern of queues.
    fn has_patterns(&self) -> bool {
        self.left_out.wanted.patterns().next().is_some()
    }

    /// Returns when to look queues up again.
    fn next_look(&self) -> BootInstant {
        clock::now() + self.left_out.wanted.program.discovery_interval
    }

    /// Adds the queues of accounts that were left out and now give credentials.
    async fn retry_accounts(&mut self) {
        let (wanted, known) = (self.left_out.wanted.clone(), &self.left_out.unusable);
        let unusable = accounts::unusable(&wanted, |account| known.contains_key(account)).await;
        let usable = known
            .keys()
            .filter(|account| !unusable.contains_key(*account));
        let recovered: Vec<AwsAccount> = usable.cloned().collect();
        self.left_out.unusable.extend(unusable);
        self.show_left_out();
        let has_recovered = !recovered.is_empty();
        // One by one: the queues of one account do not hinder those of another.
        for account in recovered {
            let (wanted, mut unusable) = (wanted.clone(), self.left_out.unusable.clone());
            unusable.remove(&account);
            let changed = self.change(LeftOut { wanted, unusable });
            let Err(problems) = changed.await else {
                continue;
            };
            for problem in &problems {
                let account = account.name.as_str();
                tracing::error!(
                    account,
                    %problem,
                    "account gives credentials, and its queues are still left out"
                );
            }
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let reason = texts.join("; ");
            self.left_out.unusable.insert(account, reason);
            self.show_left_out();
        }
        if has_recovered && self.has_patterns() {
            self.look_up_queues(true).await;
        }
    }

    fn show_left_out(&self) {
        accounts::show_left_out(self.routes.readiness(), &self.left_out.unusable);
    }

    /// Applies settings, without the queues that they leave out, or returns every problem.
    async fn change(&mut self, left_out: LeftOut) -> Result<ReloadedSettings, Vec<Problem>> {
        let new = accounts::without(&left_out.wanted, &left_out.unusable);
        let old = self.live.settings();
        let changes = changes(&old, &new, &self.routes.waiting());
        let mut in_force = Settings {
            routes: new.routes.clone(),
            queues: [&old.queues[..], &changes.declared].concat(),
            ..self.started.clone()
        };
        in_force.stores.accounts = new.stores.accounts.clone();
        let problems = self.name_limits(&new, &mut in_force);
        if !problems.is_empty() {
            return Err(problems);
        }
        build::declare(&changes.declared, &self.builder.backends).await;
        let parts = self.build(&changes, &in_force).await?;
        let reloaded = ReloadedSettings {
            added: changes.started.clone(),
            replaced: changes.replaced.iter().map(replaced).collect(),
            removed: changes.ended.clone(),
            needs_restart: changes.needs_restart.clone(),
        };
        self.apply(changes, parts, in_force, &new.log.level).await;
        self.left_out = left_out;
        self.show_left_out();
        Ok(reloaded)
    }

    /// Makes routes refer to the limits of the start. Returns a problem for each new limit, and for
    /// each whose keys become private: it would show them until the next start.
    fn name_limits(&self, new: &Settings, in_force: &mut Settings) -> Vec<Problem> {
        let mut problems = Vec::new();
        let known: &[Limit] = if self.routes.has_limits() {
            &self.started.limits
        } else {
            &[]
        };
        for route in &mut in_force.routes {
            let names = new.limits_of(route).map(|limit| &limit.name);
            let places = names.filter_map(|name| {
                let place = known.iter().position(|one| one.name == *name);
                if place.is_none() {
                    let found = format!("limit `{name}`, which no route had at the start");
                    let wanted = "a restart, or another limit";
                    problems.push(Problem::new(&route.at, found, wanted));
                }
                place
            });
            route.limits = places.collect();
        }
        let (before, after) = (&self.started, &*in_force);
        let both = build::fleet::limits(before)
            .into_iter()
            .zip(build::fleet::limits(after));
        for (_, limit) in both.filter(|(was, now)| now.hides_keys && !was.hides_keys) {
            let found = format!(
                "`record.redact` now covers the key of limit `{}`",
                limit.name
            );
            problems.push(Problem::new(
                "[limit.…]",
                found,
                "a restart, which hides its keys",
            ));
        }
        problems
    }

    /// Builds the new routes and the new versions of routes.
    async fn build(
        &self,
        changes: &Changes,
        settings: &Settings,
    ) -> Result<Option<Parts>, Vec<Problem>> {
        let mut built = settings.clone();
        built.routes.retain(|route| {
            let replaced = &changes.replaced;
            changes.started.contains(&route.name)
                || replaced.iter().any(|(name, _)| *name == route.name)
        });
        if built.routes.is_empty() {
            return Ok(None);
        }
        built.queues.clone_from(&changes.declared);
        self.builder.build(&built).await.map(Some)
    }

    /// Applies changes. Waits for nothing but the stores in which operators pause queues.
    async fn apply(
        &self,
        changes: Changes,
        parts: Option<Parts>,
        in_force: Settings,
        log_level: &str,
    ) {
        for line in &changes.needs_restart {
            tracing::warn!(change = line, "setting needs a restart");
        }
        for (route, settings) in &changes.replaced {
            let settings = settings.join(", ");
            tracing::info!(route, settings, "route replaced by a new version");
        }
        let accounts = &in_force.stores.accounts;
        self.builder.backends.set_accounts(accounts);
        aws::accounts::put_in_force(accounts);
        self.live.schedules().forget_opened();
        let built = parts.iter().flat_map(|parts| &parts.routes);
        let names: Vec<_> = built
            .flat_map(|built| &built.route.queues)
            .map(|queue| queue.name.clone())
            .collect();
        let controls = live::read(&self.builder.backends, &names).await;
        self.movers
            .lock()
            .await
            .serve(&names.iter().collect())
            .await;
        warn_of_stop(stop_plan(
            &in_force,
            parts.as_ref().map_or(&[], |parts| &parts.routes),
        ));
        self.live.set_settings(in_force);
        for limits in &changes.limits {
            self.live.configure(&limits.route, &limits.limits);
        }
        self.plugins.settings(changes.plugins);
        for route in &changes.ended {
            self.routes.end(route);
        }
        if let Some(parts) = parts {
            let started = self.routes.start(parts, controls);
            self.routes.announce(&started);
        }
        self.live.configure_level(log_level);
        tracing::info!(
            routes = changes.limits.len(),
            added = changes.started.len(),
            replaced = changes.replaced.len(),
            removed = changes.ended.len(),
            "settings reloaded: limits and plugins apply from now on"
        );
    }
}

fn replaced((route, settings): &(String, Vec<&'static str>)) -> ReplacedRoute {
    ReplacedRoute {
        route: route.clone(),
        settings: settings.iter().map(|key| (*key).to_owned()).collect(),
    }
}
