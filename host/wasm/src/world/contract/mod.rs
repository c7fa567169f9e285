//! The contract's versions that this host supports, one file each, and what they have in common.

mod exports;
mod trace;
pub(crate) mod v0_1;
pub(crate) mod v0_2;

use crate::capability::description::{CONTRACT, CONTRACT_0_2, Interface};
use crate::guest::Guest;
use dispatcher_core::files;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{FailureReason, Message, Verdict};
use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use wasmtime::component::{Accessor, Component, GuestTaskId, InstancePre, Linker};
use wasmtime::{AsContextMut, Engine, Store};

/// A version of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContractVersion {
    V0_1,
    V0_2,
}

/// A function that a plugin exports: which one a component has decides how it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContractExport {
    /// With the version: `dispatcher:plugin/handler@0.1.0`.
    pub(crate) name: &'static str,
    version: ContractVersion,
    /// Whether it takes many messages at a time.
    pub(crate) is_batch: bool,
}

/// All exports, those of the newest version first.
pub(crate) const EXPORTS: [ContractExport; 4] = [
    ContractExport {
        name: v0_2::HANDLER,
        version: ContractVersion::V0_2,
        is_batch: false,
    },
    ContractExport {
        name: v0_2::BATCH_HANDLER,
        version: ContractVersion::V0_2,
        is_batch: true,
    },
    ContractExport {
        name: v0_1::HANDLER,
        version: ContractVersion::V0_1,
        is_batch: false,
    },
    ContractExport {
        name: v0_1::BATCH_HANDLER,
        version: ContractVersion::V0_1,
        is_batch: true,
    },
];

/// One message of an attempt.
#[derive(Clone, Copy)]
struct Delivery<'a> {
    message: &'a Message,
    attempt: &'a Attempt,
    at: usize,
}

impl<'a> Delivery<'a> {
    fn all(attempt: &'a Attempt) -> impl Iterator<Item = Self> {
        let messages = attempt.messages.iter().enumerate();
        messages.map(move |(at, message)| Self {
            message,
            attempt,
            at,
        })
    }

    /// The number of the attempt, from 1.
    fn number(&self) -> u32 {
        self.attempt.number(self.at)
    }

    /// The same for every delivery of this message, and for no other: 32 hexadecimal digits of its
    /// queue and id, whatever characters these have.
    fn idempotency_key(&self) -> String {
        let Message { source, id, .. } = self.message;
        let mut key = files::digest(format!("{source}\n{id}").as_bytes());
        key.truncate(32);
        key
    }

    /// When its attempt is stopped, in milliseconds since the Unix epoch.
    fn deadline(&self) -> u64 {
        self.attempt.deadline.date().0
    }
}

/// What any plugin may import without a grant.
pub(crate) const INTERFACES: [Interface; 3] = [
    Interface::new("dispatcher:plugin/context", &CONTRACT),
    Interface::new("dispatcher:plugin/log", &[CONTRACT_0_2]),
    Interface::new("dispatcher:plugin/metrics", &[CONTRACT_0_2]),
];

/// Maximum messages of one attempt at a batch, as an SQS event source of AWS Lambda has it.
const BATCH: usize = 10_000;

/// Adds what any plugin may import to a linker.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    v0_1::link(linker)?;
    v0_2::link(linker)
}

/// Those of the contract's exports that a component has.
pub(crate) fn exports_of(component: &Component) -> impl Iterator<Item = ContractExport> {
    let has = |export: &ContractExport| component.get_export_index(None, export.name).is_some();
    EXPORTS.into_iter().filter(has)
}

/// A call that was begun in an instance that takes many attempts at once.
pub(crate) struct StartedCall<'a> {
    /// The computing task, as far as the engine reports it.
    pub(crate) task: GuestTaskId,
    /// One verdict per message of the attempt. An error is a trap.
    pub(crate) verdicts: Pin<Box<dyn Future<Output = wasmtime::Result<Vec<Verdict>>> + Send + 'a>>,
}

