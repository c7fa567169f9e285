//! Opens the store of idempotency records that routes want.

use crate::config::Settings;
use crate::config::problem::Problem;
use crate::idempotency::Records;
use crate::idempotency::local::LocalRecords;
use std::sync::Arc;

/// The store, if any route wants one; in the data folder.
pub fn open(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Arc<dyn Records>> {
    let mut routes = settings.routes.iter();
    let route = routes.find(|route| route.idempotency.is_some())?;
    match LocalRecords::open(&settings.data) {
        Ok(records) => Some(Arc::new(records)),
        Err(error) => {
            let found = format!("the idempotency ledger: {error}");
            let wanted = "a data folder that can be written to";
            problems.push(Problem::new(&route.at, found, wanted));
            None
        }
    }
}
