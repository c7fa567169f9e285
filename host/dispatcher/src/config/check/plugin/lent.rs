//! What a plugin is lent, by name. Opens nothing and looks nothing up.

use super::Check;
use crate::config::function;
use crate::config::problem::Problem;
use crate::config::section::{Given, Layers};
use crate::config::value;
use crate::config::{HttpHost, Peer, Place};
use crate::name::QueueName;
use std::path::PathBuf;

impl Check {
    pub(super) fn allowed(&mut self, layers: Layers<'_>) -> Vec<String> {
        let patterns = layers.list("allow-lambda").unwrap_or_default();
        patterns
            .iter()
            .filter_map(|given| self.read(Some(given), function::pattern))
            .collect()
    }

    pub(super) fn sends(&mut self, layers: Layers<'_>) -> Vec<QueueName> {
        let names = layers.list("allow-send").unwrap_or_default();
        let read = |given: &Given| {
            let name = given.text.trim().parse();
            name.map_err(|found| Problem::new(&given.at, found, ""))
        };
        names
            .iter()
            .filter_map(|given| self.read(Some(given), read))
            .collect()
    }

    pub(super) fn connects(&mut self, layers: Layers<'_>, forwards: bool) -> Vec<Peer> {
        let peers = layers.list("allow-connect").unwrap_or_default();
        self.only_beside_a_component(peers.first(), "connections", forwards);
        let read = |given: &Given| {
            let found = format!("`{}` is nowhere to connect to", given.text.trim());
            let peer = given.text.parse();
            peer.map_err(|wanted: &str| Problem::new(&given.at, found, wanted))
        };
        peers
            .iter()
            .filter_map(|given| self.read(Some(given), read))
            .collect()
    }

    pub(super) fn hosts(&mut self, layers: Layers<'_>, forwards: bool) -> Vec<HttpHost> {
        let hosts = layers.list("allow-http").unwrap_or_default();
        self.only_beside_a_component(hosts.first(), "HTTP requests", forwards);
        let read = |given: &Given| {
            let found = format!("`{}` is no host to send requests to", given.text.trim());
            let host = given.text.parse();
            host.map_err(|wanted: &str| Problem::new(&given.at, found, wanted))
        };
        hosts
            .iter()
            .filter_map(|given| self.read(Some(given), read))
            .collect()
    }

    pub(super) fn folder(&mut self, layers: Layers<'_>, forwards: bool) -> Option<PathBuf> {
        let given = layers.one("allow-read");
        self.only_beside_a_component(given, "a folder", forwards);
        let folder = self.read(given, |given| value::text(given, "a folder"));
        folder.map(PathBuf::from)
    }

    pub(super) fn stores(&mut self, layers: Layers<'_>, forwards: bool) -> Vec<(String, Place)> {
        let mut stores = Vec::new();
        for (name, given) in layers.entries("store") {
            self.only_beside_a_component(Some(given), "a store", forwards);
            let read = |given: &Given| {
                let found = format!("`{}` is no place of a bucket", given.text.trim());
                let place = given.text.parse();
                place.map_err(|wanted: String| Problem::new(&given.at, found, wanted))
            };
            stores.extend(
                self.read(Some(given), read)
                    .map(|place| (name.to_owned(), place)),
            );
        }
        stores
    }

    /// `env` or `setting`.
    pub(super) fn variables(
        &mut self,
        table: &str,
        layers: Layers<'_>,
        forwards: bool,
    ) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        for (key, given) in layers.entries(table) {
            if forwards {
                let found = format!("`{key}` for a plugin that forwards to a function");
                let wanted = "variables of the function's own configuration";
                self.problems.push(Problem::new(&given.at, found, wanted));
            }
            if !value::is_key(key) || given.text.contains('\0') {
                let found = format!("`{key}` cannot be a variable");
                self.problems
                    .push(Problem::new(&given.at, found, "a name without `=`"));
            }
            variables.push((key.to_owned(), given.text.clone()));
        }
        variables
    }

    fn only_beside_a_component(&mut self, given: Option<&Given>, what: &str, forwards: bool) {
        if let Some(given) = given.filter(|_| forwards) {
            let found = format!("{what} for a plugin that forwards to a function");
            let wanted = "them beside a component only";
            self.problems.push(Problem::new(&given.at, found, wanted));
        }
    }
}
