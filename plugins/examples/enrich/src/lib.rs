//! Adds the customer's name to every order and sends it on: `{"id": "o-1", "customer": "c-7"}` becomes
//! `{"id": "o-1", "customer": "c-7", "name": "Ada"}`. The name is asked of a service by HTTP and kept
//! in a store, so each customer is asked for once. The setting `CUSTOMERS` says where, `ENRICHED` to
//! which queue.

use dispatcher_guest::queues::{Outgoing, send_async};
use dispatcher_guest::{Failure, Json, async_handler, http, settings, store};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Order {
    id: String,
    customer: String,
    #[serde(skip_deserializing)]
    name: String,
}

#[derive(Deserialize)]
struct Customer {
    name: String,
}

async fn enrich(mut order: Json<Order>) -> Result<(), Failure> {
    order.name = name_of(&order.customer)?;
    let enriched = Outgoing::json(&order.value)?.attribute("order", &order.id);
    let queue: String = settings::required("ENRICHED")?;
    let id = send_async(queue, enriched).await?;
    println!("order {} of {}: sent as {id}", order.id, order.name);
    Ok(())
}

/// What the store knows, else what the service says.
fn name_of(customer: &str) -> Result<String, Failure> {
    let names = store::open("names")?;
    if let Some(name) = names.get_json(customer)? {
        return Ok(name);
    }
    let service: String = settings::required("CUSTOMERS")?;
    let answer = http::Request::get(format!("{service}/{customer}")).send()?;
    let Customer { name } = answer.succeeded()?.json()?;
    names.set_json(customer, &name)?;
    Ok(name)
}

async_handler!(enrich);

#[cfg(test)]
mod tests;
