//! Deletes a waiting message by its id from a queue that can be listed.

use dispatcher_core::message::{Message, Outcome};
use dispatcher_core::queue::{ErrorKind, Queue, QueueError};
use dispatcher_operate::redrive;
use dispatcher_operate::redrive::{LookBounds, RedriveError};
use dispatcher_operate::select::Selection;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a message is leased for its deletion.
const DELETING: Duration = Duration::from_secs(30);

/// Returns the message of an id, if the backend can look it up directly. Returns `None` if it
/// cannot or lacks the permission; then walking over the queue finds it.
pub(crate) async fn at_once(
    queue: &dyn Queue,
    id: &str,
) -> Result<Option<Option<Message>>, QueueError> {
    if !queue.facts().finds_by_id {
        return Ok(None);
    }
    match queue.find_waiting(id).await {
        Ok(found) => Ok(Some(found)),
        // A role that lists may lack the permission to read one message.
        Err(error) if error.kind == ErrorKind::AccessDenied => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the selection of the message with an id, and the bounds of the search.
pub(crate) fn by_id(id: &str) -> (Selection, LookBounds) {
    let selection = Selection {
        ids: Some([id.to_owned()].into()),
        ..Selection::default()
    };
    let bounds = LookBounds {
        after: None,
        most: 1,
        bytes: u64::MAX,
        // Listing costs no receive, so only the time limits it.
        scan: u64::MAX,
        counts_on: false,
    };
    (selection, bounds)
}

/// Finds a message and deletes it. Returns false if no message with the id waits.
///
/// # Errors
/// Fails if the message waits but cannot be received.
pub(crate) async fn cancel(queue: &Arc<dyn Queue>, id: &str) -> Result<bool, QueueError> {
    let found = match at_once(&**queue, id).await? {
        Some(found) => found,
        None => walk(&**queue, id).await?,
    };
    let Some(found) = found else {
        return Ok(false);
    };
    if remove(queue.clone(), found).await? {
        return Ok(true);
    }
    Err(QueueError {
        kind: ErrorKind::Transient,
        message: format!(
            "message `{id}` cannot be taken now: another consumer has just received it, or an \
             earlier message of its group must go first"
        ),
    })
}

async fn walk(queue: &dyn Queue, id: &str) -> Result<Option<Message>, QueueError> {
    let (selection, bounds) = by_id(id);
    let never = CancellationToken::new();
    let looked = redrive::look(queue, &selection, &bounds, &never)
        .await
        .map_err(|error| match error {
            RedriveError::Source { error, .. } => error,
            RedriveError::Refused(why) => QueueError {
                kind: ErrorKind::Invalid,
                message: why.to_string(),
            },
        })?;
    Ok(looked.messages.into_iter().next())
}

/// Deletes a listed message. Returns false if it cannot be received.
pub(crate) async fn remove(queue: Arc<dyn Queue>, listed: Message) -> Result<bool, QueueError> {
    let leased = queue.receive_these(&[listed.receipt], DELETING).await?;
    let Some(message) = leased.into_iter().next() else {
        return Ok(false);
    };
    let answers = queue.settle(&[(message, Outcome::Delete)]).await;
    match answers.into_iter().next() {
        Some(Ok(())) => Ok(true),
        Some(Err(error)) => Err(QueueError {
            kind: ErrorKind::Transient,
            message: error.to_string(),
        }),
        None => Ok(false),
    }
}
