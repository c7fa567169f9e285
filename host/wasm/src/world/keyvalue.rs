//! `wasi:keyvalue`: its bindings, and the way to the buckets that are lent and back.

use crate::capability::store::{Opened, Stood};
use crate::guest::Guest;
use bindings::wasi::keyvalue::atomics::CasError;
use bindings::wasi::keyvalue::store::{Error, KeyResponse};
use bindings::wasi::keyvalue::{atomics, batch, store};
use dispatcher_core::keyvalue::Page;
use wasmtime::component::{HasSelf, Linker, Resource};

/// The version that is lent: a draft, to which no other is compatible.
pub(crate) const VERSION: &str = "0.2.0-draft2";
/// What is lent of it.
pub(crate) const LENT: [&str; 3] = [
    "wasi:keyvalue/store",
    "wasi:keyvalue/atomics",
    "wasi:keyvalue/batch",
];

mod bindings {
    wasmtime::component::bindgen!({
        path: "src/world/keyvalue",
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
            "wasi:keyvalue/store.bucket": crate::capability::store::Opened,
            "wasi:keyvalue/atomics.cas": crate::capability::store::Stood,
        },
    });
}

/// Adds all three to a linker. What is lent is the guest's to know.
pub(crate) fn lend(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    store::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    atomics::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    batch::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)
}

/// An error is a trap: a handle that was never given out.
type Answer<T> = wasmtime::Result<Result<T, Error>>;

fn told<T>(answer: Result<T, String>) -> Answer<T> {
    Ok(answer.map_err(Error::Other))
}

impl Guest {
    fn opened(&mut self, bucket: &Resource<Opened>) -> wasmtime::Result<Opened> {
        Ok(self.table().get(bucket)?.clone())
    }
}

impl store::Host for Guest {
    async fn open(&mut self, name: String) -> Answer<Resource<Opened>> {
        let settings = self.settings();
        let stores = settings.stores.as_ref();
        let opened =
            stores.and_then(|stores| stores.open(&settings.name, &settings.refusals, &name));
        match opened {
            Some(bucket) => Ok(Ok(self.table().push(bucket)?)),
            None => Ok(Err(Error::AccessDenied)),
        }
    }
}

impl store::HostBucket for Guest {
    async fn get(&mut self, bucket: Resource<Opened>, key: String) -> Answer<Option<Vec<u8>>> {
        let values = self.opened(&bucket)?.get(vec![key]).await;
        told(values.map(|values| values.into_iter().flatten().next()))
    }

    async fn set(&mut self, bucket: Resource<Opened>, key: String, value: Vec<u8>) -> Answer<()> {
        told(self.opened(&bucket)?.set(vec![(key, value)]).await)
    }

    async fn delete(&mut self, bucket: Resource<Opened>, key: String) -> Answer<()> {
        told(self.opened(&bucket)?.delete(vec![key]).await)
    }

    async fn exists(&mut self, bucket: Resource<Opened>, key: String) -> Answer<bool> {
        told(self.opened(&bucket)?.exists(key).await)
    }

    async fn list_keys(
        &mut self,
        bucket: Resource<Opened>,
        from: Option<String>,
    ) -> Answer<KeyResponse> {
        let from = match from.map(|from| from.parse()).transpose() {
            Ok(from) => from,
            Err(_) => return told(Err("a cursor that no page ended with".to_owned())),
        };
        let page = self.opened(&bucket)?.keys(from).await;
        told(page.map(|Page { keys, next }| KeyResponse {
            keys,
            cursor: next.map(|next| next.to_string()),
        }))
    }

    async fn drop(&mut self, bucket: Resource<Opened>) -> wasmtime::Result<()> {
        self.table().delete(bucket)?;
        Ok(())
    }
}

impl atomics::Host for Guest {
    async fn increment(&mut self, bucket: Resource<Opened>, key: String, by: i64) -> Answer<i64> {
        told(self.opened(&bucket)?.increment(key, by).await)
    }

    async fn swap(
        &mut self,
        stood: Resource<Stood>,
        value: Vec<u8>,
    ) -> wasmtime::Result<Result<(), CasError>> {
        let stood = self.table().delete(stood)?;
        Ok(match stood.swap(value).await {
            Ok(None) => Ok(()),
            Ok(Some(now)) => Err(CasError::CasFailed(self.table().push(now)?)),
            Err(why) => Err(CasError::StoreError(Error::Other(why))),
        })
    }
}

impl atomics::HostCas for Guest {
    async fn new(&mut self, bucket: Resource<Opened>, key: String) -> Answer<Resource<Stood>> {
        let room = self.room();
        match self.opened(&bucket)?.stands(key, room).await {
            Ok(stood) => Ok(Ok(self.table().push(stood)?)),
            Err(why) => told(Err(why)),
        }
    }

    async fn current(&mut self, stood: Resource<Stood>) -> Answer<Option<Vec<u8>>> {
        Ok(Ok(self.table().get(&stood)?.value.clone()))
    }

    async fn drop(&mut self, stood: Resource<Stood>) -> wasmtime::Result<()> {
        self.table().delete(stood)?;
        Ok(())
    }
}

impl batch::Host for Guest {
    async fn get_many(
        &mut self,
        bucket: Resource<Opened>,
        keys: Vec<String>,
    ) -> Answer<Vec<Option<(String, Vec<u8>)>>> {
        let values = self.opened(&bucket)?.get(keys.clone()).await;
        told(values.map(|values| {
            let pairs = keys.into_iter().zip(values);
            pairs
                .map(|(key, value)| value.map(|value| (key, value)))
                .collect()
        }))
    }

    async fn set_many(
        &mut self,
        bucket: Resource<Opened>,
        pairs: Vec<(String, Vec<u8>)>,
    ) -> Answer<()> {
        told(self.opened(&bucket)?.set(pairs).await)
    }

    async fn delete_many(&mut self, bucket: Resource<Opened>, keys: Vec<String>) -> Answer<()> {
        told(self.opened(&bucket)?.delete(keys).await)
    }
}
