//! Write a dispatcher plugin in Rust: a function that handles a message, and a macro that exports
//! it.
//!
//! ```
//! use dispatcher_guest::{Failure, Message, handler};
//!
//! fn greet(message: Message) -> Result<(), Failure> {
//!     if message.body.is_empty() {
//!         return Err(Failure::reject("nobody to greet"));
//!     }
//!     println!("hello, {}", message.body);
//!     Ok(())
//! }
//!
//! handler!(greet);
//! # fn main() {}
//! ```
//!
//! This handler takes bodies such as `{"name": "Ada"}` as a type, and has a test:
//!
//! ```
//! use dispatcher_guest::{Failure, Json, handler, testing};
//!
//! #[derive(serde::Deserialize)]
//! struct Greeting { name: String }
//!
//! fn greet(greeting: Json<Greeting>) -> Result<(), Failure> {
//!     println!("hello, {}, attempt {}", greeting.name, greeting.message.attempt);
//!     Ok(())
//! }
//!
//! handler!(greet);
//!
//! # fn main() {
//! assert_eq!(testing::run(greet, testing::message(r#"{"name": "Ada"}"#)), Ok(()));
//! # }
//! ```
//!
//! A handler takes a [`Message`], a [`Json`] or another type that implements [`FromMessage`]. It
//! returns nothing or a `Result` (see [`Answer`]):
//!
//! - `?` on an error retries the message.
//! - `?` on a [`Reject`] rejects the message.
//! - A [`Failure`] chooses any other outcome.
//!
//! A handler of batches takes a `Vec` of one of these types and returns the messages that failed
//! (see [`BatchAnswer`] and [`each`]). An `async fn` is exported with [`async_handler!`] or
//! [`async_batch_handler!`]. One instance then keeps many messages in flight.
//!
//! The attribute [`plugin`] exports a function that takes the parsed body and, optionally, the
//! message:
//!
//! ```
//! use dispatcher_guest::{Failure, Message, plugin};
//!
//! #[derive(serde::Deserialize)]
//! struct Greeting { name: String }
//!
//! #[plugin]
//! fn greet(greeting: Greeting, message: &Message) -> Result<(), Failure> {
//!     println!("hello, {}, attempt {}", greeting.name, message.attempt);
//!     Ok(())
//! }
//! # fn main() {
//! # let message = dispatcher_guest::testing::message("").build();
//! assert_eq!(greet(Greeting { name: "Ada".into() }, &message), Ok(()));
//! # }
//! ```
//!
//! The modules [`queues`], [`lambda`], [`settings`], [`store`] and [`http`] use what the
//! configuration grants to a plugin. [`log`](mod@log) and [`metrics`] need no grant. With the
//! feature `tracing`, the module `trace` logs `tracing` events. The module `testing` runs a handler
//! in `cargo test` and fakes what the configuration grants. It exists in native builds only.
//!
//! A crate that uses this SDK, built as a `cdylib` for `wasm32-wasip2`, is a component for
//! `dispatcher run --plugin`. It imports only the interfaces that it calls.

#![deny(missing_docs)]

mod answer;
mod attempt;
mod batch;
#[doc(hidden)]
pub mod bindings;
mod export;
mod failure;
pub mod http;
mod input;
pub mod lambda;
pub mod log;
mod message;
pub mod metrics;
pub mod queues;
pub mod settings;
pub mod store;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
#[cfg(feature = "tracing")]
pub mod trace;
#[doc(hidden)]
pub mod typed;

pub use answer::{Answer, BatchAnswer};
pub use batch::{Failed, each};
pub use bindings::imports::dispatcher::plugin::types::{Attribute, AttributeValue};
/// Exports a function as a plugin that handles messages one at a time: like [`handler!`], or like
/// [`async_handler!`] if the function is an `async fn`.
///
/// The first parameter is one of these:
///
/// - The body, parsed as JSON: a type that implements `serde::Deserialize`. If the body cannot be
///   parsed, the message is rejected. The reason says where and why parsing failed.
/// - The message: [`Message`], or another type that implements [`FromMessage`].
///
/// The second parameter is optional. It is a `&Message`. Do not rename the crate: the attribute
/// uses the name `dispatcher_guest`.
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Order { amount: u64 }
///
/// #[dispatcher_guest::plugin]
/// fn handle(order: Order) {
///     println!("{} cents", order.amount);
/// }
/// # fn main() {}
/// ```
///
/// ```compile_fail
/// #[dispatcher_guest::plugin]
/// fn handle(order: String, message: dispatcher_guest::Message) {}
/// # fn main() {}
/// ```
pub use dispatcher_guest_macros::plugin;
pub use failure::{Failure, OrFailure, Reject, Retry};
pub use input::{FromMessage, Json};
pub use message::{Message, TraceContext, cancelled};

/// Compiles the examples of `README.md` as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
