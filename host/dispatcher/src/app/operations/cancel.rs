//! Cancelling a message by its id: in this process, in its queue, or in another process of the
//! fleet.

use super::{LiveQueue, PATIENCE, RunOperations, backend_failed, within};
use dispatcher_core::fleet::control::FleetRequest;
use dispatcher_operate::operations::CancelResult;
use dispatcher_operate::problem::{CallProblem, StatusCode};

impl RunOperations {
    /// Cancels a message that runs here or waits in its queue.
    pub(super) async fn cancel_here(
        &self,
        queue: &str,
        id: &str,
    ) -> Result<CancelResult, CallProblem> {
        let (route, lane) = self.find_queue(queue)?;
        let here: usize = self
            .live
            .table()
            .with_attempts()
            .iter()
            .filter_map(|route| Some((route, route.lane(queue)?)))
            .map(|(route, lane)| route.running.cancel_message(lane, id))
            .sum();
        let LiveQueue {
            name, queue: open, ..
        } = &route.queues[lane];
        if here > 0 || !name.backend.facts().can_cancel {
            if here == 0 && open.facts().can_browse {
                let cancelled = self.messages.cancel_waiting(queue, id).await;
                cancelled.map_err(|problem| match problem.status {
                    // Prefetched messages cannot be found.
                    StatusCode::NOT_FOUND => CallProblem::not_found(format!(
                        "{} A message that a process holds but has not started can be cancelled \
                         there once it runs.",
                        problem.detail
                    )),
                    _ => problem,
                })?;
                return Ok(CancelResult {
                    waiting: 1_u64.into(),
                    running: 0_u64.into(),
                });
            }
            if here == 0 {
                return Err(CallProblem::not_found(format!(
                    "Message `{id}` of queue `{queue}` is not running here. Messages that wait \
                     there, or that this process holds but has not started, cannot be found by \
                     their ids."
                )));
            }
            return Ok(CancelResult {
                waiting: 0_u64.into(),
                running: here.into(),
            });
        }
        let asked = self.schedules.backends().cancel(name, id);
        let cancelled = within(PATIENCE, asked)
            .await?
            .map_err(|error| backend_failed(&error))?;
        if cancelled.waiting + cancelled.running == 0 {
            return Err(CallProblem::not_found(format!(
                "Queue `{queue}` holds no message with this id or body."
            )));
        }
        Ok(CancelResult {
            waiting: cancelled.waiting.into(),
            running: cancelled.running.into(),
        })
    }

    /// Cancels a message that another process runs. `problem` is why it was not cancelled here.
    pub(super) async fn cancel_elsewhere(
        &self,
        queue: &str,
        id: &str,
        problem: CallProblem,
    ) -> Result<CancelResult, CallProblem> {
        self.find_queue(queue)?;
        if !self.has_others().await {
            return Err(problem);
        }
        let found = self.ask_fleet(FleetRequest {
            message: id.to_owned(),
            queue: Some(queue.to_owned()),
            cancels: true,
            ..FleetRequest::default()
        });
        let items = found.await?.items.into_iter();
        let running = items.filter(|item| item.cancelled).count();
        if running == 0 {
            return Err(problem);
        }
        Ok(CancelResult {
            waiting: 0_u64.into(),
            running: running.into(),
        })
    }
}
