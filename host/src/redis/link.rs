//! The connections to a server: each made when it is first needed and again whenever it is lost. Retries nothing: whoever
//! asked knows whether that is safe.

use super::bell::{Bell, Bells};
use super::trouble;
use crate::clock::{self, Moment};
use crate::trouble::{Failed, Trouble};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, FromRedisValue, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, RedisError, ScriptInvocation,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
/// How long an answer may take before the connection counts as lost: longer than any script of ours
/// holds the server up.
const ANSWER: Duration = Duration::from_secs(5);
/// How many calls may carry much at once: so many of `LONGEST` bytes a line of 100 Mbit/s carries in
/// the time of an answer.
const LONG: usize = 2;
/// Calls that come so soon after a failed attempt to connect share its answer.
const AGAIN: Duration = Duration::from_millis(100);

/// One connection to one server, for commands and for what the server tells.
pub struct Link {
    client: Client,
    config: AsyncConnectionConfig,
    place: String,
    bells: Arc<Bells>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Grows with every connection.
    number: u64,
    connection: Option<MultiplexedConnection>,
    failed: Option<(Moment, Failed)>,
}

/// The connections of a process to a server. Answers come in the order of the calls, so what keeps
/// the process alive there has a connection that no payload travels on.
#[derive(Clone)]
pub struct Lines {
    /// For whatever takes its time, and for what the server tells.
    pub link: Arc<Link>,
    /// For what is short and must be in time.
    pub urgent: Arc<Link>,
    long: Arc<Semaphore>,
}

impl Lines {
    /// To the server of this address; see `Link::new`.
    pub fn new(url: &str) -> Result<Self, Failed> {
        let link = Link::new(url)?;
        Ok(Self {
            urgent: Arc::new(link.beside()),
            link: Arc::new(link),
            long: Arc::new(Semaphore::new(LONG)),
        })
    }

    /// Waits for the turn of a call on `link` that carries much, or may bring it: its time runs from
    /// when it is made, and all that are made at once share the line. The turn ends with what this
    /// returns; keep it for no longer than the call.
    pub async fn turn(&self) -> SemaphorePermit<'_> {
        self.long.acquire().await.expect("nobody closes it")
    }
}

impl Link {
    /// Reads the address, `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`; connects to nothing.
    pub fn new(url: &str) -> Result<Self, Failed> {
        let refused = |error: &RedisError| Failed {
            kind: Trouble::Refused,
            message: format!(
                "the address of Redis: {error}; wanted redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]"
            ),
        };
        let info = url
            .into_connection_info()
            .map_err(|error| refused(&error))?;
        let place = info.addr().to_string();
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings));
        let bells = Arc::new(Bells::default());
        let ears = bells.clone();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER))
            .set_push_sender(move |said: PushInfo| {
                ears.hear(&said);
                Ok::<(), redis::aio::SendError>(())
            });
        Ok(Self {
            client: client.map_err(|error| refused(&error))?,
            config,
            place,
            bells,
            state: Mutex::default(),
        })
    }

    /// Another connection to the same server. Nothing can be listened to on it.
    fn beside(&self) -> Self {
        Self {
            client: self.client.clone(),
            config: AsyncConnectionConfig::new()
                .set_connection_timeout(Some(CONNECT))
                .set_response_timeout(Some(ANSWER)),
            place: self.place.clone(),
            bells: Arc::default(),
            state: Mutex::default(),
        }
    }

    /// `HOST:PORT`, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Runs a script.
    pub async fn run<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, Failed> {
        let (number, mut connection) = self.connection().await?;
        let answer = script.invoke_async(&mut connection).await;
        self.heard(number, answer).await
    }

    /// Runs commands.
    pub async fn pipe<T: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<T, Failed> {
        let (number, mut connection) = self.connection().await?;
        let answer = pipeline.query_async(&mut connection).await;
        self.heard(number, answer).await
    }

    /// Passes on to the bell what is said on the channel, from now on and after every reconnection.
    pub async fn listen(&self, channel: &str, bell: &Arc<Bell>) -> Result<(), Failed> {
        if !self.bells.hang(channel, bell) {
            return Ok(());
        }
        let subscribed = async {
            let (number, mut connection) = self.connection().await?;
            let answer = connection.subscribe(channel).await;
            self.heard(number, answer).await
        };
        subscribed
            .await
            .inspect_err(|_| self.bells.take_down(channel))
    }

    async fn heard<T>(&self, number: u64, answer: Result<T, RedisError>) -> Result<T, Failed> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if trouble::is_over(&error) {
            let mut state = self.state.lock().await;
            if state.number == number {
                state.connection = None;
            }
        }
        Err(trouble::failed(&self.place, &error))
    }

    /// The connection and its number; made if there is none.
    async fn connection(&self) -> Result<(u64, MultiplexedConnection), Failed> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok((state.number, connection.clone()));
        }
        let now = clock::now();
        if let Some((at, error)) = &state.failed
            && now.since(*at) < AGAIN
        {
            return Err(error.clone());
        }
        match self.connect().await {
            Ok(connection) => {
                state.number += 1;
                state.connection = Some(connection.clone());
                state.failed = None;
                Ok((state.number, connection))
            }
            Err(error) => {
                let error = trouble::failed(&self.place, &error);
                state.failed = Some((clock::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&self.config)
            .await?;
        let channels = self.bells.channels();
        if !channels.is_empty() {
            connection.subscribe(&channels).await?;
        }
        Ok(connection)
    }
}
