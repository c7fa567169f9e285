//! The entry points of a plugin: the versions of the contract that this host supports, and those of
//! WASI. Detects which of them a component has. Passes messages on without inspecting them.

pub(super) mod command;
pub(super) mod contract;
pub(super) mod http;
mod typecheck;

use crate::guest::Guest;
use contract::ContractExport;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::Verdict;
use wasmtime::component::{Component, InstancePre};
use wasmtime::{Engine, Store};

pub(super) use typecheck::function;

/// The kind of a component, which decides how it is run. If several kinds fit, the first of these
/// counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComponentKind {
    /// An export of the contract, for one message at a time or for batches.
    Contract(ContractExport),
    /// An HTTP handler without a socket: every message is a request.
    Http,
    /// An HTTP handler of WASI 0.3.
    AsyncHttp,
    /// A program of WASI 0.2: every message is a run.
    Command,
    /// A command of WASI 0.3.
    AsyncCommand,
}

impl ComponentKind {
    /// The kinds of WASI, in the order in which they are checked.
    const WASI: [Self; 4] = [
        Self::Http,
        Self::AsyncHttp,
        Self::Command,
        Self::AsyncCommand,
    ];

    /// Returns the export of a component of this kind. Later versions of the same series also fit.
    pub(super) fn export(self) -> &'static str {
        match self {
            Self::Contract(export) => export.name,
            Self::Http => http::HANDLER,
            Self::AsyncHttp => http::ASYNC_HANDLER,
            Self::Command => command::RUN,
            Self::AsyncCommand => command::ASYNC_RUN,
        }
    }

    /// Detects the kind by the exports. Returns `None` if this host can run none of them.
    pub(super) fn of(component: &Component) -> Option<Self> {
        let of_contract = contract::exports_of(component).next().map(Self::Contract);
        of_contract.or_else(|| {
            Self::WASI
                .into_iter()
                .find(|way: &Self| component.get_export_index(None, way.export()).is_some())
        })
    }

    /// Whether it serves HTTP.
    pub(super) fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::AsyncHttp)
    }

    /// Whether every message is a run of a program, which reads the message from stdin.
    pub(super) fn is_command(self) -> bool {
        matches!(self, Self::Command | Self::AsyncCommand)
    }
}

/// A plugin whose imports are resolved and whose exports are found.
pub(super) enum ExportsPre {
    Contract(contract::ExportsPre),
    Http(http::HandlerPre),
    Command(command::CommandPre),
}

/// The exports of one instance.
pub(super) enum Exports {
    Contract(contract::Exports),
    Http(http::Handler),
    Command(command::Command),
}

impl ExportsPre {
    /// Finds the exports of a component of this kind. Returns an error if their types are
    /// different.
    pub(super) fn new(way: ComponentKind, pre: InstancePre<Guest>) -> wasmtime::Result<Self> {
        Ok(match way {
            ComponentKind::Contract(export) => {
                Self::Contract(contract::ExportsPre::new(export, pre)?)
            }
            ComponentKind::Http => Self::Http(http::HandlerPre::new(pre)?),
            ComponentKind::AsyncHttp => Self::Http(http::HandlerPre::new_async(pre)?),
            ComponentKind::Command => Self::Command(command::CommandPre::new(pre)?),
            ComponentKind::AsyncCommand => Self::Command(command::CommandPre::new_async(pre)?),
        })
    }

    pub(super) fn engine(&self) -> &Engine {
        match self {
            Self::Contract(pre) => pre.engine(),
            Self::Http(pre) => pre.engine(),
            Self::Command(pre) => pre.engine(),
        }
    }

    /// Returns the export whose instances can take many attempts at once. Returns `None` if it is not
    /// asynchronous: an instance would begin an attempt only when the previous one has ended.
    pub(super) fn concurrent(&self) -> Option<&contract::ExportsPre> {
        match self {
            Self::Contract(pre) => pre.is_async().then_some(pre),
            Self::Http(_) | Self::Command(_) => None,
        }
    }

    /// Returns the maximum number of messages of one attempt.
    pub(super) fn batch(&self) -> usize {
        match self {
            Self::Contract(pre) => pre.batch(),
            Self::Http(_) | Self::Command(_) => 1,
        }
    }

    pub(super) async fn instantiate(&self, store: &mut Store<Guest>) -> wasmtime::Result<Exports> {
        Ok(match self {
            Self::Contract(pre) => Exports::Contract(pre.instantiate(store).await?),
            Self::Http(pre) => Exports::Http(pre.instantiate(store).await?),
            Self::Command(pre) => Exports::Command(pre.instantiate(store).await?),
        })
    }
}

impl Exports {
    /// Returns one verdict per message. An error is a trap.
    pub(super) async fn call(
        &self,
        store: &mut Store<Guest>,
        attempt: &Attempt,
    ) -> wasmtime::Result<Vec<Verdict>> {
        let Some(message) = attempt.messages.first() else {
            return Ok(Vec::new());
        };
        Ok(match self {
            Self::Contract(exports) => exports.call(store, attempt).await?,
            Self::Http(handler) => vec![handler.call(store, message, attempt).await?],
            Self::Command(command) => vec![command.call(store).await?],
        })
    }
}
