//! Walks over waiting messages without receiving them, receives chosen ones, and purges a queue.
//! Pure steps on a connection that take `now` as an argument.

use super::deliver::{look_at, take};
use super::groups::set_head;
use super::settle::remove;
use super::turn::{LocalDelivery, QueueId, Turn};
use dispatcher_core::message::{Message, Receipt};
use dispatcher_core::queue::{BrowseCursor, BrowsePage, PurgeStep};
use rusqlite::{OptionalExtension, params};
use std::collections::HashMap;
use std::time::Duration;

/// The maximum number of rows that are read for one page, those of other queues included. Other
/// callers wait for the thread meanwhile.
const ROWS: i64 = 10_000;
/// The number of bytes of bodies and attributes at which a page ends.
const PAGE_BYTES: u64 = 8 << 20;
/// The maximum number of messages that one transaction removes.
const AT_ONCE: u64 = 500;

/// The rows after a given one, in the order of sending, and whether each waits in this queue.
const WALK: &str = "SELECT seq, queue = ?1 AND visible_at <= ?2 FROM entries NOT INDEXED
     WHERE seq > ?3 ORDER BY seq LIMIT ?4";
/// The rows after a given one, in the order of sending, and whether each is the message with the
/// given id and waits in this queue. The query only reads payloads of messages that wait in this
/// queue.
const SEARCH: &str = "SELECT seq, CASE WHEN queue = ?1 AND visible_at <= ?2 THEN
         (SELECT id FROM payloads WHERE payloads.seq = coalesce(entries.payload, entries.seq)) = ?3
         ELSE 0 END
     FROM entries NOT INDEXED WHERE seq > ?4 ORDER BY seq LIMIT ?5";
/// The columns of a message that are needed before it is received.
const CHOSEN: &str = "SELECT message_group, receive_count FROM entries
     WHERE seq = ?1 AND queue = ?2 AND visible_at <= ?3";
/// Whether a message of a group is in flight.
const BUSY: &str = "SELECT 1 FROM entries
     WHERE queue = ?1 AND message_group = ?2 AND in_flight = 1 AND visible_at > ?3 LIMIT 1";

/// Returns a page of the messages that wait after this row.
pub(super) fn page(
    turn: &Turn<'_>,
    (queue, name): (QueueId, &str),
    after: i64,
    max: usize,
) -> rusqlite::Result<BrowsePage> {
    let mut page = BrowsePage::default();
    let mut walk = turn.connection.prepare_cached(WALK)?;
    let mut rows = walk.query(params![queue, turn.now, after, ROWS])?;
    let (mut seen, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        let (seq, waits): (i64, bool) = (row.get(0)?, row.get(1)?);
        seen += 1;
        if waits && let Some(mut message) = look_at(turn, seq, name).optional()? {
            bytes += message.held_bytes();
            let count = i64::from(message.receive_count);
            message.receipt = LocalDelivery { seq, count }.receipt();
            page.messages.push(message);
        }
        let is_full = page.messages.len() >= max || bytes >= PAGE_BYTES;
        if is_full || seen == ROWS {
            page.next = Some(cursor(seq));
            break;
        }
    }
    Ok(page)
}

/// The result of a search for an id.
#[derive(Debug)]
pub(super) enum Search {
    /// The waiting message of the id.
    Found(Box<Message>),
    /// The message is not among the rows up to this one. More rows follow.
    Beyond(i64),
    /// No message of the id waits.
    Ended,
}

/// Searches up to `ROWS` rows after this one for the message of an id.
pub(super) fn find(
    turn: &Turn<'_>,
    (queue, name): (QueueId, &str),
    id: &str,
    after: i64,
) -> rusqlite::Result<Search> {
    let mut search = turn.connection.prepare_cached(SEARCH)?;
    let mut rows = search.query(params![queue, turn.now, id, after, ROWS])?;
    let (mut seen, mut last) = (0, after);
    while let Some(row) = rows.next()? {
        let is_it: Option<bool>;
        (last, is_it) = (row.get(0)?, row.get(1)?);
        seen += 1;
        if is_it == Some(true) {
            let mut message = look_at(turn, last, name)?;
            let count = i64::from(message.receive_count);
            message.receipt = LocalDelivery { seq: last, count }.receipt();
            return Ok(Search::Found(Box::new(message)));
        }
    }
    Ok(if seen < ROWS {
        Search::Ended
    } else {
        Search::Beyond(last)
    })
}

