//! The resources that all plugins share: the engines, the cache of compiled code, the ticker. Does
//! not depend on any single plugin.

use crate::admission::{self, Admission, Permit};
use crate::capability::http::connection::ConnectionLimit as Connections;
use crate::compiled::CompiledComponents;
pub use crate::engines::Insight;
use crate::engines::{EngineSettings, Engines};
use crate::epoch::Ticker;
use crate::functions::Functions;
use crate::io::GuestIo;
pub use crate::layout::RuntimeOptions;
use crate::limits;
use dispatcher_core::files::owner;
use dispatcher_core::handler::Attempt;
use dispatcher_core::{clock, files};
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use tokio::runtime::Handle;
use wasmtime::{Cache, CacheConfig};

/// A function that polls a future to its end on the threads that run guests. It must not use the
/// threads that keep leases and timers going, because the future computes for up to a tick at a
/// time. If the future cannot be run to its end, the function must drop it.
pub type Spawn = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// The reason why there is no runtime.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The machine lacks the resources for this many instances.
    #[error(
        "no WebAssembly engine for {instances} instances of {max_memory} bytes: {why}; lower `concurrency` or `max-memory`, or raise the limit of address space (`ulimit -v`, now {})",
        limit_text(*.address_space)
    )]
    Engine {
        /// The requested number of instances.
        instances: usize,
        /// The requested memory of each, in bytes.
        max_memory: usize,
        /// The maximum address space of the process in bytes; `None` is no limit.
        address_space: Option<u64>,
        /// The engine's error.
        why: String,
    },
    /// The kernel allows this process fewer mappings than this many instances need.
    #[error(
        "{instances} instances need {needed} memory mappings and vm.max_map_count is {allowed}: raise it, or lower the concurrency"
    )]
    Mappings {
        /// The requested number of instances.
        instances: usize,
        /// The approximate number of mappings needed, including those of the rest of the program.
        needed: usize,
        /// The number of mappings that the kernel allows.
        allowed: usize,
    },
    /// A thread could not be started.
    #[error("no thread for guests: {0}")]
    Thread(std::io::Error),
}

fn limit_text(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unlimited".into(), |bytes| format!("{bytes} bytes"))
}

/// The engines and their environment. Clones share it. It ends with the last clone and the last
/// plugin loaded on it.
#[derive(Clone)]
pub struct Runtime {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) engines: Arc<Engines>,
    pub(super) ticker: Ticker,
    /// The runtime on which guests sleep and wait for files and connections. Attempts are polled
    /// outside of tokio.
    pub(super) io: GuestIo,
    /// The runtime for granted calls that are not WASI's own: queues, functions, buckets.
    pub(super) control: Handle,
    /// Runs the drivers of shared instances.
    pub(super) spawn: Spawn,
    pub(super) max_memory: usize,
    /// The maximum number of files, folders and sockets that one instance holds open.
    pub(super) max_open: usize,
    /// The folder of compiled components, if they are kept.
    pub(super) cache: Option<PathBuf>,
    /// The components of loaded plugins.
    pub(super) compiled: CompiledComponents,
    /// The functions compiled before, if they are kept.
    pub(super) functions: Option<Arc<Functions>>,
    /// The connections of all plugins together.
    pub(super) connections: Connections,
    /// The slots for instances.
    pub(super) admission: Admission,
}

impl Runtime {
    /// Reserves address space, not memory, for the instances and starts the ticker. `control` is
    /// the tokio runtime, with its drivers enabled, that sends, invokes and stores for guests.
    /// Everything else that guests wait for uses a separate runtime, which ends with this one.
    /// `spawn` runs the instances that take many attempts at once.
    pub fn start(
        options: RuntimeOptions,
        control: Handle,
        spawn: Spawn,
    ) -> Result<Self, StartError> {
        Self::start_with(Insight::Names, options, control, spawn)
    }

