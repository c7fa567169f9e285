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
//! What the configuration may lend to a plugin is in [`queues`], [`lambda`], [`settings`], [`store`]
//! and [`http`]. `testing`, which is there off WebAssembly only, runs a handler in a plain
//! `cargo test`, with fakes for all of these.
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

pub use answer::{Answer, BatchAnswer};
pub use batch::{Failed, each};
pub use bindings::imports::dispatcher::plugin::types::{Attribute, AttributeValue, Message};
pub use failure::{Failure, OrFailure, Reject};
pub use input::{FromMessage, Json};
pub use message::cancelled;

/// What `README.md` shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
