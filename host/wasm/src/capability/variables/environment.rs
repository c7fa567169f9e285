//! The environment of a command: the plugin's variables, and those of its message. Pure.

use dispatcher_core::handler::Attempt;
use dispatcher_core::message::{AttributeValue, Message};

/// The maximum size of an environment in bytes, including the plugin's own variables. The adapter
/// of WASI 0.1 modules keeps it in a page of 64 KiB, with other things.
const ROOM: usize = 32 << 10;
/// The size of a variable in addition to its name and text, in bytes.
const EACH: usize = 32;

/// The variables that a program sees: those of the plugin, and those of the message. Also the names
/// of values that no variable can hold: attributes, or our variables for the rest of the message.
pub(crate) struct Environment<'a> {
    /// The variables, with unique names.
    pub(crate) variables: Vec<(String, String)>,
    /// The names of omitted values: attributes last, in the message's order.
    pub(crate) left_out: Vec<&'a str>,
    room: usize,
}

impl<'a> Environment<'a> {
    /// Creates the environment, given the queue as the configuration names it. The plugin's
    /// variables, `own`, override the message's of the same name.
    pub(crate) fn of(
        message: &'a Message,
        queue: String,
        attempt: &Attempt,
        own: &[(String, String)],
    ) -> Self {
        let taken = own.iter().map(|(name, text)| bytes(name, text)).sum();
        let mut environment = Self {
            variables: own.to_vec(),
            left_out: Vec::new(),
            room: ROOM.saturating_sub(taken),
        };
        let count = message.receive_count.to_string();
        let deadline = attempt.deadline.date().0.to_string();
        let sent_at = message.sent_at.map(|date| date.0.to_string());
        let texts = [
            ("DISPATCHER_MESSAGE_ID", Some(message.id.clone())),
            ("DISPATCHER_QUEUE", Some(queue)),
            ("DISPATCHER_RECEIVE_COUNT", Some(count)),
            ("DISPATCHER_DEADLINE_MS", Some(deadline)),
            ("DISPATCHER_SENT_AT_MS", sent_at),
            ("DISPATCHER_GROUP", message.group.clone()),
        ];
        for (name, text) in texts {
            let is_own = own.iter().any(|(own, _)| own == name);
            if !is_own
                && let Some(text) = text
                && !environment.push(name.into(), text)
            {
                environment.left_out.push(name);
            }
        }
        for attribute in &message.attributes {
            let name = format!("DISPATCHER_ATTRIBUTE_{}", letters(&attribute.name));
            let fits = match &attribute.value {
                AttributeValue::Text(text) => environment.push(name, text.clone()),
                AttributeValue::Binary(_) => false,
            };
            if !fits {
                environment.left_out.push(&attribute.name);
            }
        }
        environment
    }

    /// Adds a variable if its name is free and it fits. Refuses a NUL, which would end the text for
    /// most programs.
    fn push(&mut self, name: String, text: String) -> bool {
        let bytes = bytes(&name, &text);
        let is_free = self.variables.iter().all(|(other, _)| *other != name);
        let fits = is_free && !text.contains('\0') && bytes <= self.room;
        if fits {
            self.room -= bytes;
            self.variables.push((name, text));
        }
        fits
    }
}

fn bytes(name: &str, text: &str) -> usize {
    name.len() + text.len() + EACH
}

/// Converts a name to one that shells accept: ASCII letters in capitals, digits, and `_` for
/// everything else.
fn letters(name: &str) -> String {
    name.chars()
        .map(|letter: char| {
            if letter.is_ascii_alphanumeric() {
                letter.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::message::{Attribute, samples};
    use proptest::prelude::*;

    fn attempt() -> Attempt {
        Attempt {
            messages: Vec::new(),
            cancelled: Vec::new(),
            tries: Vec::new(),
            deadline: dispatcher_core::handler::Deadline::fixed(
                dispatcher_core::clock::BootInstant::default(),
                dispatcher_core::clock::Timestamp(5),
            ),
        }
    }

    proptest! {
        #[test]
        fn environment_has_unique_names_and_lists_what_it_omits(
            attributes in prop::collection::vec((".{0,6}", ".{0,3}|x{20000}"), 0..9),
            own in prop::collection::vec(("(DISPATCHER_)?(QUEUE|GROUP|A)", ".{0,3}"), 0..2),
        ) {
            let mut message = samples::message("m");
            let attributes = attributes.iter();
            message.attributes = attributes.map(|(name, text)| Attribute::text(name, text)).collect();
            let mut own = own;
            own.dedup_by(|one, other| one.0 == other.0);
            let environment = Environment::of(&message, message.queue.clone(), &attempt(), &own);
            let all = &environment.variables;
            prop_assert!(all.starts_with(&own));
            let names: std::collections::HashSet<_> = all.iter().map(|(name, _)| name).collect();
            prop_assert_eq!(names.len(), all.len());
            let of_message = &all[own.len()..];
            for (name, text) in of_message {
                prop_assert!(!name.contains(['=', '\0']) && !text.contains('\0'));
            }
            prop_assert!(all.iter().map(|(name, text)| bytes(name, text)).sum::<usize>() <= ROOM);
            let granted = of_message.iter().filter(|(name, _)| name.starts_with("DISPATCHER_ATTRIBUTE_"));
            let left_out = environment.left_out.iter().filter(|name| !name.starts_with("DISPATCHER_"));
            prop_assert_eq!(granted.count() + left_out.count(), message.attributes.len());
        }
    }

    #[test]
    fn omitted_variables_are_reported() {
        let message = samples::message("m");
        let own = [("FULL".to_owned(), "x".repeat(ROOM - 100))];
        let environment = Environment::of(&message, message.queue.clone(), &attempt(), &own);
        let count = environment.variables.len() - own.len() + environment.left_out.len();
        assert!(environment.left_out.contains(&"DISPATCHER_DEADLINE_MS"));
        let nothing = Environment::of(&message, message.queue.clone(), &attempt(), &[]);
        assert_eq!(count, nothing.variables.len());
        assert_eq!(nothing.left_out, [""; 0]);
    }

    #[test]
    fn variables_of_the_plugin_override_those_of_the_message() {
        let message = samples::message("m");
        let own = [("DISPATCHER_QUEUE".to_owned(), "mine".to_owned())];
        let environment = Environment::of(&message, message.queue.clone(), &attempt(), &own);
        let queues = environment
            .variables
            .iter()
            .filter(|(name, _)| name == "DISPATCHER_QUEUE");
        assert_eq!(
            queues.map(|(_, text)| text.as_str()).collect::<Vec<_>>(),
            ["mine"]
        );
    }
}
