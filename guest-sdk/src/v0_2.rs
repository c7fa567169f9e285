//! Version 0.2 of the contract, a release candidate: it may change until it is released, and then this
//! module changes with it. Handlers of 0.1, everything else in this crate, keep working unchanged.
//!
//! ```
//! use dispatcher_guest::v0_2::{Delivery, Failure, Level, Retry, handler, log};
//! use std::time::Duration;
//!
//! fn price(delivery: Delivery) -> Result<(), Failure> {
//!     let amount: u64 = delivery.body.trim().parse()?;
//!     if amount > 1_000 && delivery.attempt == 1 {
//!         return Err(Retry::after(Duration::from_secs(60)).because("not approved yet").into());
//!     }
//!     let key = delivery.idempotency_key.as_str();
//!     log(Level::Info, "priced", &[("amount", &amount.to_string()), ("key", key)]);
//!     Ok(())
//! }
//!
//! handler!(price);
//!
//! # fn main() {
//! use dispatcher_guest::{testing, v0_2};
//! assert_eq!(v0_2::run(price, Delivery::of(testing::message("7"))), Ok(()));
//! let failed = v0_2::run(price, Delivery::of(testing::message("x"))).unwrap_err();
//! assert_eq!(failed, Retry::by_policy().because("invalid digit found in string").into());
//! # }
//! ```
//!
//! A handler takes a [`Delivery`], a [`Typed`] or whatever is [`FromMessage`](crate::FromMessage),
//! such as [`Json`](crate::Json). `?` on any error is a retry whose reason is the error. What is granted
//! (queues, functions, settings, stores) is called as in 0.1, by the modules of this crate; [`http`] sends
//! requests by the contract itself. With the feature `tracing` the module `trace` logs events of `tracing`.

#[doc(hidden)]
pub mod bindings;
mod export;
mod failure;
mod host;
pub mod http;
mod input;
#[cfg(feature = "tracing")]
pub mod trace;
#[doc(hidden)]
pub mod typed;

pub use crate::{
    async_batch_handler_v0_2 as async_batch_handler, async_handler_v0_2 as async_handler,
    batch_handler_v0_2 as batch_handler, handler_v0_2 as handler,
};
/// The same as [`crate::plugin`] for version 0.2: the first parameter is what the body says, or a
/// [`Delivery`], [`Typed`] or whatever is [`FromDelivery`]; the second, if there is one, `&Delivery`.
pub use dispatcher_guest_macros::plugin_v0_2 as plugin;
pub use failure::{Failed, Failure, Retry};
pub use host::{Level, MetricError, add, extend, log, set};
pub use input::{Delivery, FromDelivery, TraceContext, Typed};

use crate::attempt::{self, Until};

/// What a handler may answer: nothing, or a `Result` whose error says why the message is not done.
#[diagnostic::on_unimplemented(
    message = "a handler cannot answer `{Self}`",
    note = "it answers `()` or `Result<(), E>`, where `E` is `v0_2::Failure`, a `std::error::Error` or something that a `v0_2::Failure` can be made from"
)]
pub trait HandlerResult {
    /// The same as a result.
    ///
    /// # Errors
    /// Why the message is not done.
    fn into_result(self) -> Result<(), Failure>;
}

impl HandlerResult for () {
    fn into_result(self) -> Result<(), Failure> {
        Ok(())
    }
}

impl<E: Into<Failure>> HandlerResult for Result<(), E> {
    fn into_result(self) -> Result<(), Failure> {
        self.map_err(Into::into)
    }
}

/// Runs a handler, such as one for [`handler!`](handler), on one delivery, as the host would.
///
/// # Errors
/// Why the message is not done.
pub fn run<I: FromDelivery, A: HandlerResult>(
    handle: impl FnOnce(I) -> A,
    delivery: Delivery,
) -> Result<(), Failure> {
    let end_ms = delivery.message.deadline;
    let input = I::from_delivery(delivery)?;
    attempt::until(end_ms, || handle(input)).into_result()
}

/// The same for one that waits.
///
/// # Errors
/// Why the message is not done.
pub async fn run_async<I: FromDelivery, A: HandlerResult, F: Future<Output = A>>(
    handle: impl FnOnce(I) -> F,
    delivery: Delivery,
) -> Result<(), Failure> {
    let end_ms = delivery.message.deadline;
    let input = I::from_delivery(delivery)?;
    let future = attempt::until(end_ms, || handle(input));
    Until::new(end_ms, future).await.into_result()
}

/// Runs a handler of batches that waits, such as one for [`async_batch_handler!`](async_batch_handler),
/// as the host would. What it calls ends before the first of its deliveries does.
///
/// # Errors
/// Why none of the messages is done.
pub async fn run_batch_async<F: Future<Output = Result<Vec<Failed>, Failure>>>(
    handle: impl FnOnce(Vec<Delivery>) -> F,
    deliveries: Vec<Delivery>,
) -> Result<Vec<Failed>, Failure> {
    let ends = deliveries.iter().map(|delivery| delivery.message.deadline);
    let end_ms = ends.min().unwrap_or(attempt::NEVER);
    let future = attempt::until(end_ms, || handle(deliveries));
    Until::new(end_ms, future).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use typed::{FromBody as _, FromWhole as _};

    /// What `#[plugin]` takes for a type.
    macro_rules! take {
        ($type:ty, $delivery:expr) => {
            (&&typed::Input::<$type>::new()).take($delivery)
        };
    }

    #[test]
    fn plugin_takes_what_the_body_says_or_the_whole_delivery() {
        let delivery = || Delivery::of(testing::message("[7]").id("m-1"));
        assert_eq!(take!(Vec<u8>, delivery()), Ok(vec![7]));
        let whole: Result<Delivery, Failure> = take!(Delivery, delivery());
        assert_eq!(whole.map(|one| one.message.id), Ok("m-1".into()));
        let typed = take!(Typed<Vec<u8>>, delivery());
        assert_eq!(typed.map(|one| one.value), Ok(vec![7]));
        let Err(Failure::Reject(why)) = take!(u8, delivery()) else {
            panic!("it is rejected");
        };
        assert!(why.starts_with("the body: invalid type"), "{why}");
    }
}
