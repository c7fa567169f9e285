//! The same as [`crate::typed`] for version 0.2 of the contract.

pub use super::Delivery;
pub use crate::typed::Input;

use super::{Failure, FromDelivery, HandlerResult, Typed};
use serde::de::DeserializeOwned;

/// The delivery, or what is made of it.
pub trait FromWhole<T> {
    /// Makes it.
    ///
    /// # Errors
    /// Why the message is not done.
    fn take(&self, delivery: Delivery) -> Result<T, Failure>;
}

/// What the body says, in JSON.
pub trait FromBody<T> {
    /// Makes it.
    ///
    /// # Errors
    /// Why the message is not done.
    fn take(&self, delivery: Delivery) -> Result<T, Failure>;
}

// The reference has the method resolution prefer this one where a type has both.
impl<T: FromDelivery> FromWhole<T> for &Input<T> {
    fn take(&self, delivery: Delivery) -> Result<T, Failure> {
        T::from_delivery(delivery)
    }
}

impl<T: DeserializeOwned> FromBody<T> for Input<T> {
    fn take(&self, delivery: Delivery) -> Result<T, Failure> {
        Ok(Typed::from_delivery(delivery)?.value)
    }
}

/// What the function answered.
///
/// # Errors
/// Why the message is not done.
pub fn answer(answered: impl HandlerResult) -> Result<(), Failure> {
    answered.into_result()
}
