//! What the host promises about guests, tried with real components: the prebuilt fixtures, and
//! text where a fixture would have to be malformed. Here is what the tests share.

mod admission;
mod commands;
mod contract;
mod hostile;
mod hostile_files;
mod hostile_host_memory;
mod hostile_resources;
mod http;
mod limits;
mod load;
mod output;
mod reuse;
mod room;
mod sandbox;
mod sdk;
pub(crate) mod shared;
mod usage;
mod verdicts;
mod warm;

pub(crate) use crate::Reuse;
pub(crate) use crate::capability::refusals::Count;
pub(crate) use crate::capability::registry::Grants;
pub(crate) use crate::capability::variables::EnvironmentVariables;
pub(crate) use crate::load::{LoadError, LoadedPlugin, PluginOptions};
pub(crate) use crate::runtime::{Runtime, RuntimeOptions, Spawn};
pub(crate) use dispatcher_core::clock;
pub(crate) use dispatcher_core::clock::Timestamp;
pub(crate) use dispatcher_core::handler::{Attempt, Deadline, Handler};
pub(crate) use dispatcher_core::message::{FailureReason, Message, Receipt, Verdict};
pub(crate) use std::path::PathBuf;
pub(crate) use std::pin::pin;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, OnceLock};
pub(crate) use std::task::{Context, Poll, Wake, Waker};
pub(crate) use std::time::Duration;
pub(crate) use tokio_util::sync::CancellationToken;

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
pub(crate) const MAX_MEMORY: usize = 32 << 20;

/// Timers for guests that sleep; nothing is ever polled on it.
pub(crate) fn timers() -> tokio::runtime::Handle {
    static TIMERS: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let start = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap()
    };
    TIMERS.get_or_init(start).handle().clone()
}

/// Drives whatever it is given on its own thread.
pub(crate) fn spawn() -> Spawn {
    Arc::new(|future| drop(std::thread::spawn(|| drive(future))))
}

pub(crate) fn runtime(instances: usize) -> Runtime {
    let options = RuntimeOptions {
        instances,
        max_memory: MAX_MEMORY,
        cache: Some(compiled()),
        functions: None,
    };
    Runtime::start(options, timers(), spawn()).unwrap()
}

/// Where compiled guests are kept from one run of the tests to the next, beside the tests.
pub(crate) fn compiled() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().with_file_name("compiled-guests")
}

pub(crate) fn prebuilt(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/prebuilt");
    PathBuf::from(folder).join(name).with_extension("wasm")
}

pub(crate) fn options() -> PluginOptions {
    PluginOptions {
        name: "tested".into(),
        max_memory: MAX_MEMORY,
        grants: Grants {
            env: EnvironmentVariables(vec![("GREETING".into(), "hello".into())]),
            ..Grants::default()
        },
        reuse: None,
        ..PluginOptions::default()
    }
}

/// With more granted.
pub(crate) fn granting(grant: impl FnOnce(&mut Grants)) -> PluginOptions {
    let mut options = options();
    grant(&mut options.grants);
    options
}

/// Counts refusals where the first can be read.
pub(crate) fn counting() -> (Arc<AtomicUsize>, Count) {
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    let count = Count::by(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    (refused, count)
}

pub(crate) fn reusing(count: u64) -> PluginOptions {
    PluginOptions {
        reuse: Some(Reuse {
            count,
            age: LONG,
            memory: MAX_MEMORY,
        }),
        ..options()
    }
}

/// The fixture that does what bodies say, with a fresh instance for each. Compiled once.
pub(crate) fn verdicts() -> LoadedPlugin {
    static PLUGIN: OnceLock<LoadedPlugin> = OnceLock::new();
    let load = || load(&runtime(64), "verdicts", options());
    PLUGIN.get_or_init(load).clone()
}

pub(crate) fn load(runtime: &Runtime, name: &str, options: PluginOptions) -> LoadedPlugin {
    runtime.load(&prebuilt(name), options).unwrap()
}

/// The fixture that tries capabilities.
pub(crate) fn capable(options: PluginOptions) -> LoadedPlugin {
    load(&runtime(4), "capable", options)
}

/// Loads a component written as text.
pub(crate) fn load_text(text: &str) -> Result<LoadedPlugin, LoadError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), wat::parse_str(text).unwrap()).unwrap();
    runtime(1).load(file.path(), options())
}

