//! Tables of DynamoDB in the sample's layout and for a fleet, and how to reach a server that checks no signature.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

use super::support::program::AWS;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType,
};

pub(crate) async fn configuration(url: &str) -> dispatcher_aws::SdkConfig {
    let config = dispatcher_aws::configuration(Some(url)).await;
    let own = aws_sdk_dynamodb::config::Credentials::new(AWS[0].1, AWS[1].1, None, None, "bench");
    let own = aws_sdk_dynamodb::config::SharedCredentialsProvider::new(own);
    config.to_builder().credentials_provider(own).build()
}

fn key(name: &str, kind: KeyType) -> KeySchemaElement {
    let key = KeySchemaElement::builder()
        .attribute_name(name)
        .key_type(kind);
    key.build().expect("name and kind are set")
}

fn attribute(name: &str, kind: ScalarAttributeType) -> AttributeDefinition {
    let attribute = AttributeDefinition::builder().attribute_name(name);
    attribute
        .attribute_type(kind)
        .build()
        .expect("both are set")
}

/// A new table.
pub(crate) async fn create(url: &str, name: &str) {
    let whole = Projection::builder().projection_type(ProjectionType::All);
    let index = GlobalSecondaryIndex::builder()
        .index_name("task-status-created-index")
        .key_schema(key("taskStatus", KeyType::Hash))
        .key_schema(key("taskCreated", KeyType::Range))
        .projection(whole.build());
    Client::new(&configuration(url).await)
        .create_table()
        .table_name(name)
        .attribute_definitions(attribute("taskId", ScalarAttributeType::S))
        .attribute_definitions(attribute("taskStatus", ScalarAttributeType::S))
        .attribute_definitions(attribute("taskCreated", ScalarAttributeType::N))
        .key_schema(key("taskId", KeyType::Hash))
        .global_secondary_indexes(index.build().expect("name and keys are set"))
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .expect("a new table");
}

/// A new table for the records of a fleet.
pub(crate) async fn create_fleet(url: &str, name: &str) {
    Client::new(&configuration(url).await)
        .create_table()
        .table_name(name)
        .attribute_definitions(attribute("part", ScalarAttributeType::S))
        .attribute_definitions(attribute("name", ScalarAttributeType::S))
        .key_schema(key("part", KeyType::Hash))
        .key_schema(key("name", KeyType::Range))
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .expect("a new table");
}
