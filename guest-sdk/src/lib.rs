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
//! A handler that awaits the host is an `async fn` under [`async_handler!`] or
//! [`async_batch_handler!`]: one instance then keeps many messages in flight.
//!
//! Built as a `cdylib` for `wasm32-wasip2` this is a component for `dispatcher run --plugin`. It
//! imports only what it calls: of this crate, nothing but [`cancelled`], [`lambda`] and [`queues`]
//! asks anything of the host.

#![warn(missing_docs)]

#[doc(hidden)]
pub mod bindings;
mod export;
mod export_async;
mod failure;
pub mod lambda;
mod message;
pub mod queues;

pub use bindings::imports::dispatcher::plugin::types::{Attribute, AttributeValue, Message};
pub use failure::{Failed, Failure, OrFailure, each};
pub use message::cancelled;
