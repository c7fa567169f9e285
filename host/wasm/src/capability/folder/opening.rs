//! Grants a folder for reading. Does not depend on the contract's version, since files are WASI's
//! own.

use dispatcher_core::tasks;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

/// The path at which the guest sees it.
const SEEN_AS: &str = "/";

/// Checks that a folder can be opened. Returns the reason in one line if not.
pub(crate) fn check(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    match std::fs::read_dir(folder) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the folder `{shown}` cannot be opened: {error}")),
    }
}

/// The maximum number of concurrent openings of one folder. Each occupies a thread until the system
/// answers.
const OPENINGS: usize = 16;

/// The folder that a plugin may read.
pub(crate) struct GrantedFolder {
    folder: PathBuf,
    turns: Arc<Semaphore>,
}

/// A folder that existed when the plugin was loaded and cannot be opened now. No guest runs without
/// it, since a guest would judge its message without files that are only temporarily missing.
#[derive(Debug, thiserror::Error)]
#[error("the folder `{}` cannot be opened now: {why}", folder.display())]
pub(crate) struct NotOpened {
    folder: PathBuf,
    why: String,
}

impl GrantedFolder {
    pub(crate) fn new(folder: PathBuf) -> Self {
        let turns = Arc::new(Semaphore::new(OPENINGS));
        Self { folder, turns }
    }

    /// Opens a WASI context that grants only the folder. WASI ensures that neither `..` nor a link
    /// leads out of it. Waits as long as the disk takes. Requires the guests' runtime.
    pub(crate) async fn open(&self) -> Result<Box<WasiCtxBuilder>, NotOpened> {
        let turn = Arc::clone(&self.turns)
            .acquire_owned()
            .await
            .expect("nobody closes it");
        let folder = self.folder.clone();
        let opening = tasks::blocking(move || {
            // Not released before the disk answers, even if the caller no longer waits.
            let _turn = turn;
            let mut context = WasiCtxBuilder::new();
            let granted = context.preopened_dir(&folder, SEEN_AS, FsPerms::ReadOnly);
            match granted.map(drop) {
                Ok(()) => Ok(Box::new(context)),
                Err(error) => Err(NotOpened {
                    why: error.to_string(),
                    folder,
                }),
            }
        });
        opening.finished().await
    }
}
