//! Sets up one plugin by hand: from a file or a registry, with the grants of the flags, and runs
//! one message after the other. Opens no queue.

use super::super::output;
use crate::app::build::Backends;
use crate::app::build::grants::Buckets;
use crate::app::build::plugins;
use crate::app::build::versions;
use crate::app::build::versions::ReadError;
use crate::config::{Code, PluginConfig, Settings, TIMEOUT};
use crate::error::{Exit, Failure};
use crate::telemetry::log::Screen;
use dispatcher_core::clock;
use dispatcher_core::handler::{Attempt, Deadline, Handler, TimeLimit};
use dispatcher_core::message::{FailureReason, Message, Verdict};
use dispatcher_core::telemetry::escape::escape_control_characters;
use dispatcher_wasm::Reuse;
use dispatcher_wasm::load;
use dispatcher_wasm::load::PluginOptions;
use dispatcher_wasm::runtime::{Insight, Runtime, RuntimeOptions};
use dispatcher_wasm::scene::{TrapScene, Witness};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// One under way, and one that is kept for the next.
const INSTANCES: usize = 2;

/// The time limit of an attempt that a person steps through, where none is given.
const AT_A_BREAKPOINT: Duration = Duration::from_secs(12 * 3600);

/// A component that was read, and all that it takes to run it.
pub(super) struct Workbench {
    /// The component as it was read.
    pub bytes: Vec<u8>,
    name: String,
    insight: Insight,
    max_memory: usize,
    cache: Option<PathBuf>,
    functions: Option<PathBuf>,
    timeout: TimeLimit,
    options: PluginOptions,
    seen: Arc<AttemptLog>,
}

/// A plugin on its engine.
pub(super) struct Loaded {
    plugin: load::LoadedPlugin,
    timeout: TimeLimit,
    seen: Arc<AttemptLog>,
}

/// What became of one message.
pub(super) struct Ran {
    /// The verdict.
    pub verdict: Verdict,
    /// Where it broke off, if it did.
    pub scene: Option<TrapScene>,
    /// Bytes of the instance's memories; 0 where there was no instance.
    pub memory: usize,
    /// From the message to its verdict, the making of an instance included.
    pub took: Duration,
}

/// Keeps what is reported of the running attempt.
#[derive(Debug, Default)]
struct AttemptLog(Mutex<(Option<TrapScene>, usize)>);

impl Witness for AttemptLog {
    fn broke(&self, scene: &TrapScene) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(scene.clone());
    }

    fn ended(&self, memory: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1 = memory;
    }
}

