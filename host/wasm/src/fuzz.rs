//! A fuzz target: any bytes as a component. Looking at them and loading them gives a component or
//! problems, one line each; what loads is tried on a message and may fail as it likes, in time.

use crate::inspect::{self, Kind};
use crate::load::{PluginOptions, Problem};
use crate::runtime::{Runtime, RuntimeOptions};
use dispatcher_core::clock;
use dispatcher_core::clock::Timestamp;
use dispatcher_core::handler::{Attempt, Deadline, Handler};
use dispatcher_core::message::{Message, Receipt};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The bytes of a file that somebody names as a plugin.
pub fn component(bytes: &[u8]) {
    let seen = inspect::bytes(bytes);
    assert_eq!((seen.size, seen.digest.len()), (bytes.len(), 64));
    seen.problems.iter().for_each(check);
    let (runtime, tokio) = engine();
    let options = PluginOptions {
        name: "fuzzed".into(),
        max_memory: MEMORY,
        ..PluginOptions::default()
    };
    match runtime.load_bytes("fuzzed", bytes, options) {
        Err(error) => {
            assert!(!error.problems.is_empty());
            error.problems.iter().for_each(check);
        }
        Ok(plugin) => {
            let refused = [Kind::Component, Kind::CoreModule, Kind::Unknown];
            assert!(!refused.contains(&seen.kind));
            assert_eq!(seen.problems, []);
            let verdicts = tokio.block_on(plugin.handle(attempt()));
            assert_eq!(verdicts.len(), 1);
        }
    }
    assert_eq!(runtime.instances(), 0);
}

const MEMORY: usize = 4 << 20;

/// One for all inputs: making it takes longer than an input does.
fn engine() -> &'static (Runtime, tokio::runtime::Runtime) {
    static ENGINE: OnceLock<(Runtime, tokio::runtime::Runtime)> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime for timers");
        let options = RuntimeOptions {
            instances: 2,
            max_memory: MEMORY,
            cache: None,
            functions: None,
        };
        let spawn = Arc::new(drop);
        let runtime = Runtime::start(options, tokio.handle().clone(), spawn);
        (runtime.expect("an engine"), tokio)
    })
}

fn check(problem: &Problem) {
    let line = problem.to_string();
    assert!(
        !line.is_empty() && !line.contains(char::is_control),
        "{line:?}"
    );
}

fn attempt() -> Arc<Attempt> {
    Arc::new(Attempt {
        messages: vec![Message {
            id: "m".into(),
            queue: "local:q".into(),
            body: "done".into(),
            source: "local:q".into(),
            receipt: Receipt("1.1".into()),
            receive_count: 1,
            sent_at: None,
            first_received_at: None,
            group: None,
            system_attributes: Vec::new(),
            attributes: Vec::new(),
            body_md5: None,
            attributes_md5: None,
            unreadable: None,
        }],
        cancelled: vec![CancellationToken::new()],
        tries: Vec::new(),
        deadline: Deadline::fixed(clock::now() + Duration::from_millis(20), Timestamp(0)),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_components_finds_nothing() {
        dispatcher_core::fuzz::replay("component", super::component);
    }
}
