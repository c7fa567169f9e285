//! Which queues the admin API names in calls about messages, and what of their messages may be shown.

use super::super::operations::no_such;
use crate::admin::messages::MessageView;
use crate::admin::operations::{AttributeView, ContentView};
use crate::admin::problem::CallProblem;
use crate::admin::rfc3339;
use crate::config::Settings;
use crate::name::QueueName;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatcher_core::message;
use dispatcher_core::message::{AttributeValue, Message};
use dispatcher_core::queue::Queue;
use dispatcher_core::recording::redact;
use dispatcher_core::recording::redact::Rule;
use dispatcher_core::redrive::{reason_of, redriven, source_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many characters of a body or an attribute are shown in a list.
const SHOWN: usize = 4_096;

/// A queue that may be named.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownQueue {
    pub name: QueueName,
    /// What of its messages is redacted.
    pub redact: Vec<Rule>,
}

/// The queues that may be named.
pub(crate) trait KnownQueues: Send + Sync + 'static {
    /// The one of this name.
    fn find(&self, queue: &str) -> Result<KnownQueue, CallProblem>;

    /// Whether dead letters may go back to the queue of this name, which is that of `Identity::source`,
    /// because they say that they came from it: anybody who may send to their queue can say so.
    fn is_source(&self, source: &str) -> bool;
}

/// The queues of routes, and their dead-letter queues. What any of the routes of a queue redacts is
/// redacted.
#[derive(Debug, Default)]
pub(crate) struct RouteQueues {
    queues: BTreeMap<String, (QueueName, BTreeSet<usize>)>,
    redact: Vec<Vec<Rule>>,
    sources: BTreeSet<String>,
}

/// What the recording rules of a route's plugin redact.
pub(crate) fn redaction(route: &crate::config::Route) -> Vec<Rule> {
    let record = route.plugin.trials.record.as_ref();
    record
        .map(|record| record.terms.redact.clone())
        .unwrap_or_default()
}

impl RouteQueues {
    /// Of the settings' routes, whose queues are `opened`, in their order.
    pub(crate) fn new(settings: &Settings, opened: &[Arc<dyn Queue>]) -> Self {
        let mut known = Self {
            queues: BTreeMap::new(),
            redact: settings.routes.iter().map(redaction).collect(),
            sources: opened
                .iter()
                .map(|queue| queue.identity().source.clone())
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

    fn is_source(&self, source: &str) -> bool {
        self.sources.contains(source)
    }
}

/// What of a message may be shown.
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

/// The same for a list, which shows the beginnings of long values.
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

/// A message of a list, with the beginning of its content if that may be shown.
pub(super) fn listed(message: &Message, redact: Option<&[Rule]>) -> MessageView {
    MessageView {
        content: redact.map(|redact| short_content(redact, message)),
        ..view(message, None)
    }
}

/// A message that waits, with its content if that may be shown.
pub(super) fn view(message: &Message, redact: Option<&[Rule]>) -> MessageView {
    MessageView {
        id: message.id.clone(),
        reason: reason_of(message).map(str::to_owned),
        source: source_of(message).map(|source| written(message, source.name())),
        receive_count: message.receive_count.into(),
        redriven: redriven(message).into(),
        sent_at: message.sent_at.map(rfc3339),
        bytes: message::bytes(&message.body, &message.attributes).into(),
        unreadable: message.unreadable.as_ref().map(ToString::to_string),
        content: redact.map(|redact| content(redact, message)),
    }
}

/// The queue that a letter came from as people write it, where its backend knows it: a redrive policy
/// names it by an ARN.
fn written(letter: &Message, source: &str) -> String {
    let own = letter.queue.parse::<QueueName>().ok();
    let named = own.and_then(|own| QueueName::of_source(own.backend, source));
    named.map_or_else(|| source.to_owned(), |name| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_of_a_letter_is_written_as_its_queue_is() {
        let of = |queue: &str, source: &str| {
            let letter = Message {
                queue: queue.into(),
                ..Message::default()
            };
            written(&letter, source)
        };
        let arn = "arn:aws:sqs:us-east-1:000000000000:orders";
        assert_eq!(of("local:orders.dead", arn), "local:orders");
        assert_eq!(of("local:orders.dead", "local:orders"), "local:orders");
        assert_eq!(of("redis:orders.dead", "elsewhere"), "elsewhere");
    }
    use dispatcher_core::message::Attribute;

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
