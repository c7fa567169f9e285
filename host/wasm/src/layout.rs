//! Chooses the memory layout of instances: how much address space is mapped in advance. Does not
//! depend on instances.

use crate::limits;
use std::path::PathBuf;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

/// The options that the runtime needs before the first plugin is loaded.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// The maximum number of live instances of all plugins together. Further attempts wait.
    pub instances: usize,
    /// The largest `max_memory` of all plugins, in bytes; at most 4 GiB.
    pub max_memory: usize,
    /// The folder of compiled components. Without it, every start recompiles them.
    pub cache: Option<PathBuf>,
    /// The folder of compiled functions, so that a component with few changes compiles faster. It
    /// is for development: the compiler calls this experimental.
    pub functions: Option<PathBuf>,
}

/// The layout, from the one that maps most in advance to the one that maps least. Mapped address
/// space takes no memory before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A slot of 4 GiB for each memory: compiled code needs no bounds checks.
    Wide,
    /// A slot of the largest memory that is allowed: compiled code checks bounds.
    Narrow,
    /// No slots: each instance maps what it needs and unmaps it when it ends.
    OnDemand,
}

/// The maximum address space that memories reserve in total: half of what Linux gives a process on
/// x86-64.
const ADDRESS_SPACE: u64 = 64 << 40;
/// The reservation for a memory in a wide layout, and the guard between two memories.
const WIDE: (u64, u64) = (4 << 30, 32 << 20);
/// The guard between two memories in the other layouts.
const GUARD: u64 = 64 << 10;
/// The size of a WebAssembly page.
const PAGE: u64 = 64 << 10;
/// The address space of an instance apart from its memories: its stack, its tables, itself.
const BESIDE: u64 = 4 << 20;
/// The divisor of the address space limit of the process that gives the part for instances. The
/// rest is for compiled code, threads and messages.
const SHARE: u64 = 2;
/// The maximum reservation for a memory that is mapped on demand. A memory that grows further is
/// moved.
const ON_DEMAND: u64 = 64 << 20;

/// The number of bytes of a table that are overwritten for reuse, and so stay resident in an unused
/// slot.
const KEPT_OF_TABLES: usize = 64 << 10;

impl Layout {
    /// Selects the widest layout that fits into the address space of the process.
    pub(super) fn within(options: &RuntimeOptions, address_space: Option<u64>) -> Self {
        let room = address_space
            .map_or(ADDRESS_SPACE, |limit| limit / SHARE)
            .min(ADDRESS_SPACE);
        match () {
            () if Self::Wide.needs(options) <= room => Self::Wide,
            // Without a limit, the system decides.
            () if address_space.is_none() || Self::Narrow.needs(options) <= room => Self::Narrow,
            () => Self::OnDemand,
        }
    }

    /// Whether two pools fit with the wide layout.
    pub(super) fn fits_twice(options: &RuntimeOptions) -> bool {
        Self::Wide.needs(options) <= ADDRESS_SPACE / 2
    }

    /// Returns the layout to try if the system does not grant this one.
    pub(super) fn tighter(self) -> Option<Self> {
        match self {
            Self::Wide => Some(Self::Narrow),
            Self::Narrow => Some(Self::OnDemand),
            Self::OnDemand => None,
        }
    }

    /// Returns the number of bytes that are mapped in advance.
    pub(super) fn needs(self, options: &RuntimeOptions) -> u64 {
        let instances = options.instances.max(1) as u64;
        let memory = match self {
            Self::Wide => WIDE.0 + WIDE.1,
            Self::Narrow => largest(options) + GUARD,
            Self::OnDemand => return 0,
        };
        let memories = memory.saturating_mul(u64::from(limits::MEMORIES));
        instances.saturating_mul(memories.saturating_add(BESIDE))
    }

