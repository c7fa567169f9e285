//! Plugins: capabilities, isolation, replacement, trials.

mod capabilities;
mod capabilities_tls;
mod contract;
mod guests;
mod host_memory;
mod image;
mod isolation;
mod keeper;
mod neighbours;
mod replace;
pub(crate) mod replay;
mod traps;
mod trials;
mod untrusted_files;
mod warm;
mod ways_in;
