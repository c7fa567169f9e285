//! What [`plugin`](crate::plugin) calls: how what a function takes is made of a message, whether that is
//! the message, something made of it, or what its body says.

pub use crate::Message as Delivery;

use crate::{Answer, Failure, FromMessage, Json};
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// What a function takes.
#[derive(Debug)]
pub struct Input<T>(PhantomData<T>);

impl<T> Input<T> {
    /// Stands for the type.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only a macro makes it")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

/// The message, or what is made of it.
pub trait FromWhole<T> {
    /// Makes it.
    ///
    /// # Errors
    /// Why the message is not done.
    fn take(&self, message: Delivery) -> Result<T, Failure>;
}

/// What the body says, in JSON.
pub trait FromBody<T> {
    /// Makes it.
    ///
    /// # Errors
    /// Why the message is not done.
    fn take(&self, message: Delivery) -> Result<T, Failure>;
}

// The reference has the method resolution prefer this one where a type has both.
impl<T: FromMessage> FromWhole<T> for &Input<T> {
    fn take(&self, message: Delivery) -> Result<T, Failure> {
        T::from_message(message).map_err(|failed| failed.failure)
    }
}

impl<T: DeserializeOwned> FromBody<T> for Input<T> {
    fn take(&self, message: Delivery) -> Result<T, Failure> {
        let json = Json::from_message(message).map_err(|failed| failed.failure)?;
        Ok(json.value)
    }
}

/// What the function answered.
///
/// # Errors
/// Why the message is not done.
pub fn answer(answered: impl Answer) -> Result<(), Failure> {
    answered.into_result()
}