    /// Applies the layout. Of a memory that is used again, the first `rewritten` bytes are written
    /// anew, and the kernel takes back the others. It takes back `decommits` memories and tables in
    /// one call; until then they keep the data of ended instances.
    pub(super) fn apply(
        self,
        options: &RuntimeOptions,
        rewritten: usize,
        decommits: usize,
        config: &mut Config,
    ) {
        match self {
            Self::Wide => {
                config.memory_reservation(WIDE.0).memory_guard_size(WIDE.1);
            }
            Self::Narrow => {
                config
                    .memory_reservation(largest(options))
                    .memory_guard_size(GUARD);
            }
            Self::OnDemand => {
                config
                    .memory_reservation(largest(options).min(ON_DEMAND))
                    .memory_reservation_for_growth(PAGE)
                    .memory_guard_size(GUARD);
            }
        }
        match self {
            Self::Wide | Self::Narrow => {
                config.allocation_strategy(pool(options, rewritten, decommits))
            }
            Self::OnDemand => config.allocation_strategy(InstanceAllocationStrategy::OnDemand),
        };
    }

    /// Logs that this is not the widest layout, and its effect.
    pub(super) fn note(self, options: &RuntimeOptions, address_space: Option<u64>) {
        let cost = match self {
            Self::Wide => return,
            Self::Narrow => "plugins check memory bounds",
            Self::OnDemand => "each instance is mapped when it is created, which takes longer",
        };
        tracing::info!(
            address_space_limit_bytes = address_space,
            wanted_bytes = Self::Wide.needs(options),
            instances = options.instances,
            max_memory_bytes = options.max_memory,
            effect = cost,
            "address space limited: raise ulimit -v, or lower concurrency or max-memory"
        );
    }
}

fn largest(options: &RuntimeOptions) -> u64 {
    (options.max_memory as u64).next_multiple_of(PAGE)
}

fn pool(options: &RuntimeOptions, rewritten: usize, decommits: usize) -> PoolingAllocationConfig {
    let instances = u32::try_from(options.instances.max(1)).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(limits::CORE_INSTANCES))
        .total_memories(instances.saturating_mul(limits::MEMORIES))
        .total_tables(instances.saturating_mul(limits::TABLES))
        .total_stacks(instances)
        .max_core_instances_per_component(limits::CORE_INSTANCES)
        .max_memories_per_component(limits::MEMORIES)
        .max_tables_per_component(limits::TABLES)
        .max_tables_per_module(limits::TABLES)
        .max_memories_per_module(limits::MEMORIES)
        .table_elements(limits::TABLE_ELEMENTS)
        .max_memory_size(options.max_memory)
        .decommit_batch_size(decommits)
        .table_keep_resident(KEPT_OF_TABLES)
        .linear_memory_keep_resident(rewritten)
        // Without a scan for written pages, all of those bytes are written anew. A scan would write
        // fewer, but before wasmtime 50 it sees only pages that are present: a page that is swapped
        // out, or that the kernel is moving, keeps the data of an earlier message.
        .pagemap_scan(Enabled::No);
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(instances: usize, max_memory: usize) -> RuntimeOptions {
        RuntimeOptions {
            instances,
            max_memory,
            cache: None,
            functions: None,
        }
    }

    /// By the setting itself: what the engine does by default may differ in its next version.
    #[test]
    fn memories_are_reset_without_a_scan_for_written_pages() {
        let pool = pool(&options(54, 64 << 20), 1 << 20, 1);
        assert_eq!(pool.get_pagemap_scan(), Enabled::No);
    }

    #[test]
    fn finding_22_memory_layout_fits_the_address_space() {
        const GIB: u64 = 1 << 30;
        // Concurrency 50 and those of a shadow, as by default.
        let usual = options(54, 64 << 20);
        for (limit, layout) in [
            (None, Layout::Wide),
            (Some(u64::MAX), Layout::Wide),
            (Some(2_048 * GIB), Layout::Wide),
            (Some(1_024 * GIB), Layout::Narrow),
            (Some(32 * GIB), Layout::Narrow),
            (Some(16 * GIB), Layout::OnDemand),
            (Some(0), Layout::OnDemand),
        ] {
            assert_eq!(Layout::within(&usual, limit), layout, "{limit:?}");
        }
        // Few instances stay wide where many do not.
        let few = options(1, 64 << 20);
        assert_eq!(Layout::within(&few, Some(64 * GIB)), Layout::Wide);
        assert_eq!(Layout::within(&few, Some(16 * GIB)), Layout::Narrow);
        // More than a process can have at all.
        assert_eq!(
            Layout::within(&options(10_000, 64 << 20), None),
            Layout::Narrow
        );
    }
}
