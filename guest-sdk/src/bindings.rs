//! What wit-bindgen makes of the contract in `wit/`. Lives here so that the rest of the crate and
//! its users never meet generated names; knows nothing of the friendly types built on top.

#![allow(missing_docs)]

pub use imports::dispatcher::plugin::types::{Failed, Failure, Message};
/// For the macros that generate the bindings of their exports where they are used.
pub use wit_bindgen;

/// For the macros: how a function is run, and its answer in the contract's words.
pub use crate::answer::{many, many_async, one, one_async};

/// Puts a batch function's answer into the contract's words.
///
/// # Errors
/// The function's own.
pub fn batch_answer(
    answer: Result<Vec<crate::Failed>, crate::Failure>,
) -> Result<Vec<Failed>, Failure> {
    let failed = answer?;
    Ok(failed.into_iter().map(Failed::from).collect())
}

#[cfg(target_family = "wasm")]
pub(crate) mod wasi;
#[cfg(target_family = "wasm")]
pub(crate) mod wasi_http;

/// Everything that a plugin may import, and the types of the contract.
pub mod imports {
    wit_bindgen::generate!({
        path: "wit/v0.1",
        world: "imports",
        generate_all,
        additional_derives: [PartialEq, Eq],
        pub_export_macro: true,
    });
}

/// The export of a plugin that handles messages one at a time.
pub mod single {
    wit_bindgen::generate!({
        path: "wit/v0.1",
        world: "handler-plugin",
        pub_export_macro: true,
        with: {
            "dispatcher:plugin/types@0.1.0": super::imports::dispatcher::plugin::types,
            "dispatcher:plugin/context@0.1.0": super::imports::dispatcher::plugin::context,
            "dispatcher:plugin/lambda-types@0.1.0": super::imports::dispatcher::plugin::lambda_types,
            "dispatcher:plugin/lambda@0.1.0": super::imports::dispatcher::plugin::lambda,
            "dispatcher:plugin/lambda-async@0.1.0": super::imports::dispatcher::plugin::lambda_async,
            "dispatcher:plugin/queues-types@0.1.0": super::imports::dispatcher::plugin::queues_types,
            "dispatcher:plugin/queues@0.1.0": super::imports::dispatcher::plugin::queues,
            "dispatcher:plugin/queues-async@0.1.0": super::imports::dispatcher::plugin::queues_async,
        },
    });
}

/// The export of a plugin that handles messages in batches.
pub mod batch {
    wit_bindgen::generate!({
        path: "wit/v0.1",
        world: "batch-plugin",
        pub_export_macro: true,
        with: {
            "dispatcher:plugin/types@0.1.0": super::imports::dispatcher::plugin::types,
            "dispatcher:plugin/context@0.1.0": super::imports::dispatcher::plugin::context,
            "dispatcher:plugin/lambda-types@0.1.0": super::imports::dispatcher::plugin::lambda_types,
            "dispatcher:plugin/lambda@0.1.0": super::imports::dispatcher::plugin::lambda,
            "dispatcher:plugin/lambda-async@0.1.0": super::imports::dispatcher::plugin::lambda_async,
            "dispatcher:plugin/queues-types@0.1.0": super::imports::dispatcher::plugin::queues_types,
            "dispatcher:plugin/queues@0.1.0": super::imports::dispatcher::plugin::queues,
            "dispatcher:plugin/queues-async@0.1.0": super::imports::dispatcher::plugin::queues_async,
        },
    });
}
