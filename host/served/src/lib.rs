//! The embedded queue over the SQS protocol, so that any AWS SDK uses it unchanged. Besides `app`,
//! this is the only crate above the adapters that names the embedded queue. It does not know other
//! backends and checks no signatures.
//!
//! `wire` detects the protocol of a request; `query` converts the older one to the shapes of the
//! newer. `service` answers requests; `queues`, `sending`, `receiving`, `settling` and `moving` are
//! its operations. `input`, `content`, `attributes`, `permissions` and `fault` parse, check and
//! refuse their parameters. `uploads` receives the bodies of requests. `background` is the work
//! that no request asks for, and `test_calls` answers requests of test suites.

mod attempts;
mod attributes;
mod background;
mod content;
mod fault;
mod input;
mod moving;
mod permissions;
mod query;
mod queues;
mod receiving;
mod sending;
mod service;
mod settling;
mod test_calls;
mod uploads;
mod wire;

use dispatcher_core::backend::{BackendClient, Contradiction, QueueDeclaration};
use dispatcher_core::queue::QueueError;
pub use dispatcher_http::{listen, listen_or_any_port};
use dispatcher_local::queue::LocalStore;
use service::Service;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The embedded queue of one folder, ready to be served.
pub struct ServedFolder {
    store: LocalStore,
    tests: Option<Vec<QueueDeclaration>>,
}

impl ServedFolder {
    /// Opens the folder and creates what is missing. Blocks for some milliseconds.
    ///
    /// # Errors
    /// Fails with one line that names the folder and the cause.
    pub fn open(folder: &Path) -> Result<Self, QueueError> {
        LocalStore::open(folder).map(|store| Self { store, tests: None })
    }

    /// Opens queues in memory, which are lost with this value.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub fn open_in_memory() -> Result<Self, QueueError> {
        LocalStore::open_in_memory().map(|store| Self { store, tests: None })
    }

    /// Creates or changes the declared queues; none if a declaration contradicts an existing queue.
    ///
    /// # Errors
    /// Fails if the store cannot be written.
    pub async fn declare(
        &self,
        queues: &[QueueDeclaration],
    ) -> Result<Vec<Contradiction>, QueueError> {
        self.store.declare(queues.to_vec()).await
    }

    /// Returns a client of the same queues, for the rest of the program. It opens the other files
    /// of the folder `data` when they are needed; without `data` it has none.
    pub fn client(&self, data: Option<&Path>) -> Arc<dyn BackendClient> {
        dispatcher_local::client_of(self.store.clone(), data)
    }

    /// Also answers the calls of tests. A reset creates these queues anew.
    #[must_use]
    pub fn with_test_calls(self, queues: Vec<QueueDeclaration>) -> Self {
        Self {
            tests: Some(queues),
            ..self
        }
    }

    /// Answers requests until `stop`. Then long polls are answered without messages, and other
    /// requests are finished, within a second at most.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let mut desk = Service::new(self.store, stop.clone());
        desk.tests = self.tests;
        let desk = Arc::new(desk);
        let background = dispatcher_core::tasks::spawn(background::forever(Arc::clone(&desk)));
        wire::serve(listener, desk, stop).await;
        drop(background);
    }
}
