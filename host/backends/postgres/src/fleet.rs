//! The records of a fleet, in the tables `dispatcher.fleet_records` and `dispatcher.fleet_processes`.

use crate::server::time::micros;
use crate::server::{Server, Value};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::fleet::{FleetStore, RecordChange, Snapshot};
use std::time::Duration;
use tokio_postgres::types::Type;

/// Reads records, in the order of the names $2, with the time in milliseconds since 1970.
const READ: &str = "
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, ARRAY(
        SELECT CASE WHEN ends > now() THEN content END
        FROM unnest($2) WITH ORDINALITY AS wanted (name, position)
        LEFT JOIN dispatcher.fleet_records r ON r.fleet = $1 AND r.name = wanted.name
        ORDER BY position
    )";

/// Makes records that do not exist, as if they had ended.
const MAKE: &str = "
    INSERT INTO dispatcher.fleet_records (fleet, name, content, ends)
    SELECT $1, name, '', '-infinity' FROM unnest($2) AS wanted (name) ORDER BY name
    ON CONFLICT DO NOTHING";

/// Replaces records if each has the text that it must have. The rows are locked in the order of
/// their names, so two calls do not wait for each other, and are read as they are once locked.
const REPLACE: &str = "
    WITH change AS (
        SELECT * FROM unnest($2, $3, $4, $5) AS change (name, stands, content, keep_for)
    ), locked AS MATERIALIZED (
        SELECT r.name, CASE WHEN r.ends > now() THEN r.content END AS content
        FROM dispatcher.fleet_records r
        WHERE r.fleet = $1 AND r.name = ANY($2)
        ORDER BY r.name
        FOR UPDATE
    ), judged AS MATERIALIZED (
        SELECT count(*) = cardinality($2) AS stands
        FROM change JOIN locked USING (name)
        WHERE locked.content IS NOT DISTINCT FROM change.stands
    )
    UPDATE dispatcher.fleet_records r
    SET content = change.content, ends = now() + change.keep_for * interval '1 microsecond'
    FROM change, judged
    WHERE judged.stands AND r.fleet = $1 AND r.name = change.name
    RETURNING 1";

/// Writes a summary, and removes what has ended.
const PUBLISH: &str = "
    WITH ended AS (
        DELETE FROM dispatcher.fleet_processes
        WHERE fleet = $1 AND ends <= now() AND process <> $2
    ), unused AS (
        DELETE FROM dispatcher.fleet_records
        WHERE fleet = $1 AND ends <= now() - interval '1 hour' AND ends > '-infinity'
    )
    INSERT INTO dispatcher.fleet_processes (fleet, process, summary, ends)
    VALUES ($1, $2, $3, now() + $4 * interval '1 microsecond')
    ON CONFLICT (fleet, process) DO UPDATE SET summary = excluded.summary, ends = excluded.ends";

/// A fleet in one database.
pub struct PostgresFleet {
    server: Server,
    name: String,
}

impl PostgresFleet {
    /// Creates the fleet of this name.
    #[must_use]
    pub fn on(server: &Server, name: &str) -> Self {
        Self {
            server: server.clone(),
            name: name.to_owned(),
        }
    }
}

#[async_trait::async_trait]
impl FleetStore for PostgresFleet {
    async fn read(&self, names: &[String]) -> Result<Snapshot, CallError> {
        let values: [Value<'_>; 2] = [(&self.name, Type::TEXT), (&names, Type::TEXT_ARRAY)];
        let rows = self.server.run(READ, &values).await?;
        let [row] = &rows[..] else {
            return Err(CallError {
                kind: ErrorKind::Invalid,
                message: "PostgreSQL did not return the records of the fleet".to_owned(),
            });
        };
        Ok(Snapshot {
            now: row.get::<_, i64>(0).unsigned_abs(),
            records: row.get(1),
        })
    }

    async fn replace(&self, changes: &[RecordChange]) -> Result<bool, CallError> {
        let without_record = changes.iter().filter(|change| change.stands.is_none());
        let new: Vec<&str> = without_record.map(|change| &*change.name).collect();
        if !new.is_empty() {
            let values: [Value<'_>; 2] = [(&self.name, Type::TEXT), (&new, Type::TEXT_ARRAY)];
            self.server.run(MAKE, &values).await?;
        }
        let names: Vec<&str> = changes.iter().map(|change| &*change.name).collect();
        let stands: Vec<_> = changes.iter().map(|one| one.stands.as_deref()).collect();
        let contents: Vec<&str> = changes.iter().map(|change| &*change.text).collect();
        let times: Vec<i64> = changes.iter().map(|one| micros(one.keep_for)).collect();
        let values: [Value<'_>; 5] = [
            (&self.name, Type::TEXT),
            (&names, Type::TEXT_ARRAY),
            (&stands, Type::TEXT_ARRAY),
            (&contents, Type::TEXT_ARRAY),
            (&times, Type::INT8_ARRAY),
        ];
        let replaced = self.server.run(REPLACE, &values).await?;
        Ok(replaced.len() == changes.len())
    }

    async fn publish(
        &self,
        process: &str,
        summary: &str,
        keep_for: Duration,
    ) -> Result<(), CallError> {
        let keep_for = micros(keep_for);
        let values: [Value<'_>; 4] = [
            (&self.name, Type::TEXT),
            (&process, Type::TEXT),
            (&summary, Type::TEXT),
            (&keep_for, Type::INT8),
        ];
        self.server.run(PUBLISH, &values).await?;
        Ok(())
    }

    async fn published(&self) -> Result<Vec<(String, String)>, CallError> {
        let sql = "SELECT process, summary FROM dispatcher.fleet_processes \
                   WHERE fleet = $1 AND ends > now()";
        let rows = self.server.run(sql, &[(&self.name, Type::TEXT)]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }
}
