//! Tries new versions of a plugin. Several versions run behind one handler, with a canary and a
//! shadow; messages and verdicts are recorded in files for replay. Does not depend on queues or
//! WebAssembly.

pub mod recording;
pub mod rollout;
