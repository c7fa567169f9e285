//! What the configuration may lend to a plugin, one page each. Knows no version of the contract:
//! the worlds translate.

pub mod asked;
pub mod folder;
pub mod http;
pub mod lambda;
pub mod network;
pub mod queues;
pub mod refusals;
pub mod store;
