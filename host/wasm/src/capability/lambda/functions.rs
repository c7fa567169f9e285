//! Grants Lambda functions to a plugin, and logs denials. Does not depend on the contract's version
//! or on how an invocation is made.

use crate::capability::caller::Grant;
use crate::capability::refusals::{Denial, Refusals};
use dispatcher_core::clock;
use dispatcher_core::clock::BootInstant;
use dispatcher_core::lambda;
use dispatcher_core::lambda::{Invocation, Invoke, InvokeError, Request, Response};
use dispatcher_core::message::Message;
use dispatcher_core::message::place::MessageKey;
use dispatcher_core::tasks;
use dispatcher_core::telemetry::trace::{
    ActiveSpan, CallAnswer, CallStart, SpanAttribute, SpanKind, server_attributes,
};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

/// The maximum time that an invocation leaves to the plugin when it is given up. It leaves a tenth
/// of the attempt's remaining time, up to this.
const MOST_SPARE: Duration = Duration::from_secs(10);
/// The denial of an invocation.
const REFUSED: Denial =
    Denial::ungranted(&<Option<Functions>>::DESCRIPTION, "invoke this function");

/// The functions that one plugin may invoke.
#[derive(Clone)]
pub struct Functions {
    /// Makes the invocations.
    pub invoker: Arc<dyn Invoke>,
    /// Names as plugins write them: `name`, `name:alias` or an ARN, where `*` matches any
    /// characters, including none. Only the text is compared: `f` does not grant `f:live`.
    pub allowed: Vec<String>,
    /// The maximum wait for the response to one invocation.
    pub patience: Duration,
    /// The time that one invocation may need, including the network. An invocation does not start
    /// if the attempt has less time left, because the function would continue while its messages
    /// are redelivered. More than `patience` counts as `patience`; otherwise even a new attempt
    /// could not start one.
    pub longest: Option<Duration>,
    /// Where a message names the tenant that its invocations are for; `None` if they are for none.
    pub tenant: Option<MessageKey>,
    /// Called for every invocation that failed, may have failed, or was refused for its event.
    pub failed: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Functions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Functions({})", self.allowed.join(", "))
    }
}

impl Functions {
    /// Returns the tenant of an invocation for these messages, or an error if they name none that Lambda
    /// accepts, or several.
    fn tenant_of(&self, messages: &[Message]) -> Result<Option<String>, InvokeError> {
        let Some(key) = &self.tenant else {
            return Ok(None);
        };
        let Some((first, others)) = messages.split_first() else {
            let why = "it is not known for which message the function is invoked, and `tenant-id` passes \
                       the tenant of the message; use `lambda-async`, or `instance-concurrency = 1`";
            return Err(InvokeError::Refused(why.to_owned()));
        };
        let tenant = lambda::tenant_of(first, key).map_err(InvokeError::Refused)?;
        let mut others = others.iter().map(|message| lambda::tenant_of(message, key));
        if others.any(|other| other.as_ref() != Ok(&tenant)) {
            let why = "the messages of the attempt belong to several tenants";
            return Err(InvokeError::Refused(why.to_owned()));
        }
        Ok(Some(tenant))
    }

    /// Returns how long to wait for one invocation if the attempt has this much time left, or an
    /// error if that is too little to start it.
    fn patience(&self, left: Option<Duration>) -> Result<Duration, InvokeError> {
        let Some(left) = left else {
            return Ok(self.patience);
        };
        let needed = self.longest.unwrap_or_default().min(self.patience);
        if left < needed || left.is_zero() {
            return Err(InvokeError::DidNotRun {
                reason: format!(
                    "the attempt has too little time left to wait for the function: {:.1} s, and {:.1} s may be needed",
                    left.as_secs_f64(),
                    needed.as_secs_f64()
                ),
                retry_after: None,
            });
        }
        Ok((left - (left / 10).min(MOST_SPARE)).min(self.patience))
    }
}

/// An invocation that a plugin requests. The host adds the maximum wait.
pub(crate) struct RequestedInvocation {
    pub(crate) function: String,
    pub(crate) invocation: Invocation,
    pub(crate) payload: Vec<u8>,
    pub(crate) log_tail: bool,
    /// The span of the attempt, if attempts are traced.
    pub(crate) parent: Option<ActiveSpan>,
    /// The trace header of the attempt's message, if there is exactly one and it has a header.
    pub(crate) trace_header: Option<String>,
    /// The tenant that it is for, if any, or why that is unknown.
    pub(crate) tenant: Result<Option<String>, InvokeError>,
    /// The end of the attempt, if it is known.
    pub(crate) deadline: Option<BootInstant>,
}

/// The reason why there is no response.
pub(crate) enum InvokeDenial {
    /// The function is not granted, explained for the plugin's author.
    Forbidden(String),
    /// The invocation failed.
    Failed(InvokeError),
}

