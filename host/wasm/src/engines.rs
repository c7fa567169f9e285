//! The engines of a process, which differ in how the data of a component gets into the memory of an
//! instance. They do not depend on plugins.
//!
//! Mapped data costs nothing until it is used, however much there is. But the kernel copies each
//! page that is first read and then written, and interrupts every core that runs this process, so
//! that none continues with the old page. A few pages cost less if they are copied at the start: on
//! two threads, fresh instances of a small component then run twice as often.
//!
//! The pages of an ended instance with much data stay, and are written anew for the next one. On two
//! threads, fresh instances in JavaScript then run six times as often, in Python three times and in
//! Go twice, because the kernel has nothing to do.

use crate::functions::Functions;
use crate::guest::Guest;
use crate::layout::{Layout, RuntimeOptions};
use crate::world::contract;
use crate::{capability::registry, failure_reason, report};
use dispatcher_core::memory;
use std::sync::{Arc, OnceLock};
use wasmparser::{Parser, Payload};
use wasmtime::component::Linker;
use wasmtime::{Cache, Config, Engine, OptLevel, WasmBacktraceDetails};

/// The debugging information about the guests that an engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Insight {
    /// The names of functions.
    #[default]
    Names,
    /// Also files and lines, for components that have debugging information.
    Lines,
    /// Also everything that a native debugger needs. The compiled code is slower.
    Debugger,
}

impl Insight {
    /// Returns `Lines` for a component that has debugging information, and `Names` for any other.
    /// The code of the latter is the same that `run` compiles and caches.
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

/// The maximum number of bytes of data that are copied into each instance.
const MOST_COPIED: u64 = 64 << 10;

/// The maximum number of bytes of a memory that are written anew for the next instance. To write
/// more costs as much as the kernel's part.
const MOST_REWRITTEN: u64 = 32 << 20;
/// The minimum: of a larger memory, to write so little anew saves nothing.
const LEAST_REWRITTEN: u64 = 4 << 20;
/// The divisor of the memory that the process may use. All memories that are written anew take at
/// most that part.
const PART_REWRITTEN: u64 = 4;

/// An engine, with everything that a component on it may import.
pub(super) struct LinkedEngine {
    pub(super) engine: Engine,
    pub(super) linker: Linker<Guest>,
}

/// The settings of all engines of a process.
pub(super) struct EngineSettings {
    pub(super) insight: Insight,
    pub(super) options: RuntimeOptions,
    /// The cache of compiled components.
    pub(super) cache: Option<Cache>,
    /// The cache of compiled functions.
    pub(super) functions: Option<Arc<Functions>>,
    /// The maximum address space of the process in bytes; `None` is no limit.
    pub(super) address_space: Option<u64>,
    /// Whether the kernel allows the mappings of a second engine.
    pub(super) may_have_two: bool,
}

/// The way in which data gets into the memory of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataPlacement {
    Mapped,
    Copied,
}

impl DataPlacement {
    /// Returns the number of bytes of a memory that are written anew for the next instance, if the
    /// process may use `limit` bytes. Their pages stay with an unused slot.
    fn rewritten(self, instances: usize, limit: Option<u64>) -> u64 {
        let each = limit.unwrap_or(u64::MAX) / PART_REWRITTEN / instances.max(1) as u64;
        if self == Self::Copied || each < LEAST_REWRITTEN {
            return 0;
        }
        each.min(MOST_REWRITTEN)
    }

    /// Returns the number of memories and tables of ended instances that the kernel takes back in
    /// one call, for each thread. With little data an instance is so cheap that a call for each
    /// would be noticeable. With much data it would not, and waiting could leave much memory
    /// behind.
    fn decommits(self) -> usize {
        match self {
            Self::Mapped => 1,
            Self::Copied => 16,
        }
    }
}

/// The engines: one that maps data, and one that copies it, created for the first component that
/// needs it.
pub(super) struct Engines {
    settings: EngineSettings,
    mapping: LinkedEngine,
    copying: OnceLock<Option<LinkedEngine>>,
}

impl Engines {
    pub(super) fn start(settings: EngineSettings) -> wasmtime::Result<Self> {
        Ok(Self {
            mapping: settings.linked(DataPlacement::Mapped)?,
            copying: OnceLock::new(),
            settings,
        })
    }

    /// Returns the engine for a component.
    pub(super) fn of(&self, component: &[u8]) -> &LinkedEngine {
        if data_of(component) > MOST_COPIED || !self.settings.has_room_for_two() {
            return &self.mapping;
        }
        self.copying
            .get_or_init(|| self.settings.linked(DataPlacement::Copied).ok())
            .as_ref()
            .unwrap_or(&self.mapping)
    }

    /// Advances the epoch of the guests in all engines.
    pub(super) fn tick(&self) {
        self.all().for_each(|one| one.engine.increment_epoch());
    }

    /// Returns the number of live instances, including idle ones.
    pub(super) fn instances(&self) -> u64 {
        let metrics = self
            .all()
            .filter_map(|one| one.engine.pooling_allocator_metrics());
        metrics.map(|metrics| metrics.component_instances()).sum()
    }

    fn all(&self) -> impl Iterator<Item = &LinkedEngine> {
        let copying = self.copying.get().and_then(Option::as_ref);
        std::iter::once(&self.mapping).chain(copying)
    }
}

