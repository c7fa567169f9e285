//! Spawns tasks on tokio's runtimes; nothing else does. Every task has an owner: dropping the owner
//! ends the task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// An owned task. Dropping it stops the task at its next await.
#[derive(Debug)]
#[must_use = "the task ends with it"]
pub struct Task<T>(JoinHandle<T>);

/// Starts `future` on the present runtime.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Task<T> {
    Task(tokio::spawn(future))
}

/// Starts `future` on the runtime `home`, regardless of the caller's.
pub fn spawn_on<T: Send + 'static>(
    home: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> Task<T> {
    Task(home.spawn(future))
}

/// Starts on the present runtime a task that a library ends itself, such as one of its connections.
/// Without a runtime, as at the end of the process, the task is dropped, and its connection with
/// it.
pub fn spawn_unowned(task: Pin<Box<dyn Future<Output = ()> + Send>>) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(task));
    }
}

/// Runs `work`, which blocks, on its own thread. Once it has begun, it runs to its end even if the
/// task is dropped.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Task<T> {
    Task(tokio::task::spawn_blocking(work))
}

impl<T> Task<T> {
    /// Waits for the end of the task. A panic in the task continues here.
    pub async fn finished(mut self) -> T {
        unwrap_panic((&mut self.0).await)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the results of all futures, in their order. They run concurrently on the task of the
/// caller.
pub async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    enum TaskStep<F: Future> {
        Waiting(Pin<Box<F>>),
        Done(Option<F::Output>),
    }
    let mut steps: Vec<TaskStep<F>> = futures
        .into_iter()
        .map(|one| TaskStep::Waiting(Box::pin(one)))
        .collect();
    poll_fn(|context| {
        let mut is_done = true;
        for step in &mut steps {
            if let TaskStep::Waiting(future) = step {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *step = TaskStep::Done(Some(value)),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if !is_done {
            return Poll::Pending;
        }
        let values = steps.iter_mut().filter_map(|step| match step {
            TaskStep::Done(value) => value.take(),
            TaskStep::Waiting(_) => None,
        });
        Poll::Ready(values.collect())
    })
    .await
}

/// Returns the number of tasks of the present runtime that have not ended, including those of
/// libraries.
pub fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Sets `broken` if `future` ends with a panic, so that the process does not continue without it.
/// Dropping the future does not set it.
pub fn watched<T>(
    broken: &CancellationToken,
    future: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> + Send + 'static {
    let watch = TaskWatch(broken.clone());
    async move {
        let value = future.await;
        drop(watch);
        value
    }
}

struct TaskWatch(CancellationToken);

impl Drop for TaskWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

/// A group of owned tasks. Dropping it stops them all.
#[derive(Debug)]
pub struct Group<T>(JoinSet<T>);

impl<T: Send + 'static> Group<T> {
    /// Creates an empty group.
    pub fn new() -> Self {
        Self(JoinSet::new())
    }

    /// Starts another task.
    pub fn spawn(&mut self, future: impl Future<Output = T> + Send + 'static) {
        self.0.spawn(future);
    }

    /// Returns the result of the next task that finishes; pending forever while there are no tasks.
    /// May be dropped and called again.
    pub async fn next(&mut self) -> T {
        match self.0.join_next().await {
            Some(ended) => unwrap_panic(ended),
            None => std::future::pending().await,
        }
    }

    /// Takes the results of the tasks that have finished; a panic in one continues here.
    pub fn take_finished(&mut self) -> Vec<T> {
        let mut finished = Vec::new();
        while let Some(ended) = self.0.try_join_next() {
            finished.push(unwrap_panic(ended));
        }
        finished
    }

    /// Returns the number of tasks whose results were not taken yet.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether all results were taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Send + 'static> Default for Group<T> {
    fn default() -> Self {
        Self::new()
    }
}

fn unwrap_panic<T>(ended: Result<T, JoinError>) -> T {
    match ended {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only an owner aborts a task, and an owner that awaits it has not.
            Err(error) => unreachable!("an awaited task was stopped: {error}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_in_a_supervised_task_is_reported() {
        let broken = CancellationToken::new();
        spawn(watched(&broken, async {})).finished().await;
        assert!(!broken.is_cancelled());
        let _panics = spawn(watched(&broken, async { panic!("as a test wants") }));
        broken.cancelled().await;
    }

    #[tokio::test]
    async fn joined_futures_run_concurrently_and_keep_their_order() {
        let (end, ended) = tokio::sync::oneshot::channel();
        type Waits = Pin<Box<dyn Future<Output = u8>>>;
        // The second lets the first end.
        let first: Waits = Box::pin(async { ended.await.expect("sent") });
        let second: Waits = Box::pin(async {
            end.send(1).expect("awaited");
            2
        });
        assert_eq!(all(vec![first, second]).await, [1, 2]);
        assert!(all(Vec::<Waits>::new()).await.is_empty());
    }

    #[tokio::test]
    async fn task_is_alive_until_it_ends() {
        let before = alive();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let task = spawn(ended);
        assert_eq!(alive(), before + 1);
        drop(end);
        let _ = task.finished().await;
        assert_eq!(alive(), before);
    }

    #[tokio::test]
    async fn supervised_task_dropped_by_its_owner_is_no_panic() {
        let (broken, dropped) = (CancellationToken::new(), CancellationToken::new());
        let guard = dropped.clone().drop_guard();
        let task = watched(&broken, async move {
            std::future::pending::<()>().await;
            drop(guard);
        });
        drop(spawn(task));
        dropped.cancelled().await;
        assert!(!broken.is_cancelled());
    }
}
