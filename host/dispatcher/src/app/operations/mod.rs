//! The operations of the admin API on a run. Queues are only asked when a caller of the API needs
//! it, and their answers are cached for some seconds.

mod cancel;
mod depths;
mod findings;
pub(super) mod fleet;
pub(super) mod rates;
pub(super) mod scheduled;
pub(super) mod tenants;
mod unread;

use super::ProcessContext;
use super::build;
use super::build::schedule::Schedules;
use super::doctor;
use super::doctor::{Level, RouteDurations};
use super::fleet_link::Reach;
use super::live::Live;
use super::live::route::{LiveQueue, LiveRoute};
use super::live::table::QueuePlace;
use super::messages::known;
use super::messages::known::RouteQueues;
use super::messages::{QueueMessages, TriedPlugins};
use super::reload::ReloadCalls;
use super::replace::ReloadRequests;
use depths::Depths;
use dispatcher_config::Settings;
use dispatcher_config::name::QueueName;
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::control::ControlChange;
use dispatcher_core::executor::running::AttemptView;
use dispatcher_core::fleet::control::{FleetRequest, LimitChange};
use dispatcher_core::fleet::limit::Limit;
use dispatcher_core::message::Message;
use dispatcher_core::process;
use dispatcher_core::queue::{ErrorKind, QueueError};
use dispatcher_core::telemetry::readiness::Readiness;
use dispatcher_operate::fleet::{FleetView, FoundMessages, LogLevelResult};
use dispatcher_operate::messages::MessageOperations;
use dispatcher_operate::objects::{ReloadResult, ReloadedSettings};
use dispatcher_operate::operations::{
    AskedDepths, CancelResult, ControlResult, FindingView, ListPage, LiveNumber, LiveRate,
    NotReady, Operations, Page, ProcessView, QueueAndRoute, QueueTotals, QueueView, RouteView,
    RunningMessage, RunningView, ScheduleResult, ScheduleView, UnreadLook, WorkerQueue, WorkerView,
};
use dispatcher_operate::problem::{CallProblem, FieldProblem, StatusCode};
use dispatcher_operate::site::Site;
use findings::Findings;
use rates::Rates;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use unread::Unread;

/// How long the API waits for a backend.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The operations on a run.
pub(crate) struct RunOperations {
    live: Arc<Live>,
    schedules: Arc<Schedules>,
    readiness: Arc<Readiness>,
    stop: CancellationToken,
    drain: CancellationToken,
    began: BootInstant,
    started_at: Timestamp,
    rates: Arc<Rates>,
    depths: Depths,
    unread: Unread,
    findings: Findings,
    shows_bodies: bool,
    messages: Arc<QueueMessages>,
    plugins: ReloadRequests,
    /// The limits that hold for all processes.
    limits: Vec<Limit>,
    /// Reloads the settings, if they are in a file.
    settings_calls: Option<ReloadCalls>,
}

impl RunOperations {
    /// Creates the operations on the routes of `live`.
    pub(crate) fn new(
        settings: &Settings,
        shared: &ProcessContext,
        schedules: Arc<Schedules>,
        live: Arc<Live>,
        (plugins, settings_calls): (ReloadRequests, Option<ReloadCalls>),
    ) -> Self {
        let known = RouteQueues(live.clone());
        let folder = settings.admin.as_ref().map(|_| &*settings.stores.data);
        let messages = QueueMessages::new(schedules.clone(), known, folder, shared.stop.clone())
            .with_bodies(settings.admin.as_ref().is_some_and(|admin| admin.bodies))
            .with_plugins(TriedPlugins::OfRoutes(live.clone()));
        let prices = &settings.metric_terms.prices;
        Self {
            rates: Arc::new(Rates::new(&shared.meters, prices)),
            depths: Depths::new(schedules.clone(), shared.depths.clone(), prices.clone()),
            unread: Unread::new(schedules.clone()),
            schedules,
            live,
            readiness: shared.readiness.clone(),
            stop: shared.stop.clone(),
            drain: shared.drain.clone(),
            began: clock::now(),
            started_at: clock::wall_clock_now(),
            findings: Findings::default(),
            shows_bodies: settings.admin.as_ref().is_some_and(|admin| admin.bodies),
            messages: Arc::new(messages),
            plugins,
            limits: build::fleet::limits(settings),
            settings_calls,
        }
    }

