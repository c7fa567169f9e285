//! What the benchmarks of the whole program share: programs as child processes with their cost, their
//! admin address, dead letters, many queues, peers, and figures. Beside it: a server of SQS that is fast enough to
//! measure against, and tables of DynamoDB. Knows no measurement.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

pub(crate) mod admin;
pub(crate) mod figures;
pub(crate) mod letters;
pub(crate) mod peers;
pub(crate) mod program;
pub(crate) mod queues;
