//! The two macros that turn a function into a plugin. Know nothing of what the function does.

/// Exports a function, such as `fn(Message) -> Result<(), Failure>`, as a plugin that handles messages
/// one at a time (world `handler-plugin`). What it may take is [`FromMessage`](crate::FromMessage),
/// what it may answer [`Answer`](crate::Answer).
///
/// Off WebAssembly it only checks the function's type, so a plugin's own tests run natively: see
/// `testing`.
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
            #[allow(dead_code, reason = "off WebAssembly it is only checked")]
            fn run(message: $crate::Message) -> ::core::result::Result<(), $crate::Failure> {
                $crate::bindings::one($function, message)
            }

            #[cfg(target_family = "wasm")]
            const _: () = {
                struct Plugin;

                impl $crate::bindings::single::exports::dispatcher::plugin::handler::Guest for Plugin {
                    fn handle(
                        message: $crate::Message,
                    ) -> ::core::result::Result<(), $crate::bindings::Failure> {
                        run(message).map_err(::core::convert::Into::into)
                    }
                }

                $crate::bindings::single::export!(Plugin with_types_in $crate::bindings::single);
            };
        };
    };
}

/// Exports a function, such as `fn(Vec<Message>) -> Result<Vec<Failed>, Failure>`, as a plugin that
/// handles messages in batches (world `batch-plugin`): Ok lists the messages that failed and leaves
/// the others done; an error fails them all. After the first that failed of a FIFO group the host
/// counts all later ones of the group as failed with it.
///
/// It may take a `Vec` of whatever is [`FromMessage`](crate::FromMessage), such as
/// `Vec<Json<Order>>`. Messages of which that cannot be made are rejected, alone, and are not in it, nor
/// are those after them in their FIFO group, which come again; where none is left the function is not
/// called. What it may answer is
/// [`BatchAnswer`](crate::BatchAnswer); [`each`](crate::each) makes the answer from a function of one
/// message.
///
/// Off WebAssembly it only checks the function's type, so a plugin's own tests run natively: see
/// `testing`.
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
            #[allow(dead_code, reason = "off WebAssembly it is only checked")]
            fn run(
                messages: ::std::vec::Vec<$crate::Message>,
            ) -> ::core::result::Result<::std::vec::Vec<$crate::Failed>, $crate::Failure> {
                $crate::bindings::many($function, messages)
            }

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
                        $crate::bindings::batch_answer(run(messages))
                    }
                }

                $crate::bindings::batch::export!(Plugin with_types_in $crate::bindings::batch);
            };
        };
    };
}
