//! What calls for queues cost: the list prices of their backends, or what the configuration says in
//! their place.

use super::problem::Problem;
use super::section::Given;
use crate::backends;
use crate::name::QueueName;
use dispatcher_core::backend::Backend;
use std::collections::BTreeMap;

/// The name of FIFO queues beside that of their backend.
const FIFO: &str = "-fifo";

/// Prices that the configuration names, in US dollars for a million calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prices(BTreeMap<String, f64>);

impl Prices {
    /// Of entries that were read.
    pub(super) fn new(entries: impl IntoIterator<Item = (String, f64)>) -> Self {
        Self(entries.into_iter().collect())
    }

    /// `sqs=0.40` or `sqs-fifo=0.50`: a backend whose calls are billed, and a price.
    pub(super) fn entry(given: &Given) -> Result<(String, f64), Problem> {
        let names = kinds();
        let (name, price) = given.text.split_once('=').unwrap_or((&given.text, ""));
        let (name, price) = (name.trim(), price.trim().parse::<f64>());
        match price {
            Ok(price) if names.iter().any(|one| one == name) && (0.0..=1e6).contains(&price) => {
                Ok((name.to_owned(), price))
            }
            _ => {
                let found = format!("`{}` is not a price", given.text);
                let wanted = "KIND=DOLLARS, what a million calls cost";
                let names = names.join(" or ");
                let hint = format!("written like sqs=0.40; the kind is {names}");
                Err(Problem::new(&given.at, found, wanted).hint(hint))
            }
        }
    }

    /// What a million calls for a queue cost in US dollars; nothing where they are not billed.
    pub(crate) fn dollars_per_million_calls(&self, queue: &str) -> Option<f64> {
        let QueueName { backend, name } = queue.parse().ok()?;
        let listed = backend.dollars_per_million_calls(&name)?;
        let suffix = if backend.is_fifo(&name) { FIFO } else { "" };
        let kind = format!("{}{suffix}", backend.name());
        Some(self.0.get(&kind).copied().unwrap_or(listed))
    }
}

/// What prices can be named for.
fn kinds() -> Vec<String> {
    let is_billed = |backend: &dyn Backend| backend.dollars_per_million_calls("queue").is_some();
    let names = backends::those(is_billed).into_iter();
    names
        .flat_map(|name| [name.to_owned(), format!("{name}{FIFO}")])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Result<(String, f64), String> {
        Prices::entry(&Given::new("file:1", text)).map_err(|problem| problem.to_string())
    }

    #[test]
    fn configured_prices_replace_the_list_prices() {
        let listed = Prices::default();
        assert_eq!(listed.dollars_per_million_calls("orders"), Some(0.4));
        assert_eq!(listed.dollars_per_million_calls("orders.fifo"), Some(0.5));
        assert_eq!(listed.dollars_per_million_calls("local:orders"), None);
        let entries = ["sqs=0.24", "sqs-fifo = 0"].map(|text| entry(text).expect("a price"));
        let own = Prices::new(entries);
        assert_eq!(own.dollars_per_million_calls("orders"), Some(0.24));
        assert_eq!(own.dollars_per_million_calls("orders.fifo"), Some(0.0));
    }

    #[test]
    fn a_price_names_a_billed_backend_and_an_amount() {
        for wrong in [
            "", "0.4", "sqs", "sqs=", "sqs=-1", "sqs=x", "sqs=inf", "local=1",
        ] {
            let problem = entry(wrong).expect_err(wrong);
            assert!(problem.contains("sqs or sqs-fifo"), "{problem}");
        }
    }
}
