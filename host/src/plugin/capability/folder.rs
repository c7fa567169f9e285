//! Lends a folder to read, and nothing of it to write. Knows no version of the contract: files are
//! WASI's own.

use std::path::Path;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

/// Where the guest sees it.
const SEEN_AS: &str = "/";

/// Why a folder cannot be lent, in one line.
pub(in crate::plugin) fn check(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    match std::fs::read_dir(folder) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the folder `{shown}` cannot be lent: {error}")),
    }
}

/// Lends it. WASI sees to it that neither `..` nor a link leads out of it.
pub(in crate::plugin) fn lend(context: &mut WasiCtxBuilder, plugin: &str, folder: &Path) {
    if let Err(error) = context.preopened_dir(folder, SEEN_AS, FsPerms::ReadOnly) {
        let folder = folder.display();
        tracing::warn!(plugin, %folder, "the folder cannot be lent now: {error}");
    }
}
