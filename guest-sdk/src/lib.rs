//! Write a dispatcher handler in Rust: one function, one macro. Must not know the host.
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
//! The same for bodies such as `{"name": "Ada"}`, and with its test:
//!
//! ```
//! use dispatcher_guest::{Failure, Json, handler, testing};
//!
//! #[derive(serde::Deserialize)]
//! struct Greeting { name: String }
//!
//! fn greet(greeting: Json<Greeting>) -> Result<(), Failure> {
//!     println!("hello, {}, attempt {}", greeting.name, greeting.message.attempt());
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
//! A handler takes a [`Message`], a [`Json`] or whatever else is [`FromMessage`], and answers nothing
//! or a `Result` ([`Answer`]): `?` on any error is a retry, [`Reject`] around it a rejection, and
//! [`Failure`] says the rest. One of batches takes a `Vec` of the same and answers which failed
//! ([`BatchAnswer`], [`each`]). One that awaits the host is an `async fn` under [`async_handler!`] or
//! [`async_batch_handler!`]: one instance then keeps many messages in flight.
//!
//! The attribute [`plugin`] is the same for a function of what the body says:
//!
//! ```
//! use dispatcher_guest::{Failure, Message, plugin};
//!
//! #[derive(serde::Deserialize)]
//! struct Greeting { name: String }
//!
//! #[plugin]
//! fn greet(greeting: Greeting, message: &Message) -> Result<(), Failure> {
//!     println!("hello, {}, attempt {}", greeting.name, message.attempt());
//!     Ok(())
//! }
//! # fn main() {
//! # let message = dispatcher_guest::testing::message("").build();
//! assert_eq!(greet(Greeting { name: "Ada".into() }, &message), Ok(()));
//! # }
//! ```
//!
//! What the configuration may grant to a plugin is in [`queues`], [`lambda`], [`settings`], [`store`]
//! and [`http`]. `testing`, which is there off WebAssembly only, runs a handler in a plain
//! `cargo test`, with fakes for all of these.
//!
//! [`v0_2`] is the next version of the contract, a release candidate.
//!
//! Built as a `cdylib` for `wasm32-wasip2` this is a component for `dispatcher run --plugin`. It
//! imports only what it calls: of this crate, nothing but [`cancelled`] and those five modules asks
//! anything of the host.

#![deny(missing_docs)]

mod answer;
mod attempt;
mod batch;
#[doc(hidden)]
pub mod bindings;
mod export;
mod export_async;
mod failure;
pub mod http;
mod input;
pub mod lambda;
mod message;
pub mod queues;
pub mod settings;
pub mod store;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
#[doc(hidden)]
pub mod typed;
pub mod v0_2;

pub use answer::{Answer, BatchAnswer};
pub use batch::{Failed, each};
pub use bindings::imports::dispatcher::plugin::types::{Attribute, AttributeValue, Message};
/// Exports a function as a plugin that handles messages one at a time: the same as [`handler!`], or for
/// an `async fn` as [`async_handler!`], with the types of its parameters. The first is what the body says
/// in JSON, any `serde::Deserialize`; or the [`Message`] or whatever else is [`FromMessage`]. The second,
/// if there is one, is `&Message`. A body that is not of the type is rejected with the place and the
/// reason. The crate must be known as `dispatcher_guest`.
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
pub use failure::{Failure, OrFailure, Reject};
pub use input::{FromMessage, Json};
pub use message::cancelled;

/// What `README.md` shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
