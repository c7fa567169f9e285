//! What is the same for every version of the contract: how its exports are found and called, one
//! attempt at a time, or many at once in one instance. Knows no version's types.

use super::{Component, Guest, StartedCall};
use dispatcher_core::message::Verdict;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    Accessor, ComponentExportIndex, ComponentNamedList, Instance, Lift, Lower, TypedFunc,
};
use wasmtime::{AsContextMut, Store};

/// Whether an export's `handle` is an `async func`.
pub(super) fn is_async(component: &Component, export: &str) -> bool {
    let instance = component.get_export_index(None, export);
    let handle = instance.and_then(|instance| component.get_export(Some(&instance), "handle"));
    match handle {
        Some((ComponentItem::ComponentFunc(handle), _)) => handle.async_(),
        _ => false,
    }
}

/// The `handle` of an export.
pub(super) fn handle(
    store: &mut Store<Guest>,
    instance: &Instance,
    export: &str,
) -> wasmtime::Result<ComponentExportIndex> {
    let mut store = store.as_context_mut();
    let interface = instance.get_export_index(&mut store, None, export);
    let handle = interface
        .and_then(|interface| instance.get_export_index(&mut store, Some(&interface), "handle"));
    handle.ok_or_else(|| wasmtime::format_err!("no function handle"))
}

/// Begins a call in an instance that takes many at once.
pub(super) fn start<'a, P, R>(
    handle: TypedFunc<P, R>,
    store: impl AsContextMut<Data = Guest>,
    accessor: &'a Accessor<Guest>,
    params: P,
    judge: impl FnOnce(R) -> Vec<Verdict> + Send + 'a,
) -> wasmtime::Result<StartedCall<'a>>
where
    P: ComponentNamedList + Lower + Send + Sync + 'static,
    R: ComponentNamedList + Lift + Send + Sync + 'static,
{
    let call = handle.start_call_concurrent(store, params)?;
    Ok(StartedCall {
        task: call.task(),
        verdicts: Box::pin(async move {
            let answer = handle.finish_call_concurrent(accessor, call);
            answer.await.map(judge)
        }),
    })
}

