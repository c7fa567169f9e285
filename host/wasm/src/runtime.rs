//! The engine that all plugins share: its pool of instances, its compiled-code cache, its ticker.
//! Knows no single plugin.

use crate::admission::{self, Admission, Permit};
use crate::capability::http::connection::ConnectionLimit as Connections;
use crate::capability::registry;
use crate::compiled::Compiled;
use crate::epoch::Ticker;
use crate::functions::Functions;
use crate::guest::Guest;
use crate::io::GuestIo;
use crate::layout::Layout;
pub use crate::layout::RuntimeOptions;
use crate::world::contract;
use crate::{failure_reason, limits, report};
use dispatcher_core::files::owner;
use dispatcher_core::handler::Attempt;
use dispatcher_core::{clock, files};
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use tokio::runtime::Handle;
use wasmparser::{Parser, Payload};
use wasmtime::WasmBacktraceDetails;
use wasmtime::component::Linker;
use wasmtime::{Cache, CacheConfig, Config, Engine, OptLevel};

/// How much is known of the guests that an engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Insight {
    /// The names of functions.
    #[default]
    Names,
    /// And files and lines, of components that have debugging information.
    Lines,
    /// And all that a native debugger needs; what is compiled is slower.
    Debugger,
}

impl Insight {
    /// Lines of a component that has them. The code of any other is then the one that `run` compiles
    /// and keeps in the cache.
    pub fn lines_of(component: &[u8]) -> Self {
        let parts = Parser::new(0).parse_all(component).map_while(Result::ok);
        let mut sections = parts.filter_map(|part| match part {
            Payload::CustomSection(section) => Some(section.name()),
            _ => None,
        });
        if sections.any(|name| name.starts_with(".debug_")) {
            Self::Lines
        } else {
            Self::Names
        }
    }
}

/// Has a future polled to its end by whoever runs guests, never by the threads that keep leases and
/// timers going: it computes for up to a tick at a time. A future that cannot be run, or not to its
/// end, is to be dropped.
pub type Spawn = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// Why there is no runtime.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder of compiled components is of no use.
    #[error("the cache of compiled plugins at {path} cannot be used: {why}")]
    Cache {
        /// The folder.
        path: String,
        /// The engine's words.
        why: String,
    },
    /// The machine does not give us what so many instances need.
    #[error(
        "no WebAssembly engine for {instances} instances of {max_memory} bytes: {why}; lower `concurrency` or `max-memory`, or raise the limit of address space (`ulimit -v`, now {})",
        limit_text(*.address_space)
    )]
    Engine {
        /// The requested number.
        instances: usize,
        /// The requested memory of each, in bytes.
        max_memory: usize,
        /// Maximum bytes that the process may map; none is no limit.
        address_space: Option<u64>,
        /// The engine's words.
        why: String,
    },
    /// The kernel allows this process fewer mappings than so many instances need.
    #[error(
        "{instances} instances need {needed} memory mappings and vm.max_map_count is {allowed}: raise it, or lower the concurrency"
    )]
    Mappings {
        /// The requested number.
        instances: usize,
        /// Roughly, with those of the rest of the program.
        needed: usize,
        /// By the kernel.
        allowed: usize,
    },
    /// No thread.
    #[error("no thread for guests: {0}")]
    Thread(std::io::Error),
}

fn limit_text(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unlimited".into(), |bytes| format!("{bytes} bytes"))
}

/// The engine. Cloned by reference; ends with its last clone and the last plugin loaded on it.
#[derive(Clone)]
pub struct Runtime {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) engine: Engine,
    pub(super) linker: Linker<Guest>,
    pub(super) ticker: Ticker,
    /// Where a guest sleeps and awaits files and connections: attempts are polled outside tokio.
    pub(super) io: GuestIo,
    /// Where what is granted to guests is done that is none of WASI's: queues, functions, buckets.
    pub(super) control: Handle,
    /// Runs what drives shared instances.
    pub(super) spawn: Spawn,
    pub(super) max_memory: usize,
    /// The most files, folders and sockets that one instance holds open.
    pub(super) max_open: usize,
    /// Where compiled components are kept, if they are.
    pub(super) cache: Option<PathBuf>,
    /// What loaded plugins run.
    pub(super) compiled: Compiled,
    /// What was compiled before, if it is kept.
    pub(super) functions: Option<Arc<Functions>>,
    /// The connections of all plugins together.
    pub(super) connections: Connections,
    /// Who may have an instance.
    pub(super) admission: Admission,
}

impl Runtime {
    /// Reserves room for the instances (address space, not memory) and starts the ticker.
    /// `control` is the tokio runtime, with its drivers on, that sends, invokes and stores for guests;
    /// what they do by themselves they do on one of their own, which ends with this. `spawn` runs the
    /// instances that take many attempts at once.
    pub fn start(
        options: RuntimeOptions,
        control: Handle,
        spawn: Spawn,
    ) -> Result<Self, StartError> {
        Self::start_with(Insight::Names, options, control, spawn)
    }

