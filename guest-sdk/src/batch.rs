//! Batches: which of their messages failed. Knows nothing of how a handler is exported.

use crate::bindings::imports::dispatcher::plugin::types as wire;
use crate::{Failure, Message};

/// One failed message of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The id of a message of the batch. An id that is not in the batch fails the whole batch.
    pub id: String,
    /// What befell it.
    pub failure: Failure,
}

impl Failed {
    /// This message of the batch failed so.
    #[must_use]
    pub fn new(message: impl AsRef<Message>, failure: impl Into<Failure>) -> Self {
        Self {
            id: message.as_ref().id.clone(),
            failure: failure.into(),
        }
    }
}

/// Handles the messages of a batch one by one and lists those that failed. They may be messages or
/// their bodies as a type.
///
/// ```
/// use dispatcher_guest::{Failed, Failure, Json, batch_handler, each};
///
/// #[derive(serde::Deserialize)]
/// struct Payment { cents: u64 }
///
/// fn handle(payments: Vec<Json<Payment>>) -> Result<Vec<Failed>, Failure> {
///     let mut sum = 0;
///     let failed = each(payments, |payment| {
///         if payment.cents == 0 {
///             return Err(Failure::reject("nothing was paid"));
///         }
///         sum += payment.cents;
///         Ok(())
///     });
///     println!("{sum} cents");
///     failed
/// }
///
/// batch_handler!(handle);
/// # fn main() {}
/// ```
///
/// # Errors
/// None; the signature is what [`batch_handler!`](crate::batch_handler) wants.
pub fn each<M: AsRef<Message>>(
    messages: Vec<M>,
    mut handle: impl FnMut(&M) -> Result<(), Failure>,
) -> Result<Vec<Failed>, Failure> {
    Ok(messages
        .iter()
        .filter_map(|message| Some(Failed::new(message, handle(message).err()?)))
        .collect())
}

impl From<Failed> for wire::Failed {
    fn from(failed: Failed) -> Self {
        Self {
            id: failed.id,
            failure: failed.failure.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lists_the_failed_by_id() {
        let message = |id: &str| Message {
            id: id.into(),
            ..Message::default()
        };
        let failed = each(vec![message("a"), message("b")], |message| {
            if message.id == "b" {
                return Err(Failure::reject("b is bad"));
            }
            Ok(())
        });
        let expected = Failed::new(message("b"), Failure::reject("b is bad"));
        assert_eq!(failed, Ok(vec![expected]));
    }
}