impl AttemptLog {
    fn take(&self) -> (Option<TrapScene>, usize) {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Workbench {
    /// Reads the component and opens what the settings grant to it.
    pub(super) async fn set_up(
        plugin: &PluginConfig,
        settings: &Settings,
        insight: Insight,
    ) -> Result<Self, Failure> {
        let Code::Component(source) = &plugin.code else {
            return Err(Failure::new(Exit::Usage, "no component to run"));
        };
        let bytes = versions::read(source, &settings.stores.data).await;
        let bytes = bytes.map_err(|error| match error {
            ReadError::File(error) => Failure::from(plugins::of_file(&error)),
            ReadError::Image(error) => Failure::from(versions::of_fetch("FILE", &error)),
        })?;
        let insight = match insight {
            Insight::Lines => Insight::lines_of(&bytes),
            other => other,
        };
        let usual = match insight {
            Insight::Debugger => AT_A_BREAKPOINT,
            _ => TIMEOUT,
        };
        let timeout = plugin.settings.timeout.unwrap_or(usual);
        let mut options = plugins::options_by_hand(settings, plugin, timeout).await;
        let mut problems = Vec::new();
        let backends = Arc::new(Backends::new(settings.stores.clone()));
        options.grants.stores = Buckets::on(backends).of(plugin, &mut problems).await;
        if !problems.is_empty() {
            return Err(problems.into());
        }
        let seen = Arc::<AttemptLog>::default();
        options.witness = Some(seen.clone());
        // What is compiled for a debugger is not what the next start wants.
        let is_kept = insight != Insight::Debugger;
        Ok(Self {
            bytes,
            name: source.to_string(),
            insight,
            max_memory: plugin.max_memory(),
            cache: is_kept.then(|| plugins::cache(&settings.stores.data)),
            functions: plugins::functions().filter(|_| is_kept),
            timeout: plugin.settings.time_limit(timeout),
            options,
            seen,
        })
    }

    /// The same as `load` with the cache, with a line on the terminal for the time that it takes.
    pub(super) fn load_on(&self, screen: &Screen, reuse: Option<Reuse>) -> Result<Loaded, Failure> {
        let _line = screen.working(format!("compiling {}", self.name));
        self.load(reuse, true)
    }

    /// Compiles the component, or takes it from the cache, and loads it.
    pub(super) fn load(&self, reuse: Option<Reuse>, cached: bool) -> Result<Loaded, Failure> {
        let options = |cache| RuntimeOptions {
            instances: INSTANCES,
            max_memory: self.max_memory,
            cache,
            functions: self.functions.clone().filter(|_| cached),
        };
        let start = |cache| {
            let control = Handle::current();
            Runtime::start_with(self.insight, options(cache), control, Arc::new(drop))
        };
        // Compiling anew is slower, and no reason not to try a plugin.
        let runtime = start(self.cache.clone().filter(|_| cached)).or_else(|_| start(None));
        let runtime = runtime.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        let options = PluginOptions {
            reuse,
            ..self.options.clone()
        };
        let plugin = runtime.load_bytes(&self.name, &self.bytes, options);
        Ok(Loaded {
            plugin: plugin.map_err(|error| Failure::from(plugins::of_file(&error)))?,
            timeout: self.timeout,
            seen: Arc::clone(&self.seen),
        })
    }
}

impl Loaded {
    /// Runs the plugin on one message. One that is not answered in time is stopped.
    pub(super) async fn run(&self, message: Message) -> Result<Ran, Failure> {
        let began = clock::now();
        let deadline = Deadline::after(self.timeout);
        let attempt = Arc::new(Attempt {
            messages: vec![message],
            cancelled: vec![CancellationToken::new()],
            tries: Vec::new(),
            deadline: deadline.clone(),
        });
        drop(self.seen.take());
        let timers = Handle::current();
        let verdicts = tokio::select! {
            biased; // a guest that computes is stopped from inside, with a backtrace
            verdicts = self.plugin.handle(attempt) => verdicts,
            () = deadline.passed(&timers) => vec![Verdict::Retry {
                after: None,
                why: FailureReason::TimedOut(self.timeout.timeout + deadline.added()),
            }],
        };
        let took = clock::now().since(began);
        let verdict = verdicts.into_iter().next();
        let (scene, memory) = self.seen.take();
        Ok(Ran {
            verdict: verdict
                .ok_or_else(|| Failure::new(Exit::Failed, "the plugin host gave no verdict"))?,
            scene,
            memory,
            took,
        })
    }
}

/// Shows a person where an attempt broke off, one function a line.
pub(super) fn show(scene: &TrapScene) {
    output::note(shown(scene));
}

fn shown(scene: &TrapScene) -> String {
    // A recording may name anything, and a component call its functions so.
    let mut text = format!(
        "{}\n  message {}, queue {}",
        escape_control_characters(&scene.why),
        escape_control_characters(&scene.message_id),
        escape_control_characters(&scene.queue)
    );
    if scene.waited {
        text += "\n  it was waiting for a call to the host";
    }
    if !scene.trace.is_empty() {
        text += "\n  stack, the innermost first:";
        for (at, frame) in scene.trace.iter().enumerate() {
            text += &format!(
                "\n    {at}: {}",
                escape_control_characters(&frame.to_string())
            );
        }
        if scene.outer > 0 {
            text += &format!("\n    and {} more", scene.outer);
        }
    }
    if !scene.printed.is_empty() {
        text += "\n  its last output:";
        for line in &scene.printed {
            text += &format!("\n    {}", escape_control_characters(&line.to_string()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatcher_wasm::scene::{Frame, Printed};

    #[test]
    fn finding_29_trace_contains_no_control_characters() {
        let scene = TrapScene {
            plugin: "orders".into(),
            queue: "local:\u{9b}2J".into(),
            message_id: "\u{1b}[31m7".into(),
            why: "it said\r\u{7}".into(),
            waited: false,
            trace: vec![Frame {
                name: "a\u{1b}b".into(),
                at: None,
                times: 1,
            }],
            outer: 0,
            printed: Vec::new(),
        };
        let shown = shown(&scene);
        let steering = |letter: &char| letter.is_control() && *letter != '\n';
        assert_eq!(shown.chars().find(steering), None, "{shown:?}");
        assert!(
            shown.contains("[31m7") && shown.contains("it said"),
            "{shown:?}"
        );
    }

    #[test]
    fn trace_is_readable() {
        let frame = |name: &str, at: Option<&str>| Frame {
            name: name.into(),
            at: at.map(str::to_owned),
            times: if at.is_some() { 3 } else { 1 },
        };
        let scene = TrapScene {
            plugin: "orders".into(),
            queue: "local:default".into(),
            message_id: "7".into(),
            why: "the plugin trapped".into(),
            waited: false,
            trace: vec![
                frame("mine::price", Some("src/lib.rs:12")),
                frame("handle", None),
            ],
            outer: 3,
            printed: vec![Printed {
                stream: "stderr",
                line: "no price".into(),
            }],
        };
        assert_eq!(
            shown(&scene),
            "the plugin trapped\n  message 7, queue local:default\n  stack, the innermost first:\n    0: mine::price (src/lib.rs:12) × 3\n    1: handle\n    and 3 more\n  its last output:\n    stderr: no price"
        );
    }
}
