//! Testing a handler natively: `cargo test` in a plugin's crate, without WebAssembly and without the
//! host. Off WebAssembly only. Knows nothing of how anything is exported.
//!
//! A handler is run by [`run`] (or [`run_async`], [`run_batch`], [`run_batch_async`]) on what
//! [`message`] makes, as the host would run it: the body is read as the handler's type, the time that
//! is left counts, and what comes back is what the host would be told. What a plugin is granted is granted
//! here by [`grant`], with fakes that remember what they were asked.
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
//! What is granted is granted to the thread: tests run beside each other as they always do. A handler that
//! uses what a plugin is granted, in a test that grants nothing, panics and says so.

pub(crate) mod fakes;
mod granted;

pub use granted::{Granted, grant};

use crate::answer::{self, Answer, BatchAnswer};
use crate::queues::put;
use crate::{AttributeValue, Failed, Failure, FromMessage, Message};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Runs a handler, such as one for [`handler!`](crate::handler), on one message.
///
/// # Errors
/// What befalls the message.
pub fn run<I: FromMessage, A: Answer>(
    handler: impl FnOnce(I) -> A,
    message: impl Into<Message>,
) -> Result<(), Failure> {
    answer::one(handler, message.into())
}

/// Runs one for [`async_handler!`](crate::async_handler), and waits for it on this thread.
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
/// # Errors
/// What befalls the message.
pub fn run_async<I: FromMessage, A: Answer, F: Future<Output = A>>(
    handler: impl FnOnce(I) -> F,
    message: impl Into<Message>,
) -> Result<(), Failure> {
    wait(answer::one_async(handler, message.into()))
}

/// Runs a handler of batches, such as one for [`batch_handler!`](crate::batch_handler). Messages want
/// ids of their own, to be told apart.
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
/// What befalls all of the messages.
pub fn run_batch<I: FromMessage, A: BatchAnswer>(
    handler: impl FnOnce(Vec<I>) -> A,
    messages: impl IntoIterator<Item = impl Into<Message>>,
) -> Result<Vec<Failed>, Failure> {
    answer::many(handler, messages.into_iter().map(Into::into).collect())
}

/// The same for [`async_batch_handler!`](crate::async_batch_handler).
///
/// # Errors
/// What befalls all of the messages.
pub fn run_batch_async<I: FromMessage, A: BatchAnswer, F: Future<Output = A>>(
    handler: impl FnOnce(Vec<I>) -> F,
    messages: impl IntoIterator<Item = impl Into<Message>>,
) -> Result<Vec<Failed>, Failure> {
    let messages = messages.into_iter().map(Into::into).collect();
    wait(answer::many_async(handler, messages))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on this thread until it is done.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A message in the making; [`message`] begins one.
#[derive(Debug, Clone)]
#[must_use]
pub struct Draft(Message);

/// A message of this body: received once, from `local:default`, without attributes or an end.
pub fn message(body: impl Into<String>) -> Draft {
    Draft(Message {
        id: "a-message".into(),
        queue: "local:default".into(),
        source: "local:default".into(),
        receipt: "a-receipt".into(),
        body: body.into(),
        ..Message::default()
    })
}

/// The same for a body that is JSON.
///
/// # Panics
/// Where it is none: a test that wants a malformed body uses [`message`].
pub fn json(body: &str) -> Draft {
    let read = serde_json::from_str::<serde::de::IgnoredAny>(body);
    read.unwrap_or_else(|error| panic!("the message's body is no JSON: {error}: {body}"));
    message(body)
}

impl Draft {
    /// Its id.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.0.id = id.into();
        self
    }

    /// The queue that it comes from, as the configuration writes it.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.0.queue = queue.into();
        self
    }

    /// Which attempt this is, from 1.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.0.receive_count = attempt;
        self
    }

    /// The same, in the contract's words.
    pub fn receive_count(self, count: u32) -> Self {
        self.attempt(count)
    }

    /// How long the attempt may take from now.
    pub fn time_left(mut self, left: Duration) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let end = now.unwrap_or_default().saturating_add(left).as_millis();
        self.0.deadline = u64::try_from(end).unwrap_or(u64::MAX);
        self
    }

    /// When it was sent, in milliseconds since the Unix epoch.
    pub fn sent_at(mut self, date_ms: u64) -> Self {
        self.0.sent_at = Some(date_ms);
        self
    }

    /// Its group.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.0.group = Some(group.into());
        self
    }

    /// An attribute of the sender's that is text.
    pub fn attribute(self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.with(name.into(), "String", AttributeValue::Text(text.into()))
    }

    /// An attribute of the sender's that is a number.
    pub fn number(self, name: impl Into<String>, number: impl std::fmt::Display) -> Self {
        let number = AttributeValue::Text(number.to_string());
        self.with(name.into(), "Number", number)
    }

    /// An attribute of the sender's that is bytes.
    pub fn binary(self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.with(name.into(), "Binary", AttributeValue::Binary(bytes.into()))
    }

    /// An attribute of the backend's, such as `SenderId`.
    pub fn system_attribute(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.0.system_attributes.push((name.into(), text.into()));
        self
    }

    fn with(mut self, name: String, data_type: &str, value: AttributeValue) -> Self {
        put(&mut self.0.attributes, name, data_type, value);
        self
    }

    /// The message.
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
