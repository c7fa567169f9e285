//! Chooses the memory layout of instances: how much address space is mapped in advance. Knows no
//! instance.

use crate::limits;
use std::path::PathBuf;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

/// What the runtime needs to know before the first plugin is loaded.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// Maximum instances alive at once, those of all plugins together. Attempts beyond wait.
    pub instances: usize,
    /// The largest `max_memory` of all plugins, in bytes; at most 4 GiB.
    pub max_memory: usize,
    /// Where compiled components are kept. Without it every start compiles them anew.
    pub cache: Option<PathBuf>,
    /// Where compiled functions are kept, so that a component of which little has changed is compiled
    /// sooner. For those who develop one: the compiler calls this experimental.
    pub functions: Option<PathBuf>,
}

/// From what maps most in advance to what maps least. None of it is memory before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A slot of 4 GiB for each memory: compiled code needs no bounds checks.
    Wide,
    /// A slot of the largest memory that is allowed: compiled code checks bounds.
    Narrow,
    /// Nothing in advance: each instance maps what it needs and unmaps it when it ends.
    OnDemand,
}

/// Address space that memories may reserve in all: half of what Linux gives a process on x86-64.
const ADDRESS_SPACE: u64 = 64 << 40;
/// What is reserved for a memory in a wide layout, and what lies between two.
const WIDE: (u64, u64) = (4 << 30, 32 << 20);
/// What lies between two memories otherwise.
const GUARD: u64 = 64 << 10;
/// A page of WebAssembly.
const PAGE: u64 = 64 << 10;
/// What an instance maps beside its memories: its stack, its tables, itself.
const BESIDE: u64 = 4 << 20;
/// Instances may use one part in this many of the address space that the process may map: the rest
/// is for compiled code, threads and messages.
const SHARE: u64 = 2;
/// The most that is reserved for a memory that is mapped on demand; one that grows further is moved.
const ON_DEMAND: u64 = 64 << 20;

/// Slots released to the kernel in one call; 8 to 64 cost the same, 1 costs a third more.
const DECOMMITS: usize = 16;
/// Bytes of a table that stay resident in an unused slot.
const KEPT_OF_TABLES: usize = 64 << 10;
/// Bytes of a memory that stay resident in an unused slot, if the guest touched them: about as much as
/// the runtime of Go writes. With a quarter of it a fresh instance of Go takes 1.6 times as long.
const KEPT_OF_MEMORIES: usize = 1 << 20;
/// The bytes that all slots together keep.
const KEPT_IN_ALL: usize = 256 << 20;

impl Layout {
    /// The widest that fits into the address space that the process may have.
    pub(super) fn within(options: &RuntimeOptions, address_space: Option<u64>) -> Self {
        let room = address_space.map_or(ADDRESS_SPACE, |limit| limit / SHARE);
        let room = room.min(ADDRESS_SPACE);
        match () {
            () if Self::Wide.needs(options) <= room => Self::Wide,
            // Without a limit the system is asked.
            () if address_space.is_none() || Self::Narrow.needs(options) <= room => Self::Narrow,
            () => Self::OnDemand,
        }
    }

    /// What to try where the system does not grant this one.
    pub(super) fn tighter(self) -> Option<Self> {
        match self {
            Self::Wide => Some(Self::Narrow),
            Self::Narrow => Some(Self::OnDemand),
            Self::OnDemand => None,
        }
    }

    /// Bytes that are mapped in advance.
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

    /// Sets it.
    pub(super) fn apply(self, options: &RuntimeOptions, config: &mut Config) {
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
            Self::Wide | Self::Narrow => config.allocation_strategy(pool(options)),
            Self::OnDemand => config.allocation_strategy(InstanceAllocationStrategy::OnDemand),
        };
    }

    /// Says that it is not the widest, and why.
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

fn pool(options: &RuntimeOptions) -> PoolingAllocationConfig {
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
        .decommit_batch_size(DECOMMITS)
        .table_keep_resident(KEPT_OF_TABLES);
    // Where the kernel (Linux 6.7 and later) tells which pages a guest has touched, writing those
    // anew costs half of what giving them back does. Where it does not, keeping any costs more.
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        let kept = (KEPT_IN_ALL / options.instances.max(1)).min(KEPT_OF_MEMORIES);
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(kept);
    }
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
