//! The port to key-value stores: few methods, with their contract in the docs. Knows neither
//! plugins nor grants; each store is in the crate of its backend.

use crate::error_kind::{CallError, ErrorKind};

/// Maximum bytes of a key; it has at least one.
pub const LONGEST_KEY: usize = 1 << 10;
/// Maximum bytes of a value.
pub const LONGEST_VALUE: usize = 1 << 20;
/// Maximum keys of one call.
pub const KEYS: usize = 100;
/// Maximum bytes of all values of one call, there or back.
pub const CALL: usize = 8 << 20;
/// Maximum bytes of a bucket's name.
const LONGEST_NAME: usize = 80;

/// Whether a bucket may have this name.
pub fn is_bucket(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(plain)
}

/// Some of a bucket's keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// In no order. A key may come on two pages.
    pub keys: Vec<String>,
    /// Where the next page begins; none after the last.
    pub next: Option<u64>,
}

/// One bucket. What a call has written survives a crash once it is answered with `Ok`, as far as the
/// backend keeps what it says; a bucket is made by its first write. A call whose error is
/// `Unreachable` may have been done. Whoever calls keeps to the limits above.
#[async_trait::async_trait]
pub trait Bucket: Send + Sync + 'static {
    /// The values of up to `KEYS` keys, one for each. Refused if they have more than `CALL` bytes.
    async fn get(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, CallError>;

    /// Whether there is a value.
    async fn exists(&self, key: &str) -> Result<bool, CallError>;

    /// Writes up to `KEYS` values, all or none. Of two for one key the last counts.
    async fn set(&self, pairs: &[(String, Vec<u8>)]) -> Result<(), CallError>;

    /// Removes up to `KEYS` keys, all or none; one that is not there is no error.
    async fn delete(&self, keys: &[String]) -> Result<(), CallError>;

    /// Adds to a whole number that is written in digits, 0 where there is none, and gives the sum.
    /// Refused beyond what 64 bits hold and where something else stands.
    async fn increment(&self, key: &str, by: i64) -> Result<i64, CallError>;

    /// Writes a value if this is what is there, or nothing does and `None` is given. Whether it
    /// was.
    async fn swap(&self, key: &str, stands: Option<&[u8]>, value: &[u8])
    -> Result<bool, CallError>;

    /// Keys, from the beginning or from where a page ended. Each that is there all the while comes
    /// at least once.
    async fn keys(&self, from: Option<u64>) -> Result<Page, CallError>;
}

/// The sum of what is there and `by`, if that is a number as `increment` wants it: as its digits
/// are written, without `+` or leading zero.
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

/// A call that the store refuses, whatever store it is.
pub fn refused(message: String) -> CallError {
    CallError {
        kind: ErrorKind::Invalid,
        message,
    }
}

/// `increment` of a value that is no number, or of which there would be none.
pub fn not_a_number(key: &str) -> CallError {
    refused(format!(
        "the value of `{}` cannot be incremented by that: wanted a whole number in digits, and a sum that 64 bits hold",
        key.escape_debug()
    ))
}

/// A call whose values have more than [`CALL`] bytes.
pub fn too_long() -> CallError {
    refused(format!(
        "the values have more than {CALL} bytes together: ask for fewer keys"
    ))
}
