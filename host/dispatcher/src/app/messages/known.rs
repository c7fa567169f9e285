//! The queues that calls of the admin API about messages may name, and the parts of their messages
//! that may be shown.

use super::super::operations::no_such;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatcher_config::Settings;
use dispatcher_config::name::QueueName;
use dispatcher_core::message;
use dispatcher_core::message::{AttributeValue, Message};
use dispatcher_core::queue::Queue;
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

/// The queues of routes, and their dead-letter queues. A queue uses the redaction rules of all its
/// routes.
#[derive(Debug, Default)]
pub(crate) struct RouteQueues {
    queues: BTreeMap<String, (QueueName, BTreeSet<usize>)>,
    redact: Vec<Vec<Rule>>,
    sources: BTreeSet<String>,
    /// The queues that messages may be sent to, by their name in the configuration.
    send_to: BTreeMap<String, QueueName>,
}

/// Returns the redaction rules of a route's recording.
pub(crate) fn redaction(route: &dispatcher_config::Route) -> Vec<Rule> {
    let record = route.plugin.trials.record.as_ref();
    record
        .map(|record| record.terms.redact.clone())
        .unwrap_or_default()
}

impl RouteQueues {
    /// Creates the known queues from the settings' routes, whose queues are `opened`, in their
    /// order.
    pub(crate) fn new(settings: &Settings, opened: &[Arc<dyn Queue>]) -> Self {
        let mut known = Self {
            queues: BTreeMap::new(),
            redact: settings.routes.iter().map(redaction).collect(),
            sources: opened
                .iter()
                .map(|queue| queue.identity().source.clone())
                .collect(),
            send_to: settings
                .queue_names()
                .chain(settings.admin.iter().flat_map(|admin| &admin.send_queues))
                .map(|name| (name.to_string(), name.clone()))
                .collect(),
        };
        let routes = settings.routes.iter().enumerate();
        let queues = routes.flat_map(|(at, route)| route.queues.iter().map(move |one| (at, one)));
        for ((route, queue), opened) in queues.zip(opened) {
            known.add(queue.name.to_string(), route);
            known.add(opened.identity().name.clone(), route);
            let dead = [opened.dead_letter_queue(), opened.redrive_policy_target()];
            for dead in dead.into_iter().flatten() {
                known.add(dead, route);
            }
        }
        known
    }

    fn add(&mut self, text: String, route: usize) {
        let Ok(name) = text.parse::<QueueName>() else {
            return;
        };
        let (_, routes) = self
            .queues
            .entry(text)
            .or_insert_with(|| (name, BTreeSet::new()));
        routes.insert(route);
    }
}

impl KnownQueues for RouteQueues {
    fn find(&self, queue: &str) -> Result<KnownQueue, CallProblem> {
        let known = self.queues.get(queue);
        let (name, routes) =
            known.ok_or_else(|| no_such("queue", queue, self.queues.keys().map(String::as_str)))?;
        let mut redact: Vec<Rule> = Vec::new();
        for rule in routes.iter().flat_map(|route| &self.redact[*route]) {
            if !redact.contains(rule) {
                redact.push(rule.clone());
            }
        }
        Ok(KnownQueue {
            name: name.clone(),
            redact,
        })
    }

    fn sends_to(&self, queue: &str) -> Result<SendTarget, CallProblem> {
        let found = self.send_to.get(queue).map(|name| SendTarget {
            name: name.clone(),
            is_made: true,
        });
        found.ok_or_else(|| {
            let names: Vec<&str> = self.send_to.keys().map(String::as_str).collect();
            CallProblem::not_found(format!(
                "Nothing was sent: this process does not send to queue `{queue}`, only to {}. \
                 --admin-send-queues adds others.",
                names.join(", ")
            ))
        })
    }

    fn is_source(&self, source: &str) -> bool {
        self.sources.contains(source)
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