impl EngineSettings {
    /// Whether two engines fit. Each reserves address space for all instances.
    fn has_room_for_two(&self) -> bool {
        self.may_have_two && self.address_space.is_none() && Layout::fits_twice(&self.options)
    }

    fn linked(&self, placement: DataPlacement) -> wasmtime::Result<LinkedEngine> {
        let engine = self.engine(placement)?;
        let linker = linker(&engine)?;
        Ok(LinkedEngine { engine, linker })
    }

    /// Creates an engine in the layout that the address space allows, or in the next one that the
    /// system grants.
    fn engine(&self, placement: DataPlacement) -> wasmtime::Result<Engine> {
        let mut layout = Layout::within(&self.options, self.address_space);
        let rewritten = placement.rewritten(self.options.instances, memory::limit());
        let rewritten = usize::try_from(rewritten).unwrap_or(usize::MAX);
        loop {
            let mut config = self.config();
            layout.apply(&self.options, rewritten, placement.decommits(), &mut config);
            config.memory_init_cow(placement == DataPlacement::Mapped);
            config.cache(self.cache.clone());
            if let Some(functions) = &self.functions {
                config.enable_incremental_compilation(functions.clone())?;
            }
            let made = Engine::new(&config);
            let (Some(tighter), true) = (layout.tighter(), made.is_err()) else {
                let is_limited = self.address_space.is_some() || layout == Layout::OnDemand;
                if made.is_ok() && is_limited {
                    layout.note(&self.options, self.address_space);
                }
                return made;
            };
            layout = tighter;
        }
    }

    fn config(&self) -> Config {
        let mut config = Config::new();
        let details = match self.insight {
            Insight::Names => WasmBacktraceDetails::Disable,
            Insight::Lines | Insight::Debugger => WasmBacktraceDetails::Enable,
        };
        config
            .epoch_interruption(true)
            .wasm_backtrace_details(details)
            .wasm_backtrace_max_frames(Some(report::CAPTURED))
            .max_wasm_stack(failure_reason::STACK)
            .concurrency_support(true);
        if self.insight == Insight::Debugger {
            config.debug_info(true).cranelift_opt_level(OptLevel::None);
        }
        config
    }
}

/// Links everything that a plugin may import. The calls check the grants of their instance.
fn linker(engine: &Engine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi::p3::add_to_linker(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p3::add_to_linker(&mut linker)?;
    // Capabilities replace the calls that WASI would refuse silently, so that refusals are counted,
    // and the calls for which WASI would keep an unlimited amount for a guest.
    linker.allow_shadowing(true);
    registry::link(&mut linker)?;
    linker.allow_shadowing(false);
    contract::link(&mut linker)?;
    Ok(linker)
}

/// Returns the number of bytes of data in all modules of a component.
fn data_of(component: &[u8]) -> u64 {
    let parts = Parser::new(0).parse_all(component).map_while(Result::ok);
    let sizes = parts.filter_map(|part| match part {
        Payload::DataSection(section) => Some(section.range().len() as u64),
        _ => None,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(data: usize) -> Vec<u8> {
        let text = "x".repeat(data / 2);
        let module = format!(
            "(core module (memory 2) (data (i32.const 0) \"{text}\"))
             (core module (memory 2) (data (i32.const 9) \"{text}\"))"
        );
        wat::parse_str(format!("(component {module})")).expect("it is a component")
    }

    fn engines(address_space: Option<u64>, may_have_two: bool) -> Engines {
        let settings = EngineSettings {
            insight: Insight::Names,
            options: RuntimeOptions {
                instances: 2,
                max_memory: 1 << 20,
                cache: None,
                functions: None,
            },
            cache: None,
            functions: None,
            address_space,
            may_have_two,
        };
        Engines::start(settings).expect("an engine")
    }

    fn is_mapped(engines: &Engines, data: usize) -> bool {
        let engine = &engines.of(&component(data)).engine;
        engine.get_memory_init_cow()
    }

    #[test]
    fn little_data_is_copied_and_much_is_mapped() {
        let engines = engines(None, true);
        assert!(is_mapped(&engines, 70 << 10));
        assert!(engines.copying.get().is_none());
        assert!(!is_mapped(&engines, 60 << 10));
        assert!(!is_mapped(&engines, 0));
    }

    #[test]
    fn memories_are_written_anew_within_a_part_of_the_memory() {
        const GIB: u64 = 1 << 30;
        for (limit, rewritten) in [
            (Some(GIB), GIB / 4 / 54),
            // 2.4 MiB each would save nothing.
            (Some(GIB / 2), 0),
            (Some(64 * GIB), MOST_REWRITTEN),
            (None, MOST_REWRITTEN),
        ] {
            assert_eq!(DataPlacement::Mapped.rewritten(54, limit), rewritten);
        }
        assert_eq!(DataPlacement::Copied.rewritten(1, None), 0);
    }

    #[test]
    fn data_is_mapped_where_there_is_no_room_for_two_engines() {
        for engines in [engines(Some(1 << 40), true), engines(None, false)] {
            assert!(std::ptr::eq(engines.of(&component(0)), &engines.mapping));
        }
    }
}
