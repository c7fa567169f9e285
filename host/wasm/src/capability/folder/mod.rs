//! Files: one folder that a plugin may read. Does not depend on the contract's version, since files
//! are WASI's own.

mod files;
mod opening;

use super::caller::{Grant, GrantedTo, Recipient};
use super::description::{Description, Interface, WASI_2, WASI_3};
use crate::problem::Problem;
use opening::GrantedFolder;
pub(crate) use opening::NotOpened;
use std::path::PathBuf;
use wasmtime::component::Linker;

impl Grant for Option<PathBuf> {
    const DESCRIPTION: Description = Description {
        name: "files",
        key: "allow-read",
        value: "FOLDER",
        value_for: None,
        requested_by: &["wasi:filesystem/preopens"],
        interfaces: &[
            Interface::new("wasi:filesystem/preopens", &[WASI_2, WASI_3]),
            Interface::new("wasi:filesystem/types", &[WASI_2, WASI_3]),
        ],
        suspends: &[],
        documented_as: "`wasi:filesystem`",
        without_grant: "there are no files",
    };

    type SharedGrant = Option<GrantedFolder>;

    fn link<C: GrantedTo<Self>>(linker: &mut Linker<C>) -> wasmtime::Result<()> {
        files::link(linker)
    }

    fn give(self, _: &Recipient<'_>) -> Self::SharedGrant {
        self.map(GrantedFolder::new)
    }

    /// Reading does not affect other systems.
    fn for_shadow(self) -> Self {
        self
    }

    fn check(&self) -> Result<(), Problem> {
        let hint = "create it, or omit --allow-read";
        let found = self.as_deref().map_or(Ok(()), opening::check);
        found.map_err(|why| Problem::new(why).hint(hint))
    }
}

#[cfg(test)]
mod tests;
