//! Lambda by the contract, sync and async: its bindings, and the conversion to the
//! capability and back.

use super::functions::{Functions, InvokeDenial, PendingInvocation, RequestedInvocation};
use super::invocations::{SentInvocation, note, overlooked};
use crate::capability::caller::{GrantedTo, View, ViewOf, begin_call, view};
use bindings::dispatcher::plugin::lambda_types::{
    DidNotRun, Invocation, InvokeError, Request, Response,
};
use bindings::dispatcher::plugin::{lambda, lambda_async, lambda_types};
use dispatcher_core::clock;
use dispatcher_core::clock::{BootInstant, Timestamp};
use dispatcher_core::handler::Attempt;
use dispatcher_core::lambda as functions;
use dispatcher_core::telemetry::trace::{self, ActiveSpan};
use std::sync::Arc;
use wasmtime::component::{Accessor, GuestTaskId, Linker};

mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
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

/// Adds the sync and async interfaces to a linker. Each call checks the grant of its guest.
pub(super) fn link<C: LambdaCaller>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    lambda::add_to_linker::<_, ViewOf<C>>(linker, view)?;
    lambda_async::add_to_linker::<_, ViewOf<C>>(linker, view)
}

/// A caller that may be granted functions.
pub(super) trait LambdaCaller: GrantedTo<Option<Functions>> {}

impl<C: GrantedTo<Option<Functions>>> LambdaCaller for C {}

impl<C: LambdaCaller> lambda_types::Host for View<'_, C> {}

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

/// Suspends the guest's stack and thus the whole instance.
pub(super) async fn invoke<C: LambdaCaller>(
    caller: &mut C,
    request: Request,
) -> Result<Response, InvokeError> {
    let sent = sent(&request);
    let answer = begin(caller, None, request).await;
    invoked(caller, &sent, &answer);
    answer.map(response).map_err(denied)
}

/// Runs concurrently with the rest of the instance.
pub(super) fn invoke_async<T, C: LambdaCaller>(
    accessor: &Accessor<T, ViewOf<C>>,
    request: Request,
) -> impl Future<Output = Result<Response, InvokeError>> + Send {
    let sent = sent(&request);
    let (pending, place) = begin_call(accessor, |caller, task| {
        (begin(caller, task, request), trace::active_context())
    });
    async move {
        let answer = pending.await;
        // This is polled for many attempts, but the log lines belong to this one.
        let mut span = place.map(ActiveSpan::of);
        accessor.with(|mut access| {
            trace::within(&mut span, || invoked(access.get().0, &sent, &answer));
        });
        answer.map(response).map_err(denied)
    }
}

/// Starts an invocation, or returns its denial.
fn begin<C: LambdaCaller>(
    caller: &C,
    task: Option<GuestTaskId>,
    request: Request,
) -> PendingInvocation {
    let begun = try_to_begin(caller, task, request);
    begun.unwrap_or_else(|denied| Box::pin(std::future::ready(Err(denied))))
}

/// Starts an invocation, which does not borrow the caller.
fn try_to_begin<C: LambdaCaller>(
    caller: &C,
    task: Option<GuestTaskId>,
    request: Request,
) -> Result<PendingInvocation, InvokeDenial> {
    let Some(granted) = caller.granted() else {
        let why = "the configuration grants no functions to this plugin";
        return Err(InvokeDenial::Forbidden(why.to_owned()));
    };
    let Ok(held) = caller.hold(request.payload.len().saturating_add(request.function.len())) else {
        return Err(InvokeDenial::Failed(functions::InvokeError::DidNotRun {
            reason: "the plugin has too many pending invocations".to_owned(),
            retry_after: None,
        }));
    };
    let attempt = caller.attempt_of(task);
    let messages = attempt.map_or(&[][..], |attempt| &attempt.messages);
    let told = request.deadline.map(instant_of);
    let wanted = RequestedInvocation {
        function: request.function,
        invocation: kind(request.invocation),
        payload: request.payload,
        log_tail: request.log_tail,
        parent: trace::active(),
        trace_header: only_trace_header(caller.attempt_of(task)),
        tenant: granted.tenant_of(messages),
        deadline: caller.deadline().into_iter().chain(told).min(),
    };
    granted.begin(wanted, held)
}

/// Handles the response to an invocation: if its messages fail, the result is the cause.
fn invoked<C: LambdaCaller>(
    caller: &mut C,
    sent: &SentInvocation,
    answer: &Result<functions::Response, InvokeDenial>,
) {
    let attempt = caller.attempt(sent.first_id()).cloned();
    let messages = attempt
        .as_ref()
        .map_or(&[][..], |attempt| &attempt.messages);
    if let Some(response) = overlooked(sent, answer)
        && let Some(granted) = caller.granted()
        && granted.is_first_overlooked()
    {
        tracing::warn!(
            plugin = caller.plugin(),
            function = sent.function(),
            response,
            "function lists failures where Lambda does not look; its messages count as done"
        );
    }
    let Some(failed) = note(caller.causes(), sent, messages, answer) else {
        return;
    };
    failed.log(caller.plugin(), sent, messages, answer);
    if let Some(granted) = caller.granted() {
        granted.failed();
    }
}

fn sent(request: &Request) -> SentInvocation {
    SentInvocation::of(
        &request.function,
        kind(request.invocation),
        &request.payload,
    )
}

fn kind(invocation: Invocation) -> functions::Invocation {
    match invocation {
        Invocation::RequestResponse => functions::Invocation::RequestResponse,
        Invocation::Event => functions::Invocation::Event,
    }
}

/// Converts a wall-clock date to the monotonic clock.
fn instant_of(date: u64) -> BootInstant {
    clock::now() + Timestamp(date).since(clock::wall_clock_now())
}

/// Returns the trace header of an attempt's message, if the attempt has exactly one.
fn only_trace_header(attempt: Option<&Arc<Attempt>>) -> Option<String> {
    match attempt?.messages.as_slice() {
        [only] => only.trace_header().map(str::to_owned),
        _ => None,
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

fn denied(why: InvokeDenial) -> InvokeError {
    match why {
        InvokeDenial::Forbidden(why) => InvokeError::Forbidden(why),
        InvokeDenial::Failed(error) => match error {
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
