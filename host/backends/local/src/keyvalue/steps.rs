//! Steps on the file, each on its caller's connection. A step neither waits nor commits.

use dispatcher_core::error_kind::CallError;
use dispatcher_core::keyvalue::{CALL, Page, not_a_number, sum};
use rusqlite::{Connection, OptionalExtension, params};

/// The maximum number of keys in one page.
const PAGE: usize = 1_000;
/// The maximum number of bytes of the keys in one page, except its last key.
const PAGE_BYTES: usize = 256 << 10;

/// A read of a bucket.
#[derive(Debug, Clone)]
pub(super) struct KeyRead {
    /// The name of the bucket.
    pub bucket: String,
    /// The content to read.
    pub what: BucketRead,
}

/// The content that a read can ask for.
#[derive(Debug, Clone)]
pub(super) enum BucketRead {
    /// The values of these keys.
    Values(Vec<String>),
    /// Whether this key has a value.
    Exists(String),
    /// A page of keys.
    Keys(Option<u64>),
}

/// The result of a read. Only the requested field is filled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StoredPair {
    /// The values of the keys, in their order.
    pub values: Vec<Option<Vec<u8>>>,
    /// Whether the values have more bytes than a call may return.
    pub too_long: bool,
    /// Whether the key has a value.
    pub exists: bool,
    /// A page of keys.
    pub page: Page,
}

/// A change of a bucket.
#[derive(Debug, Clone)]
pub(super) struct BucketChange {
    /// The name of the bucket.
    pub bucket: String,
    /// The change to write.
    pub change: Change,
}

/// The kinds of change.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// Sets these values.
    Set(Vec<(String, Vec<u8>)>),
    /// Deletes these keys.
    Delete(Vec<String>),
    /// Adds a number to the value of a key.
    Increment(String, i64),
    /// Sets a value if the expected one is stored.
    Swap {
        /// The key.
        key: String,
        /// The expected value; `None` if the key must have no value.
        stands: Option<Vec<u8>>,
        /// The new value.
        value: Vec<u8>,
    },
}

/// Runs a read.
pub(super) fn read(connection: &Connection, read: &KeyRead) -> rusqlite::Result<StoredPair> {
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

/// The answer to a change that was written.
pub(super) const DONE: i64 = 1;
/// The answer to a swap that found another value.
const NOT_DONE: i64 = 0;

/// Writes a change. Returns the sum for an increment, and whether the change was made for all
/// others. The inner error concerns this call alone; nothing was written then.
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

/// Returns the number of a bucket, or `None` if nothing was ever written to it.
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
