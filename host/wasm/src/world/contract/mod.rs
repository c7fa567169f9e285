//! The contract between host and plugin, `wit/`: its exports, and the imports that need no grant.

mod exports;
mod message;
mod services;
mod trace;

use crate::capability::description::{CONTRACT, Interface};
use dispatcher_core::files;
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{FailureReason, Message, Verdict};
use dispatcher_core::queue::prefix::QueuePrefix;
pub(crate) use exports::{Exports, ExportsPre};
pub(crate) use services::link;
use std::collections::{HashMap, HashSet};
use wasmtime::component::Component;

/// A function that a plugin exports. The export of a component decides how it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContractExport {
    /// The name with the version: `dispatcher:plugin/handler@0.1.0`.
    pub(crate) name: &'static str,
    /// Whether it takes many messages at a time.
    pub(crate) is_batch: bool,
}

/// All exports. If a component has several of them, the first counts.
pub(crate) const EXPORTS: [ContractExport; 4] = [
    ContractExport {
        name: "dispatcher:plugin/handler-async@0.1.0",
        is_batch: false,
    },
    ContractExport {
        name: "dispatcher:plugin/batch-handler-async@0.1.0",
        is_batch: true,
    },
    ContractExport {
        name: "dispatcher:plugin/handler@0.1.0",
        is_batch: false,
    },
    ContractExport {
        name: "dispatcher:plugin/batch-handler@0.1.0",
        is_batch: true,
    },
];

/// One message of an attempt.
#[derive(Clone, Copy)]
struct Delivery<'a> {
    message: &'a Message,
    attempt: &'a Attempt,
    at: usize,
    prefix: &'a QueuePrefix,
}

impl<'a> Delivery<'a> {
    fn all(attempt: &'a Attempt, prefix: &'a QueuePrefix) -> impl Iterator<Item = Self> {
        let messages = attempt.messages.iter().enumerate();
        messages.map(move |(at, message)| Self {
            message,
            attempt,
            at,
            prefix,
        })
    }

    /// Returns the number of the attempt, from 1.
    fn number(&self) -> u32 {
        self.attempt.number(self.at)
    }

    /// Returns a key that is the same for every delivery of this message and differs for other
    /// messages: 32 hexadecimal digits of a digest of its source and ID, which may have any
    /// characters.
    fn idempotency_key(&self) -> String {
        let Message { source, id, .. } = self.message;
        let mut key = files::digest(format!("{source}\n{id}").as_bytes());
        key.truncate(32);
        key
    }

    /// Returns when its attempt is stopped, in milliseconds since the Unix epoch.
    fn deadline(&self) -> u64 {
        self.attempt.deadline.date().0
    }
}

/// The interfaces that any plugin may import without a grant.
pub(crate) const INTERFACES: [Interface; 3] = [
    Interface::new("dispatcher:plugin/context", &[CONTRACT]),
    Interface::new("dispatcher:plugin/log", &[CONTRACT]),
    Interface::new("dispatcher:plugin/metrics", &[CONTRACT]),
];

/// The maximum number of messages of one attempt at a batch, as for an SQS event source of AWS
/// Lambda.
const BATCH: usize = 10_000;

/// Returns the exports of the contract that a component has.
pub(crate) fn exports_of(component: &Component) -> impl Iterator<Item = ContractExport> {
    EXPORTS
        .into_iter()
        .filter(|export: &ContractExport| component.get_export_index(None, export.name).is_some())
}

/// Returns one verdict per message, from the verdicts of those that failed, by their IDs. If there
/// are several answers about one message, the first counts.
fn sort_out(
    messages: &[Message],
    failed: impl ExactSizeIterator<Item = (String, Verdict)>,
) -> Vec<Verdict> {
    let mut verdicts: Vec<Option<Verdict>> = vec![None; messages.len()];
    // A guest may answer about many more messages than it was given.
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
            let words = format!("it answered about {id:?}, an id that is not in the batch");
            let why = FailureReason::Trapped(words);
            return vec![Verdict::Retry { after: None, why }; messages.len()];
        }
    }
    let verdicts = verdicts.into_iter();
    verdicts
        .map(|verdict| verdict.unwrap_or(Verdict::Done))
        .collect()
}
