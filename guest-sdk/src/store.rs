//! The key-value stores that the configuration grants to this plugin. A component that opens one
//! imports `wasi:keyvalue`.
//!
//! ```
//! use dispatcher_guest::{Failure, Message, handler, store, testing};
//!
//! fn handle(message: Message) -> Result<(), Failure> {
//!     let seen = store::open("seen")?;
//!     let times = seen.increment(&message.body, 1)?;
//!     println!("{} came {times} times", message.body);
//!     Ok(())
//! }
//!
//! handler!(handle);
//! # fn main() {
//! let granted = testing::grant().store("seen").value("seen", "o-1", "6");
//! assert_eq!(testing::run(handle, testing::message("o-1")), Ok(()));
//! assert_eq!(granted.stored("seen", "o-1"), Some(b"7".to_vec()));
//! # }
//! ```
//!
//! The configuration grants a store with `--store NAME=WHERE`. The plugin opens it by this name. A
//! key has 1 to 1,024 bytes, a value at most 1 MiB. Each call blocks the instance, even in an
//! `async` handler, because the interface has no asynchronous version.

use crate::Failure;
use crate::lambda::written;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// The reason why a call failed.
///
/// `?` converts it to a retry by policy, even if the store is not granted: its name may come from
/// the message, and one message must not stop the others of its route. Like the errors of the other
/// granted modules, the type does not implement [`std::error::Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The configuration does not grant a store with this name to this plugin.
    NotGranted(String),
    /// The store could not be reached or refused the call. The text says why: for example, a key or
    /// a value is too long, or a value is not a number.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted(name) => {
                write!(
                    out,
                    "the store `{name}` is not granted: --store {name}=local:{name}"
                )
            }
            Self::Failed(why) => write!(out, "the store: {why}"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::retry_because(error.to_string())
    }
}

/// An open store. Keys are text, and values are bytes. Values are kept when the process ends.
#[derive(Debug)]
pub struct Store {
    name: String,
    #[cfg(target_family = "wasm")]
    bucket: crate::bindings::wasi::keyvalue::store::Bucket,
}

/// Opens the store that the configuration grants under this name.
///
/// # Errors
/// Returns [`Error::NotGranted`] if the configuration grants no store with this name, and
/// [`Error::Failed`] if the store cannot be opened.
pub fn open(name: impl Into<String>) -> Result<Store, Error> {
    let name = name.into();
    #[cfg(target_family = "wasm")]
    return match crate::bindings::wasi::keyvalue::store::open(&name) {
        Ok(bucket) => Ok(Store { name, bucket }),
        Err(error) => Err(wire::of(error, &name)),
    };
    #[cfg(not(target_family = "wasm"))]
    return crate::testing::fakes::values(&name, |_| Ok(())).map(|()| Store { name });
}

impl Store {
    /// Returns the name that the store was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value of this key, if there is one.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] if the store cannot be read.
    pub fn get(&self, key: impl AsRef<str>) -> Result<Option<Vec<u8>>, Error> {
        let key = key.as_ref();
        #[cfg(target_family = "wasm")]
        return self.told(self.bucket.get(key));
        #[cfg(not(target_family = "wasm"))]
        return self.at(key, |values| Ok(values.get(key).cloned()));
    }

    /// Returns the value of this key, parsed as JSON, if there is one.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] if the store cannot be read, or if the value cannot be parsed as a
    /// `T`.
    pub fn get_json<T: DeserializeOwned>(&self, key: impl AsRef<str>) -> Result<Option<T>, Error> {
        let key = key.as_ref();
        let Some(value) = self.get(key)? else {
            return Ok(None);
        };
        let read = serde_json::from_slice(&value);
        let told = |error| Error::Failed(format!("the value of `{key}`: {error}"));
        read.map(Some).map_err(told)
    }

    /// Sets the value of this key, and replaces the previous value.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] if the store cannot be written.
    pub fn set(&self, key: impl AsRef<str>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        #[cfg(target_family = "wasm")]
        return self.told(self.bucket.set(key, value));
        #[cfg(not(target_family = "wasm"))]
        return self.at(key, |values| {
            match value.len() {
                ..=LONGEST_VALUE => values.insert(key.into(), value.into()),
                bytes => return Err(Error::Failed(format!("a value of {bytes} bytes"))),
            };
            Ok(())
        });
    }