/// An invocation that has started. It is boxed because its owner is copied several times on its way
/// to the engine, and thousands may wait.
pub(crate) type PendingInvocation =
    Pin<Box<dyn Future<Output = Result<Response, InvokeDenial>> + Send>>;

/// The granted functions and the logged denials of one plugin.
#[derive(Debug)]
pub(crate) struct GrantedFunctions {
    functions: Functions,
    refusals: Arc<Refusals>,
    control: Handle,
    /// Whether a response whose list of failures is ignored was logged.
    has_overlooked: AtomicBool,
}

impl GrantedFunctions {
    /// Creates the grant. Invocations run on `control`, regardless of who polls the guest.
    pub(crate) fn new(functions: Functions, refusals: Arc<Refusals>, control: Handle) -> Self {
        Self {
            functions,
            refusals,
            control,
            has_overlooked: AtomicBool::new(false),
        }
    }

    /// Whether this is the first response whose list of failures is ignored.
    pub(crate) fn is_first_overlooked(&self) -> bool {
        !self.has_overlooked.swap(true, Ordering::Relaxed)
    }

    /// Returns the tenant of an invocation for these messages.
    pub(crate) fn tenant_of(&self, messages: &[Message]) -> Result<Option<String>, InvokeError> {
        self.functions.tenant_of(messages)
    }

    /// Counts an invocation that did not succeed.
    pub(crate) fn failed(&self) {
        (self.functions.failed)();
    }

    /// Starts an invocation if the function is granted. `held` is kept until the response arrives.
    pub(crate) fn begin(
        &self,
        wanted: RequestedInvocation,
        held: impl Send + 'static,
    ) -> Result<PendingInvocation, InvokeDenial> {
        let Functions {
            invoker, allowed, ..
        } = &self.functions;
        let function = wanted.function;
        if !allowed.iter().any(|pattern| matches(pattern, &function)) {
            // The guest chose the name, which may have any length. Only the truncated name is
            // logged and kept.
            let function = self.refusals.refuse(&REFUSED, &function);
            let why = format!(
                "the configuration does not grant this function to this plugin; {} grants it",
                REFUSED.capability.flag_for(&function)
            );
            return Err(InvokeDenial::Forbidden(why));
        }
        let tenant = wanted.tenant.map_err(InvokeDenial::Failed)?;
        let left = wanted.deadline.map(|end| end.since(clock::now()));
        let patience = self
            .functions
            .patience(left)
            .map_err(InvokeDenial::Failed)?;
        // The endpoint and region are known after the first invocation.
        let is_known = invoker.endpoint(&function).is_some();
        let call = wanted
            .parent
            .and_then(|attempt| attempt.begin_call(|_| start(&function, &**invoker)));
        let header = call.as_ref().map(|call| call.context().x_ray());
        let trace_header = header.or(wanted.trace_header);
        let request = Request {
            function,
            invocation: wanted.invocation,
            payload: wanted.payload,
            log_tail: wanted.log_tail,
            patience,
            trace_header,
            tenant,
        };
        let (invoker, invokes) = (Arc::clone(invoker), Arc::clone(invoker));
        let function = request.function.clone();
        let invocation =
            tasks::spawn_on(&self.control, async move { invokes.invoke(request).await });
        Ok(Box::pin(async move {
            let answer = invocation.finished().await;
            if let Some(call) = call {
                call.end(|| {
                    let mut ended = answered(&answer);
                    if !is_known {
                        ended.attributes.extend(place(&function, &*invoker));
                    }
                    ended
                });
            }
            drop(held);
            answer.map_err(InvokeDenial::Failed)
        }))
    }
}

/// Returns the start of the span of an invocation.
fn start(function: &str, invoker: &dyn Invoke) -> CallStart {
    let mut attributes = vec![
        ("faas.invoked_name", function.to_owned().into()),
        ("faas.invoked_provider", "aws".into()),
        ("rpc.system", "aws-api".into()),
        ("rpc.service", "Lambda".into()),
        ("rpc.method", "Invoke".into()),
    ];
    if invoker.endpoint(function).is_some() {
        attributes.extend(place(function, invoker));
    }
    CallStart {
        kind: SpanKind::Client,
        name: format!("invoke {function}"),
        attributes,
    }
}

/// Returns the attributes of the region and endpoint of a function.
fn place(function: &str, invoker: &dyn Invoke) -> Vec<SpanAttribute> {
    let region = invoker
        .region(function)
        .map(|region| ("faas.invoked_region", region.into()));
    let endpoint = invoker.endpoint(function);
    let server = endpoint.as_deref().into_iter().flat_map(server_attributes);
    region.into_iter().chain(server).collect()
}

