//! `wasi:config`: its bindings, and what a plugin reads by them. Knows no configuration of ours.

use crate::guest::Guest;
use bindings::wasi::config::store::{self, Error};
use wasmtime::component::{HasSelf, Linker};

// The library's own bindings show no calls to `plugin invoke --trace`.
mod bindings {
    wasmtime::component::bindgen!({
        inline: "
            package dispatcher:host;
            world configured {
                import wasi:config/store@0.2.0-rc.1;
            }
            package wasi:config@0.2.0-rc.1 {
                interface store {
                    variant error {
                        upstream(string),
                        io(string),
                    }
                    get: func(key: string) -> result<option<string>, error>;
                    get-all: func() -> result<list<tuple<string, string>>, error>;
                }
            }
        ",
        world: "dispatcher:host/configured",
        imports: { default: trappable | tracing | verbose_tracing },
    });
}

/// Adds it to a linker. What is lent is the guest's to know.
pub(crate) fn lend(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    store::add_to_linker::<_, HasSelf<Guest>>(linker, |guest| guest)
}

impl store::Host for Guest {
    fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<String>, Error>> {
        Ok(Ok(self.variables().get(&key).cloned()))
    }

    fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, Error>> {
        let all = self.variables().iter();
        let all = all.map(|(name, value)| (name.clone(), value.clone()));
        Ok(Ok(all.collect()))
    }
}
