//! Converts a message to the first parameter of a function that [`plugin`](crate::plugin) exports:
//! the message, a type that implements [`FromMessage`], or the parsed body.

use crate::{Failure, FromMessage, Json, Message};
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// The type of a function's first parameter.
#[derive(Debug)]
pub struct Input<T>(PhantomData<T>);

impl<T> Input<T> {
    /// Creates a value that stands for the type.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only a macro makes it")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

/// Converts the whole message to a `T`.
pub trait FromWhole<T> {
    /// Converts the message.
    ///
    /// # Errors
    /// Returns the failure of the message if it cannot be converted.
    fn take(&self, message: Message) -> Result<T, Failure>;
}

/// Parses the body as JSON.
pub trait FromBody<T> {
    /// Parses the body of the message.
    ///
    /// # Errors
    /// Returns [`Failure::Reject`] if the body cannot be parsed as a `T`.
    fn take(&self, message: Message) -> Result<T, Failure>;
}

// Because of the reference, method resolution prefers this one if a type has both.
impl<T: FromMessage> FromWhole<T> for &Input<T> {
    fn take(&self, message: Message) -> Result<T, Failure> {
        T::from_message(message).map_err(|failed| failed.failure)
    }
}

impl<T: DeserializeOwned> FromBody<T> for Input<T> {
    fn take(&self, message: Message) -> Result<T, Failure> {
        let json = Json::from_message(message).map_err(|failed| failed.failure)?;
        Ok(json.value)
    }
}
