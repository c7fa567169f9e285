//! Runs handlers in a plain `cargo test`, without WebAssembly and without the host. This module
//! exists in native builds only.
//!
//! [`run`] (or [`run_async`], [`run_batch`], [`run_batch_async`]) runs a handler on a message that
//! [`message`] creates, as the host would: it parses the body as the handler's type, sets the
//! deadline, and returns the outcome that the host would get. [`grant`] grants what the
//! configuration would grant to the plugin. Its fakes record what the handler requested.
//!
//! ```
//! use dispatcher_guest::{Failure, Json, testing};
//! use dispatcher_guest::queues::{Outgoing, send};
//!
//! #[derive(serde::Deserialize)]
//! struct Order { id: String, copies: u32 }
//!
//! fn handle(order: Json<Order>) -> Result<(), Failure> {
//!     if order.copies > 100 {
//!         return Err(Failure::reject("too many copies"));
//!     }
//!     send("local:printer", Outgoing::new(&order.id))?;
//!     Ok(())
//! }
//!
//! let granted = testing::grant().queue("local:printer");
//!
//! let order = testing::json(r#"{"id": "o-1", "copies": 2}"#).attempt(3);
//! assert_eq!(testing::run(handle, order), Ok(()));
//! assert_eq!(granted.sent("local:printer")[0].body, "o-1");
//!
//! let large = testing::json(r#"{"id": "o-2", "copies": 101}"#);
//! assert_eq!(testing::run(handle, large), Err(Failure::reject("too many copies")));
//! assert_eq!(granted.sent("local:printer").len(), 1);
//! ```
//!
//! Grants belong to the test's thread, so tests run in parallel. If a test grants nothing and its
//! handler needs a grant, the call panics and the panic says so.
//!
//! A handler that makes calls at once is tested like any other, here with responses that have a body:
//!
//! ```
//! use dispatcher_guest::http::{Request, Response};
//! use dispatcher_guest::{Failure, Message, testing};
//! use futures_util::future::try_join;
//!
//! async fn compare(message: Message) -> Result<(), Failure> {
//!     let (one, other) = (Request::get("https://a.example.com/price"), Request::get("https://b.example.com/price"));
//!     let (one, other) = try_join(one.send_async(), other.send_async()).await?;
//!     let (one, other): (u64, u64) = (one.succeeded()?.json()?, other.succeeded()?.json()?);
//!     println!("{}: {} or {}", message.id, one, other);
//!     Ok(())
//! }
//!
//! let granted = testing::grant().http(|request| {
//!     let price = if request.url.contains("//a.") { "250" } else { "265" };
//!     Ok(Response::new(200).with_header("content-type", "application/json").with_body(price))
//! });
//! assert_eq!(testing::run_async(compare, testing::message("")), Ok(()));
//! assert_eq!(granted.requests().len(), 2);
//! ```

pub(crate) mod fakes;
mod granted;

pub use granted::{Granted, grant};

use crate::answer::{self, Answer, BatchAnswer};
use crate::queues::put;
use crate::{AttributeValue, Failed, Failure, FromMessage, Json, Message, TraceContext};
use serde::de::DeserializeOwned;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Runs a handler, such as one for [`handler!`](crate::handler), on one message.
///
/// # Errors
/// Returns the failure of the message if it is not done.
pub fn run<I: FromMessage, A: Answer>(
    handler: impl FnOnce(I) -> A,
    message: impl Into<Message>,
) -> Result<(), Failure> {
    answer::one(handler, message.into())
}

/// Runs a handler with two parameters, the body and the message, like one that
/// [`plugin`](crate::plugin) exports.
///
/// ```
/// use dispatcher_guest::{Failure, Message, plugin, testing};
///
/// #[derive(serde::Deserialize)]
/// struct Order { amount: u64 }
///
/// #[plugin]
/// fn handle(order: Order, message: &Message) -> Result<(), Failure> {
///     if order.amount > 1_000 && message.attempt == 1 {
///         return Err(Failure::retry_because("not approved yet"));
///     }
///     Ok(())
/// }
///
/// # fn main() {
/// let order = testing::json(r#"{"amount": 2000}"#);
/// let first = testing::run_with_message(handle, order.clone());
/// assert_eq!(first, Err(Failure::retry_because("not approved yet")));
/// assert_eq!(testing::run_with_message(handle, order.attempt(2)), Ok(()));
/// # }
/// ```
///
/// # Errors
/// Returns the failure of the message if it is not done.
pub fn run_with_message<T: DeserializeOwned, A: Answer>(
    handler: impl FnOnce(T, &Message) -> A,
    message: impl Into<Message>,
) -> Result<(), Failure> {
    let handler = |body: Json<T>| handler(body.value, &body.message).into_result();
    answer::one(handler, message.into())
}

