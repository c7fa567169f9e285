//! Forwards messages to an AWS Lambda function as Lambda's own SQS events: the classic mode. Only
//! this file touches the host; what is sent and what an answer means is decided in the modules.

mod answer;
mod deliver;
mod digest;
mod event;
mod journal;
mod members;
mod settings;
mod split;
mod verdict;

use deliver::{Host, Room};
use dispatcher_guest::lambda::{InvokeError, Request, Response, invoke_async};
use dispatcher_guest::{Failed, Failure, Message, async_batch_handler};
use settings::Settings;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Read once per instance.
static SETTINGS: OnceLock<Result<Settings, String>> = OnceLock::new();

/// What it learnt of Lambda.
static ROOM: Room = Room::new();

async fn forward(messages: Vec<Message>) -> Result<Vec<Failed>, Failure> {
    match SETTINGS.get_or_init(|| Settings::read(|name| std::env::var(name).ok())) {
        Ok(settings) => Ok(deliver::deliver(messages, settings, &ROOM, &Granted).await),
        Err(why) => Err(Failure::closed(format!("lambda-forward: {why}"))),
    }
}

async_batch_handler!(forward);

/// What the host grants.
struct Granted;

impl Host for Granted {
    async fn invoke(&self, request: Request) -> Result<Response, InvokeError> {
        invoke_async(request).await
    }

    fn now(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
    }

    fn log(&self, line: &str) {
        eprintln!("{line}");
    }
}
