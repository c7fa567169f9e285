//! The queues that calls of the admin API about messages may name, and the parts of their messages
//! that may be shown.

use super::super::live::Live;
use super::super::live::route::LiveQueue;
use super::super::operations::no_such;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatcher_config::name::QueueName;
use dispatcher_core::message;
use dispatcher_core::message::{AttributeValue, Message};
use dispatcher_core::queue::origin::first_id;
use dispatcher_operate::messages::MessageView;
use dispatcher_operate::operations::{AttributeView, ContentView};
use dispatcher_operate::problem::CallProblem;
use dispatcher_operate::redrive::{redriven, source_of};
use dispatcher_operate::select::reason_of;
use dispatcher_trials::recording::redact;
use dispatcher_trials::recording::redact::Rule;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The maximum number of characters of a body or an attribute in a list.
const SHOWN: usize = 4_096;

/// A queue that calls may name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownQueue {
    pub name: QueueName,
    /// The redaction rules of its messages.
    pub redact: Vec<Rule>,
}

/// A queue that messages may be sent to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SendTarget {
    pub name: QueueName,
    /// Whether it is created if it does not exist and its backend can create it.
    pub is_made: bool,
}

/// The queues that calls may name.
pub(crate) trait KnownQueues: Send + Sync + 'static {
    /// Finds the queue of this name.
    fn find(&self, queue: &str) -> Result<KnownQueue, CallProblem>;

    /// Returns the queue of this name, if messages may be sent to it.
    fn sends_to(&self, queue: &str) -> Result<SendTarget, CallProblem>;

    /// Whether dead letters that name this source may be sent back to it. `source` has the form of
    /// `Identity::source`. Anyone who may send to the dead-letter queue can name any source.
    fn is_source(&self, source: &str) -> bool;
}

/// The queues of the running routes, and their dead-letter queues. A queue uses the redaction rules
/// of all its routes.
pub(crate) struct RouteQueues(pub Arc<Live>);

/// Returns the redaction rules of a route's recording.
pub(crate) fn redaction(route: &dispatcher_config::Route) -> Vec<Rule> {
    let record = route.plugin.trials.record.as_ref();
    record
        .map(|record| record.terms.redact.clone())
        .unwrap_or_default()
}

/// Returns the names of a queue and of its dead-letter queues.
fn names_of(queue: &LiveQueue) -> impl Iterator<Item = String> {
    let LiveQueue { text, queue, .. } = queue;
    let own = [text.clone(), queue.identity().name.clone()];
    let dead = [queue.dead_letter_queue(), queue.redrive_policy_target()];
    own.into_iter().chain(dead.into_iter().flatten())
}

impl KnownQueues for RouteQueues {
    fn find(&self, queue: &str) -> Result<KnownQueue, CallProblem> {
        // Operators also look at what a removed route still handles.
        let routes = self.0.table().with_attempts();
        let mut own = routes.iter().filter(|route| {
            let mut names = route.queues.iter().flat_map(names_of);
            names.any(|name| name == queue)
        });
        let Some((first, name)) = own.next().zip(queue.parse().ok()) else {
            let queues = routes.iter().flat_map(|route| &route.queues);
            let all: BTreeSet<String> = queues.flat_map(names_of).collect();
            return Err(no_such("queue", queue, all.iter().map(String::as_str)));
        };
        let mut redact = first.redact.clone();
        for rule in own.flat_map(|route| &route.redact) {
            if !redact.contains(rule) {
                redact.push(rule.clone());
            }
        }
        Ok(KnownQueue { name, redact })
    }

    fn sends_to(&self, queue: &str) -> Result<SendTarget, CallProblem> {
        let settings = self.0.settings();
        let of_admin = settings.admin.iter().flat_map(|admin| &admin.send_queues);
        let names = settings.queue_names().chain(of_admin);
        let all: BTreeMap<String, &QueueName> =
            names.map(|name| (name.to_string(), name)).collect();
        let found = all.get(queue).map(|name| SendTarget {
            name: (*name).clone(),
            is_made: true,
        });
        found.ok_or_else(|| {
            let names: Vec<&str> = all.keys().map(String::as_str).collect();
            CallProblem::not_found(format!(
                "Nothing was sent: this process does not send to queue `{queue}`, only to {}. \
                 --admin-send-queues adds others.",
                names.join(", ")
            ))
        })
    }

