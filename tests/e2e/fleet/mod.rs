//! Several processes that share a store of limits.

pub(crate) mod limits;
pub(crate) mod stores;
pub(crate) mod storm;
