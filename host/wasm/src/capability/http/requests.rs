//! Limits the parts of a request other than its headers, because the host stores them as long as
//! the handle lives.

use crate::capability::caller::Caller;
use crate::capability::description::{LINKED_WASI_2, LINKED_WASI_3};
use crate::capability::shown::{Package, TracedCall};
use crate::limits::HTTP_WORD;
use std::fmt::Debug;
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, LinkerInstance, Resource};
use wasmtime_wasi_http::{p2, p3};

pub(super) fn link<C: Caller>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    of_2(&mut linker.instance(&format!("wasi:http/types@{LINKED_WASI_2}"))?)?;
    of_3(&mut linker.instance(&format!("wasi:http/types@{LINKED_WASI_3}"))?)
}

type Set = wasmtime::Result<Result<(), ()>>;

/// Replaces a method that sets a part of a request. A value that is too long is rejected like one
/// that is misspelt.
fn bounded<C, R, V>(
    types: &mut LinkerInstance<'_, C>,
    name: &'static str,
    length: fn(&V) -> usize,
    set: fn(&mut C, Resource<R>, V) -> Set,
) -> wasmtime::Result<()>
where
    C: Caller,
    R: 'static,
    V: ComponentType + Lift + Debug + Send + Sync + 'static,
{
    types.func_wrap(
        name,
        move |mut store: StoreContextMut<'_, C>, (request, value): (Resource<R>, V)| {
            let call = TracedCall::of(Package::Requests, "types", name, format_args!("{value:?}"));
            let set = match length(&value) {
                ..=HTTP_WORD => set(store.data_mut(), request, value)?,
                _ => Err(()),
            };
            call.answered(&set);
            Ok((set,))
        },
    )
}

fn text(text: &Option<String>) -> usize {
    text.as_ref().map_or(0, String::len)
}

/// Defines a function that replaces the methods of one version's types.
macro_rules! of_version {
    ($name:ident, $version:ident, $host:ident, $request:ident, $resource:literal) => {
        fn $name<C: Caller>(types: &mut LinkerInstance<'_, C>) -> wasmtime::Result<()> {
            use $version::bindings::http::types::{Method, Scheme, $host, $request};

            bounded::<C, $request, Method>(
                types,
                concat!("[method]", $resource, ".set-method"),
                |method| match method {
                    Method::Other(other) => other.len(),
                    _ => 0,
                },
                |guest, request, method| guest.http().set_method(request, method),
            )?;
            bounded::<C, $request, Option<Scheme>>(
                types,
                concat!("[method]", $resource, ".set-scheme"),
                |scheme| match scheme {
                    Some(Scheme::Other(other)) => other.len(),
                    _ => 0,
                },
                |guest, request, scheme| guest.http().set_scheme(request, scheme),
            )?;
            bounded::<C, $request, _>(
                types,
                concat!("[method]", $resource, ".set-authority"),
                text,
                |guest, request, authority| guest.http().set_authority(request, authority),
            )?;
            bounded::<C, $request, _>(
                types,
                concat!("[method]", $resource, ".set-path-with-query"),
                text,
                |guest, request, path| guest.http().set_path_with_query(request, path),
            )
        }
    };
}
of_version!(
    of_2,
    p2,
    HostOutgoingRequest,
    OutgoingRequest,
    "outgoing-request"
);
of_version!(of_3, p3, HostRequest, Request, "request");
