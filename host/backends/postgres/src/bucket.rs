//! Buckets of keys and values, in the table `dispatcher.buckets`.

use crate::server::{Server, StatementError, Value};
use dispatcher_core::error_kind::CallError;
use dispatcher_core::keyvalue::{Bucket, CALL, Page, not_a_number, too_long};
use std::collections::BTreeMap;
use tokio_postgres::types::Type;

/// The number of keys in a page.
const PAGE: i64 = 1_000;

/// Reads values, unless they have more than $3 bytes together.
const GET: &str = "
    SELECT key, CASE WHEN total <= $3 THEN value END FROM (
        SELECT key, value, sum(octet_length(value)) OVER () AS total
        FROM dispatcher.buckets WHERE bucket = $1 AND key = ANY($2)
    ) found";

const SET: &str = "
    INSERT INTO dispatcher.buckets (bucket, key, value)
    SELECT $1, key, value FROM unnest($2, $3) AS pair (key, value) ORDER BY key
    ON CONFLICT (bucket, key) DO UPDATE SET value = excluded.value";

/// Adds to a number. Returns nothing, or fails because of the value, if it is not one.
const INCREMENT: &str = "
    INSERT INTO dispatcher.buckets AS b (bucket, key, value)
    VALUES ($1, $2, convert_to($3::text, 'UTF8'))
    ON CONFLICT (bucket, key) DO UPDATE
    SET value = convert_to((convert_from(b.value, 'UTF8')::bigint + $3)::text, 'UTF8')
    WHERE convert_from(b.value, 'UTF8') ~ '^(0|-?[1-9][0-9]*)$'
    RETURNING convert_from(value, 'UTF8')::bigint";

/// One bucket of a database.
pub struct PostgresBucket {
    server: Server,
    name: String,
}

impl PostgresBucket {
    /// Returns the bucket of this name.
    #[must_use]
    pub fn on(server: &Server, name: &str) -> Self {
        Self {
            server: server.clone(),
            name: name.to_owned(),
        }
    }
}

/// Returns keys as bytes: a text of the server has no NUL.
fn bytes(keys: &[String]) -> Vec<&[u8]> {
    keys.iter().map(String::as_bytes).collect()
}

#[async_trait::async_trait]
impl Bucket for PostgresBucket {
    async fn get(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        let (wanted, most) = (bytes(keys), i64::try_from(CALL).unwrap_or(i64::MAX));
        let values: [Value<'_>; 3] = [
            (&self.name, Type::TEXT),
            (&wanted, Type::BYTEA_ARRAY),
            (&most, Type::INT8),
        ];
        let rows = self.server.run(GET, &values).await?;
        let mut found: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
        for row in &rows {
            let value: Option<&[u8]> = row.get(1);
            found.insert(row.get(0), value.ok_or_else(too_long)?);
        }
        let values = wanted
            .iter()
            .map(|key| found.get(key).map(|one| one.to_vec()));
        Ok(values.collect())
    }

    async fn exists(&self, key: &str) -> Result<bool, CallError> {
        let key = key.as_bytes();
        let sql = "SELECT 1 FROM dispatcher.buckets WHERE bucket = $1 AND key = $2";
        let values: [Value<'_>; 2] = [(&self.name, Type::TEXT), (&key, Type::BYTEA)];
        Ok(!self.server.run(sql, &values).await?.is_empty())
    }

    async fn set(&self, pairs: &[(String, Vec<u8>)]) -> Result<(), CallError> {
        // The last value of a key counts.
        let last: BTreeMap<&[u8], &[u8]> = pairs
            .iter()
            .map(|(key, value)| (key.as_bytes(), &**value))
            .collect();
        let (keys, contents): (Vec<_>, Vec<_>) = last.into_iter().unzip();
        let values: [Value<'_>; 3] = [
            (&self.name, Type::TEXT),
            (&keys, Type::BYTEA_ARRAY),
            (&contents, Type::BYTEA_ARRAY),
        ];
        self.server.run(SET, &values).await?;
        Ok(())
    }

    async fn delete(&self, keys: &[String]) -> Result<(), CallError> {
        let keys = bytes(keys);
        let sql = "DELETE FROM dispatcher.buckets WHERE bucket = $1 AND key = ANY($2)";
        let values: [Value<'_>; 2] = [(&self.name, Type::TEXT), (&keys, Type::BYTEA_ARRAY)];
        self.server.run(sql, &values).await?;
        Ok(())
    }

    async fn increment(&self, key: &str, by: i64) -> Result<i64, CallError> {
        let bytes = key.as_bytes();
        let values: [Value<'_>; 3] = [
            (&self.name, Type::TEXT),
            (&bytes, Type::BYTEA),
            (&by, Type::INT8),
        ];
        match self.server.try_run(INCREMENT, &values).await {
            Ok(rows) => rows
                .first()
                .map(|row| row.get(0))
                .ok_or_else(|| not_a_number(key)),
            Err(StatementError::Value(_)) => Err(not_a_number(key)),
            Err(StatementError::Call(error)) => Err(error),
        }
    }

    async fn swap(
        &self,
        key: &str,
        stands: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, CallError> {
        let key = key.as_bytes();
        let mut values: Vec<Value<'_>> = vec![
            (&self.name, Type::TEXT),
            (&key, Type::BYTEA),
            (&value, Type::BYTEA),
        ];
        let sql = if let Some(stands) = &stands {
            values.push((stands, Type::BYTEA));
            "UPDATE dispatcher.buckets SET value = $3 \
             WHERE bucket = $1 AND key = $2 AND value = $4 RETURNING 1"
        } else {
            "INSERT INTO dispatcher.buckets (bucket, key, value) VALUES ($1, $2, $3) \
             ON CONFLICT DO NOTHING RETURNING 1"
        };
        Ok(!self.server.run(sql, &values).await?.is_empty())
    }

    async fn keys(&self, from: Option<u64>) -> Result<Page, CallError> {
        let from = from.map_or(0, |from| i64::try_from(from).unwrap_or(i64::MAX));
        let sql = "SELECT id, key FROM dispatcher.buckets WHERE bucket = $1 AND id > $2 \
                   ORDER BY id LIMIT $3";
        let values: [Value<'_>; 3] = [
            (&self.name, Type::TEXT),
            (&from, Type::INT8),
            (&PAGE, Type::INT8),
        ];
        let rows = self.server.run(sql, &values).await?;
        let is_full = rows.len() == usize::try_from(PAGE).unwrap_or_default();
        let last = rows.last().map(|row| row.get::<_, i64>(0).unsigned_abs());
        let keys = rows.iter().map(|row| {
            let key: &[u8] = row.get(1);
            String::from_utf8_lossy(key).into_owned()
        });
        Ok(Page {
            keys: keys.collect(),
            next: if is_full { last } else { None },
        })
    }
}