    /// Sets the value of this key to this value as JSON.
    ///
    /// # Errors
    /// Returns [`Failure::Reject`] if the value cannot be written as JSON, and [`Failure::Retry`]
    /// if the store cannot be written.
    pub fn set_json(
        &self,
        key: impl AsRef<str>,
        value: &(impl Serialize + ?Sized),
    ) -> Result<(), Failure> {
        Ok(self.set(key, written(value)?)?)
    }

    /// Deletes the key, if it exists.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] if the store cannot be written.
    pub fn delete(&self, key: impl AsRef<str>) -> Result<(), Error> {
        let key = key.as_ref();
        #[cfg(target_family = "wasm")]
        return self.told(self.bucket.delete(key));
        #[cfg(not(target_family = "wasm"))]
        return self.at(key, |values| {
            values.remove(key);
            Ok(())
        });
    }

    /// Returns whether the key exists.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] if the store cannot be read.
    pub fn exists(&self, key: impl AsRef<str>) -> Result<bool, Error> {
        let key = key.as_ref();
        #[cfg(target_family = "wasm")]
        return self.told(self.bucket.exists(key));
        #[cfg(not(target_family = "wasm"))]
        return self.at(key, |values| Ok(values.contains_key(key)));
    }

    /// Adds to the decimal number that this key holds, or to 0 if there is none, and returns the
    /// sum. If several increments run at the same time, all of them count.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] if the store cannot be written, the value is not a number or the
    /// sum does not fit.
    pub fn increment(&self, key: impl AsRef<str>, by: i64) -> Result<i64, Error> {
        let key = key.as_ref();
        #[cfg(target_family = "wasm")]
        return self.told(crate::bindings::wasi::keyvalue::atomics::increment(
            &self.bucket,
            key,
            by,
        ));
        #[cfg(not(target_family = "wasm"))]
        return self.at(key, |values| {
            let sum = match values.get(key) {
                Some(value) => number(value),
                None => Some(0),
            };
            let sum = sum.and_then(|sum| sum.checked_add(by));
            let sum =
                sum.ok_or_else(|| Error::Failed(format!("`{key}` is no number to add to")))?;
            values.insert(key.into(), sum.to_string().into_bytes());
            Ok(sum)
        });
    }

    /// Sets the value of this key to the value that `change` makes of the current one, if any. If
    /// the value changes meanwhile, `change` is called again with the new value. So no change is
    /// lost, and `change` may be called more than once.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] if the store cannot be written.
    pub fn update<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<str>,
        mut change: impl FnMut(Option<Vec<u8>>) -> V,
    ) -> Result<(), Error> {
        let key = key.as_ref();
        #[cfg(target_family = "wasm")]
        return wire::update(&self.bucket, key, &mut |value| {
            change(value).as_ref().to_vec()
        })
        .map_err(|error| wire::of(error, &self.name));
        #[cfg(not(target_family = "wasm"))]
        return self.set(key, change(self.get(key)?));
    }

    /// Returns all keys, in no particular order. Keys that are added or deleted meanwhile may or
    /// may not be included.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] if the store cannot be read.
    pub fn keys(&self) -> Result<Vec<String>, Error> {
        #[cfg(target_family = "wasm")]
        return self.told(wire::keys(&self.bucket));
        #[cfg(not(target_family = "wasm"))]
        return self.values(|values| Ok(values.keys().cloned().collect()));
    }

    #[cfg(target_family = "wasm")]
    fn told<T>(&self, answer: Result<T, wire::Error>) -> Result<T, Error> {
        answer.map_err(|error| wire::of(error, &self.name))
    }

    /// Runs a function on the values, unless the host would refuse the key.
    #[cfg(not(target_family = "wasm"))]
    fn at<T>(
        &self,
        key: &str,
        run: impl FnOnce(&mut crate::testing::fakes::Values) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match key.len() {
            1..=LONGEST_KEY => self.values(run),
            bytes => Err(Error::Failed(format!("a key of {bytes} bytes"))),
        }
    }

    #[cfg(not(target_family = "wasm"))]
    fn values<T>(
        &self,
        run: impl FnOnce(&mut crate::testing::fakes::Values) -> Result<T, Error>,
    ) -> Result<T, Error> {
        crate::testing::fakes::values(&self.name, run)
    }
}

