//! Grants key-value buckets by the names under which guests open them, and enforces the limits of
//! calls. Does not depend on the contract's version or on where a bucket is.

use crate::capability::caller::Grant;
use crate::capability::refusals::{Denial, Refusals};
use crate::invocation_limit::{InvocationLimit, InvocationPermit};
use dispatcher_core::error_kind::CallError;
use dispatcher_core::keyvalue::{Bucket, CALL, KEYS, LONGEST_KEY, LONGEST_VALUE, Page};
use dispatcher_core::tasks;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The denial of a bucket.
const REFUSED: Denial = Denial::ungranted(&StoreGrant::DESCRIPTION, "open this store");

/// The error of a guest that holds too much host memory.
const FULL: &str =
    "no memory for another value for compare-and-swap: drop those that are no longer needed";

/// The buckets of one plugin, by name.
#[derive(Clone, Default)]
pub struct StoreGrant(pub BTreeMap<String, Arc<dyn Bucket>>);

impl fmt::Debug for StoreGrant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.keys().map(String::as_str).collect();
        write!(out, "Stores({})", names.join(", "))
    }
}

/// The buckets of one plugin, and the runtime on which they are called.
#[derive(Debug)]
pub(crate) struct OpenedStores {
    stores: StoreGrant,
    refusals: Arc<Refusals>,
    control: Handle,
}

impl OpenedStores {
    /// Creates the grant. Buckets are called on `control`, regardless of who polls the guest.
    pub(crate) fn new(stores: StoreGrant, refusals: Arc<Refusals>, control: Handle) -> Self {
        Self {
            stores,
            refusals,
            control,
        }
    }

    /// Returns the bucket with this name. Logs a name that has no bucket.
    pub(crate) fn open(&self, name: &str) -> Option<OpenedBucket> {
        let bucket = self.stores.0.get(name).cloned();
        if bucket.is_none() {
            self.refusals.refuse(&REFUSED, name);
        }
        bucket.map(|bucket| OpenedBucket {
            bucket,
            control: self.control.clone(),
        })
    }
}

/// A bucket that a guest holds.
#[derive(Clone)]
#[expect(unreachable_pub, reason = "generated bindings export it again")]
pub struct OpenedBucket {
    bucket: Arc<dyn Bucket>,
    control: Handle,
}

/// A result whose error is one line for the plugin's author.
type BucketAnswer<T> = Result<T, String>;

impl OpenedBucket {
    pub(crate) async fn get(&self, keys: Vec<String>) -> BucketAnswer<Vec<Option<Vec<u8>>>> {
        check_keys(&keys)?;
        let bucket = Arc::clone(&self.bucket);
        self.on_control(async move { bucket.get(&keys).await })
            .await
    }

    pub(crate) async fn exists(&self, key: String) -> BucketAnswer<bool> {
        check_key(&key)?;
        let bucket = Arc::clone(&self.bucket);
        self.on_control(async move { bucket.exists(&key).await })
            .await
    }

    pub(crate) async fn set(&self, pairs: Vec<(String, Vec<u8>)>) -> BucketAnswer<()> {
        check_count(pairs.len())?;
        let mut bytes = 0;
        for (key, value) in &pairs {
            check_key(key)?;
            check_value(key, value)?;
            bytes += value.len();
        }
        if bytes > CALL {
            return Err(format!(
                "{bytes} bytes of values in one call; at most {CALL}"
            ));
        }
        let bucket = Arc::clone(&self.bucket);
        self.on_control(async move { bucket.set(&pairs).await })
            .await
    }

    pub(crate) async fn delete(&self, keys: Vec<String>) -> BucketAnswer<()> {
        check_keys(&keys)?;
        let bucket = Arc::clone(&self.bucket);
        self.on_control(async move { bucket.delete(&keys).await })
            .await
    }

    pub(crate) async fn increment(&self, key: String, by: i64) -> BucketAnswer<i64> {
        check_key(&key)?;
        let bucket = Arc::clone(&self.bucket);
        self.on_control(async move { bucket.increment(&key, by).await })
            .await
    }

    /// Runs a call on the control runtime. Dropping the future stops a call that has not begun. A
    /// call that was passed to the store may still be carried out.
    async fn on_control<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> BucketAnswer<T> {
        let answer = tasks::spawn_on(&self.control, call).finished().await;
        answer.map_err(|error| error.message)
    }

    /// Reads the value of a key, and keeps it within the guest's `limit`.
    pub(crate) async fn snapshot(
        self,
        key: String,
        limit: InvocationLimit,
    ) -> BucketAnswer<CasSnapshot> {
        let values = self.get(vec![key.clone()]).await?;
        let value = values.into_iter().flatten().next();
        let held = limit
            .hold(value.as_ref().map_or(0, Vec::len))
            .map_err(|_| FULL.to_owned())?;
        Ok(CasSnapshot {
            bucket: self,
            key,
            value,
            limit,
            _held: held,
        })
    }