pub(crate) fn message(id: &str, body: &str) -> Message {
    Message {
        id: id.into(),
        queue: "local:default".into(),
        body: body.into(),
        source: "local:default".into(),
        receipt: Receipt("receipt".into()),
        receive_count: 3,
        sent_at: Some(Timestamp(1_000)),
        first_received_at: None,
        group: Some("a group".into()),
        system_attributes: vec![("SenderId".into(), "me".into())],
        attributes: Vec::new(),
        body_md5: None,
        attributes_md5: None,
        unreadable: None,
    }
}

/// An attempt at messages with these bodies; their ids are `m0`, `m1` and so on.
pub(crate) fn attempt(bodies: &[&str], within: Duration) -> Arc<Attempt> {
    let bodies = bodies.iter().enumerate();
    let messages: Vec<_> = bodies
        .map(|(index, body)| message(&format!("m{index}"), body))
        .collect();
    Arc::new(Attempt {
        cancelled: messages.iter().map(|_| CancellationToken::new()).collect(),
        messages,
        tries: Vec::new(),
        deadline: Deadline::fixed(clock::now() + within, clock::wall_clock_now() + within),
    })
}

/// One message, all the time it wants.
pub(crate) fn one(plugin: &LoadedPlugin, body: &str) -> Verdict {
    only(plugin, attempt(&[body], LONG))
}

/// The same with more than a body, and a known date of its end.
pub(crate) fn given(plugin: &LoadedPlugin, message: Message) -> Verdict {
    let attempt = Attempt {
        messages: vec![message],
        cancelled: vec![CancellationToken::new()],
        tries: Vec::new(),
        deadline: Deadline::fixed(clock::now() + LONG, Timestamp(123_456_789)),
    };
    only(plugin, Arc::new(attempt))
}

pub(crate) fn only(plugin: &LoadedPlugin, attempt: Arc<Attempt>) -> Verdict {
    let mut verdicts = drive(plugin.handle(attempt));
    assert_eq!(verdicts.len(), 1);
    verdicts.remove(0)
}

/// Handled by a retry by policy, for this reason.
pub(crate) fn retry(why: FailureReason) -> Verdict {
    Verdict::Retry { after: None, why }
}

/// What the handler says where it rejects.
pub(crate) fn rejection(plugin: &LoadedPlugin, body: &str) -> String {
    match one(plugin, body) {
        Verdict::Reject(why) => why,
        other => panic!("wanted a rejection, got {other:?}"),
    }
}

/// What happened to the message.
pub(crate) fn failure_reason(verdict: Verdict) -> FailureReason {
    match verdict {
        Verdict::Retry { after: None, why } => why,
        other => panic!("wanted a failure_reason, got {other:?}"),
    }
}

/// The engine's words about a guest that trapped.
pub(crate) fn trap(verdict: Verdict) -> String {
    match failure_reason(verdict) {
        FailureReason::Trapped(why) => why,
        other => panic!("wanted a trap, got {other:?}"),
    }
}

/// Wakes the thread that made it and remembers that it did.
pub(crate) struct Alarm {
    thread: std::thread::Thread,
    rung: AtomicBool,
}

impl Alarm {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            thread: std::thread::current(),
            rung: AtomicBool::new(false),
        })
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Runs a future to its end on this thread, which knows no tokio, like a worker of the pool.
pub(crate) fn drive<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let alarm = Alarm::new();
    let waker = Waker::from(Arc::clone(&alarm));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        while !alarm.rung.swap(false, Ordering::SeqCst) {
            std::thread::park();
        }
    }
}

/// Polls until the future waits for something outside, and returns it unfinished.
pub(crate) fn drive_until_it_waits<F: Future + Unpin>(mut future: F) -> F {
    let alarm = Alarm::new();
    let waker = Waker::from(Arc::clone(&alarm));
    loop {
        let poll = std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
        assert!(poll.is_pending(), "it never waited");
        // A guest that merely yields rings before its poll returns.
        if !alarm.rung.swap(false, Ordering::SeqCst) {
            return future;
        }
    }
}
