//! The admin address of a process that serves the embedded queue and runs no route: the operations
//! of its API.

use super::build::Backends;
use super::build::schedule::Schedules;
use super::messages::QueueMessages;
use super::messages::known::{KnownQueue, KnownQueues, SendTarget};
use super::operations::{backend_failed, live_number, no_such, scheduled};
use dispatcher_config::name::QueueName;
use dispatcher_config::problem::Problem;
use dispatcher_config::{Admin, StoreConfig};
use dispatcher_console as admin;
use dispatcher_console::access::Access;
use dispatcher_core::backend::{Backend, BackendClient};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::process;
use dispatcher_core::queue::{Depth, Queue, QueueError};
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_operate::messages::MessageOperations;
use dispatcher_operate::operations::{
    AskedDepths, CancelResult, ControlResult, DepthView, FindingView, ListPage, LiveRate,
    Operations, Page, ProcessView, QueueAndRoute, QueueTotals, QueueView, RouteView, RunningView,
    ScheduleResult, ScheduleView, WorkerView,
};
use dispatcher_operate::problem::{CallProblem, StatusCode};
use dispatcher_operate::site::Site;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// The admin address while it is served.
pub struct EmbeddedAdmin {
    messages: Arc<QueueMessages>,
    stop: CancellationToken,
    over: CancellationToken,
    serving: Task<()>,
    /// Cancelled when an operator requests the stop.
    pub drain: CancellationToken,
}

impl EmbeddedAdmin {
    /// Serves the admin address. `client` reaches the queues; `keeps` says whether they are in
    /// files.
    ///
    /// # Errors
    /// Returns every reason why it cannot be served.
    pub async fn start(
        admin: &Admin,
        stores: &StoreConfig,
        backend: &'static dyn Backend,
        (client, keeps): (Arc<dyn BackendClient>, bool),
    ) -> Result<Self, Vec<Problem>> {
        let access = Access::open(admin)?;
        let listener = admin::listen(admin.address, admin.or_any_port)
            .await
            .map_err(|why| vec![Problem::new("--admin", why, "an address that is free")])?;
        let backends = Arc::new(Backends::with_client(stores.clone(), backend, client));
        let (stop, drain) = (CancellationToken::new(), CancellationToken::new());
        let folder = keeps.then_some(&*stores.data);
        let known = EmbeddedQueues { backend };
        let schedules = Arc::new(Schedules::new(backends.clone(), None));
        let queue_messages = QueueMessages::new(schedules.clone(), known, folder, stop.clone());
        let messages = Arc::new(queue_messages.with_bodies(admin.bodies));
        let operations: Arc<dyn Operations> = Arc::new(EmbeddedOperations {
            schedules,
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

    /// Ends the jobs and stops serving.
    pub async fn finish(self) {
        self.stop.cancel();
        self.messages.finish().await;
        self.over.cancel();
        self.serving.finished().await;
    }
}

/// All queues of the embedded backend. No recording rules apply to their messages, so nothing is
/// redacted.
struct EmbeddedQueues {
    backend: &'static dyn Backend,
}

impl KnownQueues for EmbeddedQueues {
    fn find(&self, queue: &str) -> Result<KnownQueue, CallProblem> {
        let parsed: Result<QueueName, String> = queue.parse();
        let name = parsed
            .ok()
            .filter(|name| name.backend == self.backend)
            .ok_or_else(|| no_such("queue", queue, std::iter::empty()))?;
        Ok(KnownQueue {
            name,
            redact: Vec::new(),
        })
    }

    /// An SDK or a section of the configuration creates a queue; a misspelt name does not.
    fn sends_to(&self, queue: &str) -> Result<SendTarget, CallProblem> {
        let KnownQueue { name, .. } = self.find(queue)?;
        Ok(SendTarget {
            name,
            is_made: false,
        })
    }

    fn is_source(&self, source: &str) -> bool {
        self.backend.queue_of_source(source).is_some()
    }
}

struct EmbeddedOperations {
    backends: Arc<Backends>,
    schedules: Arc<Schedules>,
    backend: &'static dyn Backend,
    /// Whether the queues are in files, where other processes also read them.
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

    /// Returns the settings of operators on these queues, in order.
    async fn controls(&self, names: &[QueueName]) -> Result<Vec<QueueControl>, QueueError> {
        let bare: Vec<&str> = names.iter().map(|name| name.name.as_str()).collect();
        let client = self.backends.client(self.backend).await?;
        client.controls(&bare).await
    }

    /// Changes the settings of operators on a queue. Returns those before and after.
    async fn change_control(
        &self,
        name: &QueueName,
        change: &ControlChange,
    ) -> Result<(Vec<QueueControl>, Vec<QueueControl>), QueueError> {
        // A mistyped name must be an error.
        self.backends.open_existing(name).await?;
        let names = std::slice::from_ref(name);
        let before = self.controls(names).await?;
        let client = self.backends.client(self.backend).await?;
        client.change_control(&name.name, change).await?;
        let after = self.controls(names).await?;
        Ok((before, after))
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
            shared: self.backend.facts().shares_controls,
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
            tenants: Vec::new(),
        }
    }
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
            started_at: self.started_at.to_string(),
            uptime_s: clock::now().since(self.began).as_secs_f64(),
            state: state.to_owned(),
            ready: true,
            not_ready: Vec::new(),
        }
    }

