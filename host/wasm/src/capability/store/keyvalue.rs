//! The bindings of `wasi:keyvalue`, and the conversion to the granted buckets and back.

use super::buckets::{CasSnapshot, OpenedBucket, StoreGrant};
use crate::capability::caller::{GrantedTo, View, ViewOf, view};
use bindings::wasi::keyvalue::atomics::CasError;
use bindings::wasi::keyvalue::store::{Error, KeyResponse};
use bindings::wasi::keyvalue::{atomics, batch, store};
use dispatcher_core::keyvalue::Page;
use wasmtime::component::{Linker, Resource};

/// The version that is granted: a draft, which is not compatible with other versions.
pub(super) const VERSION: &str = "0.2.0-draft2";

mod bindings {
    wasmtime::component::bindgen!({
        path: "src/capability/store/wit",
        inline: "
            package dispatcher:host;
            world stores {
                import wasi:keyvalue/store@0.2.0-draft2;
                import wasi:keyvalue/atomics@0.2.0-draft2;
                import wasi:keyvalue/batch@0.2.0-draft2;
            }
        ",
        world: "dispatcher:host/stores",
        imports: { default: async | trappable | tracing | verbose_tracing },
        with: {
            "wasi:keyvalue/store.bucket": crate::capability::store::buckets::OpenedBucket,
            "wasi:keyvalue/atomics.cas": crate::capability::store::buckets::CasSnapshot,
        },
    });
}

/// Adds the three interfaces to a linker. Each call checks the grant of its guest.
pub(super) fn link<C: StoreCaller>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    store::add_to_linker::<_, ViewOf<C>>(linker, view)?;
    atomics::add_to_linker::<_, ViewOf<C>>(linker, view)?;
    batch::add_to_linker::<_, ViewOf<C>>(linker, view)
}

/// A caller that may be granted buckets.
pub(super) trait StoreCaller: GrantedTo<StoreGrant> {}

impl<C: GrantedTo<StoreGrant>> StoreCaller for C {}

/// A result whose outer error is a trap: the guest used a handle that it was never given.
type KeyValueAnswer<T> = wasmtime::Result<Result<T, Error>>;

fn into_answer<T>(answer: Result<T, String>) -> KeyValueAnswer<T> {
    Ok(answer.map_err(Error::Other))
}

fn opened<C: StoreCaller>(
    caller: &mut C,
    bucket: &Resource<OpenedBucket>,
) -> wasmtime::Result<OpenedBucket> {
    Ok(caller.table().get(bucket)?.clone())
}

impl<C: StoreCaller> store::Host for View<'_, C> {
    async fn open(&mut self, name: String) -> KeyValueAnswer<Resource<OpenedBucket>> {
        let stores = self.0.granted().as_ref();
        match stores.and_then(|stores| stores.open(&name)) {
            Some(bucket) => Ok(Ok(self.0.table().push(bucket)?)),
            None => Ok(Err(Error::AccessDenied)),
        }
    }
}

impl<C: StoreCaller> store::HostBucket for View<'_, C> {
    async fn get(
        &mut self,
        bucket: Resource<OpenedBucket>,
        key: String,
    ) -> KeyValueAnswer<Option<Vec<u8>>> {
        let values = opened(self.0, &bucket)?.get(vec![key]).await;
        into_answer(values.map(|values| values.into_iter().flatten().next()))
    }

    async fn set(
        &mut self,
        bucket: Resource<OpenedBucket>,
        key: String,
        value: Vec<u8>,
    ) -> KeyValueAnswer<()> {
        into_answer(opened(self.0, &bucket)?.set(vec![(key, value)]).await)
    }

    async fn delete(&mut self, bucket: Resource<OpenedBucket>, key: String) -> KeyValueAnswer<()> {
        into_answer(opened(self.0, &bucket)?.delete(vec![key]).await)
    }

    async fn exists(
        &mut self,
        bucket: Resource<OpenedBucket>,
        key: String,
    ) -> KeyValueAnswer<bool> {
        into_answer(opened(self.0, &bucket)?.exists(key).await)
    }

    async fn list_keys(
        &mut self,
        bucket: Resource<OpenedBucket>,
        from: Option<String>,
    ) -> KeyValueAnswer<KeyResponse> {
        let from = match from.map(|from| from.parse()).transpose() {
            Ok(from) => from,
            Err(_) => return into_answer(Err("an invalid cursor".to_owned())),
        };
        let page = opened(self.0, &bucket)?.keys(from).await;
        into_answer(page.map(|Page { keys, next }| KeyResponse {
            keys,
            cursor: next.map(|next| next.to_string()),
        }))
    }

    async fn drop(&mut self, bucket: Resource<OpenedBucket>) -> wasmtime::Result<()> {
        self.0.table().delete(bucket)?;
        Ok(())
    }
}

impl<C: StoreCaller> atomics::Host for View<'_, C> {
    async fn increment(
        &mut self,
        bucket: Resource<OpenedBucket>,
        key: String,
        by: i64,
    ) -> KeyValueAnswer<i64> {
        into_answer(opened(self.0, &bucket)?.increment(key, by).await)
    }

    async fn swap(
        &mut self,
        stood: Resource<CasSnapshot>,
        value: Vec<u8>,
    ) -> wasmtime::Result<Result<(), CasError>> {
        let stood = self.0.table().delete(stood)?;
        Ok(match stood.swap(value).await {
            Ok(None) => Ok(()),
            Ok(Some(now)) => Err(CasError::CasFailed(self.0.table().push(now)?)),
            Err(why) => Err(CasError::StoreError(Error::Other(why))),
        })
    }
}

impl<C: StoreCaller> atomics::HostCas for View<'_, C> {
    async fn new(
        &mut self,
        bucket: Resource<OpenedBucket>,
        key: String,
    ) -> KeyValueAnswer<Resource<CasSnapshot>> {
        let limit = self.0.limit().clone();
        match opened(self.0, &bucket)?.snapshot(key, limit).await {
            Ok(stood) => Ok(Ok(self.0.table().push(stood)?)),
            Err(why) => into_answer(Err(why)),
        }
    }

    async fn current(&mut self, stood: Resource<CasSnapshot>) -> KeyValueAnswer<Option<Vec<u8>>> {
        Ok(Ok(self.0.table().get(&stood)?.value.clone()))
    }

    async fn drop(&mut self, stood: Resource<CasSnapshot>) -> wasmtime::Result<()> {
        self.0.table().delete(stood)?;
        Ok(())
    }
}

impl<C: StoreCaller> batch::Host for View<'_, C> {
    async fn get_many(
        &mut self,
        bucket: Resource<OpenedBucket>,
        keys: Vec<String>,
    ) -> KeyValueAnswer<Vec<Option<(String, Vec<u8>)>>> {
        let values = opened(self.0, &bucket)?.get(keys.clone()).await;
        into_answer(values.map(|values| {
            let pairs = keys.into_iter().zip(values);
            pairs
                .map(|(key, value)| value.map(|value| (key, value)))
                .collect()
        }))
    }

    async fn set_many(
        &mut self,
        bucket: Resource<OpenedBucket>,
        pairs: Vec<(String, Vec<u8>)>,
    ) -> KeyValueAnswer<()> {
        into_answer(opened(self.0, &bucket)?.set(pairs).await)
    }

    async fn delete_many(
        &mut self,
        bucket: Resource<OpenedBucket>,
        keys: Vec<String>,
    ) -> KeyValueAnswer<()> {
        into_answer(opened(self.0, &bucket)?.delete(keys).await)
    }
}
