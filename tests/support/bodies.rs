//! Bodies that are hard to carry: every odd character, and as long as may be. Pure.

use fastrand::Rng;

/// The longest body of SQS, in bytes, attributes included (its quotas).
pub const LARGEST: usize = 1 << 20;

/// Which characters a backend takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedCharacters {
    /// All of Unicode, as the local queue.
    All,
    /// Those of XML 1.0, as SQS.
    Xml,
}

impl AllowedCharacters {
    /// Whether it takes this one. The set of XML 1.0 is in the documentation of SendMessage.
    pub fn takes(self, c: char) -> bool {
        self == Self::All
            || matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
            || c >= '\u{10000}'
    }
}

/// Every odd character that is allowed: all of ASCII, the edges of every plane and of the
/// surrogates, what joins, turns around or takes no room, and what formats give a meaning.
pub fn odd_characters(allowed: AllowedCharacters) -> String {
    let ascii = '\0'..='\u{a0}';
    let planes = (0..=16_u32).flat_map(|plane| {
        let first = plane << 16;
        [
            first,
            first + 1,
            first + 0xfffd,
            first + 0xfffe,
            first + 0xffff,
        ]
    });
    let others = [
        0x7ff, 0x800, 0xd7ff, 0xe000, 0xf8ff, 0xfeff, 0xfffc, // edges of encodings
        0x301, 0x200b, 0x200d, 0x200e, 0x2028, 0x2029, 0x202e, 0x2066, // take no room
        0x1f468, 0x1f3fd, 0xe0001, 0xfdd0, 0xfdef, // joined, tags, no characters at all
    ];
    let edges = planes.chain(others).filter_map(char::from_u32);
    let mut text: String = ascii.chain(edges).filter(|c| allowed.takes(*c)).collect();
    text.push_str("\r\n\n\r\\u0000\\\"'`</Body>]]><!--&amp;&#x0;%00%n${x}$(x){{x}}\u{e9}e\u{301}");
    text
}

/// So many of them, in any order.
pub fn odd(allowed: AllowedCharacters, dice: &mut Rng, count: usize) -> String {
    let all: Vec<char> = odd_characters(allowed).chars().collect();
    let mut text = String::new();
    for _ in 0..count {
        text.extend(dice.choice(&all));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_sets_differ_by_what_xml_excludes() {
        let all = odd_characters(AllowedCharacters::All);
        let xml = odd_characters(AllowedCharacters::Xml);
        assert!(all.contains('\0') && all.contains('\u{fffe}') && all.contains('\u{10ffff}'));
        assert!(!xml.contains('\0') && !xml.contains('\u{ffff}') && xml.contains('\u{10ffff}'));
        assert!(xml.chars().all(|c| all.contains(c)));
    }
}
