//! What is recorded of what the versions answer.

use super::*;
use crate::recording::RecordingTerms;
use crate::recording::entry;
use crate::recording::entry::RecordedVerdict;

fn recording(folder: &tempfile::TempDir, share: Share) -> RecordedShare {
    let terms = RecordingTerms {
        folder: folder.path().to_owned(),
        redact: vec!["/token".parse().expect("a rule")],
        most: 1 << 30,
    };
    RecordedShare {
        recorder: Recorder::open("p", &terms).expect("a recorder"),
        share,
    }
}

/// What the only file of the folder holds.
fn recorded(folder: &tempfile::TempDir) -> Vec<entry::RecordedMessage> {
    let file = std::fs::read_dir(folder.path()).expect("a folder").next();
    entry::read(&file.expect("a file").expect("a file").path()).expect("entries")
}

#[tokio::test]
async fn recorded_verdict_is_the_given_one_after_redaction() {
    let folder = tempfile::tempdir().expect("a folder");
    let (current, _) = version("digest", retry());
    let recording = recording(&folder, Share::ALL);
    let rollout = Rollout::new("p", 1, alone(current), Some(recording));
    for id in 0..3 {
        rollout.handle(attempt(id)).await;
    }
    drop(rollout);
    let entries = recorded(&folder);
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[0].message.body, r#"{"token":"[redacted]"}"#);
    assert_eq!(
        (entries[0].version.as_str(), &entries[0].answer),
        (
            "digest",
            &RecordedVerdict::of(&retry()).without_guest_text()
        )
    );
}

#[tokio::test]
async fn timed_out_attempt_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let current = Version {
        handler: Arc::new(Waits(tokio::sync::Notify::new())),
        label: "1".into(),
        digest: "1".into(),
    };
    let recording = recording(&folder, Share::ALL);
    let rollout = Rollout::new("p", 1, alone(current), Some(recording));
    let over = Attempt {
        deadline: Deadline::fixed(clock::now(), Timestamp(0)),
        ..Arc::unwrap_or_clone(attempt(1))
    };
    // The second has time left: its lease was lost.
    for attempt in [Arc::new(over), attempt(2)] {
        let mut running = rollout.handle(attempt);
        assert!(futures_poll(&mut running).is_none());
    }
    drop(rollout);
    let entries = recorded(&folder);
    let ids: Vec<_> = entries.iter().map(|entry| &*entry.message.id).collect();
    assert_eq!(ids, ["1"]);
    let RecordedVerdict::Retry { cause, .. } = &entries[0].answer else {
        panic!("{:?}", entries[0].answer);
    };
    assert_eq!(*cause, entry::Cause::TimedOut);
}

#[test]
fn recorded_timeout_is_the_configured_one() {
    let left = Duration::from_secs(30) - Duration::from_micros(140);
    assert_eq!(limit(left), Duration::from_secs(30));
    assert_eq!(limit(Duration::ZERO), Duration::ZERO);
}

#[tokio::test]
async fn recorded_share_covers_both_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let (current, _) = version("1", Verdict::Done);
    let (tried, _) = version("2", Verdict::Done);
    let part = Share::new(0.3).expect("a share");
    let stage = Stage {
        canary: Some(Arc::new(Canary::new(tried, part, None))),
        ..alone(current)
    };
    let rollout = Rollout::new("p", 1, stage, Some(recording(&folder, part)));
    for id in 0..400 {
        rollout.handle(attempt(id)).await;
    }
    drop(rollout);
    let entries = recorded(&folder);
    let of_current = entries.iter().filter(|entry| entry.version == "1");
    let (all, of_current) = (entries.len(), of_current.count());
    assert!((80..160).contains(&all), "{all}");
    assert!(of_current > all / 2, "{of_current} of {all}");
}
