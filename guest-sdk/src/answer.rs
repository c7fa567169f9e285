//! The return types of handlers, and the functions that call a handler.

use crate::attempt::{self, NEVER, Until};
use crate::input::{FromMessage, sort};
use crate::{Failed, Failure, Message};

/// The return type of a handler of one message: `()`, or a `Result` whose error says what happens
/// to the message.
///
/// Any `std::error::Error` means a retry. A [`Reject`](crate::Reject) around an error means a
/// rejection. A [`Failure`] covers all cases.
///
/// ```
/// use dispatcher_guest::{Failure, Message, Reject, handler, testing};
/// use std::num::ParseIntError;
///
/// fn handle(message: Message) -> Result<(), Reject<ParseIntError>> {
///     let number: u64 = message.body.parse().map_err(Reject)?;
///     println!("{number}");
///     Ok(())
/// }
///
/// handler!(handle);
/// # fn main() {
/// let rejected = Failure::reject("invalid digit found in string");
/// assert_eq!(testing::run(handle, testing::message("many")), Err(rejected));
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "a handler cannot answer `{Self}`",
    note = "it answers `()` or `Result<(), E>`, where `E` is `Failure`, a `std::error::Error`, a `Reject<…>` or something that a `Failure` can be made from; `anyhow::Error` is none of them: `.or_retry()?` inside of the handler makes a failure of it"
)]
pub trait Answer {
    /// Converts the value to a result.
    ///
    /// # Errors
    /// Returns the failure if the message is not done.
    fn into_result(self) -> Result<(), Failure>;
}

impl Answer for () {
    fn into_result(self) -> Result<(), Failure> {
        Ok(())
    }
}

impl<E: Into<Failure>> Answer for Result<(), E> {
    fn into_result(self) -> Result<(), Failure> {
        self.map_err(Into::into)
    }
}

/// The return type of a handler of batches: `()` if all messages are done, the list of the messages
/// that failed, or a `Result` whose error fails all messages.
#[diagnostic::on_unimplemented(
    message = "a handler of batches cannot answer `{Self}`",
    note = "it answers `()`, `Vec<Failed>`, `Result<(), E>` or `Result<Vec<Failed>, E>`, where `E` is `Failure`, a `std::error::Error` or something that a `Failure` can be made from"
)]
pub trait BatchAnswer {
    /// Converts the value to the list of the messages that failed.
    ///
    /// # Errors
    /// Returns the failure of all messages if the handler returned an error.
    fn into_failed(self) -> Result<Vec<Failed>, Failure>;
}

impl BatchAnswer for () {
    fn into_failed(self) -> Result<Vec<Failed>, Failure> {
        Ok(Vec::new())
    }
}

impl BatchAnswer for Vec<Failed> {
    fn into_failed(self) -> Result<Self, Failure> {
        Ok(self)
    }
}

impl<E: Into<Failure>> BatchAnswer for Result<(), E> {
    fn into_failed(self) -> Result<Vec<Failed>, Failure> {
        self.map(|()| Vec::new()).map_err(Into::into)
    }
}

impl<E: Into<Failure>> BatchAnswer for Result<Vec<Failed>, E> {
    fn into_failed(self) -> Result<Vec<Failed>, Failure> {
        self.map_err(Into::into)
    }
}

/// Runs a function on one message. [`handler!`](crate::handler) exports it.
#[doc(hidden)]
pub fn one<I: FromMessage, A: Answer>(
    handle: impl FnOnce(I) -> A,
    message: Message,
) -> Result<(), Failure> {
    let end_ms = message.deadline;
    let input = I::from_message(message).map_err(|failed| failed.failure)?;
    attempt::until(end_ms, || handle(input)).into_result()
}

/// Runs an `async` function on one message. [`async_handler!`](crate::async_handler) exports it.
#[doc(hidden)]
pub async fn one_async<I: FromMessage, A: Answer, F: Future<Output = A>>(
    handle: impl FnOnce(I) -> F,
    message: Message,
) -> Result<(), Failure> {
    let end_ms = message.deadline;
    let input = I::from_message(message).map_err(|failed| failed.failure)?;
    let future = attempt::until(end_ms, || handle(input));
    Until::new(end_ms, future).await.into_result()
}

