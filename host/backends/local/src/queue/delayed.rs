//! Delayed messages that have not been received yet: lists and cancels them. Pure steps on a
//! connection that take `now` as an argument.

use super::deliver::decode;
use super::settle::remove;
use super::time::StoreTime;
use super::turn::{QueueId, Turn};
use dispatcher_core::backend::DelayedMessage as Delayed;
use dispatcher_core::message::OutgoingMessage;
use rusqlite::{OptionalExtension, params};

/// Messages that no consumer holds and that are not visible yet: delayed by the sender, or waiting
/// for a retry.
const LATER: &str = "e.visible_at > ?1 AND e.in_flight = 0";
/// Messages that were never received and are not visible yet.
const WAITING: &str = "e.visible_at > ?1 AND e.in_flight = 0 AND e.receive_count = 0";

/// Returns the delayed messages of this queue, or of all queues: the soonest first, at most `most`.
pub(super) fn list(
    turn: &Turn<'_>,
    queue: Option<&str>,
    most: usize,
) -> rusqlite::Result<Vec<Delayed>> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let sql = format!(
        "SELECT p.id, q.name, e.visible_at, p.body, coalesce(e.attributes, p.attributes),
                e.message_group
         FROM queues q JOIN entries e ON e.queue = q.id
              JOIN payloads p ON p.seq = coalesce(e.payload, e.seq)
         WHERE {WAITING} AND (?2 IS NULL OR q.name = ?2) ORDER BY e.visible_at, e.seq LIMIT ?3"
    );
    let mut find = turn.connection.prepare_cached(&sql)?;
    let rows = find.query_map(params![turn.now, queue, most], |row| {
        let due: StoreTime = row.get(2)?;
        let attributes: Option<String> = row.get(4)?;
        Ok(Delayed {
            id: row.get(0)?,
            queue: row.get(1)?,
            due: turn.date(due),
            message: OutgoingMessage {
                body: row.get(3)?,
                attributes: decode(attributes.as_deref(), 4)?,
                delay: due.since(turn.now),
                group: row.get(5)?,
                ..OutgoingMessage::default()
            },
        })
    })?;
    rows.collect()
}

/// Cancels a delayed message. Returns false if no message of this id is delayed in the queue. The
/// next message of its group moves up.
pub(super) fn cancel(turn: &mut Turn<'_>, queue: &str, id: &str) -> rusqlite::Result<bool> {
    remove_one(turn, WAITING, queue, id)
}

/// Cancels a message that is delayed or waits for its retry. Returns false if there is none of this
/// id.
pub(super) fn cancel_later(turn: &mut Turn<'_>, queue: &str, id: &str) -> rusqlite::Result<bool> {
    remove_one(turn, LATER, queue, id)
}

fn remove_one(turn: &mut Turn<'_>, which: &str, queue: &str, id: &str) -> rusqlite::Result<bool> {
    let sql = format!(
        "SELECT e.seq, e.queue, e.message_group
         FROM queues q JOIN entries e ON e.queue = q.id
              JOIN payloads p ON p.seq = coalesce(e.payload, e.seq)
         WHERE {which} AND q.name = ?2 AND p.id = ?3"
    );
    let found = turn
        .connection
        .prepare_cached(&sql)?
        .query_row(params![turn.now, queue, id], |row| {
            let group: Option<String> = row.get(2)?;
            Ok((row.get::<_, i64>(0)?, row.get::<_, QueueId>(1)?, group))
        })
        .optional()?;
    let Some((seq, queue, group)) = found else {
        return Ok(false);
    };
    remove(turn, queue, seq, group.as_deref())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{claim, deliver, look, schema};
    use dispatcher_core::message::Attribute;
    use dispatcher_core::queue::Ask;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn later(body: &str, delay: Duration, group: Option<&str>) -> OutgoingMessage {
        OutgoingMessage {
            body: body.into(),
            attributes: vec![Attribute::text("k", "v")],
            delay,
            group: group.map(str::to_owned),
            ..OutgoingMessage::default()
        }
    }

    #[test]
    fn delayed_messages_are_listed_and_can_be_cancelled_until_due() {
        let connection = schema::in_memory();
        let mut turn = Turn::new(&connection, StoreTime(1_000));
        let queue = look::queue_id(&connection, "q").unwrap();
        let items = [
            later("far", HOUR * 2, None),
            later("near", HOUR, None),
            later("now", Duration::ZERO, None),
        ];
        let sent = deliver::send(&mut turn, queue, &items).unwrap();
        let found = list(&turn, Some("q"), 100).unwrap();
        let bodies: Vec<_> = found.iter().map(|one| one.message.body.as_str()).collect();
        assert_eq!(bodies, ["near", "far"]);
        assert_eq!(found[0].message, items[1]);
        assert_eq!(list(&turn, Some("other"), 100).unwrap(), []);
        let near = sent[1].clone().unwrap();
        assert!(!cancel(&mut turn, "other", &near).unwrap());
        assert!(cancel(&mut turn, "q", &near).unwrap());
        assert!(!cancel(&mut turn, "q", &near).unwrap());
        assert!(!cancel(&mut turn, "q", sent[2].as_ref().unwrap()).unwrap());
        turn.now = turn.now + HOUR * 2;
        assert_eq!(list(&turn, None, 100).unwrap(), []);
        assert!(!cancel(&mut turn, "q", sent[0].as_ref().unwrap()).unwrap());
    }

    #[test]
    fn next_message_of_a_group_moves_up_when_its_head_is_cancelled() {
        let connection = schema::in_memory();
        let mut turn = Turn::new(&connection, StoreTime(1_000));
        let queue = look::queue_id(&connection, "q").unwrap();
        let items = [
            later("first", HOUR, Some("g")),
            later("second", Duration::ZERO, Some("g")),
        ];
        let sent = deliver::send(&mut turn, queue, &items).unwrap();
        assert!(cancel(&mut turn, "q", sent[0].as_ref().unwrap()).unwrap());
        let ask = Ask {
            max: 5,
            visibility: HOUR,
            wait: Duration::ZERO,
            ..Ask::PLAIN
        };
        let received = claim::receive(&mut turn, queue, "local:q", ask).unwrap();
        assert_eq!(received.messages.len(), 1);
        assert_eq!(received.messages[0].body, "second");
    }
}