    pub(crate) async fn keys(&self, from: Option<u64>) -> BucketAnswer<Page> {
        let bucket = Arc::clone(&self.bucket);
        self.on_control(async move { bucket.keys(from).await })
            .await
    }
}

/// The value of a key when a guest read it.
#[expect(unreachable_pub, reason = "generated bindings export it again")]
pub struct CasSnapshot {
    bucket: OpenedBucket,
    key: String,
    /// The value; `None` if there was none.
    pub(crate) value: Option<Vec<u8>>,
    limit: InvocationLimit,
    /// The permit for the value, which the host stores as long as the guest holds this.
    _held: InvocationPermit,
}

impl CasSnapshot {
    /// Writes the value if the key still has the old one. Otherwise returns the current value.
    pub(crate) async fn swap(self, value: Vec<u8>) -> BucketAnswer<Option<Self>> {
        check_value(&self.key, &value)?;
        let Self {
            bucket,
            key,
            value: stood,
            limit,
            _held: held,
        } = self;
        let (of, at) = (Arc::clone(&bucket.bucket), key.clone());
        let call = async move { of.swap(&at, stood.as_deref(), &value).await };
        if bucket.on_control(call).await? {
            Ok(None)
        } else {
            // The current value replaces the old one.
            drop(held);
            bucket.snapshot(key, limit).await.map(Some)
        }
    }
}

fn check_keys(keys: &[String]) -> BucketAnswer<()> {
    check_count(keys.len())?;
    keys.iter().try_for_each(|key| check_key(key))
}

fn check_count(keys: usize) -> BucketAnswer<()> {
    if keys <= KEYS {
        Ok(())
    } else {
        Err(format!("{keys} keys in one call; at most {KEYS}"))
    }
}

fn check_key(key: &str) -> BucketAnswer<()> {
    match key.len() {
        1..=LONGEST_KEY => Ok(()),
        bytes => Err(format!("a key of {bytes} bytes; wanted 1 to {LONGEST_KEY}")),
    }
}

fn check_value(key: &str, value: &[u8]) -> BucketAnswer<()> {
    match value.len() {
        ..=LONGEST_VALUE => Ok(()),
        bytes => {
            let key: String = key.escape_debug().take(100).collect();
            Err(format!(
                "the value of `{key}` has {bytes} bytes; at most {LONGEST_VALUE}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_store_calls_are_refused_with_the_limit() {
        assert_eq!(check_key("k"), Ok(()));
        assert_eq!(check_key(&"k".repeat(LONGEST_KEY)), Ok(()));
        let told = check_key("").expect_err("empty");
        assert_eq!(told, "a key of 0 bytes; wanted 1 to 1024");
        assert!(check_key(&"k".repeat(LONGEST_KEY + 1)).is_err());
        assert!(check_value("k", &vec![0; LONGEST_VALUE]).is_ok());
        let told = check_value("k", &vec![0; LONGEST_VALUE + 1]).expect_err("long");
        assert_eq!(told, "the value of `k` has 1048577 bytes; at most 1048576");
        assert!(check_count(KEYS).is_ok() && check_count(KEYS + 1).is_err());
    }

    /// A mebibyte is at each key.
    struct Heavy;

    #[async_trait::async_trait]
    impl Bucket for Heavy {
        async fn get(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
            Ok(vec![Some(vec![0; LONGEST_VALUE]); keys.len()])
        }

        async fn exists(&self, _: &str) -> Result<bool, CallError> {
            Ok(true)
        }

        async fn set(&self, _: &[(String, Vec<u8>)]) -> Result<(), CallError> {
            Ok(())
        }

        async fn delete(&self, _: &[String]) -> Result<(), CallError> {
            Ok(())
        }

        async fn increment(&self, _: &str, by: i64) -> Result<i64, CallError> {
            Ok(by)
        }

        async fn swap(&self, _: &str, _: Option<&[u8]>, _: &[u8]) -> Result<bool, CallError> {
            Ok(false)
        }

        async fn keys(&self, _: Option<u64>) -> Result<Page, CallError> {
            Ok(Page::default())
        }
    }

    #[tokio::test]
    async fn values_read_for_compare_and_swap_are_bounded_in_host_memory() {
        let bucket = OpenedBucket {
            bucket: Arc::new(Heavy),
            control: Handle::current(),
        };
        let limit = InvocationLimit::new(LONGEST_VALUE);
        let stands = || bucket.clone().snapshot("k".to_owned(), limit.clone());
        let mut kept = Vec::new();
        while let Ok(stood) = stands().await {
            kept.push(stood);
            assert!(kept.len() < 100, "there is no end of room");
        }
        assert_eq!(kept.len(), 3);
        assert_eq!(stands().await.err().as_deref(), Some(FULL));
        // One that was not swapped takes the place of what it was, and is counted like it.
        let stood = kept.pop().expect("there are three");
        let now = stood.swap(Vec::new()).await.expect("there is room for it");
        assert!(now.is_some() && stands().await.is_err());
        drop(now);
        assert!(stands().await.is_ok());
    }
}