    /// Returns the operations on messages.
    pub(crate) fn queue_messages(&self) -> Arc<QueueMessages> {
        self.messages.clone()
    }

    /// Returns the measurement of rates, which runs until dropped.
    pub(crate) fn rates(&self) -> Arc<Rates> {
        self.rates.clone()
    }

    fn route_view(&self, route: &LiveRoute) -> RouteView {
        let figures = route.figures();
        let state = route.state();
        let limits = route.limits(&state);
        let of_queues = state.queues.iter().any(|queue| queue.prefetch.is_some());
        let common = self.live.fleet.common(&route.config.limits);
        RouteView {
            fleet_concurrency: common.concurrency.map(|most| u64::from(most).into()),
            fleet_rate: common.rate.map(|rate| rate.per_second),
            fleet_per_second: common.most_per_second(figures.hand_over),
            route: route.config.name.clone(),
            plugin: route.config.plugin.name.clone(),
            queues: route.queues.len().into(),
            batch_size: route.config.settings.batch_size.into(),
            paused: state.route.paused,
            concurrency: live_number(
                Some(limits.attempts),
                Some(state.configured.attempts),
                state.route.concurrency.is_some(),
            ),
            prefetch: live_number(
                Some(limits.prefetch),
                Some(state.configured.prefetch),
                state.route.prefetch.is_some() || of_queues,
            ),
            weights: tenants::live_weights(route, &state),
            attempts: figures.attempts.into(),
            attempts_limit: figures.attempts_limit.into(),
            in_flight: figures.in_flight.into(),
            in_flight_limit: figures.in_flight_limit.into(),
            receives: figures.polls.into(),
            median_attempt_s: figures.hand_over.map(|took| took.as_secs_f64()),
        }
    }

    fn queue_view(&self, route: &LiveRoute, lane: usize) -> QueueView {
        let LiveQueue {
            name,
            text,
            meter,
            queue,
            ..
        } = &route.queues[lane];
        let recently = self.rates.of(text, meter);
        let (per_second, recent) = recently.unzip();
        let state = route.queue_state(lane);
        let (set, configured) = (state.queue, state.configured);
        let paused_by = match (set.paused, state.route.paused) {
            (true, _) => Some("queue".to_owned()),
            (false, true) => Some("route".to_owned()),
            (false, false) => None,
        };
        QueueView {
            queue: text.clone(),
            route: route.config.name.clone(),
            paused: paused_by.is_some(),
            paused_by,
            shared: name.backend.facts().shares_controls
                || self.live.fleet.reach() == Reach::AllProcesses,
            concurrency: live_number(
                // An operator may set more attempts than the route was created for.
                set.concurrency
                    .map(|limit| limit.min(route.config.settings.concurrency))
                    .or(configured.attempts),
                configured.attempts,
                set.concurrency.is_some(),
            ),
            rate: LiveRate {
                value: set.rate.or(configured.rate),
                configured: configured.rate,
                live: set.rate.is_some(),
            },
            prefetch: live_number(set.prefetch, None, set.prefetch.is_some()),
            in_flight: meter.in_flight().into(),
            totals: QueueTotals {
                received: meter.received.get().into(),
                done: meter.done.get().into(),
                failed: meter.failed.get().into(),
                dead_lettered: meter.dead.get().into(),
            },
            per_second,
            recent,
            dead_letter_queue: queue
                .dead_letter_queue()
                .or_else(|| queue.redrive_policy_target()),
            depth: None,
            dead_letter_depth: None,
            tenants: self.tenants(route, lane),
        }
    }

    /// Returns the durations of attempts in this process, by route.
    fn durations(&self) -> Vec<RouteDurations> {
        let table = self.live.table();
        let durations = table.routes.iter().map(|route| {
            let of_queues = route.queues.iter().filter_map(|queue| {
                let p99_s = queue.meter.durations().quantile(0.99)?;
                Duration::try_from_secs_f64(p99_s).ok()
            });
            let running = route.running.list(0, 1, |_| true, &route.ledger, None);
            RouteDurations {
                route: route.config.name.clone(),
                median: route.figures().hand_over,
                p99: of_queues.max(),
                oldest: running.first().map(|attempt| attempt.age),
            }
        });
        durations.collect()
    }

