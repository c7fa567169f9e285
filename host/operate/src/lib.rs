//! The operations on a running program: their declarations, the ports that their sites implement,
//! the objects of the admin API, and the redrive of messages between queues. Knows no HTTP.

pub mod fleet;
pub mod messages;
pub mod objects;
pub mod operations;
pub mod problem;
pub mod redrive;
pub mod request;
pub mod requester;
pub mod scale;
pub mod schema;
pub mod select;
pub mod site;
pub mod verbs;