/// Runs an `async` handler with two parameters, the body and the message.
///
/// # Panics
/// Panics if the handler waits for something that never completes, like [`run_async`].
///
/// # Errors
/// Returns the failure of the message if it is not done.
pub fn run_with_message_async<T: DeserializeOwned, A: Answer>(
    handler: impl AsyncFnOnce(T, &Message) -> A,
    message: impl Into<Message>,
) -> Result<(), Failure> {
    let handler = async |body: Json<T>| handler(body.value, &body.message).await.into_result();
    wait(answer::one_async(handler, message.into()))
}

/// Runs an `async` handler, such as one for [`async_handler!`](crate::async_handler), and waits for
/// it on this thread.
///
/// ```
/// use dispatcher_guest::lambda::{Request, Response, invoke_async};
/// use dispatcher_guest::{Failure, Message, testing};
///
/// async fn handle(message: Message) -> Result<(), Failure> {
///     invoke_async(Request::new("resize").payload(message.body)).await?.succeeded()?;
///     Ok(())
/// }
///
/// let granted = testing::grant().lambda("resize", |_| Ok(Response::failed("out of memory")));
/// assert_eq!(testing::run_async(handle, testing::message("7")), Err(Failure::retry()));
/// ```
///
/// # Panics
/// Panics if the handler waits for something that never completes. The host stops such an attempt.
///
/// # Errors
/// Returns the failure of the message if it is not done.
pub fn run_async<I: FromMessage, A: Answer, F: Future<Output = A>>(
    handler: impl FnOnce(I) -> F,
    message: impl Into<Message>,
) -> Result<(), Failure> {
    wait(answer::one_async(handler, message.into()))
}

/// Runs a handler of batches, such as one for [`batch_handler!`](crate::batch_handler). Give each
/// message its own ID, so that the outcomes can be told apart.
///
/// ```
/// use dispatcher_guest::{Failed, Failure, Json, each, testing};
///
/// fn handle(numbers: Vec<Json<i64>>) -> Result<Vec<Failed>, Failure> {
///     each(numbers, |number| match number.value {
///         0 => Err(Failure::reject("nothing")),
///         _ => Ok(()),
///     })
/// }
///
/// let batch = ["7", "0", "x"].map(|body| testing::message(body).id(body));
/// let failed = testing::run_batch(handle, batch).unwrap();
/// let failed: Vec<_> = failed.iter().map(|failed| failed.id.as_str()).collect();
/// assert_eq!(failed, ["x", "0"]);
/// ```
///
/// # Errors
/// Returns the failure of all messages if the handler returns an error.
pub fn run_batch<I: FromMessage, A: BatchAnswer>(
    handler: impl FnOnce(Vec<I>) -> A,
    messages: impl IntoIterator<Item = impl Into<Message>>,
) -> Result<Vec<Failed>, Failure> {
    answer::many(handler, messages.into_iter().map(Into::into).collect())
}

/// Like [`run_batch`], for [`async_batch_handler!`](crate::async_batch_handler).
///
/// # Errors
/// Returns the failure of all messages if the handler returns an error.
pub fn run_batch_async<I: FromMessage, A: BatchAnswer, F: Future<Output = A>>(
    handler: impl FnOnce(Vec<I>) -> F,
    messages: impl IntoIterator<Item = impl Into<Message>>,
) -> Result<Vec<Failed>, Failure> {
    let messages = messages.into_iter().map(Into::into).collect();
    wait(answer::many_async(handler, messages))
}

/// Wakes the thread that polls a handler.
struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Polls a future on this thread until it is ready. Panics if the future waits and nothing keeps
/// its waker: it could never continue, and the host stops such an attempt.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark {
        thread: std::thread::current(),
        woken: AtomicBool::new(false),
    });
    loop {
        let waker = Waker::from(unpark.clone());
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        drop(waker);
        while !unpark.woken.swap(false, Ordering::SeqCst) {
            let can_be_woken = Arc::strong_count(&unpark) > 1;
            assert!(
                can_be_woken || unpark.woken.load(Ordering::SeqCst),
                "the handler waits for something that nothing will complete"
            );
            std::thread::park_timeout(RECHECK);
        }
    }
}