/// Returns the cursor after the last message ever sent.
pub(super) fn end(turn: &Turn<'_>) -> rusqlite::Result<BrowseCursor> {
    let last: Option<i64> = turn
        .connection
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'entries'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(cursor(last.unwrap_or_default()))
}

fn cursor(seq: i64) -> BrowseCursor {
    BrowseCursor(seq.to_string())
}

/// Returns the row after which a page begins; `None` if the cursor is not one of this backend.
pub(super) fn row_of(after: Option<&BrowseCursor>) -> Option<i64> {
    after.map_or(Some(0), |cursor| cursor.0.parse().ok())
}

/// Takes the chosen messages that wait. If groups are kept in order, skips a message while another
/// one of its group is in flight.
pub(super) fn take_chosen(
    turn: &mut Turn<'_>,
    queue: QueueId,
    chosen: &[Receipt],
    visibility: Duration,
    in_order: bool,
) -> rusqlite::Result<Vec<LocalDelivery>> {
    let mut taken = Vec::with_capacity(chosen.len());
    let mut groups: HashMap<String, bool> = HashMap::new();
    for receipt in chosen {
        let Ok(LocalDelivery { seq, .. }) = LocalDelivery::parse(receipt) else {
            continue;
        };
        let row = turn
            .connection
            .prepare_cached(CHOSEN)?
            .query_row(params![seq, queue, turn.now], |row| {
                Ok((row.get::<_, Option<String>>(0)?, row.get::<_, i64>(1)?))
            })
            .optional()?;
        let Some((group, receives)) = row else {
            continue;
        };
        if let Some(group) = group {
            let is_free = match groups.get(&group) {
                Some(free) => *free,
                None => !in_order || !is_busy(turn, queue, &group)?,
            };
            groups.insert(group, is_free);
            if !is_free {
                continue;
            }
        }
        let count = receives + 1;
        take(turn, seq, count, visibility)?;
        taken.push(LocalDelivery { seq, count });
    }
    for (group, _) in groups {
        set_head(turn, queue, &group)?;
    }
    Ok(taken)
}

fn is_busy(turn: &Turn<'_>, queue: QueueId, group: &str) -> rusqlite::Result<bool> {
    turn.connection
        .prepare_cached(BUSY)?
        .exists(params![queue, group, turn.now])
}

/// Reads the messages that were taken, after the commit. Leaves out messages deleted since then.
pub(super) fn read(
    turn: &Turn<'_>,
    name: &str,
    taken: &[LocalDelivery],
) -> rusqlite::Result<Vec<Message>> {
    let mut messages = Vec::with_capacity(taken.len());
    for delivery in taken {
        if let Some(mut message) = look_at(turn, delivery.seq, name).optional()? {
            message.receipt = delivery.receipt();
            messages.push(message);
        }
    }
    Ok(messages)
}

