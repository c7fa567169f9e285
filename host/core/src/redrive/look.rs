//! Shows messages of a queue that are selected, without moving any: by listing, or by receiving and
//! giving back.

use super::run::SCAN_LEASE;
use super::{RedriveError, Selection};
use crate::clock;
use crate::message::{Message, Outcome};
use crate::queue::{Ask, GroupShare, Queue, QueueError};
use std::collections::HashSet;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The most messages of one page.
const PAGE: usize = 100;

/// What a look found.
#[derive(Debug, Clone, Default)]
pub struct Looked {
    /// The selected messages.
    pub messages: Vec<Message>,
    /// How many were looked at.
    pub scanned: u64,
    /// How many of them had to be received, and were given back.
    pub received: u64,
    /// How many of those could not be given back, and stay invisible for a while.
    pub not_released: u64,
    /// Whether some were not looked at, since the next receive could be their last.
    pub is_cut: bool,
}

/// Looks for up to `most` selected messages; receives up to `scan` messages where the queue cannot be
/// listed.
pub async fn look(
    queue: &dyn Queue,
    selection: &Selection,
    most: usize,
    scan: u64,
    cancel: &CancellationToken,
) -> Result<Looked, RedriveError> {
    let mut looked = Looked::default();
    let found = match queue.can_browse() {
        true => list(queue, selection, most, cancel, &mut looked).await,
        false => {
            let most_receives = queue.identity().most_receives;
            if most_receives == Some(1) {
                return Err(RedriveError::Refused(format!(
                    "`{}` cannot be looked at: its redrive policy lets a message be received once, and looking is a receive",
                    queue.identity().name
                )));
            }
            let mut held = Vec::new();
            let bounds = (most, scan);
            let found = receive(queue, selection, bounds, cancel, (&mut looked, &mut held)).await;
            looked.received = held.len() as u64;
            looked.not_released = release(queue, &held).await;
            found
        }
    };
    found
        .map(|()| looked)
        .map_err(|error| RedriveError::Source {
            error,
            report: Box::default(),
        })
}

async fn list(
    queue: &dyn Queue,
    selection: &Selection,
    most: usize,
    cancel: &CancellationToken,
    looked: &mut Looked,
) -> Result<(), QueueError> {
    let mut after = None;
    loop {
        let page = queue.browse(after.as_ref(), PAGE).await?;
        let now = clock::wall_clock_now();
        for message in page.messages {
            looked.scanned += 1;
            if selection.matches(&message, now) {
                looked.messages.push(message);
            }
            if looked.messages.len() >= most {
                return Ok(());
            }
        }
        after = page.next;
        if after.is_none() || cancel.is_cancelled() {
            return Ok(());
        }
    }
}

async fn receive(
    queue: &dyn Queue,
    selection: &Selection,
    (most, scan): (usize, u64),
    cancel: &CancellationToken,
    (looked, held): (&mut Looked, &mut Vec<Message>),
) -> Result<(), QueueError> {
    let most_receives = queue.identity().most_receives;
    let mut known = HashSet::new();
    let mut quiet = 0;
    while looked.messages.len() < most && looked.scanned < scan && !cancel.is_cancelled() {
        let left = usize::try_from(scan - looked.scanned).unwrap_or(usize::MAX);
        let ask = Ask {
            max: queue.identity().batch.min(left).max(1),
            visibility: SCAN_LEASE,
            wait: queue.identity().proof_wait,
            groups: GroupShare::Fill,
            ..Ask::PLAIN
        };
        let messages = queue.receive(ask, cancel).await?.messages;
        quiet = if messages.is_empty() { quiet + 1 } else { 0 };
        if quiet >= 2 {
            return Ok(());
        }
        let now = clock::wall_clock_now();
        for message in messages {
            held.push(Message {
                body: String::new(),
                attributes: Vec::new(),
                ..message.clone()
            });
            if !known.insert(message.id.clone()) {
                continue;
            }
            looked.scanned += 1;
            looked.is_cut |= most_receives.is_some_and(|last| message.receive_count + 1 >= last);
            if looked.messages.len() < most && selection.matches(&message, now) {
                looked.messages.push(message);
            }
        }
        if looked.is_cut {
            return Ok(());
        }
    }
    Ok(())
}

async fn release(queue: &dyn Queue, held: &[Message]) -> u64 {
    let mut failed = 0;
    for part in held.chunks(queue.identity().batch.max(1)) {
        let release = |one: &Message| (one.clone(), Outcome::Release(Duration::ZERO));
        let items: Vec<_> = part.iter().map(release).collect();
        let answers = queue.settle(&items).await;
        failed += answers.iter().filter(|answer| answer.is_err()).count() as u64;
    }
    failed
}
