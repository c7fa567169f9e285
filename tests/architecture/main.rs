//! What the tree must look like, whoever changes it: which way imports go, who may name which
//! library, how long things are, and that documents, log lines and shipped components are true.

mod bindings;
mod documents;
mod events;
mod figures;
mod guests;
mod habits;
mod layers;
mod names;
mod released;
mod sdk_api;
mod sizes;
mod tree;
