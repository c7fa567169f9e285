//! Keeps compiled functions from one version of a component to the next, so that an edit recompiles
//! only what it changes. One file, which grows, serves all processes of a user. Does not depend on
//! components.

use dispatcher_core::files;
use dispatcher_core::files::owner;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use wasmtime::CacheStore;

/// The maximum size of the file in bytes; a larger one starts anew. A Python interpreter takes 27
/// MB, and each compilation adds the functions that the compiler does not recognize, about one in
/// twenty.
const MOST: usize = 128 << 20;
/// The length of the engine's key for a function: a digest of its code, and of the compiler's
/// version and settings.
const KEY: usize = 32;
/// The length of the head of a record: a checksum of key and code, the length of the code, and the
/// key.
const HEAD: usize = 4 + 4 + KEY;

type Key = [u8; KEY];

/// The compiled functions in a folder. Its failures are not errors: functions that cannot be read
/// or kept are compiled again. Does not wait for other processes.
#[derive(Debug)]
pub(super) struct Functions {
    file: PathBuf,
    /// The loaded functions, from the first lookup of a compilation to its end.
    known: RwLock<Option<KnownFunctions>>,
}

#[derive(Debug, Default)]
struct KnownFunctions {
    /// The file as it was read, up to the end of its last complete record.
    bytes: Vec<u8>,
    places: HashMap<Key, Range<usize>>,
    /// The functions that the file lacks.
    fresh: HashMap<Key, Vec<u8>>,
}