    fn running_view(
        &self,
        route: &LiveRoute,
        attempt: AttemptView,
        content: Vec<Message>,
    ) -> RunningView {
        let mut content = content.into_iter();
        let messages = attempt.messages.into_iter().map(|message| RunningMessage {
            attempt: message.attempt.into(),
            id: message.id,
            receive_count: message.receive_count.into(),
            lease_left_s: message.lease_left.map(|left| left.as_secs_f64()),
            cancelled: message.cancelled,
            content: content
                .next()
                .map(|message| known::content(&route.redact, &message)),
        });
        RunningView {
            id: route.attempt_id(attempt.number),
            route: route.config.name.clone(),
            queue: route.queues[attempt.lane].text.clone(),
            age_s: attempt.age.as_secs_f64(),
            time_left_s: attempt.left.as_secs_f64(),
            version: attempt.version.map(|version| version.to_string()),
            stuck: attempt.stuck.map(Into::into),
            messages: messages.collect(),
        }
    }

    /// Returns the queues of this process and their dead-letter queues.
    fn read_queues(&self) -> BTreeSet<QueueName> {
        let table = self.live.table();
        let mut names: BTreeSet<QueueName> =
            table.queues().map(|queue| queue.name.clone()).collect();
        let dead = table.queues().flat_map(|LiveQueue { queue, .. }| {
            [queue.dead_letter_queue(), queue.redrive_policy_target()]
        });
        names.extend(dead.flatten().filter_map(|name| name.parse().ok()));
        names
    }

    /// Returns the attempt of this id, which need not run any more, and its route.
    fn attempt_place(&self, id: &str) -> Option<(Arc<LiveRoute>, u64)> {
        let (route, number) = parse_attempt(id)?;
        let table = self.live.table();
        let found = table.with_attempts().into_iter();
        let route = found.into_iter().find(|one| one.number == route)?;
        Some((route, number))
    }

    fn find_route(&self, route: &str) -> Result<Arc<LiveRoute>, CallProblem> {
        let table = self.live.table();
        let found = table.route(route).cloned();
        found.ok_or_else(|| {
            let names = table.routes.iter().map(|one| one.config.name.as_str());
            no_such("route", route, names)
        })
    }

    fn find_queue(&self, queue: &str) -> Result<QueuePlace, CallProblem> {
        let table = self.live.table();
        let found = table.find(queue);
        found.ok_or_else(|| {
            let all = table.queues().map(|one| one.text.as_str());
            no_such("queue", queue, all)
        })
    }
}

/// Returns the number of the route and that of the attempt in an attempt's id.
fn parse_attempt(id: &str) -> Option<(u64, u64)> {
    let (route, number) = id.split_once('-')?;
    Some((route.parse().ok()?, number.parse().ok()?))
}

/// Reports that there is no such queue or route here.
pub(super) fn no_such<'a>(
    what: &str,
    name: &str,
    all: impl Iterator<Item = &'a str>,
) -> CallProblem {
    let nearest = all
        .map(|other| (strsim::jaro_winkler(name, other), other))
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .filter(|(likeness, _)| *likeness > 0.8);
    let hint = nearest.map_or(String::new(), |(_, other)| {
        format!(" Did you mean `{other}`?")
    });
    CallProblem::not_found(format!(
        "This process has no {what} `{name}`.{hint} GET /api/v1/{what}s lists those that it has; \
         in a path, write a slash as %2F."
    ))
}

pub(super) fn live_number(
    value: Option<usize>,
    configured: Option<usize>,
    live: bool,
) -> LiveNumber {
    LiveNumber {
        value: value.map(Into::into),
        configured: configured.map(Into::into),
        live,
    }
}

/// Reports that a backend could not do what was requested.
pub(super) fn backend_failed(error: &QueueError) -> CallProblem {
    call_failed("The queue's backend", error)
}

fn call_failed(what: &str, error: &QueueError) -> CallProblem {
    let status = match error.kind {
        ErrorKind::Unreachable | ErrorKind::Transient => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::AccessDenied | ErrorKind::Invalid => StatusCode::CONFLICT,
    };
    CallProblem::new(status, format!("{what} failed: {error}."))
}

