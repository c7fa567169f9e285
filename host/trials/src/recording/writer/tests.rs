//! Disks that hang, are slow or fail.

use super::super::entry;
use super::*;
use dispatcher_core::message::{Message, Verdict};

fn entry_of(bytes: usize) -> RecordedMessage {
    let message = Message {
        body: "x".repeat(bytes),
        ..Message::default()
    };
    RecordedMessage::new("p", "1", message, &Verdict::Done, Duration::ZERO)
}

/// The entries of the only file in a folder.
fn read(folder: &Path) -> Vec<RecordedMessage> {
    let mut files = std::fs::read_dir(folder).expect("a folder");
    let file = files.next().expect("a file").expect("an entry").path();
    assert!(files.next().is_none(), "one recorder writes one file");
    entry::read(&file).expect("entries")
}

#[test]
fn recordings_are_readable_and_private_after_the_writer_ends() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("recordings");
    let writer = RecordingWriter::start(&folder, "a/b", 1 << 30).expect("a writer");
    for _ in 0..100 {
        writer.write(entry_of(10));
    }
    let counts = writer.counts.clone();
    drop(writer);
    assert_eq!(read(&folder).len(), 100);
    assert_eq!(counts.kept.load(Relaxed), 100);
    let file = std::fs::read_dir(&folder).expect("a folder").next();
    let file = file.expect("a file").expect("an entry").path();
    for (place, wanted) in [(folder, 0o700), (file, 0o600)] {
        let about = std::fs::metadata(place).expect("it is there");
        let mode = std::os::unix::fs::PermissionsExt::mode(&about.permissions());
        assert_eq!(mode & 0o777, wanted, "others may look");
    }
}

/// A writer whose disk takes an entry for each word that is sent, and the words.
fn slow(patience: Duration) -> (RecordingWriter, SyncSender<()>) {
    let (word, words) = sync_channel::<()>(WAITING);
    let write = move |_: &RecordedMessage| {
        let _ = words.recv();
    };
    let writer = RecordingWriter::with(Path::new("slow"), patience, write);
    (writer.expect("a writer"), word)
}

#[test]
fn queued_bytes_are_bounded() {
    let (writer, word) = slow(PATIENCE);
    let large = 1 << 20;
    let taken = (0..100).filter(|_| writer.offer(entry_of(large)).is_ok());
    let taken = taken.count();
    assert!((30..=32).contains(&taken), "{taken} of a MiB each");
    assert_eq!(writer.offer(entry_of(large)), Err(WriteRefusal::Full));
    assert_eq!(writer.counts(), (0, 0));
    writer.write(entry_of(large));
    assert_eq!(writer.counts(), (0, 1));
    let waiting = writer.waiting.clone();
    drop(word);
    drop(writer);
    assert_eq!(waiting.load(Relaxed), 0, "what is written waits no longer");
}

#[test]
fn oversized_entry_is_dropped_instead_of_waiting_forever() {
    let (writer, word) = slow(PATIENCE);
    assert_eq!(writer.offer(entry_of(2 * BYTES)), Ok(()));
    assert_eq!(writer.offer(entry_of(1)), Err(WriteRefusal::Full));
    drop(word);
}

#[test]
fn queued_entries_are_bounded() {
    let (writer, word) = slow(PATIENCE);
    let taken = (0..2 * WAITING).filter(|_| writer.offer(entry_of(1)).is_ok());
    let taken = taken.count();
    // The one that is being written waits no longer.
    assert!((WAITING..=WAITING + 1).contains(&taken), "{taken}");
    drop(word);
}

#[test]
fn shutdown_does_not_wait_for_a_hanging_disk() {
    let (writer, word) = slow(Duration::ZERO);
    writer.offer(entry_of(1)).expect("there is room");
    drop(writer);
    // Only now does the disk continue.
    drop(word);
}

#[test]
fn ended_writer_thread_is_not_reported_as_a_full_queue() {
    let (mut writer, word) = slow(PATIENCE);
    let (sender, entries) = sync_channel(1);
    drop(entries);
    writer.entries = Some(sender);
    assert_eq!(writer.offer(entry_of(1)), Err(WriteRefusal::Ended));
    assert_eq!(writer.waiting.load(Relaxed), 0);
    drop(word);
}

#[test]
fn failed_write_stops_nothing_and_is_logged_once_a_minute() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("recordings");
    let mut scribe = RecordingTask {
        counts: Arc::default(),
        pages: Pages::new(&place, "p", 1 << 30),
        folder: place.clone(),
        rest: None,
        failed: DropReport::default(),
    };
    let at = |ms| BootInstant::from_boot(Duration::from_millis(ms));
    std::fs::write(&place, "in the way").expect("written");
    scribe.take(&entry_of(1), at(0));
    assert!(scribe.rest.is_some(), "there is no folder");
    std::fs::remove_file(&place).expect("it is there");
    scribe.take(&entry_of(1), at(999));
    assert!(!place.exists(), "it rests");
    assert_eq!(scribe.failed.left_out, 2);
    scribe.take(&entry_of(1), at(1_000));
    scribe.take(&entry_of(1), at(1_001));
    assert!(scribe.rest.is_none());
    assert_eq!(read(&place).len(), 2);
    assert_eq!(scribe.failed.left_out, 2);
    let Counts { kept, left_out } = &*scribe.counts;
    assert_eq!((kept.load(Relaxed), left_out.load(Relaxed)), (2, 2));
}

#[test]
fn dropped_entries_are_logged_at_once_and_then_once_a_minute() {
    let at = |s| BootInstant::from_boot(Duration::from_secs(s));
    let mut complaint = DropReport::default();
    let said = [0, 1, 59, 60, 61, 121].map(|s| complaint.count(at(s)));
    assert_eq!(said, [Some(1), None, None, Some(4), None, Some(6)]);
}
