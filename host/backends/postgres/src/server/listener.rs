//! The connection of a process that notifications come by. They are only hints: receives also look
//! without them.

use dispatcher_core::clock;
use dispatcher_core::tasks;
use dispatcher_core::tasks::Task;
use dispatcher_core::telemetry::error_text::with_sources;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio_postgres::{AsyncMessage, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The time between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(5);

/// A number that changes when a queue may have a message.
pub(crate) type Wakes = watch::Sender<u64>;

/// The connection, and the queues that it wakes.
pub(crate) struct Listener {
    address: (Config, MakeRustlsConnect),
    place: Arc<str>,
    state: Mutex<ListenerState>,
}

#[derive(Default)]
struct ListenerState {
    /// The queues by the names of their tables. A queue that is opened twice has two.
    queues: HashMap<String, Vec<Weak<Wakes>>>,
    /// The connection, once a receive waits.
    connection: Option<Task<()>>,
}

/// Wakes the receives that wait.
pub(crate) fn wake(wakes: &Wakes) {
    wakes.send_modify(|count| *count = count.wrapping_add(1));
}

impl Listener {
    pub(crate) fn new(address: (Config, MakeRustlsConnect), place: Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            address,
            place,
            state: Mutex::default(),
        })
    }

    /// Adds a queue, by the name of its table.
    pub(crate) fn add(&self, table: &str, wakes: &Arc<Wakes>) {
        let mut state = self.state.lock();
        let there = state.queues.entry(table.to_owned()).or_default();
        there.retain(|one| one.strong_count() > 0);
        there.push(Arc::downgrade(wakes));
    }

    /// Starts to listen, unless it does already.
    pub(crate) fn start(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.connection.is_none() {
            let listener = Arc::downgrade(self);
            state.connection = Some(tasks::spawn(listen(listener)));
        }
    }

    /// Wakes a queue, or all of them.
    fn wake(&self, table: Option<&str>) {
        let state = self.state.lock();
        let named = state
            .queues
            .iter()
            .filter(|(name, _)| table.is_none_or(|table| table == *name));
        let queues = named.flat_map(|(_, queues)| queues);
        queues.filter_map(Weak::upgrade).for_each(|one| wake(&one));
    }
}

/// Listens until no queue is left, and connects again if the connection is lost.
async fn listen(listener: Weak<Listener>) {
    let mut is_lost = false;
    loop {
        let Some(here) = listener.upgrade() else {
            return;
        };
        let (address, place) = (here.address.clone(), here.place.clone());
        drop(here);
        let error = match listen_once(address, &listener, &mut is_lost).await {
            Ok(()) => "the connection was closed".to_owned(),
            Err(error) => with_sources(&error),
        };
        if listener.strong_count() == 0 {
            return;
        }
        if !is_lost {
            tracing::warn!(%place, error, "PostgreSQL sends no notifications; receives look up to 5 s later");
        }
        is_lost = true;
        clock::sleep_until(Some(clock::now() + PAUSE)).await;
    }
}

async fn listen_once(
    (config, tls): (Config, MakeRustlsConnect),
    listener: &Weak<Listener>,
    is_lost: &mut bool,
) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(tls).await?;
    let messages = poll_fn(|context| connection.poll_message(context));
    let mut subscribing = pin!(client.batch_execute("LISTEN dispatcher"));
    let mut messages = pin!(messages);
    let mut is_subscribed = false;
    loop {
        let message = tokio::select! {
            subscribed = &mut subscribing, if !is_subscribed => {
                subscribed?;
                is_subscribed = true;
                *is_lost = false;
                // Earlier notifications were not received.
                if let Some(listener) = listener.upgrade() {
                    listener.wake(None);
                }
                continue;
            }
            message = &mut messages => message,
        };
        let Some(listener) = listener.upgrade() else {
            return Ok(());
        };
        match message {
            Some(Ok(AsyncMessage::Notification(of))) => listener.wake(Some(of.payload())),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error),
            None => return Ok(()),
        }
    }
}