/// Waits for an answer within a time limit.
pub(super) async fn within<T>(
    time: Duration,
    asked: impl Future<Output = T>,
) -> Result<T, CallProblem> {
    tokio::select! {
        answer = asked => Ok(answer),
        () = clock::sleep_until(Some(clock::now() + time)) => Err(CallProblem::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!("There was no answer within {} s.", time.as_secs()),
        )),
    }
}

#[async_trait::async_trait]
impl Operations for RunOperations {
    fn process(&self) -> ProcessView {
        let reasons = self.readiness.reasons();
        ProcessView {
            id: process::label(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.started_at.to_string(),
            uptime_s: clock::now().since(self.began).as_secs_f64(),
            state: if self.stop.is_cancelled() || self.drain.is_cancelled() {
                "draining"
            } else {
                "running"
            }
            .to_owned(),
            ready: self.readiness.is_ready(),
            not_ready: reasons
                .into_iter()
                .map(|(what, reason)| NotReady { what, reason })
                .collect(),
        }
    }

    fn routes(&self, page: &Page) -> Result<ListPage<RouteView>, CallProblem> {
        let table = self.live.table();
        let routes = &table.routes;
        page.of(routes.len(), |at| Some(self.route_view(&routes[at])))
    }

    async fn queues(&self, page: &Page) -> Result<ListPage<QueueView>, CallProblem> {
        let table = self.live.table();
        let routes = table.routes.iter();
        let places: Vec<(&LiveRoute, usize)> = routes
            .flat_map(|route| (0..route.queues.len()).map(move |lane| (&**route, lane)))
            .collect();
        page.of(places.len(), |at| {
            let (route, lane) = places[at];
            Some(self.queue_view(route, lane))
        })
    }

    async fn queue(&self, queue: &str) -> Option<QueueView> {
        let (route, lane) = self.live.table().find(queue)?;
        let mut view = self.queue_view(&route, lane);
        self.ask_tenants(std::slice::from_mut(&mut view)).await;
        Some(view)
    }

    async fn queue_names(&self) -> Result<Vec<QueueAndRoute>, CallProblem> {
        let table = self.live.table();
        let names = table.routes.iter().flat_map(|route| {
            route.queues.iter().map(|queue| QueueAndRoute {
                queue: queue.text.clone(),
                route: route.config.name.clone(),
            })
        });
        Ok(names.collect())
    }

    async fn add_depths(&self, queues: &mut [QueueView]) -> AskedDepths {
        let table = self.live.table();
        AskedDepths {
            calls: self
                .depths
                .add(queues, |queue: &str| {
                    let (route, lane) = table.find(queue)?;
                    Some(route.queues[lane].queue.clone())
                })
                .await,
        }
    }

    async fn add_backlogs(&self, queues: &mut [QueueView]) {
        self.ask_tenants(queues).await;
    }

    async fn unread(&self) -> UnreadLook {
        self.unread.look(|| self.read_queues()).await
    }

    fn paused(&self, most: usize) -> (Vec<QueueView>, usize) {
        let (mut first, mut all) = (Vec::new(), 0);
        for route in &self.live.table().routes {
            let state = route.state();
            let lanes = state.queues.iter().enumerate();
            for (lane, _) in lanes.filter(|(_, one)| one.paused || state.route.paused) {
                all += 1;
                if first.len() < most {
                    first.push(self.queue_view(route, lane));
                }
            }
        }
        (first, all)
    }

    fn running(
        &self,
        queue: Option<&str>,
        page: &Page,
    ) -> Result<ListPage<RunningView>, CallProblem> {
        let (first, after) = match &page.after {
            None => (0, 0),
            Some(cursor) => parse_attempt(cursor).ok_or_else(|| page.bad_cursor())?,
        };
        let mut items: Vec<RunningView> = Vec::new();
        let routes = self.live.table().with_attempts().into_iter();
        for route in routes.filter(|route| route.number >= first) {
            if items.len() > page.limit {
                break;
            }
            let found = route.running.list(
                if route.number == first { after } else { 0 },
                page.limit + 1 - items.len(),
                |lane: usize| queue.is_none_or(|queue| route.queues[lane].text == queue),
                &route.ledger,
                route.figures().hand_over,
            );
            let views = found.into_iter();
            items.extend(views.map(|one| self.running_view(&route, one, Vec::new())));
        }
        let more = items.len() > page.limit;
        items.truncate(page.limit);
        let next = if more {
            items.last().map(|last| last.id.clone())
        } else {
            None
        };
        Ok((items, next))
    }

    fn attempt(&self, id: &str) -> Option<RunningView> {
        let (route, number) = self.attempt_place(id)?;
        let usual = route.figures().hand_over;
        let (view, messages) = route.running.show(number, &route.ledger, usual)?;
        let content = if self.shows_bodies {
            messages
        } else {
            Vec::new()
        };
        Some(self.running_view(&route, view, content))
    }

    fn released(&self, queue: &str) -> u64 {
        let Some((route, lane)) = self.live.table().find(queue) else {
            return 0;
        };
        let LiveQueue { name, meter, .. } = &route.queues[lane];
        if name.backend.facts().counts_released_as_in_flight {
            meter.released.waiting(clock::now())
        } else {
            0
        }
    }

    async fn schedules(&self, queue: &str, limit: usize) -> Result<Vec<ScheduleView>, CallProblem> {
        scheduled::list(&self.schedules, queue, limit).await
    }

    async fn workers(&self, limit: usize) -> Result<Vec<WorkerView>, CallProblem> {
        let table = self.live.table();
        let queues: Vec<&LiveQueue> = table.queues().collect();
        let backends: BTreeSet<_> = queues.iter().map(|queue| queue.name.backend).collect();
        let mut workers = Vec::new();
        for backend in backends
            .iter()
            .filter(|backend| backend.facts().lists_workers)
        {
            let asked = self.schedules.backends().workers(*backend);
            let found = within(PATIENCE, asked)
                .await?
                .map_err(|error| backend_failed(&error))?;
            workers.extend(found.into_iter().map(|worker| {
                WorkerView {
                    id: worker.label,
                    backend: Some(backend.name().to_owned()),
                    queues: worker
                        .queues
                        .into_iter()
                        .map(|(queue, in_flight)| WorkerQueue {
                            queue: format!("{}:{queue}", backend.name()),
                            in_flight: in_flight.into(),
                        })
                        .collect(),
                }
            }));
        }
        let unlisted = queues
            .iter()
            .filter(|queue| !queue.name.backend.facts().lists_workers);
        let own: Vec<WorkerQueue> = unlisted
            .map(|queue| WorkerQueue {
                queue: queue.text.clone(),
                in_flight: queue.meter.in_flight().into(),
            })
            .take(limit)
            .collect();
        if !own.is_empty() {
            workers.push(WorkerView {
                id: process::label(),
                backend: None,
                queues: own,
            });
        }
        workers.truncate(limit);
        Ok(workers)
    }

    async fn fleet(&self) -> Result<FleetView, CallProblem> {
        Ok(self.fleet_view().await)
    }

    async fn findings(&self) -> Result<(Vec<FindingView>, f64), CallProblem> {
        let look = async {
            let found = doctor::look(&self.live.settings(), &self.durations()).await;
            found
                .into_iter()
                .map(|finding: doctor::Finding| FindingView {
                    level: match finding.level {
                        Level::Ok => "ok".into(),
                        Level::Warn => "warn".into(),
                        Level::Bad(_) => "bad".into(),
                    },
                    about: finding.about,
                    message: finding.message,
                })
                .collect()
        };
        self.findings.get(look).await
    }
}

#[async_trait::async_trait]
impl Site for RunOperations {
    fn messages(&self) -> &dyn MessageOperations {
        &*self.messages
    }

