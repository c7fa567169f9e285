//! The prices of calls for queues: the list prices of their backends, or the configured ones.

use super::problem::Problem;
use super::section::WrittenValue;
use crate::backends;
use crate::name::QueueName;
use dispatcher_core::backend::Backend;
use std::collections::BTreeMap;

/// The suffix of a backend's name for its FIFO queues.
const FIFO: &str = "-fifo";

/// The configured prices, in US dollars per million calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prices(BTreeMap<String, f64>);

impl Prices {
    /// Creates prices from parsed entries.
    pub(super) fn new(entries: impl IntoIterator<Item = (String, f64)>) -> Self {
        Self(entries.into_iter().collect())
    }

    /// Parses `sqs=0.40` or `sqs-fifo=0.50`: a backend whose calls are billed, and a price.
    pub(super) fn entry(given: &WrittenValue) -> Result<(String, f64), Problem> {
        let names = kinds();
        let (name, price) = given.text.split_once('=').unwrap_or((&given.text, ""));
        let (name, price) = (name.trim(), price.trim().parse::<f64>());
        match price {
            Ok(price) if names.iter().any(|one| one == name) && (0.0..=1e6).contains(&price) => {
                Ok((name.to_owned(), price))
            }
            _ => {
                let found = format!("`{}` is not a price", given.text);
                let wanted = "KIND=DOLLARS, the price of a million calls";
                let names = names.join(" or ");
                let hint = format!("written like sqs=0.40; the kind is {names}");
                Err(Problem::new(&given.at, found, wanted).hint(hint))
            }
        }
    }

    /// Returns the price of a million calls for a queue in US dollars; `None` if they are not
    /// billed.
    pub fn dollars_per_million_calls(&self, queue: &str) -> Option<f64> {
        let QueueName { backend, name } = queue.parse().ok()?;
        let listed = backend.dollars_per_million_calls(&name)?;
        let suffix = if backend.is_fifo(&name) { FIFO } else { "" };
        let kind = format!("{}{suffix}", backend.name());
        Some(self.0.get(&kind).copied().unwrap_or(listed))
    }
}

/// Returns the names for which prices can be set.
fn kinds() -> Vec<String> {
    let names = backends::those(|backend: &dyn Backend| {
        backend.dollars_per_million_calls("queue").is_some()
    })
    .into_iter();
    names
        .flat_map(|name| [name.to_owned(), format!("{name}{FIFO}")])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Result<(String, f64), String> {
        Prices::entry(&WrittenValue::new("file:1", text)).map_err(|problem| problem.to_string())
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
