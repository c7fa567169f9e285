//! The interface between a capability and the host: what a capability may use of the instance whose
//! guest calls it. Does not depend on instances: the owner of guests implements `Caller`.

use super::description::Description;
use super::http::connection::ConnectionLimit as Connections;
use super::refusals::{Denial, Refusals};
use super::shown::TracedCall;
use crate::causes::Causes;
use crate::invocation_limit::{Full, InvocationLimit, InvocationPermit};
use crate::limits::HostBudget;
use crate::problem::Problem;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::handler::Attempt;
use dispatcher_core::queue::prefix::QueuePrefix;
use dispatcher_core::telemetry::trace::{self, ActiveSpan};
use std::any::Any;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use tokio::runtime::Handle;
use wasmtime::component::{Accessor, GuestTaskId, HasData, Linker, ResourceTable};
use wasmtime::{AsContextMut, StoreContextMut};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::sockets::TcpSocket;
use wasmtime_wasi::{WasiView, p2};
use wasmtime_wasi_http::WasiHttpView;

/// A grant of one capability to a plugin in the configuration. By default it grants nothing.
pub(crate) trait Grant: Default {
    const DESCRIPTION: Description;

    /// The grant in the form that all instances of the plugin share.
    type SharedGrant: Default;

    /// Adds the functions that guests call to a linker. They may replace WASI's own.
    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()>;

    /// Makes the grant ready for use by the plugin's instances.
    fn give(self, plugin: &Recipient<'_>) -> Self::SharedGrant;

    /// Returns the grant for a shadow, which must not reach other systems.
    fn for_shadow(self) -> Self;

    /// Checks, before a plugin is loaded, that this can be granted.
    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }

    /// Returns a word for what is not granted, such as `queues`, if a component that requests the
    /// capability is refused without it. If it returns `None`, the component is loaded, and its
    /// calls are refused.
    fn missing(&self) -> Option<&'static str> {
        None
    }
}

/// A plugin that is being loaded, and the resources of its capabilities.
pub(crate) struct Recipient<'a> {
    /// The name in logs.
    pub(crate) name: &'a str,
    /// The prefix of queue names, which it does not write.
    pub(crate) queue_prefix: &'a QueuePrefix,
    pub(crate) refusals: &'a Arc<Refusals>,
    /// The runtime on which calls that are not WASI's own are made.
    pub(crate) control: &'a Handle,
    /// The HTTP connections of the process.
    pub(crate) connections: &'a Connections,
}

/// An instance whose guest calls a capability.
pub(crate) trait Caller: WasiView + WasiHttpView + 'static {
    /// Returns its plugin's name in logs.
    fn plugin(&self) -> &str;

    /// Returns the refusals of its plugin.
    fn refusals(&self) -> &Arc<Refusals>;

    /// Returns the limit of the host's memory for its outstanding calls.
    fn limit(&self) -> &InvocationLimit;

    /// Returns the limit of the host's memory for everything else.
    fn budget(&self) -> HostBudget;

    /// Returns the maximum number of files, folders and sockets that it may hold open.
    fn max_open(&self) -> usize;

    /// Whether several attempts share it.
    fn is_shared(&self) -> bool;

    /// Returns the deadline of its only attempt.
    fn deadline(&self) -> Option<BootInstant>;

    /// Returns the attempt that it works on; if there are several, the one with this message.
    fn attempt(&self, message_id: Option<&str>) -> Option<&Arc<Attempt>>;

    /// Returns the attempt that it works on; if there are several, the one of this guest task.
    fn attempt_of(&self, task: Option<GuestTaskId>) -> Option<&Arc<Attempt>>;

    /// Returns the span of the attempt of this guest task, if the instance works on several
    /// attempts.
    fn span_of(&self, task: Option<GuestTaskId>) -> Option<ActiveSpan>;

    /// Returns the causes of failed messages, as far as its calls show them.
    fn causes(&mut self) -> &mut Causes;

    /// Returns the table of its resource handles.
    fn table(&mut self) -> &mut ResourceTable {
        self.ctx().table
    }

    /// Takes budget for one more outstanding call, with this many bytes.
    fn hold(&self, bytes: usize) -> Result<InvocationPermit, Full> {
        self.limit().hold(bytes)
    }

    /// Returns the number of handles of this type that it holds.
    fn holds<T: 'static>(&mut self) -> usize {
        let entries = self.table().iter_mut();
        entries.filter(|entry| entry.is::<T>()).count()
    }

    /// Whether it may open another file, folder or socket.
    fn may_open(&mut self) -> bool {
        open_files(self) < self.max_open()
    }

    /// Whether it holds more open than it may.
    fn holds_too_many_files(&mut self) -> bool {
        open_files(self) > self.max_open()
    }

    /// Counts a denial of `name`, and returns the guest's error.
    fn refuse<E: Debug>(&self, what: &Denial, name: &str, told: E, call: TracedCall) -> E {
        self.refusals().refuse(what, name);
        call.answered(&Err::<(), _>(&told));
        told
    }
}

fn open_files<C: Caller + ?Sized>(caller: &mut C) -> usize {
    caller
        .table()
        .iter_mut()
        .filter(|entry: &&mut (dyn Any + Send)| {
            entry.is::<Descriptor>() || entry.is::<p2::TcpSocket>() || entry.is::<TcpSocket>()
        })
        .count()
}

/// A caller whose plugin has a grant of this capability. A capability sees only its own grant.
pub(crate) trait GrantedTo<G: Grant>: Caller {
    fn granted(&self) -> &G::SharedGrant;
}

/// A caller as the bindings of a capability's functions receive it.
pub(crate) struct View<'a, C>(pub(crate) &'a mut C);

/// The kind of data by which the bindings get a `View`.
pub(crate) struct ViewOf<C>(PhantomData<fn() -> C>);

impl<C: 'static> HasData for ViewOf<C> {
    type Data<'a> = View<'a, C>;
}

/// Begins a call that runs concurrently with the rest of the instance, in the span of the attempt
/// whose task makes it.
pub(crate) fn begin_call<T: 'static, C: Caller, R>(
    accessor: &Accessor<T, ViewOf<C>>,
    begin: impl FnOnce(&mut C, Option<GuestTaskId>) -> R,
) -> R {
    accessor.with(|mut access| {
        let task = task_of(&mut access.as_context_mut());
        let View(caller) = access.get();
        let mut span = caller.span_of(task);
        trace::within(&mut span, || begin(caller, task))
    })
}

/// Returns the guest task that is running. It is the last in the call stack, the one of the host's
/// call.
pub(crate) fn task_of<T: 'static>(store: &mut StoreContextMut<'_, T>) -> Option<GuestTaskId> {
    store.async_call_stack().ok().and_then(Iterator::last)
}

/// Wraps a caller for the bindings.
pub(crate) fn view<C>(caller: &mut C) -> View<'_, C> {
    View(caller)
}