    async fn run_schedule(&self, id: &str) -> Result<ScheduleResult, CallProblem> {
        scheduled::run_now(&self.schedules, id).await
    }

    async fn cancel_schedule(&self, id: &str) -> Result<ScheduleResult, CallProblem> {
        scheduled::cancel(&self.schedules, id).await
    }

    async fn change_queue(
        &self,
        queue: &str,
        change: &ControlChange,
    ) -> Result<ControlResult, CallProblem> {
        let place = self.find_queue(queue)?;
        let (route, lane) = &place;
        let most = route.config.settings.concurrency;
        if let Some(Some(wanted)) = change.concurrency
            && wanted > most
        {
            let found = format!("{wanted} is more than route `{}` has", route.config.name);
            let most = format!("at most {most}");
            let problem = FieldProblem::new("concurrency", &found, &most);
            return Err(CallProblem::fields(vec![problem]));
        }
        let changed = within(PATIENCE, self.live.change_queue(&place, change)).await?;
        let (reach, queues) = changed.map_err(|error| backend_failed(&error))?;
        let paused = route.queue_state(*lane).queue.paused;
        Ok(fleet::controlled(queue, reach, paused, queues))
    }

    async fn change_route(
        &self,
        route: &str,
        change: &ControlChange,
    ) -> Result<ControlResult, CallProblem> {
        let found = self.find_route(route)?;
        let most = found.config.settings.concurrency;
        if let Some(Some(concurrency)) = change.concurrency
            && concurrency > most
        {
            let why = format!("{concurrency} is more than the route was started with");
            let most = format!("at most {most}");
            let problem = FieldProblem::new("concurrency", &why, &most);
            return Err(CallProblem::fields(vec![problem]));
        }
        let changed = self.live.change_route(&found, change).await;
        let (reach, queues) = changed.map_err(|error| fleet::store_failed(&error))?;
        let paused = found.state().route.paused;
        Ok(fleet::controlled(route, reach, paused, queues))
    }

