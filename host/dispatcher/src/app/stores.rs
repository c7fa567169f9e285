//! Operations that a command runs directly on the stores of queues: any queue can be named.
//! Operations that need a receiving process are left to one.

use super::build::Backends;
use super::build::schedule::Schedules;
use super::fleet_link::{FleetLink, Reach};
use super::messages::known::{KnownQueue, KnownQueues, SendTarget};
use super::messages::{QueueMessages, TriedPlugins, problems};
use super::operations::fleet::{controlled, store_failed};
use super::operations::scheduled;
use dispatcher_config::name::QueueName;
use dispatcher_config::{FleetPlace, Places};
use dispatcher_core::backend::not_made_yet;
use dispatcher_core::control::ControlChange;
use dispatcher_core::fleet::control::LimitChange;
use dispatcher_core::queue::QueueError;
use dispatcher_core::telemetry::trace::Tracer;
use dispatcher_operate::messages::MessageOperations;
use dispatcher_operate::operations::{CancelResult, ControlResult, ScheduleResult};
use dispatcher_operate::problem::{CallProblem, FieldProblem, StatusCode};
use dispatcher_operate::site::Site;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs operations on the stores of queues.
pub(crate) struct StoreSite {
    backends: Arc<Backends>,
    schedules: Schedules,
    messages: QueueMessages,
    fleet: Option<FleetPlace>,
}

impl StoreSite {
    /// Creates the site for these stores.
    pub(crate) fn new(places: &Places, tracer: Tracer) -> Self {
        let backends = Arc::new(Backends::new(places.stores.clone()));
        backends.trace(tracer);
        let table = &places.schedule_table;
        let of_messages = Arc::new(Schedules::new(backends.clone(), table.clone()));
        let never = CancellationToken::new();
        let messages = QueueMessages::new(of_messages, AnyQueue, None, never);
        let plugins = TriedPlugins::InFiles(places.stores.data.clone());
        Self {
            schedules: Schedules::new(backends.clone(), table.clone()),
            messages: messages.with_bodies(true).with_plugins(plugins),
            backends,
            fleet: places.fleet.store.clone(),
        }
    }

    /// Changes a queue whose backend stores no controls, in the control record of its fleet. A
    /// process of the fleet must read the queue, so that a wrong name or store is found.
    async fn change_in_fleet(
        &self,
        name: &QueueName,
        change: &ControlChange,
    ) -> Result<ControlResult, CallProblem> {
        let fleet = FleetLink::open(&self.backends, self.fleet.as_ref(), None, None).await;
        let mut turn = fleet.turn().await;
        fleet.look(&mut turn).await;
        let queue = name.to_string();
        if !fleet.control().has_queue(&queue) && !fleet.reads(&queue).await {
            let why = format!(
                "queue `{name}` is on {}, which cannot store pauses and limits, and no process of \
                 the fleet in {} reads it; wanted the admin address of one process, as in \
                 127.0.0.1:9090",
                name.backend.name(),
                fleet.place()
            );
            return Err(CallProblem::new(StatusCode::NOT_IMPLEMENTED, why));
        }
        let changed = fleet.change(&mut turn, |control, _| {
            control.change_queue(&queue, change);
            Ok(())
        });
        changed.await.map_err(|error| store_failed(&error))?;
        let paused = fleet.control().queue(&queue).paused;
        Ok(controlled(&queue, fleet.reach(), paused, Vec::new()))
    }

    async fn failed(&self, name: &QueueName, error: &QueueError) -> CallProblem {
        problems(vec![self.backends.problem("queue", name, error).await])
    }
}

/// Permits every queue: a user with access to the stores may name any.
struct AnyQueue;

fn named(queue: &str) -> Result<QueueName, CallProblem> {
    queue.parse().map_err(|found: String| {
        CallProblem::fields(vec![FieldProblem::new("queue", &found, "a queue")])
    })
}

impl KnownQueues for AnyQueue {
    fn find(&self, queue: &str) -> Result<KnownQueue, CallProblem> {
        Ok(KnownQueue {
            name: named(queue)?,
            redact: Vec::new(),
        })
    }

    fn sends_to(&self, queue: &str) -> Result<SendTarget, CallProblem> {
        Ok(SendTarget {
            name: named(queue)?,
            is_made: true,
        })
    }

    fn is_source(&self, _source: &str) -> bool {
        true
    }
}

#[async_trait::async_trait]
impl Site for StoreSite {
    fn messages(&self) -> &dyn MessageOperations {
        &self.messages
    }

    async fn change_queue(
        &self,
        queue: &str,
        change: &ControlChange,
    ) -> Result<ControlResult, CallProblem> {
        let name = named(queue)?;
        if !name.backend.facts().shares_controls {
            return self.change_in_fleet(&name, change).await;
        }
        let changed = async {
            let client = self.backends.client(name.backend).await?;
            if !client.exists(&name.name).await? {
                return Err(not_made_yet());
            }
            client.change_control(&name.name, change).await
        };
        if let Err(error) = changed.await {
            return Err(self.failed(&name, &error).await);
        }
        let paused = change.paused.unwrap_or_default();
        let target = name.to_string();
        Ok(controlled(&target, Reach::AllProcesses, paused, Vec::new()))
    }

    async fn change_limit(
        &self,
        limit: &str,
        _: Option<String>,
        _: &LimitChange,
    ) -> Result<ControlResult, CallProblem> {
        let why = format!(
            "limit `{limit}` is changed by a process that keeps to it; wanted the admin address of \
             one, as in 127.0.0.1:9090"
        );
        Err(CallProblem::new(StatusCode::NOT_IMPLEMENTED, why))
    }

    async fn cancel_message(&self, queue: &str, id: &str) -> Result<CancelResult, CallProblem> {
        let name = named(queue)?;
        let cancelled = match self.backends.cancel(&name, id).await {
            Ok(cancelled) => cancelled,
            Err(error) => return Err(self.failed(&name, &error).await),
        };
        if cancelled.waiting + cancelled.running > 0 {
            return Ok(CancelResult {
                waiting: cancelled.waiting.into(),
                running: cancelled.running.into(),
            });
        }
        Err(CallProblem::not_found(if name.backend.facts().can_cancel {
            format!("queue `{name}` has no message with this id or body")
        } else {
            format!(
                "no message with this id waits in queue `{name}`; to cancel one that is running, \
                 name its process with --admin"
            )
        }))
    }

    async fn run_schedule(&self, id: &str) -> Result<ScheduleResult, CallProblem> {
        scheduled::run_now(&self.schedules, id).await
    }

    async fn cancel_schedule(&self, id: &str) -> Result<ScheduleResult, CallProblem> {
        scheduled::cancel(&self.schedules, id).await
    }
}