/// What the versions have, once for each.
macro_rules! versions {
    ($($version:ident: $module:ident),+) => {
        /// A plugin whose imports are resolved and whose exports are found.
        pub(crate) enum ExportsPre {
            $($version($module::ExportsPre),)+
        }

        /// The exports of one instance.
        pub(crate) enum Exports {
            $($version($module::Exports),)+
        }

        /// The export of one instance that takes many attempts at once.
        #[derive(Clone, Copy)]
        pub(crate) enum Many {
            $($version($module::Many),)+
        }

        impl ExportsPre {
            /// Finds an export. An error if its type is another.
            pub(crate) fn new(
                export: ContractExport,
                pre: InstancePre<Guest>,
            ) -> wasmtime::Result<Self> {
                Ok(match export.version {
                    $(ContractVersion::$version => Self::$version($module::ExportsPre::new(export, pre)?),)+
                })
            }

            pub(crate) fn engine(&self) -> &Engine {
                match self {
                    $(Self::$version(pre) => pre.engine(),)+
                }
            }

            /// Maximum messages of one attempt.
            pub(crate) fn batch(&self) -> usize {
                match self {
                    $(Self::$version(pre) => pre.batch(),)+
                }
            }

            pub(crate) async fn instantiate(
                &self,
                store: &mut Store<Guest>,
            ) -> wasmtime::Result<Exports> {
                Ok(match self {
                    $(Self::$version(pre) => Exports::$version(pre.instantiate(store).await?),)+
                })
            }
        }

        impl Exports {
            /// One verdict per message. An error is a trap.
            pub(crate) async fn call(
                &self,
                store: &mut Store<Guest>,
                attempt: &Attempt,
            ) -> wasmtime::Result<Vec<Verdict>> {
                match self {
                    $(Self::$version(exports) => exports.call(store, attempt).await,)+
                }
            }
        }

        impl ManyPre {
            pub(crate) async fn instantiate(
                &self,
                store: &mut Store<Guest>,
            ) -> wasmtime::Result<Many> {
                let instance = self.pre.instantiate_async(&mut *store).await?;
                Ok(match self.export.version {
                    $(ContractVersion::$version => {
                        Many::$version($module::Many::new(self.export, store, instance)?)
                    })+
                })
            }
        }

        impl Many {
            /// Queues a call; the guest begins it when the store's event loop comes to it.
            pub(crate) fn begin<'a>(
                self,
                store: impl AsContextMut<Data = Guest>,
                accessor: &'a Accessor<Guest>,
                attempt: &'a Attempt,
            ) -> wasmtime::Result<StartedCall<'a>> {
                match self {
                    $(Self::$version(many) => many.begin(store, accessor, attempt),)+
                }
            }
        }
    };
}
versions!(V0_1: v0_1, V0_2: v0_2);

/// A plugin whose instances take many attempts at once.
#[derive(Clone)]
pub(crate) struct ManyPre {
    pre: InstancePre<Guest>,
    export: ContractExport,
}

impl ManyPre {
    /// Creates it from a component with one of the exports. None if that is not asynchronous: an
    /// instance would begin an attempt only when the previous one has ended.
    pub(crate) fn new(pre: InstancePre<Guest>) -> Option<Self> {
        let export = exports_of(pre.component()).next()?;
        exports::is_async(pre.component(), export.name).then_some(Self { pre, export })
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.pre.engine()
    }
}

/// One verdict per message from those that failed, by their ids. Of several answers about one message
/// the first counts.
fn sort_out(
    messages: &[Message],
    failed: impl ExactSizeIterator<Item = (String, Verdict)>,
) -> Vec<Verdict> {
    let mut verdicts: Vec<Option<Verdict>> = vec![None; messages.len()];
    // A guest may say much more than it was asked about.
    let mut answered = HashSet::new();
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    if failed.len() > 0 {
        for (at, message) in messages.iter().enumerate() {
            places.entry(&message.id).or_default().push(at);
        }
    }
    for (id, verdict) in failed {
        if let Some(places) = places.remove(&*id) {
            answered.insert(id);
            for at in places {
                verdicts[at] = Some(verdict.clone());
            }
        } else if !answered.contains(&id) {
            let id: String = id.chars().take(100).collect();
            let why = format!("it answered about {id:?}, an id that is not in the batch");
            let why = FailureReason::Trapped(why);
            return vec![Verdict::Retry { after: None, why }; messages.len()];
        }
    }
    let verdicts = verdicts.into_iter();
    verdicts
        .map(|verdict| verdict.unwrap_or(Verdict::Done))
        .collect()
}
