//! The scripts. Each is one step that happens completely or not at all. Their code is in the folder
//! `lua`, with `prelude.lua` in front of every script that uses a queue. Scripts that help to drain
//! a queue also run on a server whose memory is full; scripts that fill it do not.

use redis::Script;
use std::sync::LazyLock;

/// The first line of a script that may run beyond `maxmemory` (Redis 7.0, "script flags").
macro_rules! even_when_full {
    () => {
        "#!lua flags=allow-oom\n"
    };
}

macro_rules! of_queue {
    ($name:literal) => {
        of_queue!(flags "", [$name])
    };
    ($($name:literal),+; even when full) => {
        of_queue!(flags even_when_full!(), [$($name),+])
    };
    (flags $flags:expr, [$($name:literal),+]) => {
        LazyLock::new(|| {
            Script::new(concat!(
                $flags,
                include_str!("lua/prelude.lua"),
                $(include_str!(concat!("lua/", $name, ".lua"))),+
            ))
        })
    };
}

/// Adds messages.
pub(super) static SEND: LazyLock<Script> = of_queue!("send");
/// Hands out messages in the order of sending.
pub(super) static CLAIM: LazyLock<Script> = of_queue!("claim"; even when full);
/// Hands out messages by rules, and replaces the rules of a queue.
pub(super) static CLAIM_SHARED: LazyLock<Script> =
    of_queue!("lanes", "share", "claim"; even when full);
/// Counts the waiting messages of tenants.
pub(super) static BACKLOGS: LazyLock<Script> = of_queue!("lanes", "backlogs"; even when full);
/// Extends deliveries.
pub(super) static EXTEND: LazyLock<Script> = of_queue!("extend"; even when full);
/// Ends deliveries.
pub(super) static SETTLE: LazyLock<Script> = of_queue!("settle"; even when full);
/// Releases all messages of a dead worker.
pub(super) static RECLAIM: LazyLock<Script> = of_queue!("reclaim"; even when full);
/// Counts messages.
pub(super) static DEPTH: LazyLock<Script> = of_queue!("depth");
/// Reads messages without receiving them.
pub(super) static PEEK: LazyLock<Script> = of_queue!("peek");
/// Lists waiting messages.
pub(super) static BROWSE: LazyLock<Script> = of_queue!("browse"; even when full);
/// Finds a waiting message.
pub(super) static FIND: LazyLock<Script> = of_queue!("find"; even when full);
/// Hands out chosen messages.
pub(super) static TAKE: LazyLock<Script> = of_queue!("lanes", "take"; even when full);
/// Removes messages that are not in flight.
pub(super) static PURGE: LazyLock<Script> = of_queue!("lanes", "purge"; even when full);
/// Removes a task.
pub(super) static CANCEL: LazyLock<Script> = of_queue!("lanes", "cancel"; even when full);
/// Lets a worker receive.
pub(super) static JOIN: LazyLock<Script> = of_queue!("join"; even when full);

macro_rules! of_registry {
    ($name:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                even_when_full!(),
                include_str!(concat!("lua/", $name, ".lua"))
            ))
        })
    };
}

/// Keeps a worker alive and finds dead workers.
pub(super) static BEAT: LazyLock<Script> = of_registry!("beat");
/// Registers a worker.
pub(super) static ENROL: LazyLock<Script> = of_registry!("enrol");
/// Registers a queue and a worker that serves it.
pub(super) static ENTER: LazyLock<Script> = of_registry!("enter");

macro_rules! of_worqr {
    ($name:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                even_when_full!(),
                include_str!("lua/worqr/prelude.lua"),
                include_str!(concat!("lua/worqr/", $name, ".lua"))
            ))
        })
    };
}

/// Registers a worker of the package.
pub(super) static WORQR_JOIN: LazyLock<Script> = of_worqr!("join");
/// Removes a worker of the package.
pub(super) static WORQR_LEAVE: LazyLock<Script> = of_worqr!("leave");
/// Takes tasks of the package.
pub(super) static WORQR_TAKE: LazyLock<Script> = of_worqr!("take");
/// Reads a part of a taken task.
pub(super) static WORQR_PART: LazyLock<Script> = of_worqr!("part");
/// Removes a task, whether it waits or runs.
pub(super) static WORQR_CANCEL: LazyLock<Script> = of_worqr!("cancel");
/// Removes some of the tasks that are not in flight.
pub(super) static WORQR_PURGE: LazyLock<Script> = of_worqr!("purge");
/// Ends taken tasks.
pub(super) static WORQR_FINISH: LazyLock<Script> = of_worqr!("finish");
/// Keeps a worker of the package alive and finds dead workers.
pub(super) static WORQR_BEAT: LazyLock<Script> = of_worqr!("beat");
