//! The example of a backend: a queue is a folder and a message is a file. It keeps what the port
//! promises, also where processes are killed, and is as simple as that allows: every call reads the
//! whole folder. The program is not built with it; `host/docs/adding-a-backend.md` walks through it.
//!
//! `name` is what a file's name says, `queue` what can be done with the files.

mod name;
mod queue;

use dispatcher_core::backend::{
    Backend, BackendClient, BackendConfig, BackendFacts, BackendSetting, QueueTerms, SettingFlag,
    SettingForm,
};
use dispatcher_core::error_kind::{CallError, ErrorKind};
use dispatcher_core::queue::{Queue, QueueError};
use queue::{DirectoryQueue, entries, failed};
use std::path::PathBuf;
use std::sync::Arc;

/// `[backend.directory]`.
const SETTINGS: &[BackendSetting] = &[BackendSetting {
    key: "folder",
    help: "The folder of queues named directory:NAME",
    value: "FOLDER",
    default: "directory in the data folder",
    form: SettingForm::Path,
    flag: Some(SettingFlag::Place),
}];

/// Queues `directory:NAME`, each a folder.
pub struct DirectoryBackend;

#[async_trait::async_trait]
impl Backend for DirectoryBackend {
    fn facts(&self) -> &'static BackendFacts {
        const FACTS: BackendFacts = BackendFacts {
            settings: SETTINGS,
            ..BackendFacts::of("directory")
        };
        &FACTS
    }

    async fn connect(&self, config: &BackendConfig) -> Result<Arc<dyn BackendClient>, CallError> {
        let folder = match config.get("folder") {
            Some(folder) => PathBuf::from(folder),
            None => config.data.join("directory"),
        };
        Ok(Arc::new(DirectoryClient { folder }))
    }
}

struct DirectoryClient {
    folder: PathBuf,
}

#[async_trait::async_trait]
impl BackendClient for DirectoryClient {
    async fn open(&self, queue: &str, terms: QueueTerms<'_>) -> Result<Arc<dyn Queue>, QueueError> {
        if terms.dead_letter == Some(queue) {
            return Err(QueueError {
                kind: ErrorKind::Invalid,
                message: format!("`{queue}` cannot be its own dead-letter queue"),
            });
        }
        match DirectoryQueue::open(&self.folder, queue, terms) {
            Ok(queue) => Ok(Arc::new(queue)),
            Err(error) => Err(failed(&self.folder, &error)),
        }
    }

    async fn queues(&self) -> Result<Vec<String>, QueueError> {
        if self.folder.exists() {
            return entries(&self.folder);
        }
        Ok(Vec::new())
    }

    async fn exists(&self, queue: &str) -> Result<bool, QueueError> {
        Ok(self.folder.join(queue).is_dir())
    }
}