    /// Starts with this debugging information about guests.
    pub fn start_with(
        insight: Insight,
        options: RuntimeOptions,
        control: Handle,
        spawn: Spawn,
    ) -> Result<Self, StartError> {
        let address_space = files::address_space();
        let mappings = mappings(options.instances);
        if let Some((needed, allowed)) = mappings
            && needed > allowed
        {
            return Err(StartError::Mappings {
                instances: options.instances,
                needed,
                allowed,
            });
        }
        let cache = options.cache.as_deref().and_then(cache);
        let cached = cache.is_some();
        let functions = options
            .functions
            .as_deref()
            .and_then(Functions::of)
            .map(Arc::new);
        let settings = EngineSettings {
            insight,
            options: options.clone(),
            cache,
            functions: functions.clone(),
            address_space,
            may_have_two: mappings.is_none_or(|(needed, allowed)| 2 * needed <= allowed),
        };
        let engines = Arc::new(Engines::start(settings).map_err(|error: wasmtime::Error| {
            StartError::Engine {
                instances: options.instances,
                max_memory: options.max_memory,
                address_space,
                why: format!("{error:#}"),
            }
        })?);
        let ticked = Arc::clone(&engines);
        let ticker = Ticker::start(move || ticked.tick()).map_err(StartError::Thread)?;
        let io = GuestIo::start().map_err(StartError::Thread)?;
        // Allow as many open files as the system grants, because connections are files.
        let most_files = files::raise_limit().1;
        Ok(Self {
            inner: Arc::new(Inner {
                engines,
                ticker,
                io,
                control,
                spawn,
                max_memory: options.max_memory,
                max_open: limits::open_each(most_files, options.instances),
                cache: if cached { options.cache } else { None },
                compiled: CompiledComponents::default(),
                functions,
                connections: Connections::of_process(most_files),
                admission: Admission::new(options.instances.max(1)),
            }),
        })
    }

    /// Returns the number of live instances, including idle ones.
    pub fn instances(&self) -> u64 {
        self.inner.engines.instances()
    }
}

impl Inner {
    /// Polls a future in which guests run. Meanwhile epochs tick, and the timers work on any
    /// thread.
    pub(super) async fn host<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let _awake = self.ticker.awake();
            let _io = self.io.handle().enter();
            work.as_mut().poll(context)
        })
        .await
    }

    /// Waits for this attempt's turn to create an instance. Returns `None` if that takes too long.
    pub(super) async fn admit(&self, attempt: &Attempt) -> Option<Permit> {
        match self.admission.try_enter() {
            Some(permit) => Some(permit),
            // Boxed, so that attempts that need not wait use no memory for it.
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

/// Returns the number of mappings that this many instances need, and the number that the kernel
/// allows, if it is known. Without this check, the first attempts beyond the limit would fail.
fn mappings(instances: usize) -> Option<(usize, usize)> {
    /// The measured number for each instance: a stack and its guard, a memory, its image and its
    /// guard, and what is between.
    const EACH: usize = 6;
    const OTHERS: usize = 2_000;
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?;
    let allowed = text.trim().parse().ok()?;
    Some((
        instances.saturating_mul(EACH).saturating_add(OTHERS),
        allowed,
    ))
}

/// Opens the cache in a folder. Returns `None` if others could have written to the folder, because
/// the code in it is run, or if nothing can be written there: plugins also run on a read-only disk.
fn cache(path: &Path) -> Option<Cache> {
    match open_cache(path) {
        Ok(cache) => Some(cache),
        Err(reason) => {
            tracing::warn!(
                path = %path.display(),
                reason,
                "compiled-plugin cache refused: plugins are compiled at every start and nothing is written there"
            );
            None
        }
    }
}

fn open_cache(path: &Path) -> Result<Cache, String> {
    owner::check(path).map_err(|untrusted| untrusted.to_string())?;
    files::make_folder(path).map_err(|error| error.to_string())?;
    let mut config = CacheConfig::new();
    config.with_directory(path);
    Cache::new(config).map_err(|error| format!("{error:#}"))
}