/// The interval at which a waiting test checks that something can still wake it.
const RECHECK: Duration = Duration::from_millis(100);

/// A message that is being built. [`message`] creates it.
#[derive(Debug, Clone)]
#[must_use]
pub struct Draft(Message);

/// Creates a message with this body: received once, from `local:default`, without attributes or a
/// deadline.
pub fn message(body: impl Into<String>) -> Draft {
    Draft(Message {
        id: "a-message".into(),
        idempotency_key: "a-message".into(),
        queue: "local:default".into(),
        source: "local:default".into(),
        receipt: "a-receipt".into(),
        body: body.into(),
        ..Message::default()
    })
}

/// Creates a message whose body must be JSON, like [`message`].
///
/// # Panics
/// Panics if the body is not valid JSON. To test a malformed body, use [`message`].
pub fn json(body: &str) -> Draft {
    let read = serde_json::from_str::<serde::de::IgnoredAny>(body);
    read.unwrap_or_else(|error| panic!("the message's body is no JSON: {error}: {body}"));
    message(body)
}

impl Draft {
    /// Sets the ID. It is the idempotency key, too.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.0.id = id.into();
        self.0.idempotency_key.clone_from(&self.0.id);
        self
    }

    /// Sets the queue that the message comes from, as the configuration writes it.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.0.queue = queue.into();
        self
    }

    /// Sets the number of this attempt, from 1. Each attempt counts as a delivery of its own.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.0.attempt = attempt;
        self.0.receive_count = attempt;
        self
    }

    /// Sets the trace that the message belongs to.
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.0.trace = Some(TraceContext {
            traceparent: traceparent.into(),
            tracestate: None,
        });
        self
    }

    /// Sets how long the attempt may take from now.
    pub fn time_left(mut self, left: Duration) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let end = now.unwrap_or_default().saturating_add(left).as_millis();
        self.0.deadline = u64::try_from(end).unwrap_or(u64::MAX);
        self
    }

    /// Sets when the message was sent, in milliseconds since the Unix epoch.
    pub fn sent_at(mut self, date_ms: u64) -> Self {
        self.0.sent_at = Some(date_ms);
        self
    }

    /// Sets the group.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.0.group = Some(group.into());
        self
    }

    /// Adds a text attribute of the sender. It replaces an attribute with the same name.
    pub fn attribute(self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.with(name.into(), "String", AttributeValue::Text(text.into()))
    }

    /// Adds a number attribute of the sender. It replaces an attribute with the same name.
    pub fn number(self, name: impl Into<String>, number: impl std::fmt::Display) -> Self {
        let number = AttributeValue::Text(number.to_string());
        self.with(name.into(), "Number", number)
    }

    /// Adds a binary attribute of the sender. It replaces an attribute with the same name.
    pub fn binary(self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.with(name.into(), "Binary", AttributeValue::Binary(bytes.into()))
    }

    /// Adds an attribute of the backend, such as `SenderId`.
    pub fn system_attribute(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.0.system_attributes.push((name.into(), text.into()));
        self
    }

    fn with(mut self, name: String, data_type: &str, value: AttributeValue) -> Self {
        put(&mut self.0.attributes, name, data_type, value);
        self
    }

    /// Returns the message.
    #[must_use]
    pub fn build(self) -> Message {
        self.0
    }
}

impl From<Draft> for Message {
    fn from(draft: Draft) -> Self {
        draft.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "nothing will complete")]
    fn handler_that_waits_for_what_nothing_completes_ends() {
        let handle = async |_: Message| std::future::pending::<()>().await;
        let _ = run_async(handle, message("7"));
    }

    #[test]
    fn handler_goes_on_when_it_is_woken_by_itself_or_by_a_thread() {
        let handle = async |_: Message| {
            let mut times = 0;
            std::future::poll_fn(|context| {
                times += 1;
                let waker = context.waker().clone();
                match times {
                    1 => waker.wake(),
                    2 => drop(std::thread::spawn(move || waker.wake())),
                    _ => return Poll::Ready(()),
                }
                Poll::Pending
            })
            .await;
        };
        assert_eq!(run_async(handle, message("7")), Ok(()));
    }
}
