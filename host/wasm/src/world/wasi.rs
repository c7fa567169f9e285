//! WASI's own interfaces, and where we stand in their place: what they would refuse without a word to
//! us is refused here, so that it is counted; what they would keep for a guest without a bound has one.

mod files;
mod requests;
mod shown;
mod sockets;

use crate::guest::Guest;
use std::fmt::Debug;
use wasmtime::component::Linker;
use wasmtime_wasi_http as http;

/// The version that the library links, which has to be met to stand in its place.
const V2: &str = "0.2.12";
/// Of WASI 0.3, likewise.
const V3: &str = "0.3.0";

/// What a refusal is called, and what opens it.
type Refused = (&'static str, &'static str);

/// Adds them to a linker. What is lent is the guest's to know.
pub(crate) fn lend(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi::p3::add_to_linker(linker)?;
    http::p2::add_only_http_to_linker_async(linker)?;
    http::p3::add_to_linker(linker)?;
    linker.allow_shadowing(true);
    sockets::lend(linker)?;
    files::lend(linker)?;
    requests::lend(linker)?;
    linker.allow_shadowing(false);
    Ok(())
}

impl Guest {
    /// Counts a refusal of `name`, and gives what the guest is told.
    fn refuse<E: Debug>(&self, what: Refused, name: &str, told: E, call: shown::Call) -> E {
        let settings = self.settings();
        settings.refusals.refuse(&settings.name, what, name);
        call.answered(&Err::<(), _>(&told));
        told
    }
}
