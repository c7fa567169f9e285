use super::*;

#[tokio::test]
async fn records_of_another_boot_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = LocalFleet::open(folder.path()).unwrap();
    let change = RecordChange {
        name: "l".into(),
        stands: None,
        text: "1".into(),
        keep_for: Duration::from_secs(60),
    };
    assert!(fleet.replace(&[change]).await.unwrap());
    drop(fleet);
    let connection = rusqlite::Connection::open(folder.path().join("fleet.db")).unwrap();
    connection
        .execute("UPDATE boot SET id = 'before'", [])
        .unwrap();
    drop(connection);
    let fleet = LocalFleet::open(folder.path()).unwrap();
    let read = fleet.read(&["l".into()]).await.unwrap();
    assert_eq!(read.records, [None]);
}
