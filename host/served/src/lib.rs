//! The embedded queue over the SQS protocol, so that any AWS SDK uses it unchanged. Beside `app`,
//! the only place above the adapters that names the embedded queue; knows no other backend and
//! checks no signatures.
//!
//! `wire` is which protocol a request speaks. `query` is the older one
//! in the shapes of the newer. `service` is who answers; `queues`, `sending`, `receiving`, `settling`
//! and `moving` are its operations. `input`, `content`, `attributes` and `fault` are what they
//! read, check and refuse. `uploads` is how bodies of requests arrive. `background` is what is done
//! without being asked.

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
mod uploads;
mod wire;

use dispatcher_core::queue::QueueError;
pub use dispatcher_http::listen;
use dispatcher_local::queue::LocalStore;
use service::Service;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The embedded queue of one folder, ready to be served.
pub struct Served {
    store: LocalStore,
}

impl Served {
    /// Opens the folder; makes what is missing. Blocks for some milliseconds.
    ///
    /// # Errors
    /// One line that names the folder and the cause.
    pub fn open(folder: &Path) -> Result<Self, QueueError> {
        LocalStore::open(folder).map(|store| Self { store })
    }

    /// Answers until `stop`. Long outstanding polls are then answered with nothing, the rest is
    /// finished, for a second at most.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let desk = Arc::new(Service::new(self.store, stop.clone()));
        let background = dispatcher_core::tasks::spawn(background::forever(Arc::clone(&desk)));
        wire::serve(listener, desk, stop).await;
        drop(background);
    }
}
