//! Steps on the file, each on its caller's connection. Waits for nothing and commits nothing.

use dispatcher_core::error_kind::CallError;
use dispatcher_core::keyvalue::{CALL, Page, not_a_number, sum};
use rusqlite::{Connection, OptionalExtension, params};

/// Maximum keys of one page.
const PAGE: usize = 1_000;
/// Maximum bytes of their keys, but for the last.
const PAGE_BYTES: usize = 256 << 10;

/// Something to be read of a bucket.
#[derive(Debug, Clone)]
pub(super) struct Read {
    /// Its name.
    pub bucket: String,
    /// What of it.
    pub what: BucketRead,
}

/// What is read.
#[derive(Debug, Clone)]
pub(super) enum BucketRead {
    /// The values of these keys.
    Values(Vec<String>),
    /// Whether this key has one.
    Exists(String),
    /// A page of keys.
    Keys(Option<u64>),
}

/// What was read: the field that was asked for, the others empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StoredPair {
    /// One for each key.
    pub values: Vec<Option<Vec<u8>>>,
    /// The values have more bytes than a call may bring.
    pub too_long: bool,
    /// Whether there is one.
    pub exists: bool,
    /// Keys.
    pub page: Page,
}

/// Something to be written to a bucket.
#[derive(Debug, Clone)]
pub(super) struct BucketChange {
    /// Its name.
    pub bucket: String,
    /// What.
    pub change: Change,
}

/// What is written.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// These values.
    Set(Vec<(String, Vec<u8>)>),
    /// These keys go.
    Delete(Vec<String>),
    /// So much is added.
    Increment(String, i64),
    /// This value, if that is there.
    Swap {
        /// The key.
        key: String,
        /// What is to be there.
        stands: Option<Vec<u8>>,
        /// What is written.
        value: Vec<u8>,
    },
}

/// Reads.
pub(super) fn read(connection: &Connection, read: &Read) -> rusqlite::Result<StoredPair> {
    let mut seen = StoredPair::default();
    let bucket = number(connection, &read.bucket)?;
    match (&read.what, bucket) {
        (BucketRead::Values(keys), None) => seen.values = vec![None; keys.len()],
        (_, None) => {}
        (BucketRead::Values(keys), Some(bucket)) => {
            let mut bytes = 0;
            for key in keys {
                let value = value(connection, bucket, key)?;
                bytes += value.as_ref().map_or(0, Vec::len);
                if bytes > CALL {
                    seen.too_long = true;
                    seen.values.clear();
                    return Ok(seen);
                }
                seen.values.push(value);
            }
        }
        (BucketRead::Exists(key), Some(bucket)) => {
            seen.exists = connection
                .prepare_cached("SELECT 1 FROM pairs WHERE bucket = ?1 AND key = ?2")?
                .exists(params![bucket, key])?;
        }
        (BucketRead::Keys(from), Some(bucket)) => seen.page = page(connection, bucket, *from)?,
    }
    Ok(seen)
}

/// It was written.
pub(super) const DONE: i64 = 1;
/// It was not: something else is there.
const NOT_DONE: i64 = 0;

/// Writes. What comes back is the sum of an increment, for all else whether it was done; the inner
/// error is about the call alone, and nothing was written.
pub(super) fn write(
    connection: &Connection,
    write: &BucketChange,
) -> rusqlite::Result<Result<i64, CallError>> {
    let bucket = made(connection, &write.bucket)?;
    match &write.change {
        Change::Set(pairs) => {
            for (key, value) in pairs {
                set(connection, bucket, key, value)?;
            }
            Ok(Ok(DONE))
        }
        Change::Delete(keys) => {
            let mut delete =
                connection.prepare_cached("DELETE FROM pairs WHERE bucket = ?1 AND key = ?2")?;
            for key in keys {
                delete.execute(params![bucket, key])?;
            }
            Ok(Ok(DONE))
        }
        Change::Increment(key, by) => {
            let stands = value(connection, bucket, key)?;
            let sum = match sum(stands.as_deref(), *by) {
                Some(sum) => sum,
                None => return Ok(Err(not_a_number(key))),
            };
            set(connection, bucket, key, sum.to_string().as_bytes())?;
            Ok(Ok(sum))
        }
        Change::Swap {
            key,
            stands,
            value: new,
        } => {
            if value(connection, bucket, key)? != *stands {
                return Ok(Ok(NOT_DONE));
            }
            set(connection, bucket, key, new)?;
            Ok(Ok(DONE))
        }
    }
}

fn set(connection: &Connection, bucket: i64, key: &str, value: &[u8]) -> rusqlite::Result<()> {
    let mut set = connection.prepare_cached(
        "INSERT INTO pairs (bucket, key, value) VALUES (?1, ?2, ?3)
         ON CONFLICT (bucket, key) DO UPDATE SET value = excluded.value",
    )?;
    set.execute(params![bucket, key, value]).map(drop)
}

fn value(connection: &Connection, bucket: i64, key: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    connection
        .prepare_cached("SELECT value FROM pairs WHERE bucket = ?1 AND key = ?2")?
        .query_row(params![bucket, key], |row| row.get(0))
        .optional()
}

fn page(connection: &Connection, bucket: i64, from: Option<u64>) -> rusqlite::Result<Page> {
    let from = i64::try_from(from.unwrap_or(0)).unwrap_or(i64::MAX);
    let mut select = connection.prepare_cached(
        "SELECT number, key FROM pairs WHERE bucket = ?1 AND number > ?2 ORDER BY number",
    )?;
    let mut rows = select.query(params![bucket, from])?;
    let mut page = Page::default();
    let mut bytes = 0;
    let mut last = 0;
    while let Some(row) = rows.next()? {
        if page.keys.len() == PAGE || bytes >= PAGE_BYTES {
            page.next = Some(last);
            break;
        }
        last = row.get::<_, i64>(0)?.unsigned_abs();
        let key: String = row.get(1)?;
        bytes += key.len();
        page.keys.push(key);
    }
    Ok(page)
}

/// The number of a bucket, if anything was ever written to it.
fn number(connection: &Connection, bucket: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT number FROM buckets WHERE name = ?1")?
        .query_row([bucket], |row| row.get(0))
        .optional()
}

fn made(connection: &Connection, bucket: &str) -> rusqlite::Result<i64> {
    if let Some(number) = number(connection, bucket)? {
        return Ok(number);
    }
    connection
        .prepare_cached("INSERT INTO buckets (name) VALUES (?1)")?
        .insert([bucket])
}
