//! The macros that export a function as a plugin.

/// Exports a function, such as `fn(Message) -> Result<(), Failure>`, as a plugin that handles
/// messages one at a time. The function takes any [`FromMessage`](crate::FromMessage) and returns
/// any [`Answer`](crate::Answer).
///
/// In native builds the macro only checks the function's type, so that the plugin's tests run
/// natively: see `testing`.
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

                impl $crate::bindings::single::exports::dispatcher::plugin::handler::Guest
                    for Plugin
                {
                    fn handle(
                        message: $crate::bindings::Message,
                    ) -> ::core::result::Result<(), $crate::bindings::Failure> {
                        run(message.into()).map_err(::core::convert::Into::into)
                    }
                }

                $crate::bindings::single::export!(Plugin with_types_in $crate::bindings::single);
            };
        };
    };
}

/// Exports an `async fn`, such as one from `Message` to `Result<(), Failure>`, as a plugin that
/// handles messages one at a time. While the function awaits the host, its instance may get other
/// messages. The instance runs one handler at any moment, so it needs no locks. But statics and
/// thread locals may change during an `await`.
///
/// In native builds the macro only checks the function's type, so that the plugin's tests run
/// natively: see `testing`.
///
/// ```
/// use dispatcher_guest::queues::{Outgoing, send_async};
/// use dispatcher_guest::{Failure, Message, async_handler};
///
/// async fn copy(message: Message) -> Result<(), Failure> {
///     send_async("local:copies", Outgoing::new(message.body)).await?;
///     Ok(())
/// }
///
/// async_handler!(copy);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! async_handler {
    ($function:path) => {
        const _: () = {
            #[allow(dead_code, reason = "off WebAssembly it is only checked")]
            fn run(
                message: $crate::Message,
            ) -> impl ::core::future::Future<Output = ::core::result::Result<(), $crate::Failure>>
            {
                $crate::bindings::one_async($function, message)
            }

            #[cfg(target_family = "wasm")]
            const _: () = {
                struct Plugin;

                impl
                    $crate::bindings::single_async::exports::dispatcher::plugin::handler_async::Guest
                    for Plugin
                {
                    async fn handle(
                        message: $crate::bindings::Message,
                    ) -> ::core::result::Result<(), $crate::bindings::Failure> {
                        run(message.into())
                            .await
                            .map_err(::core::convert::Into::into)
                    }
                }

                $crate::bindings::single_async::export!(
                    Plugin with_types_in $crate::bindings::single_async
                );
            };
        };
    };
}

/// Exports a function, such as `fn(Vec<Message>) -> Result<Vec<Failed>, Failure>`, as a plugin that
/// handles messages in batches. `Ok` lists the messages that failed; the others are done. An error
/// fails all of them. If a message of a FIFO group fails, the host counts all later messages of the
/// group as failed, too.
///
/// The function takes a `Vec` of any [`FromMessage`](crate::FromMessage), such as
/// `Vec<Json<Order>>`. If a message cannot be converted, only that message is rejected, and the
/// later messages of its FIFO group are retried. The function gets the remaining messages, and is
/// not called if there are none. It returns any [`BatchAnswer`](crate::BatchAnswer).
/// [`each`](crate::each) calls a function for each message and returns those that failed.
///
/// In native builds the macro only checks the function's type, so that the plugin's tests run
/// natively: see `testing`.
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
                        messages: ::std::vec::Vec<$crate::bindings::Message>,
                    ) -> ::core::result::Result<
                        ::std::vec::Vec<$crate::bindings::Failed>,
                        $crate::bindings::Failure,
                    > {
                        let messages = $crate::bindings::messages(messages);
                        $crate::bindings::batch_answer(run(messages))
                    }
                }

                $crate::bindings::batch::export!(Plugin with_types_in $crate::bindings::batch);
            };
        };
    };
}

/// Exports an `async fn`, such as one from `Vec<Message>` to `Result<Vec<Failed>, Failure>`, as a
/// plugin that handles messages in batches, like [`batch_handler!`](crate::batch_handler). One
/// instance keeps many batches in flight, like [`async_handler!`](crate::async_handler).
///
/// In native builds the macro only checks the function's type, so that the plugin's tests run
/// natively: see `testing`.
///
/// ```
/// use dispatcher_guest::lambda::{Request, invoke_async};
/// use dispatcher_guest::{Failed, Failure, Message, async_batch_handler};
///
/// async fn forward(messages: Vec<Message>) -> Result<Vec<Failed>, Failure> {
///     let mut failed = Vec::new();
///     for message in messages {
///         let request = Request::new("thumbnails").payload(message.body.clone());
///         if let Err(error) = invoke_async(request).await {
///             failed.push(Failed::new(&message, error));
///         }
///     }
///     Ok(failed)
/// }
///
/// async_batch_handler!(forward);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! async_batch_handler {
    ($function:path) => {
        const _: () = {
            #[allow(dead_code, reason = "off WebAssembly it is only checked")]
            fn run(
                messages: ::std::vec::Vec<$crate::Message>,
            ) -> impl ::core::future::Future<
                Output = ::core::result::Result<::std::vec::Vec<$crate::Failed>, $crate::Failure>,
            > {
                $crate::bindings::many_async($function, messages)
            }

            #[cfg(target_family = "wasm")]
            const _: () = {
                use $crate::bindings::batch_async::exports::dispatcher::plugin as exports;

                struct Plugin;

                impl exports::batch_handler_async::Guest for Plugin {
                    async fn handle(
                        messages: ::std::vec::Vec<$crate::bindings::Message>,
                    ) -> ::core::result::Result<
                        ::std::vec::Vec<$crate::bindings::Failed>,
                        $crate::bindings::Failure,
                    > {
                        let messages = $crate::bindings::messages(messages);
                        $crate::bindings::batch_answer(run(messages).await)
                    }
                }

                $crate::bindings::batch_async::export!(
                    Plugin with_types_in $crate::bindings::batch_async
                );
            };
        };
    };
}