/// Removes up to `AT_ONCE` messages that are not in flight.
pub(super) fn purge(turn: &mut Turn<'_>, queue: QueueId) -> rusqlite::Result<PurgeStep> {
    let rows: Vec<(i64, Option<String>)> = turn
        .connection
        .prepare_cached(
            "SELECT seq, message_group FROM entries
             WHERE queue = ?1 AND (in_flight = 0 OR visible_at <= ?2) ORDER BY seq LIMIT ?3",
        )?
        .query_map(params![queue, turn.now, AT_ONCE as i64], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let removed = rows.len() as u64;
    for (seq, group) in rows {
        remove(turn, queue, seq, group.as_deref())?;
    }
    let has_more = removed == AT_ONCE;
    if !has_more {
        // As after a purge in SQS, a removed message may be sent again. A message in flight may
        // not.
        turn.connection
            .prepare_cached(
                "DELETE FROM sent_before WHERE queue = ?1
                 AND NOT EXISTS (SELECT 1 FROM entries WHERE entries.seq = sent_before.seq)",
            )?
            .execute(params![queue])?;
    }
    Ok(PurgeStep {
        removed: Some(removed),
        has_more,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::time::StoreTime;
    use crate::queue::{deliver, look, schema};
    use dispatcher_core::message::OutgoingMessage;

    fn sent(turn: &mut Turn<'_>, name: &str, bodies: &[&str]) -> QueueId {
        let queue = look::queue_id(turn.connection, name).unwrap();
        let items: Vec<OutgoingMessage> = bodies
            .iter()
            .map(|body| OutgoingMessage {
                body: (*body).to_owned(),
                ..OutgoingMessage::default()
            })
            .collect();
        deliver::send(turn, queue, &items).unwrap();
        queue
    }

    fn bodies(page: &BrowsePage) -> Vec<&str> {
        page.messages.iter().map(|one| one.body.as_str()).collect()
    }

    #[test]
    fn a_walk_passes_by_the_rows_of_other_queues() {
        let connection = schema::in_memory();
        let mut turn = Turn::new(&connection, StoreTime(1_000));
        let queue = sent(&mut turn, "q", &["1"]);
        sent(&mut turn, "other", &["x", "y"]);
        sent(&mut turn, "q", &["2", "3"]);
        let first = page(&turn, (queue, "local:q"), 0, 2).unwrap();
        assert_eq!(bodies(&first), ["1", "2"]);
        let after = row_of(first.next.as_ref()).unwrap();
        let second = page(&turn, (queue, "local:q"), after, 2).unwrap();
        assert_eq!(bodies(&second), ["3"]);
        assert_eq!(second.next, None);
        assert_eq!(row_of(Some(&end(&turn).unwrap())), Some(5));
    }

    #[test]
    fn a_message_is_found_by_its_id_among_those_of_other_queues() {
        let connection = schema::in_memory();
        let mut turn = Turn::new(&connection, StoreTime(1_000));
        sent(&mut turn, "other", &["x"]);
        let queue = sent(&mut turn, "q", &["1", "2"]);
        let all = page(&turn, (queue, "local:q"), 0, 9).unwrap().messages;
        let id = &all[1].id;
        let Search::Found(message) = find(&turn, (queue, "local:q"), id, 0).unwrap() else {
            panic!("it waits");
        };
        assert_eq!(*message, all[1]);
        let other = look::queue_id(turn.connection, "other").unwrap();
        let of_other = find(&turn, (other, "local:q"), id, 0).unwrap();
        assert!(matches!(of_other, Search::Ended));
        let chosen = [all[1].receipt.clone()];
        take_chosen(&mut turn, queue, &chosen, Duration::from_secs(60), true).unwrap();
        let held = find(&turn, (queue, "local:q"), id, 0).unwrap();
        assert!(matches!(held, Search::Ended), "it is held");
    }

    #[test]
    fn a_purge_leaves_what_is_in_flight() {
        let connection = schema::in_memory();
        let mut turn = Turn::new(&connection, StoreTime(1_000));
        let queue = sent(&mut turn, "q", &["1", "2", "3"]);
        let all = page(&turn, (queue, "local:q"), 0, 9).unwrap().messages;
        let chosen = [all[1].receipt.clone()];
        let hour = Duration::from_secs(3_600);
        assert_eq!(
            take_chosen(&mut turn, queue, &chosen, hour, true)
                .unwrap()
                .len(),
            1
        );
        let step = purge(&mut turn, queue).unwrap();
        assert_eq!((step.removed, step.has_more), (Some(2), false));
        assert_eq!(look::depth(&turn, queue).unwrap().in_flight, 1);
    }
}
