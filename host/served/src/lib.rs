//! The embedded queue over the SQS protocol, so that any AWS SDK uses it unchanged. Beside `app`,
//! the only place above the adapters that names the embedded queue; knows no other backend and
//! checks no signatures.
//!
//! `wire` is which protocol a request speaks. `query` is the older one
//! in the shapes of the newer. `service` is who answers; `queues`, `sending`, `receiving`, `settling`
//! and `moving` are its operations. `input`, `content`, `attributes` and `fault` are what they
//! read, check and refuse. `uploads` is how bodies of requests arrive. `background` is what is done without being asked,
//! `test_calls` what only test suites ask.

mod attempts;
mod attributes;
mod background;
mod content;
mod fault;
mod input;
mod moving;
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
pub struct Served {
    store: LocalStore,
    tests: Option<Vec<QueueDeclaration>>,
}

impl Served {
    /// Opens the folder; makes what is missing. Blocks for some milliseconds.
    ///
    /// # Errors
    /// One line that names the folder and the cause.
    pub fn open(folder: &Path) -> Result<Self, QueueError> {
        LocalStore::open(folder).map(|store| Self { store, tests: None })
    }

    /// Queues in memory, gone with this.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub fn open_in_memory() -> Result<Self, QueueError> {
        LocalStore::open_in_memory().map(|store| Self { store, tests: None })
    }

    /// Makes the queues that are declared; none, if a declaration contradicts what is there.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn declare(
        &self,
        queues: &[QueueDeclaration],
    ) -> Result<Vec<Contradiction>, QueueError> {
        self.store.declare(queues.to_vec()).await
    }

    /// A client of the same queues, for the rest of the program. Other files of the folder `data` are
    /// opened when they are needed; without it there are none.
    pub fn client(&self, data: Option<&Path>) -> Arc<dyn BackendClient> {
        dispatcher_local::client_of(self.store.clone(), data)
    }

    /// The same, answering the calls of tests; a reset makes these queues anew.
    #[must_use]
    pub fn with_test_calls(self, queues: Vec<QueueDeclaration>) -> Self {
        Self {
            tests: Some(queues),
            ..self
        }
    }

    /// Answers until `stop`. Long outstanding polls are then answered with nothing, the rest is
    /// finished, for a second at most.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let mut desk = Service::new(self.store, stop.clone());
        desk.tests = self.tests;
        let desk = Arc::new(desk);
        let background = dispatcher_core::tasks::spawn(background::forever(Arc::clone(&desk)));
        wire::serve(listener, desk, stop).await;
        drop(background);
    }
}
