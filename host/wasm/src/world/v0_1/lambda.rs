//! Lambda as version 0.1 spells it, in both flavours: bindings, and the way to the capability and
//! back.

use crate::capability::lambda::{Denied, Wanted};
use crate::guest::Guest;
use crate::invocations::Sent;
use bindings::dispatcher::plugin::lambda_types::{
    DidNotRun, Invocation, InvokeError, Request, Response,
};
use bindings::dispatcher::plugin::{lambda, lambda_async, lambda_types};
use dispatcher_core::clock;
use dispatcher_core::clock::{Moment, Timestamp};
use dispatcher_core::lambda as functions;
use wasmtime::component::{Accessor, HasSelf, Linker};

mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package dispatcher:host;
            world lambdas {
                import dispatcher:plugin/lambda@0.1.0;
                import dispatcher:plugin/lambda-async@0.1.0;
            }
        ",
        world: "dispatcher:host/lambdas",
        imports: { default: async | tracing | verbose_tracing },
    });
}

/// Adds both flavours to a linker. What is lent is the guest's to know.
pub(super) fn lend(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    lambda::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)?;
    lambda_async::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)
}

impl lambda_types::Host for Guest {}

impl lambda::Host for Guest {
    /// Suspends the guest's stack, and with it everything in the instance.
    async fn invoke(&mut self, request: Request) -> Result<Response, InvokeError> {
        let sent = sent(&request);
        let answer = self.invocation(request).await;
        self.invoked(&sent, &answer);
        answer.map(response).map_err(denied)
    }
}

impl lambda_async::Host for Guest {}

impl<T> lambda_async::HostWithStore<T> for HasSelf<Guest> {
    /// Runs beside whatever else the instance does.
    async fn invoke(
        accessor: &Accessor<T, Self>,
        request: Request,
    ) -> Result<Response, InvokeError> {
        let sent = sent(&request);
        let invocation = accessor.with(|mut access| access.get().invocation(request));
        let answer = invocation.await;
        accessor.with(|mut access| access.get().invoked(&sent, &answer));
        answer.map(response).map_err(denied)
    }
}

impl Guest {
    /// Holds nothing of the guest while it waits.
    fn invocation(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<functions::Response, Denied>> + Send + use<> {
        let settings = self.settings();
        let own = self.deadline();
        let held = self.hold(request.payload.len().saturating_add(request.function.len()));
        async move {
            let Some(lent) = &settings.lambda else {
                let why = "the configuration lends no functions to this plugin";
                return Err(Denied::Forbidden(why.to_owned()));
            };
            let Ok(_held) = held else {
                return Err(Denied::Failed(functions::InvokeError::DidNotRun {
                    reason: "the plugin has too much in invocations under way".to_owned(),
                    retry_after: None,
                }));
            };
            let told = request.deadline.map(moment);
            let deadline = own.into_iter().chain(told).min();
            let wanted = wanted(request, deadline);
            lent.invoke(&settings.name, wanted).await
        }
    }
}

fn sent(request: &Request) -> Sent {
    Sent::of(
        &request.function,
        invocation(request.invocation),
        &request.payload,
    )
}

fn invocation(invocation: Invocation) -> functions::Invocation {
    match invocation {
        Invocation::RequestResponse => functions::Invocation::RequestResponse,
        Invocation::Event => functions::Invocation::Event,
    }
}

/// The same by our own clock.
fn moment(date: u64) -> Moment {
    clock::now() + Timestamp(date).since(clock::today())
}

fn wanted(request: Request, deadline: Option<Moment>) -> Wanted {
    Wanted {
        function: request.function,
        invocation: invocation(request.invocation),
        payload: request.payload,
        log_tail: request.log_tail,
        deadline,
    }
}

fn response(response: functions::Response) -> Response {
    Response {
        payload: response.payload,
        function_error: response.function_error,
        log_tail: response.log_tail,
        executed_version: response.executed_version,
    }
}

fn denied(why: Denied) -> InvokeError {
    match why {
        Denied::Forbidden(why) => InvokeError::Forbidden(why),
        Denied::Failed(error) => match error {
            functions::InvokeError::DidNotRun {
                reason,
                retry_after,
            } => InvokeError::DidNotRun(DidNotRun {
                reason,
                retry_after: retry_after
                    .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
            }),
            functions::InvokeError::MayHaveRun(why) => InvokeError::MayHaveRun(why),
            functions::InvokeError::Refused(why) => InvokeError::Refused(why),
            functions::InvokeError::Permanent(why) => InvokeError::Permanent(why),
        },
    }
}
