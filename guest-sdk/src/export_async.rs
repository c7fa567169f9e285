//! The same two macros for `async` functions. Know nothing of what the function does.
//!
//! A function that may wait before it answers says so in its component's type, `async func`, while
//! a host that calls it need not: for it the contract stays the same. So these exports have a WIT
//! of their own, the contract's but for that word. Its bindings are generated where the macro is
//! used, since those of the plain exports take the same names here.

/// The bindings of the exports as `async func`; the argument is the world. The types are the
/// contract's, which a test holds them to, and in Rust those of [`bindings`](crate::bindings).
#[doc(hidden)]
#[macro_export]
macro_rules! async_bindings {
    ($world:literal) => {
        $crate::bindings::wit_bindgen::generate!({
            inline: "
                package dispatcher:plugin@0.1.0;
                interface types {
                    record message {
                        id: string,
                        queue: string,
                        body: string,
                        source: string,
                        receipt: string,
                        receive-count: u32,
                        deadline: u64,
                        sent-at: option<u64>,
                        first-received-at: option<u64>,
                        group: option<string>,
                        system-attributes: list<tuple<string, string>>,
                        attributes: list<attribute>,
                        body-md5: option<string>,
                        attributes-md5: option<string>,
                    }
                    record attribute {
                        name: string,
                        data-type: string,
                        value: attribute-value,
                    }
                    variant attribute-value {
                        text(string),
                        binary(list<u8>),
                    }
                    variant failure {
                        retry(option<u64>),
                        reject(string),
                        busy(busy),
                        closed(string),
                    }
                    record busy {
                        after: option<u64>,
                        reason: string,
                    }
                    record failed {
                        id: string,
                        failure: failure,
                    }
                }
                interface handler {
                    use types.{message, failure};
                    handle: async func(message: message) -> result<_, failure>;
                }
                interface batch-handler {
                    use types.{message, failed, failure};
                    handle: async func(messages: list<message>) -> result<list<failed>, failure>;
                }
                world handler-plugin { export handler; }
                world batch-plugin { export batch-handler; }
            ",
            path: [],
            world: $world,
            runtime_path: "::dispatcher_guest::bindings::wit_bindgen::rt",
            with: {
                "dispatcher:plugin/types@0.1.0":
                    ::dispatcher_guest::bindings::imports::dispatcher::plugin::types,
            },
        });
    };
}

/// Exports an `async fn`, such as one of `Message` to `Result<(), Failure>`, as a plugin that handles
/// messages one at a time (world `handler-plugin`) and, while it awaits the host for one, may be given others: one
/// instance keeps many in flight. It runs one of them at any moment, so it needs no locks, but what
/// it holds in statics or thread locals may change across an `await`.
///
/// Off WebAssembly it only checks the function's type, so a plugin's own tests run natively.
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
                mod bindings {
                    $crate::async_bindings!("handler-plugin");
                }

                struct Plugin;

                impl bindings::exports::dispatcher::plugin::handler::Guest for Plugin {
                    async fn handle(
                        message: $crate::Message,
                    ) -> ::core::result::Result<(), $crate::bindings::Failure> {
                        run(message).await.map_err(::core::convert::Into::into)
                    }
                }

        bindings::export!(Plugin with_types_in bindings);
            };
        };
    };
}

/// Exports an `async fn`, such as one of `Vec<Message>` to `Result<Vec<Failed>, Failure>`, as a plugin
/// that handles messages in batches (world `batch-plugin`), as [`batch_handler!`](crate::batch_handler) does;
/// one instance keeps many batches in flight, as with [`async_handler!`](crate::async_handler).
///
/// Off WebAssembly it only checks the function's type, so a plugin's own tests run natively.
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
                mod bindings {
                    $crate::async_bindings!("batch-plugin");
                }

                struct Plugin;

                impl bindings::exports::dispatcher::plugin::batch_handler::Guest for Plugin {
                    async fn handle(
                        messages: ::std::vec::Vec<$crate::Message>,
                    ) -> ::core::result::Result<
                        ::std::vec::Vec<$crate::bindings::Failed>,
                        $crate::bindings::Failure,
                    > {
                        $crate::bindings::batch_answer(run(messages).await)
                    }
                }

        bindings::export!(Plugin with_types_in bindings);
            };
        };
    };
}

#[cfg(test)]
mod tests {
    /// Lines that mean something, without their indentation.
    fn bare(text: &str) -> Vec<&str> {
        let lines = text.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty() && !line.starts_with("///"))
            .collect()
    }

    #[test]
    fn async_bindings_use_the_types_of_the_contract() {
        let here = bare(include_str!("export_async.rs"));
        for contract in [
            include_str!("../wit/v0.1/types.wit"),
            include_str!("../wit/v0.1/handler.wit"),
            include_str!("../wit/v0.1/batch-handler.wit"),
        ] {
            let contract = contract.replace(": func(", ": async func(");
            let contract = bare(&contract);
            let interface = contract.split_first().expect("a package line").1;
            let found = here
                .windows(interface.len())
                .any(|lines| lines == interface);
            assert!(found, "not in async_bindings!: {interface:#?}");
        }
    }
}
