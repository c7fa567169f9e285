//! The admin address of a process that serves the embedded queue and runs no route: what its API shows
//! and does.

use super::build::Backends;
use super::build::schedule::Schedules;
use super::messages::QueueMessages;
use super::messages::known::{KnownQueue, KnownQueues};
use super::operations::{backend_failed, live_number, no_such, scheduled};
use crate::admin;
use crate::admin::access::Access;
use crate::admin::messages::MessageOperations;
use crate::admin::operations::{
    AskedDepths, CancelResult, ControlResult, DepthView, FindingView, Listed, LiveRate, Operations,
    Page, ProcessView, QueueAndRoute, QueueTotals, QueueView, RouteView, RunningView,
    ScheduleResult, ScheduleView, WorkerView,
};
use crate::admin::problem::{CallProblem, StatusCode};
use crate::admin::rfc3339;
use crate::config::problem::Problem;
use crate::config::{Admin, StoreConfig};
use crate::name::QueueName;
use dispatcher_core::backend::{Backend, BackendClient};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::process;
use dispatcher_core::queue::{Depth, Queue, QueueError};
use dispatcher_core::scheduler::live::RouteControl;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// The admin address while it is served.
pub struct EmbeddedAdmin {
    messages: Arc<QueueMessages>,
    stop: CancellationToken,
    over: CancellationToken,
    serving: Task<()>,
    /// Set when an operator asks for the stop.
    pub drain: CancellationToken,
}

impl EmbeddedAdmin {
    /// Serves it. `client` reaches the queues, `keeps` says whether they are in files.
    ///
    /// # Errors
    /// All that keeps it from being served.
    pub async fn start(
        admin: &Admin,
        stores: &StoreConfig,
        backend: &'static dyn Backend,
        (client, keeps): (Arc<dyn BackendClient>, bool),
    ) -> Result<Self, Vec<Problem>> {
        let access = Access::open(admin)?;
        let listener = admin::listen(admin.address, admin.or_any_port).await;
        let listener = listener
            .map_err(|why| vec![Problem::new("--admin", why, "an address that is free")])?;
        let backends = Arc::new(Backends::with_client(stores.clone(), backend, client));
        let (stop, drain) = (CancellationToken::new(), CancellationToken::new());
        let folder = keeps.then_some(&*stores.data);
        let known = EmbeddedQueues { backend };
        let messages = QueueMessages::new(backends.clone(), known, folder, stop.clone());
        let messages = Arc::new(messages.with_bodies(admin.bodies));
        let operations: Arc<dyn Operations> = Arc::new(EmbeddedOperations {
            schedules: Schedules::new(backends.clone(), None),
            backends,
            backend,
            keeps,
            messages: messages.clone(),
            began: clock::now(),
            started_at: clock::wall_clock_now(),
            drain: drain.clone(),
        });
        let state = admin::AdminState {
            access: Arc::new(access),
            operations: Arc::new(OnceLock::from(operations)),
            pages: admin::PageSettings::of(admin),
            ..admin::AdminState::default()
        };
        let over = CancellationToken::new();
        Ok(Self {
            messages,
            stop,
            serving: tasks::spawn(admin::serve(listener, state, over.clone())),
            over,
            drain,
        })
    }

    /// Ends jobs, and answers no more.
    pub async fn finish(self) {
        self.stop.cancel();
        self.messages.finish().await;
        self.over.cancel();
        self.serving.finished().await;
    }
}

/// All queues of the embedded backend. Nothing records their messages, so nothing is redacted.
struct EmbeddedQueues {
    backend: &'static dyn Backend,
}

impl KnownQueues for EmbeddedQueues {
    fn find(&self, queue: &str) -> Result<KnownQueue, CallProblem> {
        let name: Result<QueueName, String> = queue.parse();
        let name = name.ok().filter(|name| name.backend == self.backend);
        let name = name.ok_or_else(|| no_such("queue", queue, std::iter::empty()))?;
        Ok(KnownQueue {
            name,
            redact: Vec::new(),
        })
    }

    fn is_source(&self, source: &str) -> bool {
        self.backend.queue_of_source(source).is_some()
    }
}

