//! Spans that a plugin makes for its work, through `wasi:otel`. Experimental: the interfaces are
//! those of a release candidate.

mod otel;

use super::caller::{Grant, GrantedTo, Recipient};
use super::description::{Description, Interface};
use wasmtime::component::Linker;

/// The maximum number of spans of each attempt; `None` grants no spans.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpanGrant(pub Option<usize>);

impl Grant for SpanGrant {
    const DESCRIPTION: Description = Description {
        name: "spans",
        key: "allow-spans",
        value: "N",
        value_for: None,
        requested_by: &["wasi:otel/tracing"],
        interfaces: &[
            Interface::new("wasi:otel/types", &[otel::VERSION]),
            Interface::new("wasi:otel/tracing", &[otel::VERSION]),
        ],
        suspends: &[],
        documented_as: "`wasi:otel/tracing@0.2.0-rc.2`",
        without_grant: "spans are dropped",
    };

    type SharedGrant = Self;

    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
        otel::link(linker)
    }

    fn give(self, _: &Recipient<'_>) -> Self::SharedGrant {
        self
    }

    fn for_shadow(self) -> Self {
        Self::default()
    }
}
