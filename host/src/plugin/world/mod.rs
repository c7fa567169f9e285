//! The versions of the plugin contract that this host speaks, one file each. Knows no message of
//! ours but to translate it.

pub(super) mod v0_1;