struct EmbeddedOperations {
    backends: Arc<Backends>,
    schedules: Schedules,
    backend: &'static dyn Backend,
    /// Whether the queues are in files, where others read them as well.
    keeps: bool,
    messages: Arc<QueueMessages>,
    began: BootInstant,
    started_at: Timestamp,
    drain: CancellationToken,
}

impl EmbeddedOperations {
    async fn names(&self) -> Result<Vec<QueueName>, CallProblem> {
        let names = self.backends.list(self.backend).await;
        names.map_err(|error| backend_failed(&error))
    }

    /// What operators have set on these queues, in their order.
    async fn controls(&self, names: &[QueueName]) -> Result<Vec<QueueControl>, QueueError> {
        let bare: Vec<&str> = names.iter().map(|name| name.name.as_str()).collect();
        let client = self.backends.client(self.backend).await?;
        client.controls(&bare).await
    }

    fn view(&self, name: &QueueName, opened: Option<&dyn Queue>, set: QueueControl) -> QueueView {
        let dead = opened.and_then(|queue| {
            queue
                .dead_letter_queue()
                .or_else(|| queue.redrive_policy_target())
        });
        QueueView {
            queue: name.to_string(),
            route: String::new(),
            paused: set.paused,
            paused_by: set.paused.then(|| "queue".to_owned()),
            shared: self.backend.shares_controls(),
            concurrency: live_number(set.concurrency, None, set.concurrency.is_some()),
            rate: LiveRate {
                value: set.rate,
                configured: None,
                live: set.rate.is_some(),
            },
            prefetch: live_number(set.prefetch, None, set.prefetch.is_some()),
            in_flight: 0_u64.into(),
            totals: QueueTotals {
                received: 0_u64.into(),
                done: 0_u64.into(),
                failed: 0_u64.into(),
                dead_lettered: 0_u64.into(),
            },
            per_second: None,
            recent: None,
            dead_letter_queue: dead,
            depth: None,
            dead_letter_depth: None,
        }
    }
}

/// What only a process that runs routes can do.
fn no_routes(what: &str) -> CallProblem {
    let why = format!("This process serves the embedded queue and runs no route: {what}.");
    CallProblem::new(StatusCode::CONFLICT, why)
}

