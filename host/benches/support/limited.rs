//! A program of which the processes share limits, and messages of customers. Knows no measurement.

use crate::redis_server::RedisServer;
use crate::support::program::{Program, dispatcher, plugin};
use dispatcher_core::message::{Attribute, OutgoingMessage};
use dispatcher_core::queue::Queue;
use dispatcher_local::queue::LocalStore;
use dispatcher_redis::queue::Redis;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// A configuration of one route.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub queues: &'a str,
    pub plugin: &'a str,
    pub concurrency: usize,
    /// The tables of the limits, and the names of those that the route has.
    pub limits: &'a str,
    pub names: &'a str,
    /// Further settings of the route.
    pub route: &'a str,
    pub store: &'a str,
    pub redis: Option<&'a RedisServer>,
}

/// An embedded queue without limits.
pub(crate) const PLAIN: Scene<'_> = Scene {
    queues: "\"local:work\"",
    plugin: "verdicts",
    concurrency: 50,
    limits: "",
    names: "",
    route: "",
    store: "local:",
    redis: None,
};

impl Scene<'_> {
    /// Starts the program; returns once it receives.
    pub(crate) fn start(&self, folder: &Path, more: &[&str]) -> Program {
        let mut program = self.begin(folder, more);
        program.line("running");
        program
    }

    pub(crate) fn begin(&self, folder: &Path, more: &[&str]) -> Program {
        let Self {
            queues,
            concurrency,
            limits,
            names,
            route,
            store,
            ..
        } = self;
        let redis = self.redis.map_or_else(String::new, |server| {
            format!("[backend.redis]\nurl = \"{}\"\n", server.url())
        });
        let text = format!(
            "[fleet]\nstore = \"{store}\"\n{redis}{limits}\n[plugin.p]\nfile = \"{}\"\n\
             reuse = 1000000\n[[route]]\nplugin = \"p\"\nqueues = [{queues}]\nlimits = [{names}]\n\
             concurrency = {concurrency}\n{route}",
            plugin(self.plugin)
        );
        // Processes that share the folder have the same settings.
        let file = folder.join("fleet.toml");
        std::fs::write(&file, text).expect("the folder is ours");
        let file = file.display().to_string();
        let words = [&["run", "--config", &file][..], more].concat();
        Program::start(dispatcher(folder, &words))
    }
}

pub(crate) fn open_local(folder: &Path, name: &str) -> Box<dyn Queue> {
    let store = LocalStore::open(folder).expect("it opens");
    Box::new(store.queue(name, None).expect("it opens"))
}

pub(crate) async fn open_redis(server: &RedisServer, name: &str) -> Box<dyn Queue> {
    let redis = Redis::new(&server.url(), "dispatcher").expect("an address");
    Box::new(redis.queue(name, None).await.expect("the server answers"))
}

pub(crate) async fn send(queue: &dyn Queue, messages: &[OutgoingMessage]) {
    for batch in messages.chunks(100) {
        for sent in queue.send(batch).await {
            sent.expect("sent");
        }
    }
}

/// A message of a customer.
pub(crate) fn of(customer: &str, body: &str) -> OutgoingMessage {
    OutgoingMessage {
        body: body.to_owned(),
        attributes: vec![Attribute::text("customer", customer)],
        ..OutgoingMessage::default()
    }
}

/// Messages of customers in turn.
pub(crate) fn of_keys(keys: usize, numbers: Range<usize>, body: &str) -> Vec<OutgoingMessage> {
    numbers
        .map(|number| of(&format!("customer-{}", number % keys), body))
        .collect()
}

pub(crate) async fn left(queue: &dyn Queue) -> u64 {
    let depth = queue.depth().await.expect("a depth");
    depth.waiting + depth.in_flight
}

pub(crate) async fn until_left(queue: &dyn Queue, most: u64, program: &mut Program) {
    while left(queue).await > most {
        program.assert_running();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
