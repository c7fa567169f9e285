//! Traces a call as the bindings would, for `plugin invoke --trace`: a span, with an event for the
//! arguments and one for the result.

use std::fmt::{Arguments, Debug};
use tracing::Span;

/// An outstanding call.
pub(crate) struct TracedCall {
    span: Span,
    package: Package,
}

/// The package of an interface.
#[derive(Clone, Copy)]
pub(crate) enum Package {
    Files,
    Requests,
    Sockets,
}

/// Returns the module path that the bindings of the package would have; the trace reads the package
/// from it.
macro_rules! at {
    (Files) => {
        "wasi::filesystem::shown"
    };
    (Requests) => {
        "wasi::http::shown"
    };
    (Sockets) => {
        "wasi::sockets::shown"
    };
}

macro_rules! begin {
    ($package:ident, $interface:expr, $function:expr, $asked:expr) => {{
        let span = tracing::trace_span!(target: at!($package), "wit-bindgen import", module = $interface, function = $function);
        tracing::trace!(target: at!($package), parent: &span, self_ = %$asked, "call");
        span
    }};
}

impl TracedCall {
    /// Begins a call of this function with these arguments.
    pub(crate) fn of(
        package: Package,
        interface: &str,
        function: &str,
        asked: Arguments<'_>,
    ) -> Self {
        let span = match package {
            Package::Files => begin!(Files, interface, function, asked),
            Package::Requests => begin!(Requests, interface, function, asked),
            Package::Sockets => begin!(Sockets, interface, function, asked),
        };
        Self { span, package }
    }

    /// Ends the call with the result that the guest gets.
    pub(crate) fn answered(self, result: &impl Debug) {
        // The bindings wrap the result of a call that may trap in the same way.
        let result = Ok::<_, ()>(result);
        let span = &self.span;
        match self.package {
            Package::Files => {
                tracing::trace!(target: at!(Files), parent: span, ?result, "return");
            }
            Package::Requests => {
                tracing::trace!(target: at!(Requests), parent: span, ?result, "return");
            }
            Package::Sockets => {
                tracing::trace!(target: at!(Sockets), parent: span, ?result, "return");
            }
        }
    }
}
