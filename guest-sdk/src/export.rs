//! The two macros that turn a function into a plugin. Know nothing of what the function does.

/// Exports a function `fn(Message) -> Result<(), Failure>` as a plugin that handles messages one
/// at a time (world `handler-plugin`).
///
/// Off WebAssembly it only checks the function's type, so a plugin's own tests run natively.
///
/// ```
/// use dispatcher_guest::{Failure, Message, handler};
///
/// fn handle(message: Message) -> Result<(), Failure> {
///     println!("{}", message.body);
///     Ok(())
/// }
///
/// handler!(handle);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! handler {
    ($function:path) => {
        const _: () = {
            const HANDLE: $crate::bindings::Function = $function;

            #[cfg(target_family = "wasm")]
            const _: () = {
                struct Plugin;

                impl $crate::bindings::single::exports::dispatcher::plugin::handler::Guest for Plugin {
                    fn handle(
                        message: $crate::Message,
                    ) -> ::core::result::Result<(), $crate::bindings::Failure> {
                        HANDLE(message).map_err(::core::convert::Into::into)
                    }
                }

                $crate::bindings::single::export!(Plugin with_types_in $crate::bindings::single);
            };
        };
    };
}

/// Exports a function `fn(Vec<Message>) -> Result<Vec<Failed>, Failure>` as a plugin that handles
/// messages in batches (world `batch-plugin`): Ok lists the messages that failed and leaves the
/// others done; an error fails them all.
///
/// Off WebAssembly it only checks the function's type, so a plugin's own tests run natively.
///
/// ```
/// use dispatcher_guest::{Failed, Failure, Message, batch_handler, each};
///
/// fn handle(messages: Vec<Message>) -> Result<Vec<Failed>, Failure> {
///     each(messages, |message| {
///         println!("{}", message.body);
///         Ok(())
///     })
/// }
///
/// batch_handler!(handle);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! batch_handler {
    ($function:path) => {
        const _: () = {
            const HANDLE: $crate::bindings::BatchFunction = $function;

            #[cfg(target_family = "wasm")]
            const _: () = {
                struct Plugin;

                impl $crate::bindings::batch::exports::dispatcher::plugin::batch_handler::Guest
                    for Plugin
                {
                    fn handle(
                        messages: ::std::vec::Vec<$crate::Message>,
                    ) -> ::core::result::Result<
                        ::std::vec::Vec<$crate::bindings::Failed>,
                        $crate::bindings::Failure,
                    > {
                        $crate::bindings::batch_answer(HANDLE(messages))
                    }
                }

                $crate::bindings::batch::export!(Plugin with_types_in $crate::bindings::batch);
            };
        };
    };
}
