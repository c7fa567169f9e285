//! What wit-bindgen makes of version 0.2 of the contract. Its users never meet generated names.

#![allow(missing_docs)]

pub use imports::dispatcher::plugin::types::{Failed, Failure, Message};

/// Everything that a plugin may import, and the types of the contract.
pub mod imports {
    wit_bindgen::generate!({
        path: "wit/v0.2",
        world: "imports",
        generate_all,
        additional_derives: [PartialEq],
        pub_export_macro: true,
    });
}

/// The export of a plugin that handles messages one at a time. Its world has another name than that of
/// 0.1, since the name of a macro is made of it.
pub mod single {
    wit_bindgen::generate!({
        path: "wit/v0.2",
        inline: "
            package dispatcher:sdk;
            world handler-v0-2 { export dispatcher:plugin/handler@0.2.0-rc.1; }
        ",
        world: "dispatcher:sdk/handler-v0-2",
        pub_export_macro: true,
        with: {
            "dispatcher:plugin/types@0.2.0-rc.1": super::imports::dispatcher::plugin::types,
        },
    });
}

/// The export of a plugin that handles messages in batches.
pub mod batch {
    wit_bindgen::generate!({
        path: "wit/v0.2",
        inline: "
            package dispatcher:sdk;
            world batch-handler-v0-2 { export dispatcher:plugin/batch-handler@0.2.0-rc.1; }
        ",
        world: "dispatcher:sdk/batch-handler-v0-2",
        pub_export_macro: true,
        with: {
            "dispatcher:plugin/types@0.2.0-rc.1": super::imports::dispatcher::plugin::types,
        },
    });
}