/// Returns the end of the span.
fn answered(answer: &Result<Response, InvokeError>) -> CallAnswer {
    let mut attributes = Vec::new();
    let mut failure = None;
    match answer {
        Ok(response) => {
            if let Some(id) = &response.request_id {
                attributes.push(("aws.request_id", id.clone().into()));
            }
            if let Some(error) = &response.function_error {
                attributes.push(("error.type", "function-error".into()));
                failure = Some(format!("the function failed: {error}"));
            }
        }
        Err(error) => {
            let kind = match error {
                InvokeError::DidNotRun { .. } => "did-not-run",
                InvokeError::MayHaveRun(_) => "function-unknown",
                InvokeError::Refused(_) => "refused",
                InvokeError::Permanent(_) => "permanent",
            };
            attributes.push(("error.type", kind.into()));
            failure = Some(error.to_string());
        }
    }
    CallAnswer {
        attributes,
        failure,
    }
}

/// Whether a name matches a pattern in which `*` matches any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    // The leftmost match of each part leaves the most for the parts after it. The last part must be
    // at the end.
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_core::message::samples;

    struct Nobody;

    #[async_trait::async_trait]
    impl Invoke for Nobody {
        async fn invoke(&self, _: Request) -> Result<Response, InvokeError> {
            unreachable!("nothing is granted")
        }
    }

    fn functions(patience: u64, longest: Option<u64>) -> Functions {
        Functions {
            invoker: Arc::new(Nobody),
            allowed: Vec::new(),
            patience: Duration::from_secs(patience),
            longest: longest.map(Duration::from_secs),
            failed: Arc::new(|| ()),
            tenant: None,
        }
    }

    #[test]
    fn tenant_of_an_invocation_is_that_of_all_its_messages() {
        let by_group = Functions {
            tenant: Some(MessageKey::Group),
            ..functions(50, None)
        };
        let messages: Vec<Message> = ["acme", "acme", "other"]
            .into_iter()
            .map(|group| Message {
                group: Some(group.to_owned()),
                ..samples::message("m")
            })
            .collect();
        assert_eq!(
            by_group.tenant_of(&messages[..2]),
            Ok(Some("acme".to_owned()))
        );
        for several_or_none in [&messages[..], &[], &[samples::message("m")]] {
            let refused = by_group.tenant_of(several_or_none);
            assert!(matches!(refused, Err(InvokeError::Refused(_))));
        }
        assert_eq!(functions(50, None).tenant_of(&messages), Ok(None));
    }

    #[test]
    fn invocation_longer_than_the_attempt_is_not_started() {
        for (patience, longest, left, expected) in [
            (50, Some(40), None, Some(50_000)),
            (50, Some(40), Some(60_000), Some(50_000)),
            (50, Some(40), Some(45_000), Some(40_500)),
            (50, Some(40), Some(39_999), None),
            // A timeout below what the function may need: the attempt that just began may.
            (36, Some(40), Some(39_900), Some(35_910)),
            (36, Some(40), Some(35_000), None),
            (5_000, None, Some(1_000_000), Some(990_000)),
            (50, None, Some(10), Some(9)),
            (50, None, Some(0), None),
        ] {
            let given = functions(patience, longest).patience(left.map(Duration::from_millis));
            let expected = expected.map(Duration::from_millis);
            assert_eq!(
                given.clone().ok(),
                expected,
                "{patience} {longest:?} {left:?}"
            );
            if let Err(error) = given {
                let InvokeError::DidNotRun {
                    reason,
                    retry_after: None,
                } = error
                else {
                    panic!("{error:?}");
                };
                assert!(
                    reason.starts_with("the attempt has too little time left"),
                    "{reason}"
                );
            }
        }
    }

    #[tokio::test]
    async fn refused_function_name_is_truncated_before_it_is_kept() {
        let granted = GrantedFunctions::new(functions(1, None), Arc::default(), Handle::current());
        let wanted = RequestedInvocation {
            function: "\n".repeat(1_000_000),
            invocation: Invocation::Event,
            payload: Vec::new(),
            log_tail: false,
            parent: None,
            tenant: Ok(None),
            trace_header: None,
            deadline: None,
        };
        let Err(InvokeDenial::Forbidden(why)) = granted.begin(wanted, ()) else {
            panic!("it is forbidden");
        };
        assert!(why.len() < 300 && why.contains(r"\n"), "{why}");
    }

    #[test]
    fn patterns_match_whole_names() {
        let arn = "arn:aws:lambda:eu-west-1:123456789012:function:orders:live";
        for (pattern, name, fits) in [
            ("orders", "orders", true),
            ("orders", "orders:live", false),
            ("orders", "my-orders", false),
            ("", "orders", false),
            ("*", "", true),
            ("*", arn, true),
            ("orders-*", "orders-", true),
            ("orders-*", "orders", false),
            ("*-live", "a-live-live", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
            ("arn:aws:lambda:*:*:function:orders:*", arn, true),
            (arn, arn, true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
