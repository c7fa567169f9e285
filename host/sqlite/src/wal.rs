//! Reads the header of a write-ahead log: whether SQLite would read what follows it. Pure; the
//! layout is that of <https://sqlite.org/fileformat2.html#walformat>.

/// The bytes of a header. A log that is not longer has no frame.
pub(crate) const HEADER: u64 = 32;
/// The bytes before each page.
const FRAME_HEADER: u64 = 24;
/// The first four bytes, except the last bit, which is the byte order of the checksum's words.
const MAGIC: u32 = 0x377f_0682;
/// The only version of the format.
const VERSION: u32 = 3_007_000;

/// A header that SQLite accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    page: u64,
}

impl Header {
    /// Parses a header; `None` if SQLite would ignore all that follows, as if nothing had been
    /// committed.
    pub(crate) fn parse(bytes: &[u8; 32]) -> Option<Self> {
        let mut words = [0_u32; 8];
        for (word, four) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*four);
        }
        let [magic, version, page, _, _, _, first, second] = words;
        let big_endian = magic & 1 == 1;
        let valid = magic & !1 == MAGIC
            && version == VERSION
            && page.is_power_of_two()
            && (512..=65_536).contains(&page)
            && checksum(&bytes[..24], big_endian) == (first, second);
        valid.then_some(Self { page: page.into() })
    }

    /// Returns the length in bytes of a log with this many frames.
    pub(crate) fn length(self, frames: u64) -> u64 {
        HEADER.saturating_add(frames.saturating_mul(FRAME_HEADER + self.page))
    }
}

fn checksum(bytes: &[u8], big_endian: bool) -> (u32, u32) {
    let (mut first, mut second) = (0_u32, 0_u32);
    for [one, two] in bytes.as_chunks::<4>().0.as_chunks::<2>().0 {
        first = first
            .wrapping_add(word(*one, big_endian))
            .wrapping_add(second);
        second = second
            .wrapping_add(word(*two, big_endian))
            .wrapping_add(first);
    }
    (first, second)
}

fn word(bytes: [u8; 4], big_endian: bool) -> u32 {
    if big_endian {
        u32::from_be_bytes(bytes)
    } else {
        u32::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wal_header_is_accepted_and_every_bit_flip_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("db");
        let connection = rusqlite::Connection::open(&path).expect("opened");
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)",
            )
            .expect("written");
        let log = std::fs::read(folder.path().join("db-wal")).expect("a log");
        let bytes: [u8; 32] = log[..32].try_into().expect("a header");
        let header = Header::parse(&bytes).expect("it is SQLite's own");
        assert_eq!((log.len() as u64 - HEADER) % (FRAME_HEADER + 4_096), 0);
        let frames = (log.len() as u64 - HEADER) / (FRAME_HEADER + 4_096);
        assert_eq!(header.length(frames), log.len() as u64);
        for bit in 0..256 {
            let mut broken = bytes;
            broken[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::parse(&broken), None, "bit {bit}");
        }
    }
}
