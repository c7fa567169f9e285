//! Configuration, packages and documents.

mod accounts;
mod aws_environment;
mod bad_input;
mod book;
mod discovery;
mod packaging;
mod prefix;
mod quickstart;
mod readme;
mod real_aws;
mod recording;
mod reload;
mod secrets;
mod service_manager;
