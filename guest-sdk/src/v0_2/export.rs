//! The macros that turn a function into a plugin of version 0.2. Know nothing of what it does.

/// The bindings of `handle` as an `async func`, which is the same to a host; the argument is the world.
/// The types are the contract's, which a test compares, and in Rust those of [`bindings`](super::bindings).
#[doc(hidden)]
#[macro_export]
macro_rules! async_bindings_v0_2 {
    ($world:literal) => {
        $crate::bindings::wit_bindgen::generate!({
            inline: "
                package dispatcher:plugin@0.2.0-rc.1;
                interface types {
                    record message {
                        id: string,
                        queue: string,
                        body: body,
                        source: string,
                        receipt: string,
                        receive-count: u32,
                        attempt: u32,
                        idempotency-key: string,
                        trace: option<trace-context>,
                        deadline: u64,
                        sent-at: option<u64>,
                        first-received-at: option<u64>,
                        group: option<string>,
                        system-attributes: list<tuple<string, string>>,
                        attributes: list<attribute>,
                        body-md5: option<string>,
                        attributes-md5: option<string>,
                    }
                    variant body {
                        text(string),
                        bytes(list<u8>),
                    }
                    record trace-context {
                        traceparent: string,
                        tracestate: option<string>,
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
                        retry(retry),
                        reject(string),
                        busy(busy),
                        closed(string),
                    }
                    record retry {
                        after: option<u64>,
                        reason: option<string>,
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
                "dispatcher:plugin/types@0.2.0-rc.1":
                    ::dispatcher_guest::v0_2::bindings::imports::dispatcher::plugin::types,
            },
        });
    };
}

/// Exports a function, such as `fn(Delivery) -> Result<(), Failure>`, as a plugin of version 0.2 that
/// handles messages one at a time. What it may take is [`FromDelivery`](crate::v0_2::FromDelivery),
/// what it may answer [`HandlerResult`](crate::v0_2::HandlerResult). Used as `v0_2::handler!`.
///
/// Off WebAssembly it only checks the function's type; [`v0_2::run`](crate::v0_2::run) runs it.
#[macro_export]
macro_rules! handler_v0_2 {
    ($function:path) => {
        const _: () = {
            #[allow(dead_code, reason = "off WebAssembly it is only checked")]
            fn run(
                delivery: $crate::v0_2::Delivery,
            ) -> ::core::result::Result<(), $crate::v0_2::Failure> {
                $crate::v0_2::run($function, delivery)
            }

            #[cfg(target_family = "wasm")]
            const _: () = {
                struct Plugin;

                impl $crate::v0_2::bindings::single::exports::dispatcher::plugin::handler::Guest
                    for Plugin
                {
                    fn handle(
                        message: $crate::v0_2::bindings::Message,
                    ) -> ::core::result::Result<(), $crate::v0_2::bindings::Failure> {
                        run(message.into()).map_err(::core::convert::Into::into)
                    }
                }

                $crate::v0_2::bindings::single::export!(
                    Plugin with_types_in $crate::v0_2::bindings::single
                );
            };
        };
    };
}

/// The same for an `async fn`: while it awaits the host for one message, its instance may be given
/// others. Used as `v0_2::async_handler!`.
#[macro_export]
macro_rules! async_handler_v0_2 {
    ($function:path) => {
        const _: () = {
            #[allow(dead_code, reason = "off WebAssembly it is only checked")]
            fn run(
                delivery: $crate::v0_2::Delivery,
            ) -> impl ::core::future::Future<
                Output = ::core::result::Result<(), $crate::v0_2::Failure>,
            > {
                $crate::v0_2::run_async($function, delivery)
            }

            #[cfg(target_family = "wasm")]
            const _: () = {
                mod bindings {
                    $crate::async_bindings_v0_2!("handler-plugin");
                }

                struct Plugin;

                impl bindings::exports::dispatcher::plugin::handler::Guest for Plugin {
                    async fn handle(
                        message: $crate::v0_2::bindings::Message,
                    ) -> ::core::result::Result<(), $crate::v0_2::bindings::Failure> {
                        let done = run(message.into()).await;
                        done.map_err(::core::convert::Into::into)
                    }
                }

                bindings::export!(Plugin with_types_in bindings);
            };
        };
    };
}

/// Exports a function `fn(Vec<Delivery>) -> Result<Vec<Failed>, Failure>` as a plugin of version 0.2
/// that handles messages in batches: Ok lists the messages that failed and leaves the others done; an
/// error fails them all. Used as `v0_2::batch_handler!`.
#[macro_export]
macro_rules! batch_handler_v0_2 {
    ($function:path) => {
        const _: () = {
            #[allow(dead_code, reason = "off WebAssembly it is only checked")]
            fn run(
                deliveries: ::std::vec::Vec<$crate::v0_2::Delivery>,
            ) -> ::core::result::Result<
                ::std::vec::Vec<$crate::v0_2::Failed>,
                $crate::v0_2::Failure,
            > {
                $function(deliveries)
            }

            #[cfg(target_family = "wasm")]
            const _: () = {
                struct Plugin;

                impl $crate::v0_2::bindings::batch::exports::dispatcher::plugin::batch_handler::Guest
                    for Plugin
                {
                    fn handle(
                        messages: ::std::vec::Vec<$crate::v0_2::bindings::Message>,
                    ) -> ::core::result::Result<
                        ::std::vec::Vec<$crate::v0_2::bindings::Failed>,
                        $crate::v0_2::bindings::Failure,
                    > {
                        let failed = run(messages.into_iter().map(::core::convert::Into::into).collect())?;
                        Ok(failed.into_iter().map(::core::convert::Into::into).collect())
                    }
                }

                $crate::v0_2::bindings::batch::export!(
                    Plugin with_types_in $crate::v0_2::bindings::batch
                );
            };
        };
    };
}

/// The same for an `async fn`: one instance keeps many batches in flight. Used as
/// `v0_2::async_batch_handler!`.
#[macro_export]
macro_rules! async_batch_handler_v0_2 {
    ($function:path) => {
        const _: () = {
            #[allow(dead_code, reason = "off WebAssembly it is only checked")]
            fn run(
                deliveries: ::std::vec::Vec<$crate::v0_2::Delivery>,
            ) -> impl ::core::future::Future<
                Output = ::core::result::Result<
                    ::std::vec::Vec<$crate::v0_2::Failed>,
                    $crate::v0_2::Failure,
                >,
            > {
                $crate::v0_2::run_batch_async($function, deliveries)
            }

            #[cfg(target_family = "wasm")]
            const _: () = {
                mod bindings {
                    $crate::async_bindings_v0_2!("batch-plugin");
                }

                struct Plugin;

                impl bindings::exports::dispatcher::plugin::batch_handler::Guest for Plugin {
                    async fn handle(
                        messages: ::std::vec::Vec<$crate::v0_2::bindings::Message>,
                    ) -> ::core::result::Result<
                        ::std::vec::Vec<$crate::v0_2::bindings::Failed>,
                        $crate::v0_2::bindings::Failure,
                    > {
                        let failed = run(messages
                            .into_iter()
                            .map(::core::convert::Into::into)
                            .collect())
                        .await?;
                        Ok(failed
                            .into_iter()
                            .map(::core::convert::Into::into)
                            .collect())
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
    fn async_bindings_of_0_2_use_the_types_of_the_contract() {
        let here = bare(include_str!("export.rs"));
        for contract in [
            include_str!("../../wit/v0.2/types.wit"),
            include_str!("../../wit/v0.2/handler.wit"),
            include_str!("../../wit/v0.2/batch-handler.wit"),
        ] {
            let contract = contract.replace(": func(", ": async func(");
            let contract = bare(&contract);
            let interface = contract.split_first().expect("a package line").1;
            let found = here
                .windows(interface.len())
                .any(|lines| lines == interface);
            assert!(found, "not in async_bindings_v0_2!: {interface:#?}");
        }
    }
}
