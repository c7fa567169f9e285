//! The interface between a capability and the host, and what it may use of the instance whose guest
//! calls it. Knows no instance: the owner of guests implements `Caller`.

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

/// What the configuration grants a plugin of one capability; by default nothing.
pub(crate) trait Grant: Default {
    const DESCRIPTION: Description;

    /// The grant as all instances of the plugin share it.
    type Granted: Default;

    /// Adds the functions that guests call to a linker. They may take the place of WASI's own.
    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()>;

    /// Makes the grant ready for use by the plugin's instances.
    fn give(self, plugin: &Recipient<'_>) -> Self::Granted;

    /// What a shadow is granted in its place: nothing that reaches others.
    fn for_shadow(self) -> Self;

    /// Why it cannot be granted, before a plugin is loaded.
    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }

    /// What is missing without which a component that requests it is refused: `queues`. Where none
    /// is, it is loaded, and refused what it tries.
    fn missing(&self) -> Option<&'static str> {
        None
    }
}

/// A plugin that is being loaded, and what its capabilities work with.
pub(crate) struct Recipient<'a> {
    /// In logs.
    pub(crate) name: &'a str,
    pub(crate) refusals: &'a Arc<Refusals>,
    /// Where calls that are not WASI's own are made.
    pub(crate) control: &'a Handle,
    /// The HTTP connections of the process.
    pub(crate) connections: &'a Connections,
}

/// An instance whose guest calls a capability.
pub(crate) trait Caller: WasiView + WasiHttpView + 'static {
    /// Its plugin's name in logs.
    fn plugin(&self) -> &str;

    /// What was refused to its plugin.
    fn refusals(&self) -> &Arc<Refusals>;

    /// How much of the host's memory it may take by what it has under way.
    fn limit(&self) -> &InvocationLimit;

    /// How much of the host's memory it may take otherwise.
    fn budget(&self) -> HostBudget;

    /// The most files, folders and sockets that it may hold open.
    fn max_open(&self) -> usize;

    /// Whether many attempts share it.
    fn is_shared(&self) -> bool;

    /// When its only attempt must end.
    fn deadline(&self) -> Option<BootInstant>;

    /// The attempt that it works on; of several the one on this message.
    fn attempt(&self, message_id: Option<&str>) -> Option<&Arc<Attempt>>;

    /// The attempt that it works on; of several the one that this task of the guest works on.
    fn attempt_of(&self, task: Option<GuestTaskId>) -> Option<&Arc<Attempt>>;

    /// Of several attempts, the span of the one that this task of the guest works on.
    fn span_of(&self, task: Option<GuestTaskId>) -> Option<ActiveSpan>;

    /// Why messages failed, as far as its calls tell.
    fn causes(&mut self) -> &mut Causes;

    /// What it holds handles of.
    fn table(&mut self) -> &mut ResourceTable {
        self.ctx().table
    }

    /// Takes budget for one more outstanding call, with this many bytes.
    fn hold(&self, bytes: usize) -> Result<InvocationPermit, Full> {
        self.limit().hold(bytes)
    }

    /// How many handles of this kind it holds.
    fn holds<T: 'static>(&mut self) -> usize {
        let entries = self.table().iter_mut();
        entries.filter(|entry| entry.is::<T>()).count()
    }

    /// Whether it may open another file, folder or socket.
    fn may_open(&mut self) -> bool {
        open_files(self) < self.max_open()
    }

    /// Whether more are open than it may open.
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
    let is_open = |entry: &&mut (dyn Any + Send)| {
        entry.is::<Descriptor>() || entry.is::<p2::TcpSocket>() || entry.is::<TcpSocket>()
    };
    caller.table().iter_mut().filter(is_open).count()
}

/// A caller whose plugin has a grant of this capability. A capability sees no grant but its own.
pub(crate) trait GrantedTo<G: Grant>: Caller {
    fn granted(&self) -> &G::Granted;
}

/// A caller as the bindings of a capability's functions get it.
pub(crate) struct View<'a, C>(pub(crate) &'a mut C);

/// The kind of data by which the bindings get a `View`.
pub(crate) struct ViewOf<C>(PhantomData<fn() -> C>);

impl<C: 'static> HasData for ViewOf<C> {
    type Data<'a> = View<'a, C>;
}

/// Begins a call that runs beside whatever else the instance does, for the span of the attempt whose
/// task makes it.
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

/// The task of the guest that computes or calls: the last of the stack is the call that the host made.
pub(crate) fn task_of<T: 'static>(store: &mut StoreContextMut<'_, T>) -> Option<GuestTaskId> {
    store.async_call_stack().ok().and_then(Iterator::last)
}

/// What the bindings call to get one.
pub(crate) fn view<C>(caller: &mut C) -> View<'_, C> {
    View(caller)
}
