//! The values of the column `taskStatus`, and the spread of one status over several index keys.
//! Pure.

use std::sync::atomic::{AtomicU16, Ordering};

/// A waiting task.
pub(super) const PENDING: &str = "PENDING";
/// A task that a worker is handling.
pub(super) const TAKEN: &str = "TAKEN";
/// A completed task.
pub(super) const SUCCESS: &str = "SUCCESS";
/// A failed task.
pub(super) const FAILURE: &str = "FAILURE";

/// The number of index keys for each status; 1 is the sample's own table.
#[derive(Debug)]
pub(super) struct Shards {
    /// The number of keys that this process writes to.
    own: u16,
    /// The number of keys that may hold tasks: the most that any process has ever written to.
    widest: AtomicU16,
}

impl Shards {
    /// Creates at least one shard. Assumes that no process ever used more, until `learn` is called.
    pub(super) fn new(count: u16) -> Self {
        let own = count.max(1);
        Self {
            own,
            widest: AtomicU16::new(own),
        }
    }

    /// Returns the number of keys that this process writes to.
    pub(super) fn own(&self) -> u16 {
        self.own
    }

    /// Notes that another process has written to `count` keys.
    pub(super) fn learn(&self, count: u16) {
        self.widest.fetch_max(count, Ordering::Relaxed);
    }

    /// Returns the key under which a task gets this status. It is the same in every process with
    /// the same number of shards.
    pub(super) fn key(&self, status: &str, task: &str) -> String {
        match self.own {
            1 => status.to_owned(),
            count => format!("{status}#{}", hash(task) % u64::from(count)),
        }
    }

    /// Returns all keys under which tasks may have this status. The plain status is always among
    /// them, because the sample writes only that.
    pub(super) fn keys(&self, status: &str) -> Vec<String> {
        let plain = std::iter::once(status.to_owned());
        match self.widest.load(Ordering::Relaxed) {
            1 => plain.collect(),
            count => plain
                .chain((0..count).map(|shard| format!("{status}#{shard}")))
                .collect(),
        }
    }
}

/// Whether a key is one of this status.
pub(super) fn is(key: &str, status: &str) -> bool {
    key.strip_prefix(status)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
}

/// Returns the FNV-1a hash. It must never change, since keys in tables are derived from it.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shard_uses_the_samples_plain_status() {
        let shards = Shards::new(1);
        assert_eq!(shards.key(PENDING, "a"), "PENDING");
        assert_eq!(shards.keys(TAKEN), ["TAKEN"]);
        assert_eq!(Shards::new(0).keys(TAKEN), ["TAKEN"]);
    }

    #[test]
    fn shards_seen_in_use_by_others_are_also_read() {
        let shards = Shards::new(2);
        shards.learn(4);
        shards.learn(1);
        assert_eq!(shards.keys(TAKEN).len(), 5);
        let keys = Shards::new(2).keys(PENDING);
        assert!((0..100).all(|task| keys.contains(&shards.key(PENDING, &task.to_string()))));
    }

    #[test]
    fn task_keeps_its_shard_and_the_plain_status_is_also_read() {
        let shards = Shards::new(4);
        let keys = shards.keys(PENDING);
        assert_eq!(keys.len(), 5);
        assert_eq!(keys[0], PENDING);
        let mut used = std::collections::BTreeSet::new();
        for task in 0..100 {
            let task = task.to_string();
            let key = shards.key(PENDING, &task);
            assert!(keys.contains(&key));
            let shard = key.split('#').nth(1).expect("a shard").to_owned();
            assert_eq!(shards.key(SUCCESS, &task), format!("SUCCESS#{shard}"));
            used.insert(shard);
        }
        assert_eq!(used.len(), 4);
    }

    #[test]
    fn status_is_parsed_from_its_sharded_key() {
        assert!(is("TAKEN", TAKEN) && is("TAKEN#3", TAKEN));
        assert!(!is("TAKENX", TAKEN) && !is("PENDING", TAKEN));
    }
}
