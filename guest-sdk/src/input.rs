//! The parameter types of handlers: the message, its body as a type, or a batch of either.

use crate::batch::Stopped;
use crate::{Failed, Failure, Message};
use serde::de::DeserializeOwned;
use std::ops::{Deref, DerefMut};

/// A type that a handler can take instead of the [`Message`].
///
/// [`Json`] implements it. You can implement it for your own type:
///
/// ```
/// use dispatcher_guest::{Failed, Failure, FromMessage, Message, handler};
///
/// /// A body such as `12;ship`.
/// struct Order { number: u32, verb: String }
///
/// impl FromMessage for Order {
///     fn from_message(message: Message) -> Result<Self, Failed> {
///         let read = || {
///             let (number, verb) = message.body.split_once(';')?;
///             Some(Self { number: number.parse().ok()?, verb: verb.into() })
///         };
///         read().ok_or_else(|| Failed::new(&message, Failure::reject("wanted NUMBER;VERB")))
///     }
/// }
///
/// fn handle(order: Order) {
///     println!("{} {}", order.verb, order.number);
/// }
///
/// handler!(handle);
/// # fn main() {}
/// ```
#[diagnostic::on_unimplemented(
    message = "a handler cannot take `{Self}`",
    note = "it takes a `Message`, a `Json<T>` where `T: serde::de::DeserializeOwned`, or a type of yours that is `FromMessage`; for batches a `Vec` of one of them"
)]
pub trait FromMessage: Sized {
    /// Converts the message to this type.
    ///
    /// # Errors
    /// Returns the failure of the message if it cannot be converted. The handler does not get the
    /// message.
    fn from_message(message: Message) -> Result<Self, Failed>;
}

impl FromMessage for Message {
    fn from_message(message: Message) -> Result<Self, Failed> {
        Ok(message)
    }
}

/// A message whose body is parsed as JSON of type `T`. It dereferences to the parsed value.
///
/// If the body cannot be parsed as a `T`, the message is rejected and the handler does not get it,
/// because a retry would fail, too. The reason says where and why parsing failed.
///
/// ```
/// use dispatcher_guest::{Failure, Json, handler, testing};
///
/// #[derive(serde::Deserialize)]
/// struct Order { id: String, amount: u64 }
///
/// fn handle(order: Json<Order>) -> Result<(), Failure> {
///     println!("{}: {} cents, attempt {}", order.id, order.amount, order.message.attempt);
///     Ok(())
/// }
///
/// handler!(handle);
///
/// # fn main() {
/// assert_eq!(testing::run(handle, testing::json(r#"{"id": "o-1", "amount": 250}"#)), Ok(()));
/// let why = "the body: missing field `amount` at line 1 column 13";
/// assert_eq!(testing::run(handle, testing::message(r#"{"id": "o-2"}"#)), Err(Failure::reject(why)));
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Json<T> {
    /// The parsed body.
    pub value: T,
    /// The message, including its body.
    pub message: Message,
}

impl<T> Deref for Json<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Json<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> AsRef<Message> for Json<T> {
    fn as_ref(&self) -> &Message {
        &self.message
    }
}

impl AsRef<Self> for Message {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<T: DeserializeOwned> FromMessage for Json<T> {
    fn from_message(message: Message) -> Result<Self, Failed> {
        match message.json() {
            Ok(value) => Ok(Self { value, message }),
            Err(failure) => Err(Failed {
                id: message.id,
                failure,
            }),
        }
    }
}

impl Message {
    /// Parses the body as JSON.
    ///
    /// ```
    /// use dispatcher_guest::{Failure, Message};
    ///
    /// fn handle(message: Message) -> Result<(), Failure> {
    ///     let numbers: Vec<i64> = message.json()?;
    ///     println!("{}", numbers.iter().sum::<i64>());
    ///     Ok(())
    /// }
    /// # assert!(matches!(handle(Message::default()), Err(Failure::Reject(_))));
    /// ```
    ///
    /// # Errors
    /// Returns [`Failure::Reject`] if the body cannot be parsed as a `T`, because a retry would
    /// fail, too. The reason says where and why parsing failed.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let read = match &self.bytes {
            Some(bytes) => serde_json::from_slice(bytes),
            None => serde_json::from_str(&self.body),
        };
        read.map_err(|error| Failure::reject(format!("the body: {error}")))
    }
}

/// Splits a batch into the values that the handler gets, and the messages that it does not get:
/// those that cannot be converted, and the later messages of their groups.
pub(crate) fn sort<I: FromMessage>(messages: Vec<Message>) -> (Vec<I>, Vec<Failed>) {
    let (mut made, mut failed) = (Vec::new(), Vec::new());
    let mut stopped = Stopped::default();
    for message in messages {
        if let Some(not_run) = stopped.before(&message) {
            failed.push(not_run);
            continue;
        }
        let group = message.group.clone();
        match I::from_message(message) {
            Ok(input) => made.push(input),
            Err(why) => {
                stopped.after(group.as_deref());
                failed.push(why);
            }
        }
    }
    (made, failed)
}
