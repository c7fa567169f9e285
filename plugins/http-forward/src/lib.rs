//! Forwards messages to an HTTP service: each message, or each batch, is one POST request, and the
//! status of the response is its outcome. Only this file calls the host.

mod attributes;
mod batch;
mod outcome;
mod request;
mod settings;
mod signature;
mod time;

use dispatcher_guest::http::{Error, Request, Response};
use dispatcher_guest::{Failed, Failure, Message, async_batch_handler};
use futures_util::future::join_all;
use outcome::Sent;
use settings::Settings;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Read once per instance.
static SETTINGS: OnceLock<Result<Settings, String>> = OnceLock::new();

async fn forward(messages: Vec<Message>) -> Result<Vec<Failed>, Failure> {
    let settings = SETTINGS.get_or_init(|| Settings::read(|name| std::env::var(name).ok()));
    let settings = settings
        .as_ref()
        .map_err(|why| Failure::closed(format!("http-forward: {why}")))?;
    if settings.batches {
        return batch(&messages, settings).await;
    }
    let each = messages.iter().map(|message| single(message, settings));
    Ok(join_all(each).await.into_iter().flatten().collect())
}

async_batch_handler!(forward);

/// Sends one message; its failure, if it has one.
async fn single(message: &Message, settings: &Settings) -> Option<Failed> {
    let request = request::of_message(message, settings, now());
    let response = send(&request).await;
    let sent = sent(format!("message {}", message.id), message);
    let failure = outcome::of(&response, &sent).err()?;
    Some(Failed {
        id: message.id.clone(),
        failure,
    })
}

/// Sends a batch; the messages of it that failed, or the failure of all.
async fn batch(messages: &[Message], settings: &Settings) -> Result<Vec<Failed>, Failure> {
    let request = request::of_batch(messages, settings, now());
    let response = send(&request).await;
    let Some(first) = messages.first() else {
        return Ok(Vec::new());
    };
    let sent = sent(format!("batch of {}", messages.len()), first);
    outcome::of(&response, &sent)?;
    let body = response.as_ref().map_or(&[][..], |response| &response.body);
    batch::failures(body, messages).map_err(|why| {
        eprintln!("{}: {why}", sent.about);
        Failure::retry()
    })
}

fn sent(about: String, message: &Message) -> Sent {
    let left = message.time_left();
    Sent { about, left }
}

async fn send(request: &Request) -> Result<Response, Error> {
    request.send_async().await
}

/// Seconds since the Unix epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