    fn is_source(&self, source: &str) -> bool {
        let table = self.0.table();
        let mut queues = table.queues();
        queues.any(|one| one.queue.identity().source == source)
    }
}

/// Returns the parts of a message that may be shown.
pub(crate) fn content(redact: &[Rule], message: &Message) -> ContentView {
    let message = redact::message(redact, message);
    let attributes = message.attributes.into_iter().map(|attribute| {
        let (value, binary) = match attribute.value {
            AttributeValue::Text(text) => (text, false),
            AttributeValue::Binary(bytes) => (STANDARD.encode(bytes), true),
        };
        AttributeView {
            name: attribute.name,
            value,
            binary,
        }
    });
    ContentView {
        body: message.body,
        group: message.group,
        attributes: attributes.collect(),
        cut: false,
    }
}

/// Returns the content for a list, which shortens long values.
fn short_content(redact: &[Rule], message: &Message) -> ContentView {
    let mut content = content(redact, message);
    let values = content.attributes.iter_mut().map(|one| &mut one.value);
    for text in std::iter::once(&mut content.body).chain(values) {
        if let Some((end, _)) = text.char_indices().nth(SHOWN) {
            text.truncate(end);
            content.cut = true;
        }
    }
    content
}

/// Returns a message of a list, with the beginning of its content if that may be shown.
pub(super) fn listed(message: &Message, redact: Option<&[Rule]>) -> MessageView {
    MessageView {
        content: redact.map(|redact| short_content(redact, message)),
        ..view(message, None)
    }
}

/// Returns a waiting message, with its content if that may be shown.
pub(super) fn view(message: &Message, redact: Option<&[Rule]>) -> MessageView {
    MessageView {
        id: message.id.clone(),
        first_id: first_id(message).map(str::to_owned),
        reason: reason_of(message).map(str::to_owned),
        source: source_of(message).map(|source| written(message, source.name())),
        receive_count: message.receive_count.into(),
        redriven: redriven(message).into(),
        sent_at: message.sent_at.map(|at| at.to_string()),
        bytes: message::bytes(&message.body, &message.attributes).into(),
        unreadable: message.unreadable.as_ref().map(ToString::to_string),
        content: redact.map(|redact| content(redact, message)),
    }
}

/// Returns the queue that a dead letter came from in the notation of the configuration, if its
/// backend knows it: a redrive policy names it by an ARN.
fn written(letter: &Message, source: &str) -> String {
    let own = letter.queue.parse::<QueueName>().ok();
    let named = own.and_then(|own| QueueName::of_source(own.backend, source));
    named.map_or_else(|| source.to_owned(), |name| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::message::Attribute;

    #[test]
    fn source_of_a_letter_is_written_as_its_queue_is() {
        let arn = "arn:aws:sqs:us-east-1:000000000000:orders";
        for (queue, source, shown) in [
            ("local:orders.dead", arn, "local:orders"),
            ("local:orders.dead", "local:orders", "local:orders"),
            ("redis:orders.dead", "elsewhere", "elsewhere"),
        ] {
            let letter = Message {
                queue: queue.into(),
                ..Message::default()
            };
            assert_eq!(written(&letter, source), shown, "{queue}, {source}");
        }
    }

    #[test]
    fn a_list_shows_the_beginnings_of_long_values_and_the_message_all_of_them() {
        let long = "é".repeat(SHOWN + 1);
        let message = Message {
            body: long.clone(),
            attributes: vec![Attribute::text("a", &*long), Attribute::text("b", "short")],
            ..Message::default()
        };
        let list = listed(&message, Some(&[])).content.expect("it is granted");
        assert!(list.cut);
        assert_eq!(list.body.chars().count(), SHOWN);
        assert_eq!(list.attributes[0].value.chars().count(), SHOWN);
        assert_eq!(list.attributes[1].value, "short");
        let whole = view(&message, Some(&[])).content.expect("it is granted");
        assert!(!whole.cut && whole.body == long);
        assert!(listed(&message, None).content.is_none());
    }
}
