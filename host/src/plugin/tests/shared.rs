//! Many attempts at once in one instance: who shares it, who is hit when it ends, who waits.

use super::functions::{Fake, lending};
use super::*;
use std::pin::Pin;

type Running<'a> = Pin<Box<dyn Future<Output = Vec<Verdict>> + Send + 'a>>;

fn sharing(concurrency: usize, instances: usize, fake: &Arc<Fake>) -> PluginOptions {
    PluginOptions {
        instance_concurrency: concurrency,
        shared_instances: instances,
        lambda: Some(lending(fake, &["*"])),
        ..options()
    }
}

/// One attempt at one message, begun.
fn begin<'a>(plugin: &'a Plugin, id: &str, body: &str, within: Duration) -> Running<'a> {
    let attempt = Attempt {
        messages: vec![message(id, body)],
        cancelled: vec![CancellationToken::new()],
        deadline: clock::now() + within,
        deadline_date: clock::today() + within,
    };
    drive_until_it_waits(plugin.handle(Arc::new(attempt)))
}

#[test]
fn a_thousand_attempts_wait_in_one_instance() {
    const MANY: usize = 1_000;
    let runtime = runtime(2);
    let fake = Fake::new();
    let plugin = load(&runtime, "commands", sharing(MANY, 2, &fake));
    let running: Vec<_> = (0..MANY)
        .map(|n| begin(&plugin, &format!("m{n}"), "invoke echo", LONG))
        .collect();
    fake.until_called(MANY);
    assert_eq!(runtime.instances(), 1);
    fake.answer_all();
    for (n, running) in running.into_iter().enumerate() {
        assert_eq!(drive(running), [Verdict::Reject(format!("echo m{n}"))]);
    }
    assert_eq!(runtime.instances(), 1, "kept for the next");
}
