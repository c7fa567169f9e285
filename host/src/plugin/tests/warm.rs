//! Instances that are made ahead: as many as are wanted, never at the cost of an attempt, and never
//! again and again where that fails.

use super::*;
use crate::plugin::warm::Warm;
use std::pin::Pin;
use std::sync::Mutex;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a runtime has spawned and nobody has run yet.
#[derive(Clone, Default)]
struct Makers(Arc<Mutex<Vec<Work>>>);

impl Makers {
    fn runtime(&self, instances: usize) -> Runtime {
        let options = RuntimeOptions {
            instances,
            max_memory: MAX_MEMORY,
            cache: None,
        };
        let kept = Arc::clone(&self.0);
        let keep: Spawn = Arc::new(move |work| kept.lock().unwrap().push(work));
        Runtime::start(options, timers(), keep).unwrap()
    }

    fn next(&self) -> Option<Work> {
        self.0.lock().unwrap().pop()
    }

    /// Runs all there are. How many that were.
    fn run(&self) -> usize {
        let mut count = 0;
        while let Some(work) = self.next() {
            drive(work);
            count += 1;
        }
        count
    }
}

fn ahead(count: usize, options: PluginOptions) -> PluginOptions {
    let warm = Warm {
        count,
        patience: LONG,
    };
    PluginOptions { warm, ..options }
}

#[test]
fn a_message_finds_an_instance_that_nobody_has_used() {
    let makers = Makers::default();
    let runtime = makers.runtime(4);
    let plugin = load(&runtime, "count", ahead(2, options()));
    assert_eq!(makers.run(), 1);
    assert_eq!((runtime.instances(), plugin.usage().idle), (2, 2));
    for _ in 0..5 {
        assert_eq!(rejection(&plugin, ""), "1");
        assert_eq!(plugin.usage().idle, 1, "one was taken, and used once");
        assert_eq!(makers.run(), 1, "one maker, however many ask");
        assert_eq!(plugin.usage().idle, 2);
    }
    drop(plugin);
    assert_eq!(runtime.instances(), 0);
}

#[test]
fn reused_ones_go_first() {
    let makers = Makers::default();
    let runtime = makers.runtime(4);
    let plugin = load(&runtime, "count", ahead(1, reusing(3)));
    makers.run();
    let counts = (0..4).map(|_| {
        makers.run();
        rejection(&plugin, "")
    });
    assert_eq!(counts.collect::<Vec<_>>(), ["1", "2", "3", "1"]);
}

#[test]
fn what_is_made_ahead_stands_in_nobodys_way() {
    let makers = Makers::default();
    let runtime = makers.runtime(2);
    let warm = load(&runtime, "verdicts", ahead(2, options()));
    let other = load(&runtime, "verdicts", options());
    makers.run();
    assert_eq!(warm.usage().idle, 2);
    let sleep = || drive_until_it_waits(other.handle(attempt(&["sleep:3600000"], LONG)));
    let first = sleep();
    assert_eq!(warm.usage().idle, 1, "one made room");
    let second = sleep();
    assert_eq!(warm.usage().idle, 0);
    // No room, and then somebody waits for what comes free.
    let waiting = drive_until_it_waits(warm.handle(attempt(&["done"], LONG)));
    makers.run();
    assert_eq!((warm.usage().running, warm.usage().idle), (0, 0));
    drop(first);
    makers.run();
    assert_eq!(warm.usage().idle, 0, "it is for the one that waits");
    assert_eq!(drive(waiting), [Verdict::Done]);
    assert_eq!(makers.run(), 1, "and now there is room");
    assert_eq!(warm.usage().idle, 1);
    drop(second);
}

#[test]
fn none_are_made_of_commands_and_where_attempts_share_an_instance() {
    let makers = Makers::default();
    let runtime = makers.runtime(4);
    let fake = super::functions::Fake::new();
    let shared = ahead(2, super::shared::sharing(10, 1, &fake));
    let _commands = [
        load(&runtime, "command", ahead(2, options())),
        load(&runtime, "commands", shared),
    ];
    assert_eq!(makers.run(), 0);
}

#[test]
fn a_maker_ends_with_its_plugin() {
    let makers = Makers::default();
    let runtime = makers.runtime(4);
    let plugin = load(&runtime, "count", ahead(2, options()));
    drop(plugin);
    assert_eq!(makers.run(), 1);
    assert_eq!(runtime.instances(), 0);
    // One that nobody runs is asked for again.
    let plugin = load(&runtime, "count", ahead(1, options()));
    drop(makers.next());
    assert_eq!(rejection(&plugin, ""), "1");
    assert!(makers.run() >= 1);
    assert_eq!(plugin.usage().idle, 1);
}
