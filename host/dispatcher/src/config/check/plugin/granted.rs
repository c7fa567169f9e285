//! Checks grants that a forwarding plugin cannot have. Opens nothing and resolves nothing.

use super::Check;
use crate::config::problem::Problem;
use crate::config::section::Layers;

/// What only a component can use, and what it is.
const OF_COMPONENTS: [(&str, &str); 3] = [
    ("allow-connect", "connections"),
    ("allow-http", "HTTP requests"),
    ("allow-read", "a folder"),
];

impl Check {
    /// The forwarder that is built in has no use for these.
    pub(super) fn refuse_granting(&mut self, layers: Layers<'_>) {
        for (key, what) in OF_COMPONENTS {
            if let Some(given) = layers.list(key).and_then(<[_]>::first) {
                self.refuse(&given.at, what);
            }
        }
        for given in layers.entries("store").values() {
            self.refuse(&given.at, "a store");
        }
        for (key, given) in ["setting", "env"]
            .map(|table| layers.entries(table))
            .iter()
            .flatten()
        {
            let found = format!("`{key}` for a plugin that forwards to a function");
            let wanted = "variables of the function's own configuration";
            self.problems.push(Problem::new(&given.at, found, wanted));
        }
    }

    fn refuse(&mut self, at: &str, what: &str) {
        let found = format!("{what} for a plugin that forwards to a function");
        let wanted = "them beside a component only";
        self.problems.push(Problem::new(at, found, wanted));
    }
}
