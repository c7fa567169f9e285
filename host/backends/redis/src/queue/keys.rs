//! The names of keys on the server. Pure; every key of a queue shares a hash tag, so that a cluster
//! holds the whole queue, its dead letters included, in one slot.

/// The suffix of the queue that dead letters go to unless another is named.
pub(super) const DEAD: &str = ".dead";

/// Names under one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    /// All under `prefix`, which has no braces.
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    /// What every key of a queue begins with: `{prefix:name}`, and for `name.dead`
    /// `{prefix:name}.dead`, in the same slot.
    pub(crate) fn queue(&self, name: &str) -> String {
        match name.strip_suffix(DEAD) {
            Some(bare) if !bare.is_empty() => format!("{{{}:{bare}}}{DEAD}", self.prefix),
            _ => format!("{{{}:{name}}}", self.prefix),
        }
    }

    /// What every key begins with that belongs to no queue.
    pub(crate) fn registry(&self) -> String {
        format!("{{{}}}", self.prefix)
    }

    /// The set of the names of all queues.
    pub(crate) fn queues(&self) -> String {
        format!("{}:queues", self.registry())
    }

    /// The format of all that is kept below the prefix, where it is later than the first.
    pub(crate) fn format(&self) -> String {
        format!("{}:format", self.registry())
    }

    /// What operators set on queues.
    pub(crate) fn controls(&self) -> String {
        format!("{}:controls", self.registry())
    }

    /// The set of all workers, dead ones that nobody has given up yet included.
    pub(crate) fn workers(&self) -> String {
        format!("{}:workers", self.registry())
    }

    /// What lives as long as the worker.
    pub(crate) fn worker(&self, worker: &str) -> String {
        format!("{}:worker:{worker}", self.registry())
    }

    /// The set of the names of the queues that a worker serves.
    pub(crate) fn worker_queues(&self, worker: &str) -> String {
        format!("{}:queues", self.worker(worker))
    }
}

/// What a worker has in flight from a queue.
pub(super) fn in_process(queue: &str, worker: &str) -> String {
    format!("{queue}:w:{worker}")
}

/// Where it is said that there is something to receive, and what was cancelled.
pub(super) fn wake_channel(queue: &str) -> String {
    format!("{queue}:bell")
}

/// What ends every id of a queue, so that no two queues give out the same: eight hexadecimal
/// digits (FNV-1a of what its keys begin with).
pub(super) fn id_suffix(queue: &str) -> String {
    let hash = queue.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a cluster hashes of a key (Redis Cluster specification, "hash tags").
    fn tag(key: &str) -> &str {
        let (_, rest) = key.split_once('{').expect("a tag begins");
        rest.split_once('}').expect("a tag ends").0
    }

    #[test]
    fn queue_and_dead_letter_queue_share_a_slot() {
        let keys = Keys::new("dispatcher");
        let (queue, dead) = (keys.queue("payments"), keys.queue("payments.dead"));
        assert_eq!(queue, "{dispatcher:payments}");
        assert_ne!(queue, dead);
        for key in [
            wake_channel(&queue),
            in_process(&queue, "w"),
            wake_channel(&dead),
        ] {
            assert_eq!(tag(&key), "dispatcher:payments");
        }
        assert_eq!(tag(&keys.queue(".dead")), "dispatcher:.dead");
    }

    #[test]
    fn registry_keys_share_a_slot() {
        let keys = Keys::new("dispatcher");
        let all = [
            keys.queues(),
            keys.format(),
            keys.controls(),
            keys.workers(),
        ];
        for key in all.into_iter().chain([keys.worker_queues("w")]) {
            assert_eq!(tag(&key), "dispatcher");
        }
    }

    #[test]
    fn id_suffixes_differ() {
        assert_eq!(id_suffix("{a:b}").len(), 8);
        assert_ne!(id_suffix("{a:b}"), id_suffix("{a:b}.dead"));
    }
}
