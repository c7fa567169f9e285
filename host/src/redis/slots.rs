//! Which node of a cluster holds which slots. Pure (Redis Cluster specification, "key distribution
//! model").

use super::address::Host;
use redis::Value;

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
pub struct Slots {
    /// First slot, last slot, master.
    ranges: Vec<(u16, u16, Host)>,
}

impl Slots {
    /// Reads an answer to `CLUSTER SLOTS` of the node `asked`; `None` if it is not one.
    pub fn read(answer: &Value, asked: &Host) -> Option<Self> {
        let Value::Array(ranges) = answer else {
            return None;
        };
        let read = |range: &Value| {
            let Value::Array(fields) = range else {
                return None;
            };
            let [first, last, Value::Array(master), ..] = fields.as_slice() else {
                return None;
            };
            let (first, last) = (number(first)?, number(last)?);
            let port = number(master.get(1)?)?;
            // A node that does not know its own address leaves it out: it is where it was asked.
            let name = match master.first()? {
                Value::BulkString(name) if !name.is_empty() => {
                    String::from_utf8(name.clone()).ok()?
                }
                Value::SimpleString(name) if !name.is_empty() => name.clone(),
                Value::BulkString(_) | Value::SimpleString(_) | Value::Nil => asked.name.clone(),
                _ => return None,
            };
            Some((first, last, Host { name, port }))
        };
        let ranges = ranges.iter().map(read).collect::<Option<_>>()?;
        Some(Self { ranges })
    }

    /// The master of a slot; `None` while nobody is.
    pub fn master(&self, slot: u16) -> Option<&Host> {
        let mut ranges = self.ranges.iter();
        let found = ranges.find(|(first, last, _)| (*first..=*last).contains(&slot));
        found.map(|(_, _, host)| host)
    }

    /// All masters, each once.
    pub fn masters(&self) -> Vec<Host> {
        let mut masters: Vec<Host> = Vec::new();
        for (_, _, host) in &self.ranges {
            if !masters.contains(host) {
                masters.push(host.clone());
            }
        }
        masters
    }

    /// A node has said who the master of a slot is now.
    pub fn moved(&mut self, slot: u16, host: Host) {
        self.ranges.insert(0, (slot, slot, host));
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
    fn slots_are_those_of_the_specification() {
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
    fn finding_10_a_cluster_is_read_and_corrected() {
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
        let mut slots = Slots::read(&answer, &asked).expect("a map");
        assert_eq!(slots.master(99), Some(&host("a", 1)));
        assert_eq!(slots.master(100), Some(&host("asked", 2)));
        assert_eq!(slots.master(200), None);
        slots.moved(5, host("asked", 3));
        assert_eq!(slots.master(5), Some(&host("asked", 3)));
        assert_eq!(slots.master(6), Some(&host("a", 1)));
        assert_eq!(slots.masters().len(), 3);
        assert_eq!(Slots::read(&Value::Nil, &asked), None);
        assert_eq!(
            Slots::read(&Value::Array(vec![Value::Int(1)]), &asked),
            None
        );
    }
}
