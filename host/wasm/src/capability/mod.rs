//! What the configuration can grant to a plugin, one folder each: the functions that guests call,
//! the grant, its denials, the row of the documentation, the tests. `registry` is the table of all
//! of them. A capability knows its caller by a trait, and neither instances nor entry points.

pub(crate) mod caller;
pub(crate) mod description;
pub(crate) mod folder;
pub mod http;
pub mod lambda;
pub mod network;
pub mod queues;
pub mod refusals;
pub mod registry;
pub mod settings;
mod shown;
pub mod spans;
pub mod store;
pub mod variables;
