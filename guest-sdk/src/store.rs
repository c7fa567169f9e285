//! The stores of keys and values that the configuration grants to this plugin. Opening one makes the
//! component import `wasi:keyvalue`; knows nothing of messages, or of where the values are kept.
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
//! The configuration grants a store by `--store NAME=WHERE`; the name is what the plugin opens. A key
//! has 1 to 1,024 bytes, a value at most 1 MiB. Each
//! call waits, and holds the instance: in an `async` handler, too, since the interface has no
//! asynchronous twin.

use crate::Failure;
use crate::lambda::written;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// What did not work.
///
/// `?` makes a [`Failure`] of it: a retry by policy, with the reason on stderr. So is a store that is
/// not granted: its name may be the message's own, and no message may stop the others of its route. It is
/// no [`std::error::Error`], as the errors of all that is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The configuration does not grant a store of this name to this plugin.
    NotGranted(String),
    /// The store could not be reached, or refuses what it was asked, and why: a key or a value that
    /// is too long, a number that is none.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted(name) => {
                write!(out, "the store `{name}` is not granted: --store {name}=…")
            }
            Self::Failed(why) => write!(out, "the store: {why}"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        eprintln!("{error}");
        Self::retry()
    }
}

/// An open store. Keys are text, values are bytes; what is set stays when the process ends.
#[derive(Debug)]
pub struct Store {
    name: String,
    #[cfg(target_family = "wasm")]
    bucket: crate::bindings::wasi::keyvalue::store::Bucket,
}

/// Opens the store that the configuration grants by this name.
///
/// # Errors
/// [`Error::NotGranted`], where it grants none of this name; [`Error::Failed`].
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
    /// The name that it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of this key, if there is one.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn get(&self, key: impl AsRef<str>) -> Result<Option<Vec<u8>>, Error> {
        let key = key.as_ref();
        #[cfg(target_family = "wasm")]
        return self.told(self.bucket.get(key));
        #[cfg(not(target_family = "wasm"))]
        return self.at(key, |values| Ok(values.get(key).cloned()));
    }

    /// The value of this key, read as JSON.
    ///
    /// # Errors
    /// [`Error::Failed`], also where the value is not of this type.
    pub fn get_json<T: DeserializeOwned>(&self, key: impl AsRef<str>) -> Result<Option<T>, Error> {
        let key = key.as_ref();
        let Some(value) = self.get(key)? else {
            return Ok(None);
        };
        let read = serde_json::from_slice(&value);
        let told = |error| Error::Failed(format!("the value of `{key}`: {error}"));
        read.map(Some).map_err(told)
    }

    /// Sets the value of this key, whatever it was.
    ///
    /// # Errors
    /// [`Error::Failed`].
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

    /// Sets the value of this key, as JSON.
    ///
    /// # Errors
    /// [`Failure::Reject`], where the value cannot be written as JSON; else as with
    /// [`set`](Self::set), as a failure.
    pub fn set_json(
        &self,
        key: impl AsRef<str>,
        value: &(impl Serialize + ?Sized),
    ) -> Result<(), Failure> {
        Ok(self.set(key, written(value)?)?)
    }

    /// Takes the key away, if it is there.
    ///
    /// # Errors
    /// [`Error::Failed`].
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

    /// Whether there is this key.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn exists(&self, key: impl AsRef<str>) -> Result<bool, Error> {
        let key = key.as_ref();
        #[cfg(target_family = "wasm")]
        return self.told(self.bucket.exists(key));
        #[cfg(not(target_family = "wasm"))]
        return self.at(key, |values| Ok(values.contains_key(key)));
    }

    /// Adds to the number in digits that this key has, 0 where there is none, and returns the sum. Of
    /// additions at the same time none is lost.
    ///
    /// # Errors
    /// [`Error::Failed`], also where the value is no number or the sum does not fit.
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

    /// Sets the value of this key to what is made of the one that stands there, if any. Where another
    /// sets it meanwhile, it is made again of that one: so of changes at the same time none is lost,
    /// and `change` may be called more than once.
    ///
    /// # Errors
    /// [`Error::Failed`].
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

    /// All keys, in no order. What comes or goes meanwhile may be among them or not.
    ///
    /// # Errors
    /// [`Error::Failed`].
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

    /// Refuses the keys that the host refuses.
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

/// The host's bounds, which a test is to meet too.
#[cfg(not(target_family = "wasm"))]
const LONGEST_KEY: usize = 1 << 10;
#[cfg(not(target_family = "wasm"))]
const LONGEST_VALUE: usize = 1 << 20;

/// As the host reads it: no `+`, no leading zero.
#[cfg(not(target_family = "wasm"))]
fn number(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(target_family = "wasm")]
mod wire {
    //! The interface's own words.

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
        assert_eq!(Failure::from(error), Failure::retry());
        assert_eq!(Failure::from(Error::Failed("x".into())), Failure::retry());
    }
}
