//! Grants a folder for reading. Knows no version of the contract: files are WASI's own.

use dispatcher_core::tasks;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

/// Where the guest sees it.
const SEEN_AS: &str = "/";

/// Why a folder cannot be granted, in one line.
pub(crate) fn check(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    match std::fs::read_dir(folder) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the folder `{shown}` cannot be opened: {error}")),
    }
}

/// This many openings of one folder at once: each takes a thread for as long as the system likes.
const OPENINGS: usize = 16;

/// The folder that a plugin may read.
pub(crate) struct GrantedFolder {
    folder: PathBuf,
    turns: Arc<Semaphore>,
}

/// A folder that was there at the load and cannot be opened now. Without it no guest runs, since it
/// would judge its message by files that are only missed.
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

    /// A context in which it is granted, and nothing else yet. WASI sees to it that neither `..`
    /// nor a link leads out of it. Waits for as long as the disk does; needs the guests' runtime.
    pub(crate) async fn open(&self) -> Result<Box<WasiCtxBuilder>, NotOpened> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.expect("nobody closes it");
        let folder = self.folder.clone();
        let opening = tasks::blocking(move || {
            // Not released before the disk answers, even if nobody waits any more.
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