#[async_trait::async_trait]
impl Operations for EmbeddedOperations {
    fn process(&self) -> ProcessView {
        let state = if self.drain.is_cancelled() {
            "draining"
        } else {
            "running"
        };
        ProcessView {
            id: process::label(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: rfc3339(self.started_at),
            uptime_s: clock::now().since(self.began).as_secs_f64(),
            state: state.to_owned(),
            ready: true,
            not_ready: Vec::new(),
        }
    }

    fn messages(&self) -> &dyn MessageOperations {
        &*self.messages
    }

    fn routes(&self, page: &Page) -> Result<Listed<RouteView>, CallProblem> {
        page.of(0, |_| None)
    }

    async fn queues(&self, page: &Page) -> Result<Listed<QueueView>, CallProblem> {
        let names = self.names().await?;
        let (names, next) = page.of(names.len(), |at| names.get(at).cloned())?;
        let controls = self.controls(&names).await;
        let controls = controls.map_err(|error| backend_failed(&error))?;
        let mut views = Vec::with_capacity(names.len());
        for (name, set) in names.iter().zip(controls) {
            let opened = self.backends.open_existing(name).await.ok();
            views.push(self.view(name, opened.as_deref(), set));
        }
        Ok((views, next))
    }

    async fn queue_names(&self) -> Result<Vec<QueueAndRoute>, CallProblem> {
        let names = self.names().await?;
        let names = names.iter().map(|name| QueueAndRoute {
            queue: name.to_string(),
            route: String::new(),
        });
        Ok(names.collect())
    }

    async fn queue(&self, queue: &str) -> Option<QueueView> {
        let name: QueueName = queue.parse().ok()?;
        if name.backend != self.backend {
            return None;
        }
        let opened = self.backends.open_existing(&name).await.ok()?;
        let set = self.controls(std::slice::from_ref(&name)).await.ok()?;
        Some(self.view(&name, Some(&*opened), set.first().copied()?))
    }

    async fn add_depths(&self, queues: &mut [QueueView]) -> AskedDepths {
        let asked = clock::now();
        let mut names: Vec<QueueName> = Vec::new();
        for view in queues.iter() {
            let both = [Some(&view.queue), view.dead_letter_queue.as_ref()];
            names.extend(
                both.into_iter()
                    .flatten()
                    .filter_map(|one| one.parse().ok()),
            );
        }
        let found = self.backends.depths(&names).await;
        let found = names.iter().map(ToString::to_string).zip(found);
        let found: HashMap<String, Result<Depth, QueueError>> = found.collect();
        let depth = |of: &str| {
            let age = clock::now().since(asked).as_secs_f64();
            let depth = found.get(of)?.as_ref();
            Some(DepthView::of(depth.map_err(ToString::to_string), age))
        };
        for view in queues {
            view.depth = depth(&view.queue);
            let dead = view.dead_letter_queue.as_deref();
            view.dead_letter_depth = dead.and_then(depth);
        }
        AskedDepths { calls: 1 }
    }

    fn running(
        &self,
        _queue: Option<&str>,
        page: &Page,
    ) -> Result<Listed<RunningView>, CallProblem> {
        page.of(0, |_| None)
    }

    fn attempt(&self, _id: &str) -> Option<RunningView> {
        None
    }

    async fn schedules(&self, queue: &str, limit: usize) -> Result<Vec<ScheduleView>, CallProblem> {
        scheduled::list(&self.schedules, queue, limit).await
    }

    async fn run_schedule(&self, id: &str) -> Result<ScheduleResult, CallProblem> {
        scheduled::run_now(&self.schedules, id).await
    }

    async fn cancel_schedule(&self, id: &str) -> Result<ScheduleResult, CallProblem> {
        scheduled::cancel(&self.schedules, id).await
    }

    async fn workers(&self, _limit: usize) -> Result<Vec<WorkerView>, CallProblem> {
        Ok(Vec::new())
    }

    async fn findings(&self) -> Result<(Vec<FindingView>, f64), CallProblem> {
        Ok((Vec::new(), 0.0))
    }

    async fn change_queue(
        &self,
        queue: &str,
        change: &ControlChange,
    ) -> Result<ControlResult, CallProblem> {
        let KnownQueue { name, .. } = EmbeddedQueues {
            backend: self.backend,
        }
        .find(queue)?;
        let limits = change.concurrency.is_some() || change.rate.is_some();
        if (limits || change.prefetch.is_some()) && !self.keeps {
            let why = "`dispatcher run` obeys live limits, and no process but this one reads queues in \
                       memory. A pause holds for whoever receives here.";
            return Err(CallProblem::new(StatusCode::CONFLICT, why));
        }
        let failed = |error| backend_failed(&error);
        // Whoever mistypes a name is told so.
        self.backends.open_existing(&name).await.map_err(failed)?;
        let names = std::slice::from_ref(&name);
        let before = self.controls(names).await.map_err(failed)?;
        let client = self.backends.client(self.backend).await.map_err(failed)?;
        let changed = client.change_control(&name.name, change).await;
        changed.map_err(failed)?;
        let after = self.controls(names).await.map_err(failed)?;
        let is_other = after != before;
        Ok(ControlResult {
            target: queue.to_owned(),
            affects: "all-processes",
            until: "changed",
            process: process::label(),
            within_s: super::live::INTERVAL.as_secs().into(),
            paused: after.first().is_some_and(|control| control.paused),
            queues: is_other.then(|| queue.to_owned()).into_iter().collect(),
        })
    }

    fn change_route(
        &self,
        _route: &str,
        _change: &dyn Fn(RouteControl) -> RouteControl,
    ) -> Result<ControlResult, CallProblem> {
        Err(no_routes("ask one that does"))
    }

    fn cancel_attempt(&self, _id: &str) -> Result<CancelResult, CallProblem> {
        Err(no_routes("it has no attempts"))
    }

    async fn cancel_message(&self, queue: &str, id: &str) -> Result<CancelResult, CallProblem> {
        self.messages.cancel_waiting(queue, id).await?;
        Ok(CancelResult {
            waiting: 1_u64.into(),
            running: 0_u64.into(),
        })
    }

    fn drain(&self) -> bool {
        let begins = !self.drain.is_cancelled();
        self.drain.cancel();
        begins
    }
}
