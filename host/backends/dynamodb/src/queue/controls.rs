//! The controls that operators set on a table, stored in an item of the table itself. The item has
//! no status, so it is in no index and is not a task.

use super::Dynamo;
use super::item::{self, TASK_ID, TaskItem};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use dispatcher_aws::failure::{About, CallName};
use dispatcher_core::control::{ControlChange, QueueControl};
use dispatcher_core::queue::QueueError;
use dispatcher_core::tasks;
use std::collections::HashMap;

/// The id of the item with the controls.
const RECORD: &str = "dispatcher-controls";
/// The maximum number of concurrent queries.
const ABREAST: usize = 16;
/// The prefix of the names of its columns.
const PREFIX: &str = "dispatcherControl_";

impl Dynamo {
    /// Returns the controls of each of these tables, with one query for each table, 16 at a time.
    pub async fn controls(&self, tables: &[&str]) -> Result<Vec<QueueControl>, QueueError> {
        let mut controls = Vec::with_capacity(tables.len());
        for some in tables.chunks(ABREAST) {
            let asked = some.iter().map(|name| self.control(name));
            for control in tasks::all(asked.collect()).await {
                controls.push(control?);
            }
        }
        Ok(controls)
    }

    /// Uses a query instead of `GetItem`, so that a run needs no more permissions than for its
    /// tasks.
    async fn control(&self, name: &str) -> Result<QueueControl, QueueError> {
        let query = self.client().query().table_name(name);
        let answer = query
            .key_condition_expression("#id = :id")
            .expression_attribute_names("#id", TASK_ID)
            .expression_attribute_values(":id", item::text(RECORD))
            .return_consumed_capacity(ReturnConsumedCapacity::None)
            .send()
            .await
            .map_err(|error| self.control_call("Query", name).failed(&error))?;
        let items = answer.items.unwrap_or_default();
        Ok(items.first().map(of_item).unwrap_or_default())
    }

    /// Changes the controls of a table.
    pub async fn change_control(
        &self,
        name: &str,
        change: &ControlChange,
    ) -> Result<(), QueueError> {
        let (mut set, mut remove) = (Vec::new(), Vec::new());
        let mut names: HashMap<String, String> = HashMap::new();
        let mut values: HashMap<String, AttributeValue> = HashMap::new();
        for (field, value) in change.fields() {
            names.insert(format!("#{field}"), format!("{PREFIX}{field}"));
            match value {
                Some(value) => {
                    values.insert(format!(":{field}"), item::text(value));
                    set.push(format!("#{field} = :{field}"));
                }
                None => remove.push(format!("#{field}")),
            }
        }
        let parts: Vec<String> = [("SET", set), ("REMOVE", remove)]
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(word, list)| format!("{word} {}", list.join(", ")))
            .collect();
        let update = self
            .client()
            .update_item()
            .table_name(name)
            .key(TASK_ID, item::text(RECORD))
            .update_expression(parts.join(" "))
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values((!values.is_empty()).then_some(values));
        match update.send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.control_call("UpdateItem", name).failed(&error)),
        }
    }

    fn control_call<'a>(&'a self, step: &'static str, name: &'a str) -> CallName<'a> {
        CallName {
            step,
            about: About::Table(name),
            place: self.place(),
        }
    }
}

fn of_item(item: &TaskItem) -> QueueControl {
    let texts = item.keys().filter_map(|name| {
        let field = name.strip_prefix(PREFIX)?;
        Some((field, item::string(item, name)?))
    });
    QueueControl::of_fields(texts)
}