    async fn change_weight(
        &self,
        route: &str,
        tenant: &str,
        weight: Option<u32>,
    ) -> Result<ControlResult, CallProblem> {
        let found = self.find_route(route)?;
        if found.config.settings.tenant.is_none() {
            let problem =
                FieldProblem::new("tenant", "the route has none", "a route with `tenant`");
            return Err(CallProblem::fields(vec![problem]));
        }
        let changed = self.live.change_weight(&found, tenant, weight).await;
        let (reach, queues) = changed.map_err(|error| fleet::store_failed(&error))?;
        let paused = found.state().route.paused;
        Ok(fleet::controlled(route, reach, paused, queues))
    }

    async fn change_limit(
        &self,
        limit: &str,
        key: Option<String>,
        change: &LimitChange,
    ) -> Result<ControlResult, CallProblem> {
        self.set_limit(limit, key, change).await
    }

    async fn change_log_level(&self, level: Option<String>) -> Result<LogLevelResult, CallProblem> {
        self.set_log_level(level).await
    }

    async fn find_message(&self, request: FleetRequest) -> Result<FoundMessages, CallProblem> {
        self.ask_fleet(request).await
    }

    fn cancel_attempt(&self, id: &str) -> Result<CancelResult, CallProblem> {
        let place = self.attempt_place(id);
        let running = place.map(|(route, number)| route.running.cancel(number));
        match running {
            None | Some(0) => Err(CallProblem::not_found(format!(
                "No attempt `{id}` runs here, or it is cancelled already. GET /api/v1/running lists \
                 those that run."
            ))),
            Some(running) => Ok(CancelResult {
                waiting: 0_u64.into(),
                running: running.into(),
            }),
        }
    }

    async fn cancel_message(&self, queue: &str, id: &str) -> Result<CancelResult, CallProblem> {
        let cancelled = self.cancel_here(queue, id).await;
        match cancelled {
            Err(problem) if problem.status == StatusCode::NOT_FOUND => {
                self.cancel_elsewhere(queue, id, problem).await
            }
            cancelled => cancelled,
        }
    }

    fn drain(&self) -> bool {
        let begins = !self.stop.is_cancelled() && !self.drain.is_cancelled();
        self.drain.cancel();
        begins
    }

    async fn reload_plugins(&self) -> Result<(u64, ReloadResult), CallProblem> {
        self.plugins.reload().await
    }

    async fn reload(&self) -> Result<ReloadedSettings, CallProblem> {
        let Some(calls) = &self.settings_calls else {
            let why = "This process has no --config file to reload.";
            return Err(CallProblem::new(StatusCode::CONFLICT, why));
        };
        calls.reload().await
    }

    async fn roll_back(&self, route: &str) -> Result<String, CallProblem> {
        self.plugins.roll_back(route)
    }
}
