//! Recorders that share a folder, and folders that cannot be written to.

use super::super::entry;
use super::*;
use dispatcher_core::message::{Message, Verdict};
use proptest::prelude::*;
use std::time::Duration;

fn entry_of(bytes: usize) -> RecordedMessage {
    let message = Message {
        body: "x".repeat(bytes),
        ..Message::default()
    };
    RecordedMessage::new("p", "1", message, &Verdict::Done, Duration::ZERO)
}

fn recordings(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("a folder");
    let files = files.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = files
        .filter(|path| path.to_string_lossy().ends_with(ENDING))
        .collect();
    files.sort();
    files
}

fn bytes(folder: &Path) -> u64 {
    let files = recordings(folder);
    files
        .iter()
        .map(|path| path.metadata().expect("a file").len())
        .sum()
}

/// How many entries a folder holds.
fn kept(folder: &Path) -> usize {
    let files = recordings(folder);
    files
        .iter()
        .map(|file| entry::read(file).expect("entries").len())
        .sum()
}

#[test]
fn no_file_is_created_before_the_first_entry() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("a/b");
    may_write(&folder).expect("it could be made");
    let mut pages = Pages::new(&folder, "a/b", 1 << 30);
    assert!(!parent.path().join("a").exists());
    pages.write(&entry_of(10)).expect("written");
    let files = recordings(&folder);
    assert_eq!((files.len(), kept(&folder)), (1, 1));
    let mode = std::fs::metadata(&files[0]).expect("a file").mode();
    assert_eq!(mode & 0o777, 0o600, "others may read it");
}

#[test]
fn path_that_is_no_folder_is_refused() {
    let parent = tempfile::tempdir().expect("a folder");
    let file = parent.path().join("file");
    std::fs::write(&file, "").expect("written");
    for place in [file.clone(), file.join("below")] {
        let error = may_write(&place).expect_err("it is a file");
        assert_eq!(error.kind(), ErrorKind::NotADirectory);
    }
    // A place that is there and takes no files, whoever asks.
    may_write(Path::new("/proc/self/here")).expect_err("it takes none");
}

#[test]
fn recordings_are_bounded_and_foreign_files_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("mine.txt"), vec![0; 50_000]).expect("written");
    let mut pages = Pages::new(folder.path(), "p", 40_000);
    for _ in 0..100 {
        pages.write(&entry_of(1_000)).expect("written");
        assert!(bytes(folder.path()) <= 40_000);
    }
    assert!(bytes(folder.path()) > 30_000);
    assert!(folder.path().join("mine.txt").exists());
}

#[test]
fn files_being_written_by_another_process_are_not_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut quiet = Pages::new(folder.path(), "quiet", 40_000);
    let mut loud = Pages::new(folder.path(), "loud", 40_000);
    quiet.write(&entry_of(10)).expect("written");
    for _ in 0..100 {
        loud.write(&entry_of(1_000)).expect("written");
        assert!(bytes(folder.path()) <= 40_000);
    }
    quiet.write(&entry_of(10)).expect("written");
    let of_quiet = |path: &PathBuf| path.to_string_lossy().contains("quiet-");
    let files = recordings(folder.path());
    let file = files.iter().find(|path| of_quiet(path));
    let read = entry::read(file.expect("it is there")).expect("entries");
    assert_eq!(read.len(), 2);
    // Once it is closed it is the oldest.
    drop(quiet);
    for _ in 0..100 {
        loud.write(&entry_of(1_000)).expect("written");
    }
    assert!(!recordings(folder.path()).iter().any(of_quiet));
}

#[test]
fn deleted_file_loses_only_its_own_entries() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut pages = Pages::new(folder.path(), "p", 1 << 30);
    pages.write(&entry_of(10)).expect("written");
    std::fs::remove_file(&recordings(folder.path())[0]).expect("it is there");
    pages.write(&entry_of(10)).expect("written");
    assert_eq!(kept(folder.path()), 1);
    std::fs::remove_dir_all(folder.path()).expect("it is there");
    pages.write(&entry_of(10)).expect("written");
    assert_eq!(kept(folder.path()), 1);
}

#[test]
fn existing_file_name_is_skipped_and_empty_files_are_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = folder.path().join(format!("taken{ENDING}"));
    std::fs::write(&taken, "kept").expect("written");
    assert!(
        RecordingFile::create(taken.clone())
            .expect("no failure")
            .is_none()
    );
    assert_eq!(std::fs::read_to_string(&taken).expect("a text"), "kept");
    let empty = folder.path().join(format!("empty{ENDING}"));
    std::fs::write(&empty, "").expect("written");
    let mut pages = Pages::new(folder.path(), "p", 1 << 30);
    pages.write(&entry_of(10)).expect("written");
    assert!(taken.exists() && !empty.exists());
}

#[test]
fn failed_write_moves_the_next_entry_to_a_new_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut pages = Pages::new(folder.path(), "p", 1 << 30);
    // It takes nothing, as a disk that is full.
    let full = OpenOptions::new().append(true).open("/dev/full");
    pages.page = Some(RecordingFile {
        file: full.expect("the system has it"),
        path: folder.path().join("none"),
        written: 0,
    });
    let error = pages.write(&entry_of(10)).expect_err("it is full");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(kept(folder.path()), 0);
    pages.write(&entry_of(10)).expect("written");
    assert_eq!(kept(folder.path()), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn several_recorders_together_respect_the_bound(
        writes in prop::collection::vec((0_usize..4, 1_usize..3_000), 1..150),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut all: Vec<_> = (0..4)
            .map(|number| Pages::new(folder.path(), &format!("p{number}"), 40_000))
            .collect();
        for (who, size) in writes {
            all[who].write(&entry_of(size)).expect("written");
            prop_assert!(bytes(folder.path()) <= 40_000);
            prop_assert!(recordings(folder.path()).iter().all(|file| entry::read(file).is_ok()));
        }
    }
}
