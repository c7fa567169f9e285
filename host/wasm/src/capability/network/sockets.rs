//! Sockets and name lookups. Connections are possible if one is granted; nothing else of the
//! network can be granted.

use super::peers::Peer;
use crate::capability::caller::{Grant, GrantedTo};
use crate::capability::description::{LINKED_WASI_2, LINKED_WASI_3};
use crate::capability::refusals::Denial;
use crate::capability::shown::{Package, TracedCall};
use wasmtime::StoreContextMut;
use wasmtime::component::{Accessor, Linker, Resource};
use wasmtime_wasi::sockets::WasiSocketsView;
use wasmtime_wasi::{p2, p3};

const TCP: Denial = Denial::ungranted(&<Vec<Peer>>::DESCRIPTION, "make connections");
const UDP: Denial = Denial::always(&<Vec<Peer>>::DESCRIPTION, "use UDP");
const NAMES: Denial = Denial::always(&<Vec<Peer>>::DESCRIPTION, "look up names");

pub(super) fn link<C: GrantedTo<Vec<Peer>>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    of_2(linker)?;
    of_3(linker)
}

/// Whether sockets may be created: only if a connection is granted.
fn may_connect(guest: &impl GrantedTo<Vec<Peer>>) -> bool {
    !guest.granted().is_empty()
}

fn call(interface: &str, function: &str, asked: &str) -> TracedCall {
    TracedCall::of(
        Package::Sockets,
        interface,
        function,
        format_args!("{asked}"),
    )
}

fn of_2<C: GrantedTo<Vec<Peer>>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    use p2::bindings::sockets::ip_name_lookup::ResolveAddressStream;
    use p2::bindings::sockets::network::{ErrorCode, IpAddressFamily, Network};
    use p2::bindings::sockets::tcp_create_socket::Host;

    let name = format!("wasi:sockets/tcp-create-socket@{LINKED_WASI_2}");
    linker.instance(&name)?.func_wrap(
        "create-tcp-socket",
        |mut store: StoreContextMut<'_, C>, (family,): (IpAddressFamily,)| {
            let call = call("tcp-create-socket", "create-tcp-socket", "");
            let guest = store.data_mut();
            if !may_connect(guest) {
                let denied = ErrorCode::AccessDenied;
                return Ok((Err(guest.refuse(&TCP, "a socket", denied, call)),));
            }
            let made = if guest.may_open() {
                let made = guest.sockets().create_tcp_socket(family);
                made.map(Ok).or_else(|error| error.downcast().map(Err))?
            } else {
                Err(ErrorCode::NewSocketLimit)
            };
            call.answered(&made);
            Ok((made,))
        },
    )?;
    let name = format!("wasi:sockets/udp-create-socket@{LINKED_WASI_2}");
    linker.instance(&name)?.func_wrap(
        "create-udp-socket",
        |store: StoreContextMut<'_, C>, (_,): (IpAddressFamily,)| {
            let call = call("udp-create-socket", "create-udp-socket", "");
            let code = ErrorCode::AccessDenied;
            let denied = store.data().refuse(&UDP, "a socket", code, call);
            Ok((Err::<Resource<p2::UdpSocket>, _>(denied),))
        },
    )?;
    let name = format!("wasi:sockets/ip-name-lookup@{LINKED_WASI_2}");
    linker.instance(&name)?.func_wrap(
        "resolve-addresses",
        |store: StoreContextMut<'_, C>, (_, name): (Resource<Network>, String)| {
            let call = call("ip-name-lookup", "resolve-addresses", &name);
            let code = ErrorCode::PermanentResolverFailure;
            let denied = store.data().refuse(&NAMES, &name, code, call);
            Ok((Err::<Resource<ResolveAddressStream>, _>(denied),))
        },
    )
}

fn of_3<C: GrantedTo<Vec<Peer>>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
    use p3::bindings::sockets::ip_name_lookup;
    use p3::bindings::sockets::types::{
        ErrorCode, HostTcpSocket, IpAddress, IpAddressFamily, UdpSocket,
    };

    let mut types = linker.instance(&format!("wasi:sockets/types@{LINKED_WASI_3}"))?;
    types.func_wrap(
        "[static]tcp-socket.create",
        |mut store: StoreContextMut<'_, C>, (family,): (IpAddressFamily,)| {
            let call = call("types", "[static]tcp-socket.create", "");
            let guest = store.data_mut();
            if !may_connect(guest) {
                let denied = ErrorCode::AccessDenied;
                return Ok((Err(guest.refuse(&TCP, "a socket", denied, call)),));
            }
            let made = if guest.may_open() {
                let made = HostTcpSocket::create(&mut guest.sockets(), family);
                made.map(Ok).or_else(|error| error.downcast().map(Err))?
            } else {
                Err(ErrorCode::OutOfMemory)
            };
            call.answered(&made);
            Ok((made,))
        },
    )?;
    types.func_wrap(
        "[static]udp-socket.create",
        |store: StoreContextMut<'_, C>, (_,): (IpAddressFamily,)| {
            let call = call("types", "[static]udp-socket.create", "");
            let code = ErrorCode::AccessDenied;
            let denied = store.data().refuse(&UDP, "a socket", code, call);
            Ok((Err::<Resource<UdpSocket>, _>(denied),))
        },
    )?;
    let name = format!("wasi:sockets/ip-name-lookup@{LINKED_WASI_3}");
    linker.instance(&name)?.func_wrap_concurrent(
        "resolve-addresses",
        |accessor: &Accessor<C>, (name,): (String,)| {
            let call = call("ip-name-lookup", "resolve-addresses", &name);
            let code = ip_name_lookup::ErrorCode::PermanentResolverFailure;
            let denied =
                accessor.with(|mut access| access.data_mut().refuse(&NAMES, &name, code, call));
            Box::pin(async move { Ok((Err::<Vec<IpAddress>, _>(denied),)) })
        },
    )
}
