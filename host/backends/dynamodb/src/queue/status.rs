//! The values of the column `taskStatus`, and how one status may be spread over several keys of the
//! index. Pure.

use std::sync::atomic::{AtomicU16, Ordering};

/// Waits to be taken.
pub(super) const PENDING: &str = "PENDING";
/// Somebody works on it.
pub(super) const TAKEN: &str = "TAKEN";
/// Done.
pub(super) const SUCCESS: &str = "SUCCESS";
/// Given up.
pub(super) const FAILURE: &str = "FAILURE";

/// Over how many keys of the index each status is spread; 1 is the sample's own table.
#[derive(Debug)]
pub(super) struct Shards {
    /// So many are written to.
    own: u16,
    /// So many may hold tasks: the most that anybody has ever written to.
    widest: AtomicU16,
}

impl Shards {
    /// At least one; as far as is known nobody has ever had more.
    pub(super) fn new(count: u16) -> Self {
        let own = count.max(1);
        Self {
            own,
            widest: AtomicU16::new(own),
        }
    }

    /// How many are written to.
    pub(super) fn own(&self) -> u16 {
        self.own
    }

    /// Somebody has written to so many.
    pub(super) fn learn(&self, count: u16) {
        self.widest.fetch_max(count, Ordering::Relaxed);
    }

    /// The key under which a task gets this status: the same in every process with as many shards.
    pub(super) fn key(&self, status: &str, task: &str) -> String {
        match self.own {
            1 => status.to_owned(),
            count => format!("{status}#{}", hash(task) % u64::from(count)),
        }
    }

    /// Every key under which tasks may have this status. The plain word is always among them: the
    /// sample writes no other.
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

/// FNV-1a: the same for all time, since keys in tables are made of it.
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
