//! Version 0.1 of the contract: its bindings, and the conversion from the host's types to the
//! guest's and back.

pub(crate) mod many;

use super::typecheck::check;
use crate::capability::description::Interface;
use crate::guest::Guest;
use crate::limits::reason;
use batch::dispatcher::plugin::{context, types};
use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{AttributeValue, FailureReason, Message, Verdict};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use wasmtime::component::{HasSelf, InstancePre, Linker};
use wasmtime::{Engine, Store};

/// The version as interface names carry it.
pub(crate) const VERSION: &str = "0.1.0";
/// What a plugin of single messages exports.
pub(crate) const HANDLER: &str = "dispatcher:plugin/handler@0.1.0";
/// What a plugin of batches exports.
pub(crate) const BATCH_HANDLER: &str = "dispatcher:plugin/batch-handler@0.1.0";
/// What any plugin may import of it.
pub(crate) const INTERFACES: [Interface; 1] =
    [Interface::new("dispatcher:plugin/context", &[VERSION])];

/// Maximum messages of one attempt at a batch, as an SQS event source of AWS Lambda has it.
const BATCH: usize = 10_000;

/// Bindings for plugins of batches.
pub(crate) mod batch {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package dispatcher:host;
            world batch {
                import dispatcher:plugin/context@0.1.0;
                export dispatcher:plugin/batch-handler@0.1.0;
            }
        ",
        world: "dispatcher:host/batch",
        imports: { default: tracing | verbose_tracing },
        exports: { default: async },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

/// Bindings for plugins of single messages, on the same nouns.
pub(crate) mod single {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package dispatcher:host;
            world single {
                import dispatcher:plugin/context@0.1.0;
                export dispatcher:plugin/handler@0.1.0;
            }
        ",
        world: "dispatcher:host/single",
        exports: { default: async },
        with: {
            "dispatcher:plugin/types@0.1.0": super::batch::dispatcher::plugin::types,
            "dispatcher:plugin/context@0.1.0": super::batch::dispatcher::plugin::context,
        },
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

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
    /// Finds the exports of a component that has one of the two. An error if their types differ.
    pub(crate) fn new(pre: InstancePre<Guest>) -> wasmtime::Result<Self> {
        if pre.component().get_export_index(None, HANDLER).is_some() {
            check::<(types::Message<'_>,), (Result<(), types::Failure>,)>(&pre, HANDLER, "handle")?;
            Ok(Self::Single(single::SinglePre::new(pre)?))
        } else {
            check::<BatchParams<'_>, BatchAnswer>(&pre, BATCH_HANDLER, "handle")?;
            Ok(Self::Batch(batch::BatchPre::new(pre)?))
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        match self {
            Self::Single(pre) => pre.engine(),
            Self::Batch(pre) => pre.engine(),
        }
    }

    /// Maximum messages of one attempt.
    pub(crate) fn batch(&self) -> usize {
        match self {
            Self::Single(_) => 1,
            Self::Batch(_) => BATCH,
        }
    }

    pub(crate) async fn instantiate(&self, store: &mut Store<Guest>) -> wasmtime::Result<Exports> {
        Ok(match self {
            Self::Single(pre) => Exports::Single(pre.instantiate_async(store).await?),
            Self::Batch(pre) => Exports::Batch(pre.instantiate_async(store).await?),
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
            Self::Single(exports) => call_single(exports, store, attempt).await,
            Self::Batch(exports) => call_batch(exports, store, attempt).await,
        }
    }
}

type BatchParams<'a> = (&'a [types::Message<'a>],);
type BatchAnswer = (Result<Vec<types::Failed>, types::Failure>,);

/// Adds what any plugin may import to a linker.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    context::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)
}

impl types::Host for Guest {}

impl context::Host for Guest {
    fn cancelled(&mut self, message_id: String) -> bool {
        self.is_message_cancelled(&message_id)
    }
}

async fn call_single(
    exports: &single::Single,
    store: &mut Store<Guest>,
    attempt: &Attempt,
) -> wasmtime::Result<Vec<Verdict>> {
    let Some(message) = attempt.messages.first() else {
        return Ok(Vec::new());
    };
    let lists = Lists::of(message);
    let message = lists.message(message, attempt);
    let handler = exports.dispatcher_plugin_handler();
    let answer = handler.call_handle(store, message).await?;
    Ok(vec![answer.map_or_else(verdict, |()| Verdict::Done)])
}

async fn call_batch(
    exports: &batch::Batch,
    store: &mut Store<Guest>,
    attempt: &Attempt,
) -> wasmtime::Result<Vec<Verdict>> {
    let lists: Vec<_> = attempt.messages.iter().map(Lists::of).collect();
    let messages: Vec<_> = lists
        .iter()
        .zip(&attempt.messages)
        .map(|(lists, message)| lists.message(message, attempt))
        .collect();
    let handler = exports.dispatcher_plugin_batch_handler();
    Ok(match handler.call_handle(store, &messages).await? {
        Ok(failed) => sort_out(&attempt.messages, failed),
        Err(failure) => vec![verdict(failure); attempt.messages.len()],
    })
}

/// One verdict per message from the list of those that failed. Of several answers about one
/// message the first counts.
fn sort_out(messages: &[Message], failed: Vec<types::Failed>) -> Vec<Verdict> {
    let mut verdicts: Vec<Option<Verdict>> = vec![None; messages.len()];
    // A guest may say much more than it was asked about.
    let mut answered = HashSet::new();
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    if !failed.is_empty() {
        for (at, message) in messages.iter().enumerate() {
            places.entry(&message.id).or_default().push(at);
        }
    }
    for types::Failed { id, failure } in failed {
        if let Some(places) = places.remove(&*id) {
            answered.insert(id);
            let verdict = verdict(failure);
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

fn verdict(failure: types::Failure) -> Verdict {
    match failure {
        types::Failure::Retry(after) => Verdict::Retry {
            after: after.map(Duration::from_millis),
            why: FailureReason::Asked,
        },
        types::Failure::Reject(why) => Verdict::Reject(reason(why)),
        types::Failure::Busy(busy) => Verdict::Busy {
            after: busy.after.map(Duration::from_millis),
            why: reason(busy.reason),
        },
        types::Failure::Closed(why) => Verdict::Closed(reason(why)),
    }
}

/// The lists of one message in the guest's shape; all else it borrows as it is.
struct Lists<'a> {
    system_attributes: Vec<(&'a str, &'a str)>,
    attributes: Vec<types::Attribute<'a>>,
}

impl<'a> Lists<'a> {
    fn of(message: &'a Message) -> Self {
        let system = message.system_attributes.iter();
        let attributes = message.attributes.iter();
        Self {
            system_attributes: system.map(|(name, value)| (&**name, &**value)).collect(),
            attributes: attributes
                .map(|attribute| types::Attribute {
                    name: &attribute.name,
                    data_type: &attribute.data_type,
                    value: match &attribute.value {
                        AttributeValue::Text(text) => types::AttributeValue::Text(text),
                        AttributeValue::Binary(bytes) => types::AttributeValue::Binary(bytes),
                    },
                })
                .collect(),
        }
    }

    fn message(&'a self, message: &'a Message, attempt: &Attempt) -> types::Message<'a> {
        types::Message {
            id: &message.id,
            queue: &message.queue,
            body: &message.body,
            source: &message.source,
            receipt: &message.receipt.0,
            receive_count: message.receive_count,
            deadline: attempt.deadline_date.0,
            sent_at: message.sent_at.map(|date| date.0),
            first_received_at: message.first_received_at.map(|date| date.0),
            group: message.group.as_deref(),
            system_attributes: &self.system_attributes,
            attributes: &self.attributes,
            body_md5: message.body_md5.as_deref(),
            attributes_md5: message.attributes_md5.as_deref(),
        }
    }
}
