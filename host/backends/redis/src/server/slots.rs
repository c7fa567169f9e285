//! The slots of the nodes of a cluster. Pure (Redis Cluster specification, "key distribution
//! model").

use super::address::Host;
use redis::Value;
use std::collections::HashMap;
use std::net::IpAddr;

const SLOTS: u16 = 16_384;

/// Returns the slot of a key. The text between its first `{` and the next `}`, if any, decides
/// alone.
pub fn slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let hashed = match tag {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => key,
    };
    crc16(hashed.as_bytes()) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let start = crc ^ (u16::from(*byte) << 8);
        (0..8).fold(start, |crc: u16, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

/// The masters of the slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slots {
    /// The first slot, the last slot and the master.
    ranges: Vec<(u16, u16, Host)>,
    /// The names of nodes that announce one, by address.
    names: HashMap<Host, Host>,
}

impl Slots {
    /// Reads an answer to `CLUSTER SLOTS` of the node `asked`; `None` if it is not one. With
    /// `names`, a node that announces a host name beside its address gets this name, because
    /// certificates are for names.
    pub(super) fn read(answer: &Value, asked: &Host, names: bool) -> Option<Self> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let mut read = Self::default();
        for range in ranges {
            let Value::Array(fields) = range else {
                return None;
            };
            let [first, last, Value::Array(master), ..] = fields.as_slice() else {
                return None;
            };
            let host = read.master_of(master, asked, names)?;
            read.ranges.push((number(first)?, number(last)?, host));
        }
        Some(read)
    }

    /// Reads a master: the endpoint that the cluster prefers, the port, an id, and other properties
    /// of the node (`addNodeToNodeReply` of Redis 7.0).
    fn master_of(&mut self, master: &[Value], asked: &Host, names: bool) -> Option<Host> {
        let port = number(master.get(1)?)?;
        let preferred = match master.first()? {
            Value::Nil => None,
            endpoint => Some(text(endpoint)?),
        };
        let others = master.get(3);
        let endpoint = match preferred.filter(|text| *text != "?") {
            Some(name) if !name.is_empty() => name.to_owned(),
            // The cluster prefers names, and the node has none.
            None if about(others, "ip").is_some() && preferred.is_some() => {
                about(others, "ip").map(str::to_owned)?
            }
            // A node that does not know its own address leaves it out; it is where it was asked.
            _ => asked.name.clone(),
        };
        let is_address = endpoint.parse::<IpAddr>().is_ok();
        let at = Host {
            name: endpoint,
            port,
        };
        match about(others, "hostname") {
            Some(name) if names && is_address => {
                let name = name.to_owned();
                let named = Host { name, port };
                self.names.insert(at, named.clone());
                Some(named)
            }
            _ => Some(at),
        }
    }

    /// Reads `HOST:PORT` of a redirection by the node `asked`; `None` if the node does not know it.
    pub(super) fn node(&self, text: &str, asked: &Host) -> Option<Host> {
        // Without brackets, an IPv6 address ends at its last colon.
        let (name, port) = text.rsplit_once(':')?;
        let name = match name.trim_matches(['[', ']']) {
            // A node that does not know its own address leaves it out.
            "" => asked.name.as_str(),
            "?" => return None,
            name => name,
        };
        let host = Host {
            name: name.to_owned(),
            port: port.parse().ok()?,
        };
        Some(self.names.get(&host).cloned().unwrap_or(host))
    }

    /// Returns the master of a slot; `None` while there is none.
    pub(super) fn master(&self, slot: u16) -> Option<&Host> {
        let mut ranges = self.ranges.iter();
        let found = ranges.find(|(first, last, _)| (*first..=*last).contains(&slot));
        found.map(|(_, _, host)| host)
    }

    /// Returns all masters, each once.
    pub(super) fn masters(&self) -> Vec<Host> {
        let mut masters: Vec<Host> = Vec::new();
        for (_, _, host) in &self.ranges {
            if !masters.contains(host) {
                masters.push(host.clone());
            }
        }
        masters
    }

    /// Records the new master of a slot, as reported by a node.
    pub(super) fn moved(&mut self, slot: u16, host: Host) {
        // Removes an earlier entry for this slot alone.
        self.ranges
            .retain(|(first, last, _)| !(*first == slot && *last == slot));
        self.ranges.insert(0, (slot, slot, host));
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// Returns a known property of a node from a map, or from a list of keys and values.
fn about<'a>(properties: Option<&'a Value>, key: &str) -> Option<&'a str> {
    let property = match properties? {
        Value::Map(pairs) => {
            let found = pairs.iter().find(|(name, _)| text(name) == Some(key));
            found.and_then(|(_, value)| text(value))
        }
        Value::Array(items) => {
            let mut pairs = items.chunks_exact(2);
            let found = pairs.find(|pair| text(&pair[0]) == Some(key));
            found.and_then(|pair| text(&pair[1]))
        }
        _ => None,
    };
    property.filter(|text| !text.is_empty() && *text != "?")
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn host(name: &str, port: u16) -> Host {
        Host {
            name: name.into(),
            port,
        }
    }

    fn node(name: Value, port: i64) -> Value {
        Value::Array(vec![name, Value::Int(port), text("id")])
    }

    fn range(first: i64, last: i64, master: Value) -> Value {
        let replica = node(text("replica"), 9);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    }

    /// The range of the slot `port` alone, with a master that has these properties.
    fn described(endpoint: Value, port: i64, properties: Value) -> Value {
        let master = Value::Array(vec![endpoint, Value::Int(port), text("id"), properties]);
        Value::Array(vec![Value::Int(port), Value::Int(port), master])
    }

    fn property(key: &str, value: &str) -> Value {
        Value::Map(vec![(text(key), text(value))])
    }

    #[test]
    fn hash_slots_match_the_specification() {
        // Its appendix A, and what `CLUSTER KEYSLOT` of Redis 7.0 answers.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(
            (slot("foo"), slot("{user1000}.following")),
            (12_182, slot("user1000"))
        );
        assert_eq!(slot("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
    }

    #[test]
    fn finding_10_cluster_slots_are_parsed_and_updated() {
        let answer = Value::Array(vec![
            range(0, 99, node(text("a"), 1)),
            range(100, 199, node(text(""), 2)),
            range(300, 16_383, node(Value::Nil, 3)),
        ]);
        let asked = host("asked", 7);
        let mut slots = Slots::read(&answer, &asked, false).expect("a map");
        assert_eq!(slots.master(99), Some(&host("a", 1)));
        assert_eq!(slots.master(100), Some(&host("asked", 2)));
        assert_eq!(slots.master(200), None);
        slots.moved(5, host("asked", 3));
        assert_eq!(slots.master(5), Some(&host("asked", 3)));
        assert_eq!(slots.master(6), Some(&host("a", 1)));
        assert_eq!(slots.masters().len(), 3);
        assert_eq!(Slots::read(&Value::Nil, &asked, false), None);
        let strange = Value::Array(vec![Value::Int(1)]);
        assert_eq!(Slots::read(&strange, &asked, false), None);
    }

    #[test]
    fn finding_10_nodes_are_named_as_in_their_certificates() {
        let named = Value::Array(vec![text("hostname"), text("three")]);
        let answer = Value::Array(vec![
            // A name is preferred.
            described(text("one"), 1, property("ip", "10.0.0.1")),
            // Addresses are, and names are announced.
            described(text("10.0.0.2"), 2, property("hostname", "two")),
            described(text("10.0.0.3"), 3, named),
            // A name is preferred, and none is announced.
            described(text("?"), 4, property("ip", "10.0.0.4")),
            // Neither is told.
            described(Value::Nil, 5, property("ip", "10.0.0.5")),
            described(text("?"), 6, Value::Map(Vec::new())),
        ]);
        let asked = host("asked", 9);
        let with = ["one", "two", "three", "10.0.0.4", "asked", "asked"];
        let without = ["one", "10.0.0.2", "10.0.0.3", "10.0.0.4", "asked", "asked"];
        for (names, wanted) in [(true, with), (false, without)] {
            let slots = Slots::read(&answer, &asked, names).expect("a map");
            let masters = slots.masters().into_iter();
            let called: Vec<String> = masters.map(|host| host.name).collect();
            assert_eq!(called, wanted);
        }
        let slots = Slots::read(&answer, &asked, true).expect("a map");
        assert_eq!(slots.node("10.0.0.2:2", &asked), Some(host("two", 2)));
        assert_eq!(slots.node("10.0.0.2:7", &asked), Some(host("10.0.0.2", 7)));
        assert_eq!(slots.node(":8", &asked), Some(host("asked", 8)));
        assert_eq!(slots.node("::1:8", &asked), Some(host("::1", 8)));
        assert_eq!(slots.node("?:8", &asked), None);
        assert_eq!(slots.node("nonsense", &asked), None);
    }
}
