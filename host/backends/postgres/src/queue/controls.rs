//! The names of all queues, and the pauses and limits that operators set on them.

use crate::server::{Server, Value};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::queue::QueueError;
use std::collections::HashMap;
use tokio_postgres::types::Type;

/// Returns the names of all queues.
pub(crate) async fn names(server: &Server) -> Result<Vec<String>, QueueError> {
    let sql = "SELECT DISTINCT lower(queue_name) FROM pgmq.meta ORDER BY 1";
    let rows = server.run(sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Returns the names of the queues of pgmq that could not be prepared.
pub(crate) async fn unprepared(server: &Server) -> Result<Vec<String>, QueueError> {
    let sql = "SELECT queue_name::text FROM pgmq.meta WHERE NOT dispatcher.is_prepared(queue_name)";
    let rows = server.run(sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Returns the operators' settings of each of these queues, by their bare names.
pub(crate) async fn controls(
    server: &Server,
    queues: &[&str],
) -> Result<Vec<QueueControl>, QueueError> {
    let sql = "SELECT queue, field, value FROM dispatcher.controls WHERE queue = ANY($1)";
    let values: [Value<'_>; 1] = [(&queues, Type::TEXT_ARRAY)];
    let rows = server.run(sql, &values).await?;
    let mut by_queue: HashMap<&str, Vec<(&str, &str)>> = HashMap::new();
    for row in &rows {
        let fields = by_queue.entry(row.get(0)).or_default();
        fields.push((row.get(1), row.get(2)));
    }
    let controls = queues
        .iter()
        .map(|queue| by_queue.get(queue).cloned().unwrap_or_default());
    Ok(controls.map(QueueControl::of_fields).collect())
}

/// Changes the operators' settings of a queue.
pub(crate) async fn change_control(
    server: &Server,
    queue: &str,
    change: &ControlChange,
) -> Result<(), QueueError> {
    let (fields, values): (Vec<_>, Vec<_>) = change.fields().into_iter().unzip();
    let sql = "WITH changed AS (
            SELECT * FROM unnest($2, $3) AS change (field, value)
        ), removed AS (
            DELETE FROM dispatcher.controls c USING changed
            WHERE c.queue = $1 AND c.field = changed.field AND changed.value IS NULL
        )
        INSERT INTO dispatcher.controls (queue, field, value)
        SELECT $1, field, value FROM changed WHERE value IS NOT NULL
        ON CONFLICT (queue, field) DO UPDATE SET value = excluded.value";
    let values: [Value<'_>; 3] = [
        (&queue, Type::TEXT),
        (&fields, Type::TEXT_ARRAY),
        (&values, Type::TEXT_ARRAY),
    ];
    server.run(sql, &values).await?;
    Ok(())
}
