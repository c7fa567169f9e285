//! Settings that operators change on queues, in a table of named texts. Pure steps on a connection.
//! The first change creates the table, which is not part of the file's version.

use super::turn::Turn;
use dispatcher_core::control::{ControlChange, QueueControl};
use rusqlite::{OptionalExtension, params};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS queue_controls (
    queue TEXT NOT NULL,
    field TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (queue, field)
) WITHOUT ROWID";

/// Returns the operators' settings of each of these queues.
pub(super) fn read(turn: &Turn<'_>, queues: &[String]) -> rusqlite::Result<Vec<QueueControl>> {
    let exists = turn
        .connection
        .prepare_cached("SELECT 1 FROM sqlite_master WHERE name = 'queue_controls'")?
        .query_row([], |_| Ok(()))
        .optional()?
        .is_some();
    if !exists {
        return Ok(vec![QueueControl::default(); queues.len()]);
    }
    let mut find = turn
        .connection
        .prepare_cached("SELECT field, value FROM queue_controls WHERE queue = ?1")?;
    let mut controls = Vec::with_capacity(queues.len());
    for queue in queues {
        let rows = find.query_map(params![queue], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let stored: Vec<(String, String)> = rows.collect::<rusqlite::Result<_>>()?;
        let fields = stored.iter().map(|(field, value)| (&**field, &**value));
        controls.push(QueueControl::of_fields(fields));
    }
    Ok(controls)
}

/// Changes the operators' settings of a queue.
pub(super) fn change(turn: &Turn<'_>, queue: &str, change: &ControlChange) -> rusqlite::Result<()> {
    turn.connection.execute_batch(TABLE)?;
    for (field, value) in change.fields() {
        match value {
            Some(value) => turn
                .connection
                .prepare_cached(
                    "INSERT INTO queue_controls (queue, field, value) VALUES (?1, ?2, ?3)
                     ON CONFLICT (queue, field) DO UPDATE SET value = ?3",
                )?
                .execute(params![queue, field, value])?,
            None => turn
                .connection
                .prepare_cached("DELETE FROM queue_controls WHERE queue = ?1 AND field = ?2")?
                .execute(params![queue, field])?,
        };
    }
    Ok(())
}
