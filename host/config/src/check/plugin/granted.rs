//! Refuses settings that only another kind of plugin can use: grants for a plugin that forwards
//! messages, and forwarding settings for one that does not. Opens and resolves nothing.

use super::Check;
use crate::Code;
use crate::problem::Problem;
use crate::section::Layers;

/// The settings that only a component can use, and their meaning.
const OF_COMPONENTS: [(&str, &str); 4] = [
    ("allow-connect", "connections"),
    ("allow-http", "HTTP requests"),
    ("allow-read", "a folder"),
    ("allow-spans", "spans"),
];
/// The additional settings that a forwarder to a service cannot use.
const NOT_OF_SERVICES: [(&str, &str); 2] = [
    ("allow-lambda", "functions"),
    ("allow-send", "queues to send to"),
];

impl Check {
    /// Refuses grants for a built-in forwarder, which does not use them.
    pub(super) fn refuse_granting(&mut self, code: &Code, layers: Layers<'_>) {
        let (kind, more) = match code {
            Code::Forward(_) => ("function", &[][..]),
            Code::Http(_) => ("service", &NOT_OF_SERVICES[..]),
            Code::Missing | Code::Component(_) | Code::Relay(_) => return,
        };
        for (key, what) in OF_COMPONENTS.iter().chain(more) {
            if let Some(given) = layers.list(key).and_then(<[_]>::first) {
                self.refuse(&given.at, what, kind);
            }
        }
        for given in layers.entries("store").values() {
            self.refuse(&given.at, "a store", kind);
        }
        for (key, given) in ["setting", "setting-file", "env", "env-file"]
            .map(|table| layers.entries(table))
            .iter()
            .flatten()
        {
            let found = format!("`{key}` for a plugin that forwards to a {kind}");
            let wanted = format!("variables of the {kind}'s own configuration");
            self.problems.push(Problem::new(&given.at, found, wanted));
        }
    }

    fn refuse(&mut self, at: &str, what: &str, kind: &str) {
        let found = format!("{what} for a plugin that forwards to a {kind}");
        let wanted = "these settings for a component only";
        self.problems.push(Problem::new(at, found, wanted));
    }

    /// Refuses forwarding settings of another kind of plugin, for example of a function for a
    /// component.
    pub(super) fn refuse_forwarding(&mut self, code: &Code, layers: Layers<'_>) {
        let this = match code {
            Code::Missing | Code::Relay(_) => return,
            Code::Component(_) => "component",
            Code::Forward(_) => "function",
            Code::Http(_) => "service",
        };
        let of_functions = ["invocation", "partial-failures"];
        let of_services = ["forward-header", "forward-header-file", "forward-key-file"];
        let settings = [
            ("function", "is invoked", &of_functions[..]),
            ("service", "is called", &of_services[..]),
        ];
        for (other, happens, keys) in settings {
            if other == this {
                continue;
            }
            for key in keys {
                let entry = layers.entries(key).into_values().next();
                if let Some(given) = layers.one(key).or(entry) {
                    let found =
                        format!("`{key}` says how a {other} {happens}, and this is a {this}");
                    let wanted = format!("the setting for a {other} only");
                    self.problems.push(Problem::new(&given.at, found, wanted));
                }
            }
        }
    }
}
