//! Messages that are forwarded to an HTTP service.

pub(crate) mod forward;
pub(crate) mod forward_examples;
