//! The capabilities that the configuration can grant to a plugin. Each folder has the functions
//! that guests call, the grant, its denials, its row in the documentation and its tests. `registry`
//! is the table of all capabilities. A capability uses its caller through a trait, and does not
//! depend on instances or entry points.

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
