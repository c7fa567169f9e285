//! What a component may export to be a plugin: the versions of the contract that this host speaks, and
//! what WASI has instead, one file each. Knows no message of ours but to translate it.

pub(super) mod keyvalue;
pub(super) mod v0_1;
