//! Which tables can be queues, and what is said of the others.

use super::*;
use aws_sdk_dynamodb::types::{AttributeDefinition, GlobalSecondaryIndexDescription, Projection};

fn key(name: &str, kind: KeyType) -> KeySchemaElement {
    let key = KeySchemaElement::builder()
        .attribute_name(name)
        .key_type(kind);
    key.build().expect("name and kind are set")
}

fn index(
    name: &str,
    keys: [(&str, KeyType); 2],
    projected: ProjectionType,
) -> GlobalSecondaryIndexDescription {
    let keys = keys.map(|(name, kind)| key(name, kind));
    GlobalSecondaryIndexDescription::builder()
        .index_name(name)
        .set_key_schema(Some(keys.to_vec()))
        .projection(Projection::builder().projection_type(projected).build())
        .build()
}

fn table(
    created: ScalarAttributeType,
    indices: Vec<GlobalSecondaryIndexDescription>,
) -> TableDescription {
    let created = AttributeDefinition::builder()
        .attribute_name(CREATED)
        .attribute_type(created);
    TableDescription::builder()
        .key_schema(key(TASK_ID, KeyType::Hash))
        .attribute_definitions(created.build().expect("name and type are set"))
        .set_global_secondary_indexes(Some(indices))
        .build()
}

#[test]
fn index_is_found_by_its_key_schema() {
    let other = index(
        "other",
        [(STATUS, KeyType::Hash), ("priority", KeyType::Range)],
        ProjectionType::All,
    );
    let own = index(
        "any-name",
        [(STATUS, KeyType::Hash), (CREATED, KeyType::Range)],
        ProjectionType::All,
    );
    let found = kind(&table(
        ScalarAttributeType::N,
        vec![other.clone(), own.clone()],
    ));
    let wanted = TableKind {
        index: "any-name".into(),
        dates: Dates::Number,
    };
    assert_eq!(found, Ok(wanted));
    let found = kind(&table(ScalarAttributeType::S, vec![own]));
    assert_eq!(found.map(|kind| kind.dates), Ok(Dates::Text));
    let missing = kind(&table(ScalarAttributeType::N, vec![other]));
    assert!(
        missing
            .expect_err("no such index")
            .contains("`taskStatus` (hash)")
    );
}

#[test]
fn index_without_lease_attributes_is_refused() {
    let keys = [(STATUS, KeyType::Hash), (CREATED, KeyType::Range)];
    let bare = index("bare", keys, ProjectionType::KeysOnly);
    let found = kind(&table(ScalarAttributeType::N, vec![bare]));
    assert!(
        found
            .expect_err("keys alone")
            .contains("does not project all")
    );
}

#[test]
fn table_with_another_key_is_refused() {
    let table = TableDescription::builder().key_schema(key("id", KeyType::Hash));
    assert!(
        kind(&table.build())
            .expect_err("another key")
            .contains("taskId")
    );
}

#[test]
fn create_table_command_is_one_line() {
    let command = to_create("Tasks");
    assert!(
        !command.contains('\n') && !command.contains("  "),
        "{command}"
    );
    assert!(
        command.contains("{AttributeName=taskCreated,KeyType=RANGE}]"),
        "{command}"
    );
}
