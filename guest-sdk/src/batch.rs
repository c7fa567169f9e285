//! The messages of a batch that failed.

use crate::bindings::imports::dispatcher::plugin::types as wire;
use crate::{Failure, Message};

/// A message of a batch that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The ID of a message of the batch. An ID that is not in the batch fails the whole batch.
    pub id: String,
    /// The failure, which decides what happens to the message.
    pub failure: Failure,
}

impl Failed {
    /// Creates the entry for a message that failed.
    #[must_use]
    pub fn new(message: impl AsRef<Message>, failure: impl Into<Failure>) -> Self {
        Self {
            id: message.as_ref().id.clone(),
            failure: failure.into(),
        }
    }
}

/// Handles the messages of a batch one by one and returns those that failed. Each item is a
/// [`Message`], or a type that contains one, such as [`Json`](crate::Json).
///
/// After a message of a FIFO group fails, the later messages of the group are not handled. They are
/// returned as failed, with a retry, so that the group stays in order.
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
/// Never returns an error. The return type is the one that [`batch_handler!`](crate::batch_handler)
/// accepts.
pub fn each<M: AsRef<Message>>(
    messages: Vec<M>,
    mut handle: impl FnMut(&M) -> Result<(), Failure>,
) -> Result<Vec<Failed>, Failure> {
    let mut stopped = Stopped::default();
    let run = |message: &M| {
        let before = stopped.before(message.as_ref());
        let failed = match before {
            Some(failed) => failed,
            None => Failed::new(message, handle(message).err()?),
        };
        stopped.after(message.as_ref().group.as_deref());
        Some(failed)
    };
    Ok(messages.iter().filter_map(run).collect())
}

/// The groups of a batch in which a message has failed.
#[derive(Default)]
pub(crate) struct Stopped(Vec<String>);

impl Stopped {
    /// Returns a retry for the message if an earlier message of its group has failed.
    pub(crate) fn before(&self, message: &Message) -> Option<Failed> {
        let group = message.group.as_ref()?;
        let is_stopped = self.0.contains(group);
        is_stopped.then(|| Failed::new(message, Failure::retry()))
    }

    /// Records that a message of this group has failed.
    pub(crate) fn after(&mut self, group: Option<&str>) {
        self.0.extend(group.map(str::to_owned));
    }
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
    fn each_stops_a_group_at_its_first_failure() {
        let message = |(id, group): (&str, Option<&str>)| Message {
            id: id.into(),
            group: group.map(str::to_owned),
            ..Message::default()
        };
        let (g, h) = (Some("g"), Some("h"));
        let batch = [
            ("1", g),
            ("2", g),
            ("3", h),
            ("4", g),
            ("5", None),
            ("6", None),
        ];
        let mut seen = Vec::new();
        let failed = each(batch.map(message).into(), |message| {
            seen.push(message.id.clone());
            match message.id.as_str() {
                "2" | "5" => Err(Failure::reject("bad")),
                _ => Ok(()),
            }
        });
        assert_eq!(seen, ["1", "2", "3", "5", "6"]);
        let failed = failed.unwrap().into_iter().map(|it| (it.id, it.failure));
        let bad = || Failure::reject("bad");
        let expected = [("2", bad()), ("4", Failure::retry()), ("5", bad())];
        let expected = expected.map(|(id, failure)| (id.to_owned(), failure));
        assert_eq!(failed.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_lists_failed_messages_by_id() {
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
