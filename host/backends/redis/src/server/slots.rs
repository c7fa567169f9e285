//! Which node of a cluster holds which slots. Pure (Redis Cluster specification, "key distribution
//! model").

use super::address::Host;
use redis::Value;
use std::collections::HashMap;
use std::net::IpAddr;

const SLOTS: u16 = 16_384;

/// The slot of a key: what stands between its first `{` and the next `}` decides, if anything does.
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

/// Who is the master of which slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slots {
    /// First slot, last slot, master.
    ranges: Vec<(u16, u16, Host)>,
    /// By address, what nodes are called that announce a name as well.
    names: HashMap<Host, Host>,
}

impl Slots {
    /// Reads an answer to `CLUSTER SLOTS` of the node `asked`; `None` if it is not one. With `names`,
    /// a node that announces a host name beside its address is called by it: certificates are for
    /// names.
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

    /// The endpoint that the cluster prefers, the port, an id, and what else is known of the node
    /// (`addNodeToNodeReply` of Redis 7.0).
    fn master_of(&mut self, master: &[Value], asked: &Host, names: bool) -> Option<Host> {
        let port = number(master.get(1)?)?;
        let endpoint = match master.first()? {
            Value::Nil => None,
            endpoint => Some(text(endpoint)?),
        };
        let about = |key: &str| about(master.get(3)?, key).filter(|text| is_known(text));
        let at = |name: String| Host { name, port };
        let endpoint = match endpoint.filter(|text| *text != "?") {
            Some(name) if !name.is_empty() => name.to_owned(),
            // A name is preferred, and the node has none.
            None if about("ip").is_some() && !matches!(master.first(), Some(Value::Nil)) => {
                about("ip").map(str::to_owned)?
            }
            // A node that does not know its own address leaves it out: it is where it was asked.
            _ => asked.name.clone(),
        };
        match about("hostname") {
            Some(name) if names && endpoint.parse::<IpAddr>().is_ok() => {
                let named = at(name.to_owned());
                self.names.insert(at(endpoint), named.clone());
                Some(named)
            }
            _ => Some(at(endpoint)),
        }
    }

    /// Reads `HOST:PORT` of a redirection by the node `asked`; `None` where the node does not know.
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

    /// The master of a slot; `None` while nobody is.
    pub(super) fn master(&self, slot: u16) -> Option<&Host> {
        let mut ranges = self.ranges.iter();
        let found = ranges.find(|(first, last, _)| (*first..=*last).contains(&slot));
        found.map(|(_, _, host)| host)
    }

    /// All masters, each once.
    pub(super) fn masters(&self) -> Vec<Host> {
        let mut masters: Vec<Host> = Vec::new();
        for (_, _, host) in &self.ranges {
            if !masters.contains(host) {
                masters.push(host.clone());
            }
        }
        masters
    }

    /// A node has said who the master of a slot is now.
    pub(super) fn moved(&mut self, slot: u16, host: Host) {
        // What was learnt of this slot alone before.
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

fn is_known(text: &str) -> bool {
    !text.is_empty() && text != "?"
}

/// What is said of a node under this key: a map, or a list of keys and values.
fn about<'a>(fields: &'a Value, key: &str) -> Option<&'a str> {
    match fields {
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
    }
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
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |name: Value, port| Value::Array(vec![name, Value::Int(port), text("id")]);
        let range = |first, last, master| {
            let replica = node(text("replica"), 9);
            Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
        };
        let answer = Value::Array(vec![
            range(0, 99, node(text("a"), 1)),
            range(100, 199, node(text(""), 2)),
            range(300, 16_383, node(Value::Nil, 3)),
        ]);
        let host = |name: &str, port| Host {
            name: name.into(),
            port,
        };
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
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let pair = |key: &str, value: &str| (text(key), text(value));
        let node = |endpoint, port, more| {
            let master = Value::Array(vec![endpoint, Value::Int(port), text("id"), more]);
            Value::Array(vec![Value::Int(port), Value::Int(port), master])
        };
        let named = Value::Array(vec![text("hostname"), text("three")]);
        let answer = Value::Array(vec![
            // A name is preferred.
            node(text("one"), 1, Value::Map(vec![pair("ip", "10.0.0.1")])),
            // Addresses are, and names are announced.
            node(
                text("10.0.0.2"),
                2,
                Value::Map(vec![pair("hostname", "two")]),
            ),
            node(text("10.0.0.3"), 3, named),
            // A name is preferred, and none is announced.
            node(text("?"), 4, Value::Map(vec![pair("ip", "10.0.0.4")])),
            // Neither is told.
            node(Value::Nil, 5, Value::Map(vec![pair("ip", "10.0.0.5")])),
            node(text("?"), 6, Value::Map(Vec::new())),
        ]);
        let host = |name: &str, port| Host {
            name: name.into(),
            port,
        };
        let asked = host("asked", 9);
        let called = |names| {
            let slots = Slots::read(&answer, &asked, names).expect("a map");
            let masters = slots.masters().into_iter();
            masters.map(|host| host.name).collect::<Vec<_>>()
        };
        let with = ["one", "two", "three", "10.0.0.4", "asked", "asked"];
        assert_eq!(called(true), with);
        let without = ["one", "10.0.0.2", "10.0.0.3", "10.0.0.4", "asked", "asked"];
        assert_eq!(called(false), without);
        let slots = Slots::read(&answer, &asked, true).expect("a map");
        assert_eq!(slots.node("10.0.0.2:2", &asked), Some(host("two", 2)));
        assert_eq!(slots.node("10.0.0.2:7", &asked), Some(host("10.0.0.2", 7)));
        assert_eq!(slots.node(":8", &asked), Some(host("asked", 8)));
        assert_eq!(slots.node("::1:8", &asked), Some(host("::1", 8)));
        assert_eq!(slots.node("?:8", &asked), None);
        assert_eq!(slots.node("nonsense", &asked), None);
    }
}
