//! Finds and calls the exports of the contract, one attempt at a time or many at once in one
//! instance.

use super::message::{Failed, Failure, message, types, verdict};
use super::{BATCH, ContractExport, Delivery, sort_out};
use crate::guest::Guest;
use crate::world::typecheck::{check, function};
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::Verdict;
use std::pin::Pin;
use wasmtime::component::{
    Accessor, Component, ComponentExportIndex, ComponentNamedList, GuestTaskId, Instance,
    InstancePre, Lift, Lower, TypedFunc,
};
use wasmtime::{AsContextMut, Engine, Store};

type SingleParams = (types::Message,);
type SingleAnswer = (Result<(), Failure>,);
type BatchParams = (Vec<types::Message>,);
type BatchAnswer = (Result<Vec<Failed>, Failure>,);

/// A plugin whose imports are resolved and whose export is found.
#[derive(Clone)]
pub(crate) struct ExportsPre {
    pre: InstancePre<Guest>,
    handle: ComponentExportIndex,
    is_batch: bool,
    is_async: bool,
}

/// The export of one instance.
#[derive(Clone, Copy)]
pub(crate) enum Exports {
    Single(TypedFunc<SingleParams, SingleAnswer>),
    Batch(TypedFunc<BatchParams, BatchAnswer>),
}

/// A call that has begun in an instance that takes many attempts at once.
pub(crate) struct StartedCall<'a> {
    /// The task that computes, as far as the engine reports it.
    pub(crate) task: GuestTaskId,
    /// The future of one verdict per message of the attempt. An error is a trap.
    pub(crate) verdicts: Pin<Box<dyn Future<Output = wasmtime::Result<Vec<Verdict>>> + Send + 'a>>,
}

impl ExportsPre {
    /// Finds an export. Returns an error if its type is different.
    pub(crate) fn new(export: ContractExport, pre: InstancePre<Guest>) -> wasmtime::Result<Self> {
        if export.is_batch {
            check::<BatchParams, BatchAnswer>(&pre, export.name, "handle")?;
        } else {
            check::<SingleParams, SingleAnswer>(&pre, export.name, "handle")?;
        }
        let handle = handle(pre.component(), export.name)
            .ok_or_else(|| wasmtime::format_err!("no function handle"))?;
        let is_async = function(pre.component(), export.name, "handle");
        Ok(Self {
            pre,
            handle,
            is_batch: export.is_batch,
            is_async: is_async.is_some_and(|handle| handle.async_()),
        })
    }

    /// Whether `handle` is an `async func`.
    pub(crate) fn is_async(&self) -> bool {
        self.is_async
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.pre.engine()
    }

    /// Returns the maximum number of messages of one attempt.
    pub(crate) fn batch(&self) -> usize {
        if self.is_batch { BATCH } else { 1 }
    }

    pub(crate) async fn instantiate(&self, store: &mut Store<Guest>) -> wasmtime::Result<Exports> {
        let instance: Instance = self.pre.instantiate_async(&mut *store).await?;
        Ok(if self.is_batch {
            Exports::Batch(instance.get_typed_func(store, self.handle)?)
        } else {
            Exports::Single(instance.get_typed_func(store, self.handle)?)
        })
    }
}

impl Exports {
    /// Returns one verdict per message. An error is a trap.
    pub(crate) async fn call(
        self,
        store: &mut Store<Guest>,
        attempt: &Attempt,
    ) -> wasmtime::Result<Vec<Verdict>> {
        let settings = store.data().settings();
        let mut messages = Delivery::all(attempt, &settings.queue_prefix).map(message);
        match self {
            Self::Single(handle) => {
                let Some(message) = messages.next() else {
                    return Ok(Vec::new());
                };
                Ok(single_verdict(handle.call_async(store, (message,)).await?))
            }
            Self::Batch(handle) => {
                let messages = messages.collect();
                let answer = handle.call_async(store, (messages,)).await?;
                Ok(batch_verdicts(attempt, answer))
            }
        }
    }

    /// Queues a call, which the guest begins when the store's event loop reaches it.
    pub(crate) fn begin<'a>(
        self,
        store: impl AsContextMut<Data = Guest>,
        accessor: &'a Accessor<Guest>,
        attempt: &'a Attempt,
    ) -> wasmtime::Result<StartedCall<'a>> {
        let settings = store.as_context().data().settings();
        let mut messages = Delivery::all(attempt, &settings.queue_prefix).map(message);
        match self {
            Self::Single(handle) => {
                let message = messages
                    .next()
                    .ok_or_else(|| wasmtime::format_err!("no message"))?;
                start(handle, store, accessor, (message,), single_verdict)
            }
            Self::Batch(handle) => {
                let messages = (messages.collect(),);
                start(handle, store, accessor, messages, |answer| {
                    batch_verdicts(attempt, answer)
                })
            }
        }
    }
}

/// Begins a call in an instance that takes many attempts at once.
fn start<'a, P, R>(
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

fn single_verdict(answer: SingleAnswer) -> Vec<Verdict> {
    vec![answer.0.map_or_else(verdict, |()| Verdict::Done)]
}

fn batch_verdicts(attempt: &Attempt, answer: BatchAnswer) -> Vec<Verdict> {
    match answer.0 {
        Ok(failed) => sort_out(
            &attempt.messages,
            failed
                .into_iter()
                .map(|Failed { id, failure }| (id, verdict(failure))),
        ),
        Err(failure) => vec![verdict(failure); attempt.messages.len()],
    }
}

/// Returns the place of an export's function `handle`.
fn handle(component: &Component, export: &str) -> Option<ComponentExportIndex> {
    let instance = component.get_export_index(None, export)?;
    component.get_export_index(Some(&instance), "handle")
}