    /// Starts with this much insight into guests.
    pub fn start_with(
        insight: Insight,
        options: RuntimeOptions,
        control: Handle,
        spawn: Spawn,
    ) -> Result<Self, StartError> {
        let address_space = files::address_space();
        let refused = |error: wasmtime::Error| StartError::Engine {
            instances: options.instances,
            max_memory: options.max_memory,
            address_space,
            why: format!("{error:#}"),
        };
        check_mappings(options.instances)?;
        let cache = options.cache.as_deref().map(cache).transpose()?.flatten();
        let cached = cache.is_some();
        let functions = options.functions.as_deref().and_then(Functions::of);
        let functions = functions.map(Arc::new);
        let kept = Kept {
            cache,
            functions: functions.clone(),
        };
        let engine = engine(insight, &options, &kept, address_space).map_err(refused)?;
        let linker = linker(&engine).map_err(refused)?;
        let ticked = engine.clone();
        let ticker = Ticker::start(move || ticked.increment_epoch()).map_err(StartError::Thread)?;
        let io = GuestIo::start().map_err(StartError::Thread)?;
        // As many files as the system lets us have: connections are files.
        let most_files = files::raise_limit().1;
        Ok(Self {
            inner: Arc::new(Inner {
                engine,
                linker,
                ticker,
                io,
                control,
                spawn,
                max_memory: options.max_memory,
                max_open: limits::open_each(most_files, options.instances),
                cache: options.cache.filter(|_| cached),
                compiled: Compiled::default(),
                functions,
                connections: Connections::of_process(most_files),
                admission: Admission::new(options.instances.max(1)),
            }),
        })
    }

    /// How many instances are alive, idle ones included.
    pub fn instances(&self) -> u64 {
        let metrics = self.inner.engine.pooling_allocator_metrics();
        metrics.map_or(0, |metrics| metrics.component_instances())
    }
}

impl Inner {
    /// Polls a future in which guests run: epochs tick, and the timers work on any thread.
    pub(super) async fn host<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let _awake = self.ticker.awake();
            let _io = self.io.handle().enter();
            work.as_mut().poll(context)
        })
        .await
    }

    /// Room for an instance, when it is this attempt's turn. None if that takes too long.
    pub(super) async fn admit(&self, attempt: &Attempt) -> Option<Permit> {
        match self.admission.try_enter() {
            Some(permit) => Some(permit),
            // Boxed, so that those who need not wait take no room for it.
            None => Box::pin(self.wait(attempt)).await,
        }
    }

    async fn wait(&self, attempt: &Attempt) -> Option<Permit> {
        let late = clock::sleep_on(self.io.handle(), admission::patience(attempt));
        tokio::select! {
            biased;
            permit = self.admission.enter() => Some(permit),
            () = late => None,
        }
    }
}

/// Whether the kernel gives us the mappings. Without it the first attempts beyond would fail.
fn check_mappings(instances: usize) -> Result<(), StartError> {
    /// Measured: a stack and its guard, a memory, its image and its guard, and what is between.
    const EACH: usize = 6;
    const OTHERS: usize = 2_000;
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let Ok(allowed) = text.trim().parse() else {
        return Ok(()); // Not Linux, or it does not tell: the engine's own error has to do.
    };
    let needed = instances.saturating_mul(EACH).saturating_add(OTHERS);
    if needed > allowed {
        return Err(StartError::Mappings {
            instances,
            needed,
            allowed,
        });
    }
    Ok(())
}

/// Everything that a plugin may import. What it is granted of it is known to its instances.
fn linker(engine: &Engine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi::p3::add_to_linker(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p3::add_to_linker(&mut linker)?;
    // What WASI would refuse unseen is refused by capabilities, so that it is counted; what it would
    // keep for a guest without a bound has one.
    linker.allow_shadowing(true);
    registry::link(&mut linker)?;
    linker.allow_shadowing(false);
    contract::link(&mut linker)?;
    Ok(linker)
}

/// The cache in a folder, or none where others could have put something there: what is in it is run.
fn cache(path: &Path) -> Result<Option<Cache>, StartError> {
    let refused = |why: String| StartError::Cache {
        path: path.display().to_string(),
        why,
    };
    if let Err(untrusted) = owner::check(path) {
        tracing::warn!(
            path = %path.display(),
            reason = %untrusted,
            "compiled-plugin cache refused: plugins are compiled at every start and nothing is written there"
        );
        return Ok(None);
    }
    files::make_folder(path).map_err(|error| refused(error.to_string()))?;
    let mut config = CacheConfig::new();
    config.with_directory(path);
    let cache = Cache::new(config).map_err(|error| refused(format!("{error:#}")))?;
    Ok(Some(cache))
}

/// What the engine need not compile.
struct Kept {
    cache: Option<Cache>,
    functions: Option<Arc<Functions>>,
}

/// The engine in the layout that the address space allows, or the next one that the system grants.
fn engine(
    insight: Insight,
    options: &RuntimeOptions,
    kept: &Kept,
    address_space: Option<u64>,
) -> wasmtime::Result<Engine> {
    let mut layout = Layout::within(options, address_space);
    loop {
        let mut config = config(options, layout);
        look_into(insight, &mut config);
        config.cache(kept.cache.clone());
        if let Some(functions) = &kept.functions {
            config.enable_incremental_compilation(functions.clone())?;
        }
        let made = Engine::new(&config);
        let Some(tighter) = layout.tighter().filter(|_| made.is_err()) else {
            if made.is_ok() && (address_space.is_some() || layout == Layout::OnDemand) {
                layout.note(options, address_space);
            }
            return made;
        };
        layout = tighter;
    }
}

fn config(options: &RuntimeOptions, layout: Layout) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .wasm_backtrace_max_frames(Some(report::CAPTURED))
        .max_wasm_stack(failure_reason::STACK)
        .concurrency_support(true);
    layout.apply(options, &mut config);
    config
}

fn look_into(insight: Insight, config: &mut Config) {
    if insight != Insight::Names {
        config.wasm_backtrace_details(WasmBacktraceDetails::Enable);
    }
    if insight == Insight::Debugger {
        config.debug_info(true).cranelift_opt_level(OptLevel::None);
    }
}
