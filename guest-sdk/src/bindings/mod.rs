//! The bindings that wit-bindgen generates from the contract in `wit/`. The rest of the crate wraps
//! them in its own types, so users see no generated names.

#![allow(missing_docs)]

pub use imports::dispatcher::plugin::types::{Failed, Failure, Message};

/// The macros call these functions to run a handler and convert what it returns.
pub use crate::answer::{many, many_async, one, one_async};

/// Converts what a handler of batches returned.
///
/// # Errors
/// Returns the handler's error.
pub fn batch_answer(
    answer: Result<Vec<crate::Failed>, crate::Failure>,
) -> Result<Vec<Failed>, Failure> {
    let failed = answer?;
    Ok(failed.into_iter().map(Failed::from).collect())
}

/// Converts the messages of a batch.
pub fn messages(messages: Vec<Message>) -> Vec<crate::Message> {
    messages.into_iter().map(crate::Message::from).collect()
}

#[cfg(target_family = "wasm")]
pub(crate) mod wasi;

/// All interfaces that a plugin may import, and the types of the contract.
pub mod imports {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package dispatcher:sdk;
            world everything {
                include dispatcher:plugin/imports@0.1.0;
                include dispatcher:plugin/async-imports@0.1.0;
            }
        ",
        world: "dispatcher:sdk/everything",
        generate_all,
        additional_derives: [PartialEq, Eq],
    });
}

/// Defines a module for each world, with the macro that exports a handler for it.
macro_rules! export {
    ($($(#[$about:meta])* $module:ident: $world:literal;)+) => {
        $($(#[$about])* pub mod $module {
            wit_bindgen::generate!({
                path: "wit",
                world: $world,
                pub_export_macro: true,
                with: {
                    "dispatcher:plugin/types@0.1.0": super::imports::dispatcher::plugin::types,
                },
            });
        })+
    };
}
export! {
    /// The export of a function that handles one message.
    single: "plain-handler";
    /// The export of an `async` function that handles one message.
    single_async: "async-handler";
    /// The export of a function that handles batches.
    batch: "plain-batch-handler";
    /// The export of an `async` function that handles batches.
    batch_async: "async-batch-handler";
}
