//! The port to key-value stores: few methods, with their contract in the docs. Knows neither
//! plugins nor grants; each store is in the crate of its backend.

use crate::error_kind::{CallError, ErrorKind};

/// The maximum number of bytes of a key; the minimum is one.
pub const LONGEST_KEY: usize = 1 << 10;
/// The maximum number of bytes of a value.
pub const LONGEST_VALUE: usize = 1 << 20;
/// The maximum number of keys of one call.
pub const KEYS: usize = 100;
/// The maximum number of bytes of all values of one call, in either direction.
pub const CALL: usize = 8 << 20;
/// The maximum number of bytes of a bucket's name.
const LONGEST_NAME: usize = 80;

/// Returns whether this is a valid name of a bucket.
pub fn is_bucket(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name
            .bytes()
            .all(|byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// A page of a bucket's keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The keys in no particular order. A key may be on two pages.
    pub keys: Vec<String>,
    /// The start of the next page; `None` after the last.
    pub next: Option<u64>,
}

/// One bucket; its first write creates it. A write survives a crash once the call returns `Ok`, if
/// the backend is durable. A call that fails with `Unreachable` may have been carried out. The
/// caller must keep to the limits above.
#[async_trait::async_trait]
pub trait Bucket: Send + Sync + 'static {
    /// Returns the values of up to `KEYS` keys, one for each. Fails if the values exceed `CALL`
    /// bytes.
    async fn get(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, CallError>;

    /// Returns whether the key has a value.
    async fn exists(&self, key: &str) -> Result<bool, CallError>;

    /// Writes up to `KEYS` values, all or none. If a key occurs twice, its last value counts.
    async fn set(&self, pairs: &[(String, Vec<u8>)]) -> Result<(), CallError>;

    /// Removes up to `KEYS` keys, all or none. A missing key is not an error.
    async fn delete(&self, keys: &[String]) -> Result<(), CallError>;

    /// Adds to a whole number in decimal digits and returns the sum; a missing key counts as 0.
    /// Fails if the sum does not fit into 64 bits or the value is not such a number.
    async fn increment(&self, key: &str, by: i64) -> Result<i64, CallError>;

    /// Writes a value if the current value is `stands`; `None` means that there is none. Returns
    /// whether it was written.
    async fn swap(&self, key: &str, stands: Option<&[u8]>, value: &[u8])
    -> Result<bool, CallError>;

    /// Returns keys, from the beginning or from the end of a page. A key that exists during the
    /// whole walk comes at least once.
    async fn keys(&self, from: Option<u64>) -> Result<Page, CallError>;
}

/// Returns the sum of the current value and `by`, if the value is a number that `increment`
/// accepts: decimal digits without `+` or a leading zero. `None` also on overflow.
pub fn sum(stands: Option<&[u8]>, by: i64) -> Option<i64> {
    let number: i64 = match stands {
        None => 0,
        Some(stands) => {
            let text = std::str::from_utf8(stands).ok()?;
            let number: i64 = text.parse().ok()?;
            (number.to_string() == text).then_some(number)?
        }
    };
    number.checked_add(by)
}

/// Returns the error of a call that any store refuses.
pub fn refused(message: String) -> CallError {
    CallError {
        kind: ErrorKind::Invalid,
        message,
    }
}

/// Returns the error of an `increment` of a value that is not a number, or whose sum would
/// overflow.
pub fn not_a_number(key: &str) -> CallError {
    refused(format!(
        "the value of `{}` cannot be incremented by that: wanted a whole number in digits, and a sum that 64 bits hold",
        key.escape_debug()
    ))
}

/// Returns the error of a call whose values have more than [`CALL`] bytes.
pub fn too_long() -> CallError {
    refused(format!(
        "the values have more than {CALL} bytes together: ask for fewer keys"
    ))
}