/// The limits of the host, which also apply in tests.
#[cfg(not(target_family = "wasm"))]
const LONGEST_KEY: usize = 1 << 10;
#[cfg(not(target_family = "wasm"))]
const LONGEST_VALUE: usize = 1 << 20;

/// Parses a number as the host does: without `+` and leading zeros.
#[cfg(not(target_family = "wasm"))]
fn number(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(target_family = "wasm")]
mod wire {
    //! Calls the interface with its own types.

    use crate::bindings::wasi::keyvalue::atomics::{Cas, CasError, swap};
    use crate::bindings::wasi::keyvalue::store::Bucket;

    pub(super) use crate::bindings::wasi::keyvalue::store::Error;

    pub(super) fn of(error: Error, name: &str) -> super::Error {
        match error {
            Error::NoSuchStore | Error::AccessDenied => super::Error::NotGranted(name.into()),
            Error::Other(why) => super::Error::Failed(why),
        }
    }

    pub(super) fn keys(bucket: &Bucket) -> Result<Vec<String>, Error> {
        let (mut keys, mut cursor) = (Vec::new(), None);
        loop {
            let page = bucket.list_keys(cursor.as_deref())?;
            keys.extend(page.keys);
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(keys);
            }
        }
    }

    pub(super) fn update(
        bucket: &Bucket,
        key: &str,
        change: &mut dyn FnMut(Option<Vec<u8>>) -> Vec<u8>,
    ) -> Result<(), Error> {
        let mut stands = Cas::new(bucket, key)?;
        loop {
            let value = change(stands.current()?);
            match swap(stands, &value) {
                Ok(()) => return Ok(()),
                Err(CasError::StoreError(error)) => return Err(error),
                Err(CasError::CasFailed(now)) => stands = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn store_returns_what_was_written() {
        let _granted = testing::grant().store("s");
        let store = open("s").unwrap();
        assert_eq!(store.get("k"), Ok(None));
        store.set("k", "1").unwrap();
        assert_eq!(store.get("k"), Ok(Some(b"1".to_vec())));
        assert_eq!(store.increment("k", 4), Ok(5));
        store
            .update("k", |value| [value.unwrap(), b"0".to_vec()].concat())
            .unwrap();
        assert_eq!(store.get_json("k"), Ok(Some(50)));
        store.set_json("j", &["a"]).unwrap();
        assert!(matches!(store.increment("j", 1), Err(Error::Failed(_))));
        assert!(matches!(store.get_json::<u8>("j"), Err(Error::Failed(_))));
        assert_eq!(store.keys(), Ok(vec!["j".into(), "k".into()]));
        store.delete("j").unwrap();
        assert_eq!(
            (store.exists("j"), store.exists("k")),
            (Ok(false), Ok(true))
        );
    }

    #[test]
    fn test_store_refuses_what_the_host_refuses() {
        let granted = testing::grant().store("s");
        let store = open("s").unwrap();
        let long = "k".repeat(LONGEST_KEY + 1);
        for key in ["", &long] {
            assert!(matches!(store.get(key), Err(Error::Failed(_))));
            assert!(matches!(store.set(key, "1"), Err(Error::Failed(_))));
            assert!(matches!(store.increment(key, 1), Err(Error::Failed(_))));
        }
        assert_eq!(store.set(&long[1..], vec![0; LONGEST_VALUE]), Ok(()));
        let more = vec![0; LONGEST_VALUE + 1];
        assert!(matches!(store.set("k", more), Err(Error::Failed(_))));
        let _granted = granted
            .value("s", "plus", "+5")
            .value("s", "zeros", "007")
            .value("s", "minus", "-7");
        assert!(store.increment("plus", 1).is_err());
        assert!(store.increment("zeros", 1).is_err());
        assert_eq!(store.increment("minus", 1), Ok(-6));
    }

    #[test]
    fn store_without_grant_is_denied_and_others_still_work() {
        let _granted = testing::grant().store("s");
        let error = open("t").unwrap_err();
        assert_eq!(error, Error::NotGranted("t".into()));
        let why = "the store `t` is not granted: --store t=local:t";
        assert_eq!(Failure::from(error), Failure::retry_because(why));
        let failed = Failure::from(Error::Failed("x".into()));
        assert_eq!(failed, Failure::retry_because("the store: x"));
    }
}