    fn routes(&self, page: &Page) -> Result<ListPage<RouteView>, CallProblem> {
        page.of(0, |_| None)
    }

    async fn queues(&self, page: &Page) -> Result<ListPage<QueueView>, CallProblem> {
        let names = self.names().await?;
        let (names, next) = page.of(names.len(), |at| names.get(at).cloned())?;
        let controls = self
            .controls(&names)
            .await
            .map_err(|error| backend_failed(&error))?;
        let mut views = Vec::with_capacity(names.len());
        for (name, set) in names.iter().zip(controls) {
            let opened = self.backends.open_existing(name).await.ok();
            views.push(self.view(name, opened.as_deref(), set));
        }
        Ok((views, next))
    }

    async fn queue_names(&self) -> Result<Vec<QueueAndRoute>, CallProblem> {
        let names = self.names().await?.into_iter().map(|name| QueueAndRoute {
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
        let depths = self.backends.depths(&names).await;
        let found: HashMap<String, Result<Depth, QueueError>> =
            names.iter().map(ToString::to_string).zip(depths).collect();
        let depth = |of: &str| {
            let age = clock::now().since(asked).as_secs_f64();
            let answer = found.get(of)?.as_ref();
            Some(DepthView::of(answer.map_err(ToString::to_string), age))
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
    ) -> Result<ListPage<RunningView>, CallProblem> {
        page.of(0, |_| None)
    }

    fn attempt(&self, _id: &str) -> Option<RunningView> {
        None
    }

    async fn schedules(&self, queue: &str, limit: usize) -> Result<Vec<ScheduleView>, CallProblem> {
        scheduled::list(&self.schedules, queue, limit).await
    }

    async fn workers(&self, _limit: usize) -> Result<Vec<WorkerView>, CallProblem> {
        Ok(Vec::new())
    }

    async fn findings(&self) -> Result<(Vec<FindingView>, f64), CallProblem> {
        Ok((Vec::new(), 0.0))
    }
}

#[async_trait::async_trait]
impl Site for EmbeddedOperations {
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
        let KnownQueue { name, .. } = EmbeddedQueues {
            backend: self.backend,
        }
        .find(queue)?;
        let limits = change.concurrency.is_some() || change.rate.is_some();
        if (limits || change.prefetch.is_some()) && !self.keeps {
            let why = "Live limits apply to `dispatcher run`, and only this process reads queues \
                       in memory. A pause applies to every client that receives here.";
            return Err(CallProblem::new(StatusCode::CONFLICT, why));
        }
        let changed = self.change_control(&name, change).await;
        let (before, after) = changed.map_err(|error| backend_failed(&error))?;
        let is_other = after != before;
        Ok(ControlResult {
            target: queue.to_owned(),
            affects: "all-processes".into(),
            until: "changed".into(),
            process: process::label(),
            within_s: super::live::APPLIED_WITHIN.as_secs().into(),
            paused: after.first().is_some_and(|control| control.paused),
            queues: is_other.then(|| queue.to_owned()).into_iter().collect(),
        })
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
