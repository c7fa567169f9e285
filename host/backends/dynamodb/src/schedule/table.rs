//! Creates the table, and checks an existing one.

use super::item::{INDEX, JOB_ID, PERFORM_AT, SCHEDULER};
use super::{Table, patience};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, LocalSecondaryIndex, Projection,
    ProjectionType, ScalarAttributeType, TableDescription, TableStatus,
};
use dispatcher_aws::failure::code;
use dispatcher_core::clock;
use dispatcher_core::schedule::StoreError;
use std::time::Duration;

/// The interval between two checks of a table that is being created.
const LOOK: Duration = Duration::from_millis(500);

/// The result of `Table::make`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableCreation {
    /// The table is new.
    New,
    /// The table already existed and is as required.
    Known,
}

impl Table {
    /// Creates the table, with on-demand billing, and returns when it can be used. A table that
    /// already exists is only checked; the error says how it differs.
    pub async fn make(&self) -> Result<TableCreation, StoreError> {
        let call = self.at.call("CreateTable");
        let all = Projection::builder().projection_type(ProjectionType::All);
        let index = LocalSecondaryIndex::builder()
            .index_name(INDEX)
            .set_key_schema(Some(key(PERFORM_AT).into()))
            .projection(all.build())
            .build()
            .expect("name, key and projection are set");
        let asked = self
            .at
            .client()
            .create_table()
            .table_name(&self.at.table)
            .attribute_definitions(define(SCHEDULER, ScalarAttributeType::S))
            .attribute_definitions(define(JOB_ID, ScalarAttributeType::S))
            .attribute_definitions(define(PERFORM_AT, ScalarAttributeType::N))
            .set_key_schema(Some(key(JOB_ID).into()))
            .local_secondary_indexes(index)
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await;
        let made = match asked {
            Ok(_) => TableCreation::New,
            Err(error) if code(&error) == Some("ResourceInUseException") => TableCreation::Known,
            Err(error) => return Err(call.failed(&error)),
        };
        let until = patience(clock::now());
        loop {
            let table = self.describe().await?;
            if table.table_status() == Some(&TableStatus::Active) {
                let call = self.at.call("DescribeTable");
                let wrong = differences(&table);
                return if wrong.is_empty() {
                    Ok(made)
                } else {
                    Err(call.refused(&format!(
                        "it exists and is not a table of a schedule: {}",
                        wrong.join("; ")
                    )))
                };
            }
            if clock::now() >= until {
                return Err(call.refused("it is still being created; try again in a minute"));
            }
            clock::sleep_until(Some(clock::now() + LOOK)).await;
        }
    }

    async fn describe(&self) -> Result<TableDescription, StoreError> {
        let call = self.at.call("DescribeTable");
        let asked = self
            .at
            .client()
            .describe_table()
            .table_name(&self.at.table)
            .send()
            .await;
        let answer = asked.map_err(|error| call.failed(&error))?;
        answer
            .table
            .ok_or_else(|| call.refused("the answer describes no table"))
    }
}

/// Returns how a table differs from the Waiter's.
fn differences(table: &TableDescription) -> Vec<String> {
    let mut found = Vec::new();
    let own = key_names(table.key_schema());
    if own != format!("{SCHEDULER}, {JOB_ID}") {
        found.push(format!("its key is {own}, wanted {SCHEDULER}, {JOB_ID}"));
    }
    let indexes = table.local_secondary_indexes();
    let index = indexes.iter().find(|one| one.index_name() == Some(INDEX));
    let over = index.map(|index| key_names(index.key_schema()));
    let wanted = format!("{SCHEDULER}, {PERFORM_AT}");
    if over.as_ref() != Some(&wanted) {
        found.push(format!("it has no local index {INDEX} over {wanted}"));
    }
    let kinds = table.attribute_definitions().iter();
    for kind in kinds {
        let wanted = match kind.attribute_name() {
            PERFORM_AT => ScalarAttributeType::N,
            SCHEDULER | JOB_ID => ScalarAttributeType::S,
            _ => continue,
        };
        if *kind.attribute_type() != wanted {
            let name = kind.attribute_name();
            found.push(format!(
                "{name} is of type {}, wanted {wanted}",
                kind.attribute_type()
            ));
        }
    }
    let projected = index.and_then(|index| index.projection()?.projection_type().cloned());
    if over.is_some() && projected != Some(ProjectionType::All) {
        found.push(format!("{INDEX} does not project all attributes"));
    }
    found
}

fn key_names(schema: &[KeySchemaElement]) -> String {
    let names = schema.iter().map(|key| key.attribute_name().to_owned());
    names.collect::<Vec<_>>().join(", ")
}

fn define(name: &str, kind: ScalarAttributeType) -> AttributeDefinition {
    let builder = AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(kind);
    builder.build().expect("name and type are set")
}

fn key(range: &str) -> [KeySchemaElement; 2] {
    [(SCHEDULER, KeyType::Hash), (range, KeyType::Range)].map(|(name, kind)| {
        let builder = KeySchemaElement::builder()
            .attribute_name(name)
            .key_type(kind);
        builder.build().expect("name and type are set")
    })
}
