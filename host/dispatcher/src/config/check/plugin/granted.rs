//! Checks settings that only a plugin of another kind can have: grants of one that forwards messages,
//! and how messages are forwarded of one that does not. Opens nothing and resolves nothing.

use super::Check;
use crate::config::Code;
use crate::config::problem::Problem;
use crate::config::section::Layers;

/// What only a component can use, and what it is.
const OF_COMPONENTS: [(&str, &str); 4] = [
    ("allow-connect", "connections"),
    ("allow-http", "HTTP requests"),
    ("allow-read", "a folder"),
    ("allow-spans", "spans"),
];
/// What the forwarder to a service cannot use besides.
const NOT_OF_SERVICES: [(&str, &str); 2] = [
    ("allow-lambda", "functions"),
    ("allow-send", "queues to send to"),
];

impl Check {
    /// The forwarders that are built in have no use for these.
    pub(super) fn refuse_granting(&mut self, code: &Code, layers: Layers<'_>) {
        let (kind, more) = match code {
            Code::Forward(_) => ("function", &[][..]),
            Code::Http(_) => ("service", &NOT_OF_SERVICES[..]),
            Code::Missing | Code::Component(_) => return,
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
        let wanted = "them beside a component only";
        self.problems.push(Problem::new(at, found, wanted));
    }

    /// What is about a function has no effect on a component or a service, and so on.
    pub(super) fn refuse_forwarding(&mut self, code: &Code, layers: Layers<'_>) {
        let this = match code {
            Code::Missing => return,
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
            for key in keys.iter().filter(|_| other != this) {
                let entry = layers.entries(key).into_values().next();
                if let Some(given) = layers.one(key).or(entry) {
                    let found =
                        format!("`{key}` says how a {other} {happens}, and this is a {this}");
                    let wanted = format!("it beside a {other} only");
                    self.problems.push(Problem::new(&given.at, found, wanted));
                }
            }
        }
    }
}
