//! The scripts: each is one step that happens wholly or not at all. They are beside this folder's
//! code in `lua`, `prelude.lua` in front of every one that touches a queue.

use redis::Script;
use std::sync::LazyLock;

macro_rules! of_queue {
    ($name:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                include_str!("lua/prelude.lua"),
                include_str!(concat!("lua/", $name, ".lua"))
            ))
        })
    };
}

/// Adds messages.
pub static SEND: LazyLock<Script> = of_queue!("send");
/// Hands out messages.
pub static CLAIM: LazyLock<Script> = of_queue!("claim");
/// Keeps deliveries.
pub static EXTEND: LazyLock<Script> = of_queue!("extend");
/// Ends deliveries.
pub static SETTLE: LazyLock<Script> = of_queue!("settle");
/// Takes everything from a dead worker.
pub static RECLAIM: LazyLock<Script> = of_queue!("reclaim");
/// Counts.
pub static DEPTH: LazyLock<Script> = of_queue!("depth");
/// Looks without receiving.
pub static PEEK: LazyLock<Script> = of_queue!("peek");
/// Removes a task.
pub static CANCEL: LazyLock<Script> = of_queue!("cancel");
/// Keeps a worker alive and finds the dead.
pub static BEAT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/beat.lua")));

macro_rules! of_worqr {
    ($name:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                include_str!("lua/worqr/prelude.lua"),
                include_str!(concat!("lua/worqr/", $name, ".lua"))
            ))
        })
    };
}

/// Takes tasks of the package.
pub static WORQR_TAKE: LazyLock<Script> = of_worqr!("take");
/// Removes one wherever it is.
pub static WORQR_CANCEL: LazyLock<Script> = of_worqr!("cancel");
/// Ends them.
pub static WORQR_FINISH: LazyLock<Script> = of_worqr!("finish");
/// Keeps a worker of the package alive and finds the dead.
pub static WORQR_BEAT: LazyLock<Script> = of_worqr!("beat");
