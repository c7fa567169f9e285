//! Forwards messages to an HTTP service: each message, or each batch, is one POST request, and the
//! status of the response is its outcome. Only this file calls the host.

mod attributes;
mod batch;
mod members;
mod outcome;
mod request;
mod settings;
mod signature;
mod time;

use dispatcher_guest::http::Error;
use dispatcher_guest::{Failed, Failure, Message, async_batch_handler};
use futures_util::future::join_all;
use settings::Settings;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Read once per instance.
static SETTINGS: OnceLock<Result<Settings, String>> = OnceLock::new();

async fn forward(messages: Vec<Message>) -> Result<Vec<Failed>, Failure> {
    let settings = SETTINGS.get_or_init(|| Settings::read(|name| std::env::var(name).ok()));
    let settings = settings
        .as_ref()
        .map_err(|why| Failure::Closed(format!("http-forward: {why}")))?;
    if settings.batches {
        return batch(&messages, settings).await;
    }
    let each = messages.iter().map(|message| single(message, settings));
    Ok(join_all(each).await.into_iter().flatten().collect())
}

async_batch_handler!(forward);

/// Sends one message; its failure, if it has one.
async fn single(message: &Message, settings: &Settings) -> Option<Failed> {
    let request = request::of_message(message, settings, seconds(SystemTime::now()));
    let response = request.send_async().await;
    let failure = outcome::of(&response, message.time_left(), SystemTime::now()).err()?;
    Some(Failed {
        id: message.id.clone(),
        failure,
    })
}

/// Sends a batch; the messages of it that failed, or the failure of all.
async fn batch(messages: &[Message], settings: &Settings) -> Result<Vec<Failed>, Failure> {
    let request = request::of_batch(messages, settings, seconds(SystemTime::now()));
    let response = request.send_async().await;
    let Some(first) = messages.first() else {
        return Ok(Vec::new());
    };
    if let Err(error @ Error::Invalid(_)) = &response {
        // One of them, and nobody knows which.
        let why = format!("no request can carry the batch: {error}");
        return Err(Failure::retry_because(why));
    }
    outcome::of(&response, first.time_left(), SystemTime::now())?;
    let body = response.as_ref().map_or(&[][..], |response| &response.body);
    let is_whole = body.len() < request.limit;
    batch::failures(body, is_whole, messages).map_err(Failure::retry_because)
}

/// Seconds since the Unix epoch.
fn seconds(now: SystemTime) -> u64 {
    let since = now.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