/// Returns the earliest deadline of the messages, or [`NEVER`] if there are none.
fn first_end(messages: &[Message]) -> u64 {
    let ends = messages.iter().map(|message| message.deadline);
    ends.min().unwrap_or(NEVER)
}

/// Runs a function on a batch. [`batch_handler!`](crate::batch_handler) exports it.
#[doc(hidden)]
pub fn many<I: FromMessage, A: BatchAnswer>(
    handle: impl FnOnce(Vec<I>) -> A,
    messages: Vec<Message>,
) -> Result<Vec<Failed>, Failure> {
    let end_ms = first_end(&messages);
    let (inputs, mut failed) = sort(messages);
    if !inputs.is_empty() {
        failed.extend(attempt::until(end_ms, || handle(inputs)).into_failed()?);
    }
    Ok(failed)
}

/// Runs an `async` function on a batch. [`async_batch_handler!`](crate::async_batch_handler)
/// exports it.
#[doc(hidden)]
pub async fn many_async<I: FromMessage, A: BatchAnswer, F: Future<Output = A>>(
    handle: impl FnOnce(Vec<I>) -> F,
    messages: Vec<Message>,
) -> Result<Vec<Failed>, Failure> {
    let end_ms = first_end(&messages);
    let (inputs, mut failed) = sort(messages);
    if !inputs.is_empty() {
        let future = attempt::until(end_ms, || handle(inputs));
        failed.extend(Until::new(end_ms, future).await.into_failed()?);
    }
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Json, each, testing};
    use std::time::Duration;

    fn batch(bodies: &[&str]) -> Vec<Message> {
        let message =
            |(index, body): (usize, &&str)| testing::message(*body).id(format!("m{index}")).build();
        bodies.iter().enumerate().map(message).collect()
    }

    #[test]
    fn malformed_messages_of_a_batch_are_rejected_and_not_passed_to_the_handler() {
        let mut seen = Vec::new();
        let failed = many(
            |numbers: Vec<Json<u8>>| {
                each(numbers, |number| {
                    seen.push(number.value);
                    match number.value {
                        7 => Err(Failure::retry()),
                        _ => Ok(()),
                    }
                })
            },
            batch(&["1", "one", "7"]),
        );
        let failed: Vec<_> = failed.unwrap().into_iter().map(|it| it.id).collect();
        assert_eq!((seen, failed), (vec![1, 7], vec!["m1".into(), "m2".into()]));
    }

    #[test]
    fn messages_behind_a_malformed_one_in_their_group_do_not_run() {
        let mut messages = batch(&["1", "one", "2", "3"]);
        for message in &mut messages[..3] {
            message.group = Some("g".into());
        }
        let mut seen = Vec::new();
        let run = |numbers: Vec<Json<u8>>| seen.extend(numbers.iter().map(|number| number.value));
        let failed = many(run, messages).unwrap();
        assert_eq!(seen, [1, 3]);
        assert_eq!(
            failed[1],
            Failed {
                id: "m2".into(),
                failure: Failure::retry(),
            }
        );
        assert_eq!(failed.len(), 2);
    }

    #[test]
    fn handler_is_not_called_when_all_messages_are_malformed() {
        let run = |_: Vec<Json<u8>>| -> () { panic!("it was run") };
        assert_eq!(many(run, batch(&["x"])).map(|failed| failed.len()), Ok(1));
    }

    #[test]
    fn batch_deadline_is_the_earliest_and_is_cleared_afterwards() {
        let mut messages = batch(&["1", "2"]);
        messages[1].deadline = 5;
        let mut end = None;
        let run = |_: Vec<Message>| end = attempt::end_ms();
        assert_eq!(many(run, messages), Ok(Vec::new()));
        assert_eq!((end, attempt::end_ms()), (Some(5), None));
    }

    #[test]
    fn plain_error_is_a_retry_and_a_marked_error_a_rejection() {
        let message = || testing::message("x").build();
        let retry = one(
            |message: Message| message.body.parse::<u8>().map(drop),
            message(),
        );
        let why = "invalid digit found in string";
        assert_eq!(retry, Err(Failure::retry_because(why)));
        let later = Failure::retry_after(Duration::from_secs(1));
        assert_eq!(one(|_: Message| Err(later.clone()), message()), Err(later));
        assert_eq!(one(|_: Message| (), message()), Ok(()));
    }
}
