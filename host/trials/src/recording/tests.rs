//! What reaches the disk of a message.

use super::*;

fn recorded(rules: &[&str]) -> RecordedMessage {
    let folder = tempfile::tempdir().expect("a folder");
    let terms = RecordingTerms {
        folder: folder.path().to_owned(),
        redact: rules.iter().map(|rule| rule.parse().expect(rule)).collect(),
        most: 1 << 30,
    };
    let recorder = Recorder::open("p", &terms).expect("a recorder");
    let message = Message {
        body: r#"{"card":"4111"}"#.into(),
        ..Message::default()
    };
    let verdict = Verdict::Reject("card 4111".into());
    recorder.keep(&message, &verdict, "1", Duration::ZERO);
    drop(recorder);
    let file = std::fs::read_dir(folder.path()).expect("a folder").next();
    let file = file.expect("a file").expect("an entry").path();
    entry::read(&file).expect("entries").remove(0)
}

#[test]
fn guest_text_is_redacted_as_soon_as_any_rule_exists() {
    let whole = recorded(&[]);
    assert_eq!(whole.answer.to_string(), "reject: card 4111");
    assert_eq!(whole.message.body, r#"{"card":"4111"}"#);
    for rule in ["/card", "attribute:token"] {
        let answer = recorded(&[rule]).answer;
        assert_eq!(answer.to_string(), "reject: [redacted]", "{rule}");
    }
    assert_eq!(
        recorded(&["/card"]).message.body,
        r#"{"card":"[redacted]"}"#
    );
}

#[test]
fn inspecting_a_folder_changes_nothing() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("recordings");
    let terms = RecordingTerms {
        folder: folder.clone(),
        redact: Vec::new(),
        most: 1 << 20,
    };
    drop(Recorder::open("p", &terms).expect("a recorder"));
    assert!(!folder.exists());
    std::fs::create_dir(&folder).expect("made");
    let old = folder.join(format!("old{ENDING}"));
    std::fs::write(&old, vec![b' '; 3 << 20]).expect("written");
    drop(Recorder::open("p", &terms).expect("a recorder"));
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 1);
    assert!(old.exists());
    std::fs::write(parent.path().join("file"), "").expect("written");
    let terms = RecordingTerms {
        folder: parent.path().join("file"),
        ..terms
    };
    let error = Recorder::open("p", &terms).expect_err("it is a file");
    assert!(error.contains("file: "), "{error}");
}
