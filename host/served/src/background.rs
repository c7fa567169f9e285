//! Background work: deletes messages whose retention is over, and continues move tasks of dead
//! letters, also those of an earlier process. Calls the store; independent of the protocol.

use super::service::Service;
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The interval of looking for messages whose retention is over.
const OLD: Duration = Duration::from_secs(30);
/// The maximum number of messages that one transaction moves.
const AT_ONCE: u32 = 100;
/// The pause after a failure to write the file.
const REST: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub(crate) async fn forever(desk: Arc<Service>) {
    tokio::join!(drop_old(&desk), move_on(&desk));
}

async fn drop_old(desk: &Service) {
    loop {
        match desk.store.drop_old().await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "cannot drop old messages now"),
        }
        clock::sleep_until(Some(clock::now() + OLD)).await;
    }
}

/// Runs the steps of every running task, each at its own rate.
async fn move_on(desk: &Service) {
    let mut next: HashMap<String, BootInstant> = HashMap::new();
    loop {
        let tasks = match desk.store.running_moves().await {
            Ok(tasks) => tasks,
            Err(error) => {
                tracing::warn!(%error, "cannot look for tasks that move messages now");
                clock::sleep_until(Some(clock::now() + REST)).await;
                continue;
            }
        };
        next.retain(|handle, _| tasks.iter().any(|task| task.handle == *handle));
        for task in &tasks {
            let now = clock::now();
            if next.get(&task.handle).is_some_and(|at| *at > now) {
                continue;
            }
            let most = task.rate.map_or(AT_ONCE, |rate| rate.clamp(1, AT_ONCE));
            let max = usize::try_from(most).unwrap_or(1);
            let pause = match desk.store.step_move(&task.handle, max).await {
                Ok(moved) => pause(moved.unwrap_or(0), task.rate),
                Err(error) => {
                    tracing::warn!(%error, source = task.source, "cannot move messages now");
                    REST
                }
            };
            next.insert(task.handle.clone(), now + pause);
        }
        if tasks.is_empty() {
            desk.moves.notified().await
        } else {
            clock::sleep_until(next.values().min().copied()).await
        }
    }
}

/// Returns the pause after this many messages were moved.
fn pause(moved: usize, rate: Option<u32>) -> Duration {
    let moved = u32::try_from(moved).unwrap_or(u32::MAX);
    rate.filter(|rate| *rate > 0)
        .map_or(Duration::ZERO, |rate| Duration::from_secs(1) * moved / rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_holds_over_a_second() {
        assert_eq!(pause(100, Some(500)), Duration::from_millis(200));
        assert_eq!(pause(3, Some(1)), Duration::from_secs(3));
        assert_eq!(pause(100, None), Duration::ZERO);
    }
}
