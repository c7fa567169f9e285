//! The names of keys on the server. Pure. All keys of a queue share a hash tag, so that a cluster
//! holds the whole queue, its dead letters included, in one slot.

/// The suffix of the default dead-letter queue.
pub(super) const DEAD: &str = ".dead";

/// The names of keys under one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    /// Creates names under `prefix`, which contains no braces.
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    /// Returns the prefix of every key of a queue: `{prefix:name}`, and for `name.dead`
    /// `{prefix:name}.dead`, in the same slot.
    pub(crate) fn queue(&self, name: &str) -> String {
        match name.strip_suffix(DEAD) {
            Some(bare) if !bare.is_empty() => format!("{{{}:{bare}}}{DEAD}", self.prefix),
            _ => format!("{{{}:{name}}}", self.prefix),
        }
    }

    /// Returns the prefix of every key that belongs to no queue.
    pub(crate) fn registry(&self) -> String {
        format!("{{{}}}", self.prefix)
    }

    /// Returns the key of the set of all queue names.
    pub(crate) fn queues(&self) -> String {
        format!("{}:queues", self.registry())
    }

    /// Returns the key of the format of all data below the prefix. It only exists for formats after
    /// the first.
    pub(crate) fn format(&self) -> String {
        format!("{}:format", self.registry())
    }

    /// Returns the key of the operators' settings of queues.
    pub(crate) fn controls(&self) -> String {
        format!("{}:controls", self.registry())
    }

    /// Returns the key of the set of all workers, including dead ones that are not given up yet.
    pub(crate) fn workers(&self) -> String {
        format!("{}:workers", self.registry())
    }

    /// Returns the key that lives as long as the worker.
    pub(crate) fn worker(&self, worker: &str) -> String {
        format!("{}:worker:{worker}", self.registry())
    }

    /// Returns the key of the set of the queue names that a worker serves.
    pub(crate) fn worker_queues(&self, worker: &str) -> String {
        format!("{}:queues", self.worker(worker))
    }
}

/// Returns the key of the messages that a worker has in flight from a queue.
pub(super) fn in_process(queue: &str, worker: &str) -> String {
    format!("{queue}:w:{worker}")
}

/// Returns the channel that announces messages to receive and cancelled messages.
pub(super) fn wake_channel(queue: &str) -> String {
    format!("{queue}:bell")
}

/// Returns the suffix of every id of a queue, which keeps the ids of two queues different: eight
/// hexadecimal digits (FNV-1a of the prefix of its keys).
pub(super) fn id_suffix(queue: &str) -> String {
    let hash = queue.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the part of a key that a cluster hashes (Redis Cluster specification, "hash tags").
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
