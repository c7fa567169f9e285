//! Sets up one plugin without a run: from a file or a registry, with the grants of the flags. Runs
//! one message after the other. Opens no queue.

use super::super::output;
use crate::app::build::Backends;
use crate::app::build::grants::Buckets;
use crate::app::build::plugins;
use crate::app::build::versions;
use crate::app::build::versions::ReadError;
use crate::error::{Exit, Failure};
use dispatcher_config::{Code, PluginConfig, Settings, TIMEOUT};
use dispatcher_core::clock;
use dispatcher_core::handler::{Attempt, Deadline, Handler, TimeLimit};
use dispatcher_core::message::{FailureReason, Message, Verdict};
use dispatcher_core::telemetry::escape::escape_control_characters;
use dispatcher_telemetry::log::Screen;
use dispatcher_wasm::Reuse;
use dispatcher_wasm::load;
use dispatcher_wasm::load::PluginOptions;
use dispatcher_wasm::runtime::{Insight, Runtime, RuntimeOptions};
use dispatcher_wasm::scene::{TrapScene, Witness};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// One running instance, and one that is kept for the next message.
const INSTANCES: usize = 2;

/// The default time limit of an attempt that is debugged step by step.
const AT_A_BREAKPOINT: Duration = Duration::from_secs(12 * 3600);

/// A component, with everything needed to run it.
pub(super) struct Workbench {
    /// The bytes of the component.
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

/// A loaded plugin.
pub(super) struct LoadedComponent {
    plugin: load::LoadedPlugin,
    timeout: TimeLimit,
    seen: Arc<AttemptLog>,
}

/// The result of one message.
pub(super) struct Ran {
    /// The verdict.
    pub verdict: Verdict,
    /// The place where the plugin trapped, if it did.
    pub scene: Option<TrapScene>,
    /// The size of the instance's memories, in bytes; 0 without an instance.
    pub memory: usize,
    /// The time from the message to its verdict, including the creation of an instance.
    pub took: Duration,
}

/// Collects the reports on the running attempt.
#[derive(Debug, Default)]
struct AttemptLog(Mutex<(Option<TrapScene>, usize)>);

impl Witness for AttemptLog {
    fn broke(&self, scene: &TrapScene) {
        self.0.lock().0 = Some(scene.clone());
    }

    fn ended(&self, memory: usize) {
        self.0.lock().1 = memory;
    }
}

impl AttemptLog {
    fn take(&self) -> (Option<TrapScene>, usize) {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Workbench {
    /// Reads the component and opens the grants of the settings.
    pub(super) async fn set_up(
        plugin: &PluginConfig,
        settings: &Settings,
        insight: Insight,
    ) -> Result<Self, Failure> {
        let Code::Component(source) = &plugin.code else {
            return Err(Failure::new(Exit::Usage, "no component to run"));
        };
        let bytes = versions::read(source, &settings.stores.data)
            .await
            .map_err(|error| match error {
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
        // Code compiled for a debugger must not be reused by later starts.
        let is_kept = insight != Insight::Debugger;
        Ok(Self {
            bytes,
            name: source.to_string(),
            insight,
            max_memory: plugin.max_memory(),
            cache: is_kept.then(|| plugins::cache(&settings.stores.data)),
            functions: if is_kept { plugins::functions() } else { None },
            timeout: plugin.settings.time_limit(timeout),
            options,
            seen,
        })
    }

    /// Loads the plugin with the cache, and shows a progress line meanwhile.
    pub(super) fn load_on(
        &self,
        screen: &Screen,
        reuse: Option<Reuse>,
    ) -> Result<LoadedComponent, Failure> {
        let _line = screen.working(format!("compiling {}", self.name));
        self.load(reuse, true)
    }

    /// Compiles the component, or takes it from the cache, and loads it.
    pub(super) fn load(
        &self,
        reuse: Option<Reuse>,
        cached: bool,
    ) -> Result<LoadedComponent, Failure> {
        let start = |cache| {
            let options = RuntimeOptions {
                instances: INSTANCES,
                max_memory: self.max_memory,
                cache,
                functions: if cached { self.functions.clone() } else { None },
            };
            Runtime::start_with(self.insight, options, Handle::current(), Arc::new(drop))
        };
        // Without a cache, compiling takes longer but works.
        let cache = if cached { self.cache.clone() } else { None };
        let runtime = start(cache)
            .or_else(|_| start(None))
            .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        let options = PluginOptions {
            reuse,
            ..self.options.clone()
        };
        let plugin = runtime.load_bytes(&self.name, &self.bytes, options);
        Ok(LoadedComponent {
            plugin: plugin.map_err(|error| Failure::from(plugins::of_file(&error)))?,
            timeout: self.timeout,
            seen: Arc::clone(&self.seen),
        })
    }
}

impl LoadedComponent {
    /// Runs the plugin on one message. Stops it at the time limit.
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

/// Prints where an attempt trapped, one function per line.
pub(super) fn show(scene: &TrapScene) {
    output::note(shown(scene));
}

fn shown(scene: &TrapScene) -> String {
    // A recording or a component may contain arbitrary names.
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
    use dispatcher_wasm::scene::{Frame, PrintedLine};

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
        let mut letters = shown.chars().filter(|letter| *letter != '\n');
        let steering = letters.find(|letter| letter.is_control());
        assert_eq!(steering, None, "{shown:?}");
        assert!(
            shown.contains("[31m7") && shown.contains("it said"),
            "{shown:?}"
        );
    }

    #[test]
    fn trace_is_readable() {
        let scene = TrapScene {
            plugin: "orders".into(),
            queue: "local:default".into(),
            message_id: "7".into(),
            why: "the plugin trapped".into(),
            waited: false,
            trace: vec![
                Frame {
                    name: "mine::price".into(),
                    at: Some("src/lib.rs:12".into()),
                    times: 3,
                },
                Frame {
                    name: "handle".into(),
                    at: None,
                    times: 1,
                },
            ],
            outer: 3,
            printed: vec![PrintedLine {
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