/// The exports of a version. Beside it the version has: its bindings, as the modules `single` and
/// `batch`; `Lists`, which hands a delivery to the guest, and `Message`, which copies it; and
/// `verdict`, of a failure.
macro_rules! exports {
    () => {
        use super::exports::{handle, start};
        use super::{BATCH, ContractExport, Delivery, StartedCall, sort_out};
        use crate::guest::Guest;
        use crate::world::typecheck::check;
        use batch::dispatcher::plugin::types;
        use dispatcher_core::handler::Attempt;
        use dispatcher_core::message::Verdict;
        use wasmtime::component::{Accessor, Instance, InstancePre, TypedFunc};
        use wasmtime::{AsContextMut, Engine, Store};

        type SingleAnswer = (Result<(), types::Failure>,);
        type BatchParams<'a> = (&'a [types::Message<'a>],);
        type BatchAnswer = (Result<Vec<types::Failed>, types::Failure>,);

        /// A plugin whose imports are resolved and whose exports are found.
        pub(crate) enum ExportsPre {
            Single(single::SinglePre<Guest>),
            Batch(batch::BatchPre<Guest>),
        }

        /// The exports of one instance.
        pub(crate) enum Exports {
            Single(single::Single),
            Batch(batch::Batch),
        }

        impl ExportsPre {
            /// Finds an export. An error if its type is another.
            pub(super) fn new(
                export: ContractExport,
                pre: InstancePre<Guest>,
            ) -> wasmtime::Result<Self> {
                if export.is_batch {
                    check::<BatchParams<'_>, BatchAnswer>(&pre, export.name, "handle")?;
                    Ok(Self::Batch(batch::BatchPre::new(pre)?))
                } else {
                    check::<(types::Message<'_>,), SingleAnswer>(&pre, export.name, "handle")?;
                    Ok(Self::Single(single::SinglePre::new(pre)?))
                }
            }

            pub(super) fn engine(&self) -> &Engine {
                match self {
                    Self::Single(pre) => pre.engine(),
                    Self::Batch(pre) => pre.engine(),
                }
            }

            /// Maximum messages of one attempt.
            pub(super) fn batch(&self) -> usize {
                match self {
                    Self::Single(_) => 1,
                    Self::Batch(_) => BATCH,
                }
            }

            pub(super) async fn instantiate(
                &self,
                store: &mut Store<Guest>,
            ) -> wasmtime::Result<Exports> {
                Ok(match self {
                    Self::Single(pre) => Exports::Single(pre.instantiate_async(store).await?),
                    Self::Batch(pre) => Exports::Batch(pre.instantiate_async(store).await?),
                })
            }
        }

        impl Exports {
            /// One verdict per message. An error is a trap.
            pub(super) async fn call(
                &self,
                store: &mut Store<Guest>,
                attempt: &Attempt,
            ) -> wasmtime::Result<Vec<Verdict>> {
                let lists: Vec<_> = Delivery::all(attempt).map(Lists::of).collect();
                let mut messages = lists.iter().map(Lists::message);
                match self {
                    Self::Single(exports) => {
                        let Some(message) = messages.next() else {
                            return Ok(Vec::new());
                        };
                        let handler = exports.dispatcher_plugin_handler();
                        let answer = handler.call_handle(store, message).await?;
                        Ok(vec![answer.map_or_else(verdict, |()| Verdict::Done)])
                    }
                    Self::Batch(exports) => {
                        let messages: Vec<_> = messages.collect();
                        let handler = exports.dispatcher_plugin_batch_handler();
                        let answer = handler.call_handle(store, &messages).await?;
                        Ok(verdicts(attempt, answer))
                    }
                }
            }
        }

        /// The export of one instance that takes many attempts at once.
        #[derive(Clone, Copy)]
        pub(crate) enum Many {
            Single(TypedFunc<(Message,), SingleAnswer>),
            Batch(TypedFunc<(Vec<Message>,), BatchAnswer>),
        }

        impl Many {
            pub(super) fn new(
                export: ContractExport,
                store: &mut Store<Guest>,
                instance: Instance,
            ) -> wasmtime::Result<Self> {
                let handle = handle(store, &instance, export.name)?;
                Ok(if export.is_batch {
                    Self::Batch(instance.get_typed_func(store, handle)?)
                } else {
                    Self::Single(instance.get_typed_func(store, handle)?)
                })
            }

            /// Queues a call; the guest begins it when the store's event loop comes to it. The call
            /// outlives every borrow of the store, so its messages are copied until the guest has
            /// them.
            pub(super) fn begin<'a>(
                self,
                store: impl AsContextMut<Data = Guest>,
                accessor: &'a Accessor<Guest>,
                attempt: &'a Attempt,
            ) -> wasmtime::Result<StartedCall<'a>> {
                let mut messages = Delivery::all(attempt).map(Message::of);
                match self {
                    Self::Single(handle) => {
                        let message = messages.next();
                        let message = message.ok_or_else(|| wasmtime::format_err!("no message"))?;
                        start(
                            handle,
                            store,
                            accessor,
                            (message,),
                            |answer: SingleAnswer| {
                                vec![answer.0.map_or_else(verdict, |()| Verdict::Done)]
                            },
                        )
                    }
                    Self::Batch(handle) => {
                        let messages = (messages.collect(),);
                        start(handle, store, accessor, messages, |answer: BatchAnswer| {
                            verdicts(attempt, answer.0)
                        })
                    }
                }
            }
        }

        fn verdicts(
            attempt: &Attempt,
            answer: Result<Vec<types::Failed>, types::Failure>,
        ) -> Vec<Verdict> {
            let verdict_of = |types::Failed { id, failure }| (id, verdict(failure));
            match answer {
                Ok(failed) => sort_out(&attempt.messages, failed.into_iter().map(verdict_of)),
                Err(failure) => vec![verdict(failure); attempt.messages.len()],
            }
        }
    };
}
pub(super) use exports;
