//! The admin API, the dashboard and the commands of operators.

mod admin;
pub(crate) mod admin_api;
mod commands;
mod fleet;
mod letters_api;
mod letters_kill;
mod moving;
mod page;
pub(crate) mod page_http;
mod pause;
mod people;
mod redrive;
mod redrive_kill;
mod send_api;
mod tail;
mod terminal;
mod top;
mod verb_commands;
