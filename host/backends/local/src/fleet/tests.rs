//! The effects of a restart of the machine, and of another name.

use super::*;
use dispatcher_core::fleet::FOREVER;

#[tokio::test]
async fn records_of_another_boot_are_gone_unless_they_are_kept_forever() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = LocalFleet::open(folder.path(), "a").unwrap();
    let change = |name: &str, keep_for| RecordChange {
        name: name.into(),
        stands: None,
        text: "1".into(),
        keep_for,
    };
    let ends = change("l", Duration::from_secs(60));
    assert!(
        fleet
            .replace(&[ends, change("kept", FOREVER)])
            .await
            .unwrap()
    );
    drop(fleet);
    let connection = rusqlite::Connection::open(folder.path().join("fleet-a.db")).unwrap();
    connection
        .execute("UPDATE boot SET id = 'before'", [])
        .unwrap();
    drop(connection);
    let fleet = LocalFleet::open(folder.path(), "a").unwrap();
    let read = fleet.read(&["l".into(), "kept".into()]).await.unwrap();
    assert_eq!(read.records, [None, Some("1".into())]);
}

#[tokio::test]
async fn fleets_of_different_names_share_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["a", "b"].map(|name| LocalFleet::open(folder.path(), name).unwrap());
    let change = RecordChange {
        name: "l".into(),
        stands: None,
        text: "1".into(),
        keep_for: Duration::from_secs(60),
    };
    assert!(one.replace(std::slice::from_ref(&change)).await.unwrap());
    assert!(other.replace(&[change]).await.unwrap());
}