impl Functions {
    /// Opens the functions of a folder. Returns `None` if others could have written to the folder,
    /// because the code in it is run.
    pub(super) fn of(folder: &Path) -> Option<Self> {
        let found = Self {
            file: folder.join("functions"),
            known: RwLock::default(),
        };
        let ready = found
            .check()
            .and_then(|()| files::make_folder(folder).map_err(|error| error.to_string()));
        match ready {
            Ok(()) => Some(found),
            Err(reason) => {
                not_kept(&reason);
                None
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        let folder = self.file.parent().unwrap_or(&self.file);
        owner::check(folder).map_err(|untrusted| untrusted.to_string())
    }

    /// Saves the functions of the compilation that has ended, and frees the memory of the others.
    pub(super) fn keep(&self) {
        let Some(known) = self.write().take() else {
            return;
        };
        if !known.fresh.is_empty()
            && let Err(error) = known.append(&self.file)
        {
            not_kept(&error.to_string());
        }
    }

    fn load(&self) -> KnownFunctions {
        match self.check().and_then(|()| read(&self.file)) {
            Ok(bytes) => KnownFunctions::of(bytes),
            Err(reason) => {
                not_kept(&reason);
                KnownFunctions::default()
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<KnownFunctions>> {
        self.known.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<KnownFunctions>> {
        self.known.write()
    }
}

fn not_kept(reason: &str) {
    tracing::debug!(reason, "compiled functions are not kept");
}

impl CacheStore for Functions {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let key = key.try_into().ok()?;
        if let Some(known) = self.read().as_ref() {
            return known.code(&key);
        }
        self.write().get_or_insert_with(|| self.load()).code(&key)
    }

    fn insert(&self, key: &[u8], code: Vec<u8>) -> bool {
        let Ok(key) = key.try_into() else {
            return false;
        };
        let mut loaded = self.write();
        let known = loaded.get_or_insert_with(|| self.load());
        known.fresh.insert(key, code);
        true
    }
}

impl KnownFunctions {
    /// Reads all records before the first incomplete one.
    fn of(mut bytes: Vec<u8>) -> Self {
        let mut places = HashMap::new();
        let mut end = 0;
        while let Some((key, code)) = record(&bytes, end) {
            end = code.end;
            places.insert(key, code);
        }
        bytes.truncate(end);
        Self {
            bytes,
            places,
            fresh: HashMap::new(),
        }
    }

    fn code(&self, key: &Key) -> Option<Cow<'static, [u8]>> {
        let kept = self
            .places
            .get(key)
            .and_then(|at| self.bytes.get(at.clone()));
        let code = kept.or_else(|| self.fresh.get(key).map(Vec::as_slice));
        code.map(|code| Cow::Owned(code.to_vec()))
    }

    /// Writes the fresh functions after the last complete record of the file, which other processes
    /// may have extended since it was read.
    fn append(mut self, file: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(file)?;
        file.try_lock()?;
        if file.metadata()?.len() != self.bytes.len() as u64 {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let fresh = self.fresh;
            self = Self::of(bytes);
            self.fresh = fresh;
        }
        let mut added = Vec::new();
        for (key, code) in &self.fresh {
            if !self.places.contains_key(key) {
                add(&mut added, key, code);
            }
        }
        let fits = self.bytes.len() + added.len() <= MOST;
        let end = if fits { self.bytes.len() as u64 } else { 0 };
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        file.write_all(&added)
    }
}

/// Reads the file. A missing file is empty.
fn read(file: &Path) -> Result<Vec<u8>, String> {
    read_shared(file).map_err(|error| error.to_string())
}

fn read_shared(file: &Path) -> io::Result<Vec<u8>> {
    let mut file = match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    file.try_lock_shared()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the key of the record at an offset and the range of its code, if the record is complete.
fn record(bytes: &[u8], at: usize) -> Option<(Key, Range<usize>)> {
    let head = bytes.get(at..at.checked_add(HEAD)?)?;
    let (sum, length) = (number(head, 0)?, number(head, 4)?);
    let begin = at + HEAD;
    let code = begin..begin.checked_add(usize::try_from(length).ok()?)?;
    let key = head.get(8..)?;
    (sum == checksum(key, bytes.get(code.clone())?)).then_some((key.try_into().ok()?, code))
}

fn number(head: &[u8], from: usize) -> Option<u32> {
    let bytes = head.get(from..from + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn add(bytes: &mut Vec<u8>, key: &Key, code: &[u8]) {
    let Ok(length) = u32::try_from(code.len()) else {
        return; // No function is that large.
    };
    bytes.extend(checksum(key, code).to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(key);
    bytes.extend(code);
}

/// Computes the checksum of a record. It also covers the length, which determines the end of the
/// code.
fn checksum(key: &[u8], code: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(code);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn key(number: u8) -> Key {
        [number; KEY]
    }

    fn functions(folder: &TempDir) -> Functions {
        Functions::of(&folder.path().join("compiled")).expect("our folder is trusted")
    }

    fn insert(functions: &Functions, number: u8) {
        assert!(functions.insert(&key(number), vec![number; 100]));
    }

    fn has(functions: &Functions, number: u8) -> bool {
        let code = functions.get(&key(number));
        code.is_some_and(|code| *code == vec![number; 100])
    }

    #[test]
    fn what_is_kept_is_found_by_others() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (functions(&folder), functions(&folder));
        assert!(!has(&one, 1) && !has(&other, 1));
        insert(&one, 1);
        insert(&other, 2);
        insert(&other, 1);
        assert!(has(&one, 1), "also before it is kept");
        one.keep();
        // It has read the file before the other wrote there.
        other.keep();
        for reader in [&one, &other, &functions(&folder)] {
            assert!(has(reader, 1) && has(reader, 2) && !has(reader, 3));
        }
        let written = std::fs::metadata(&one.file).unwrap().len();
        assert_eq!(written, 2 * (HEAD as u64 + 100), "each once");
    }

    #[test]
    fn a_record_that_was_not_written_whole_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let one = functions(&folder);
        insert(&one, 1);
        one.keep();
        insert(&one, 2);
        one.keep();
        let whole = std::fs::read(&one.file).unwrap();
        for length in HEAD + 100..whole.len() {
            std::fs::write(&one.file, &whole[..length]).unwrap();
            let reader = functions(&folder);
            assert!(has(&reader, 1) && !has(&reader, 2), "{length}");
            insert(&reader, 3);
            reader.keep();
            assert!(has(&reader, 1) && has(&reader, 3), "{length}");
        }
    }

    #[test]
    fn damaged_code_is_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let one = functions(&folder);
        insert(&one, 1);
        one.keep();
        let whole = std::fs::read(&one.file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&one.file, &damaged).unwrap();
            assert!(!has(&functions(&folder), 1), "byte {at}");
        }
    }

    #[test]
    fn a_file_that_another_process_has_locked_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let one = functions(&folder);
        insert(&one, 1);
        one.keep();
        let other = File::open(&one.file).unwrap();
        other.lock().unwrap();
        assert!(!has(&one, 1));
        insert(&one, 2);
        one.keep();
        other.unlock().unwrap();
        assert!(has(&one, 1) && !has(&one, 2));
    }

    #[test]
    fn a_folder_that_others_can_write_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let one = functions(&folder);
        insert(&one, 1);
        one.keep();
        assert!(has(&one, 1));
        one.keep();
        let shared = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path().join("compiled"), shared).unwrap();
        assert!(!has(&one, 1), "it is looked at again");
        assert!(Functions::of(&folder.path().join("compiled")).is_none());
    }
}
