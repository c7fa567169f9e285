//! Lambda in version 0.2 of the contract, whose interfaces are those of 0.1 under other names.

use super::v0_1::bindings::dispatcher::plugin::lambda_types;
use super::v0_1::{LambdaCaller, invoke, invoke_async};
use crate::capability::caller::{View, ViewOf, view};
use bindings::dispatcher::plugin::{lambda, lambda_async};
use lambda_types::{InvokeError, Request, Response};
use wasmtime::component::{Accessor, Linker};

mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.2",
        inline: "
            package dispatcher:host;
            world lambdas {
                import dispatcher:plugin/lambda@0.2.0-rc.1;
                import dispatcher:plugin/lambda-async@0.2.0-rc.1;
            }
        ",
        world: "dispatcher:host/lambdas",
        imports: { default: async | tracing | verbose_tracing },
        with: {
            "dispatcher:plugin/lambda-types@0.2.0-rc.1":
                crate::capability::lambda::v0_1::bindings::dispatcher::plugin::lambda_types,
        },
    });
}

/// Adds both flavours to a linker.
pub(super) fn link<C: LambdaCaller>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    lambda::add_to_linker::<_, ViewOf<C>>(linker, view)?;
    lambda_async::add_to_linker::<_, ViewOf<C>>(linker, view)
}

impl<C: LambdaCaller> lambda::Host for View<'_, C> {
    async fn invoke(&mut self, request: Request) -> Result<Response, InvokeError> {
        invoke(self.0, request).await
    }
}

impl<C: LambdaCaller> lambda_async::Host for View<'_, C> {}

impl<T, C: LambdaCaller> lambda_async::HostWithStore<T> for ViewOf<C> {
    fn invoke(
        accessor: &Accessor<T, Self>,
        request: Request,
    ) -> impl Future<Output = Result<Response, InvokeError>> + Send {
        invoke_async(accessor, request)
    }
}
