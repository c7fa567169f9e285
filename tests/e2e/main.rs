//! The program as people start it: one file per promise.

mod bad_input;
mod commands;
mod crash;
mod guests;
mod leases;
mod priority;
mod quickstart;
mod readme;
mod scene;
mod sqs;
mod stop;
mod terminal;
mod unread;
mod verdicts;
