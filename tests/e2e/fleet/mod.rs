//! Several processes that share a store of limits.

pub(crate) mod limits;
pub(crate) mod storm;
