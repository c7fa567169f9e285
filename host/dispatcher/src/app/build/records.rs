//! Opens the store of idempotency records that routes want, and says where it is.

use crate::config::problem::Problem;
use crate::config::{Route, Settings};
use dispatcher_core::idempotency::Records;
use dispatcher_local::idempotency as local;
use dispatcher_local::idempotency::LocalRecords;
use std::sync::Arc;

/// The store, if any route wants one; in the data folder.
pub fn open(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Arc<dyn Records>> {
    let mut routes = settings.routes.iter();
    let route = routes.find(|route| route.settings.idempotency.is_some())?;
    match LocalRecords::open(&settings.stores.data) {
        Ok(records) => Some(Arc::new(records)),
        Err(error) => {
            let found = format!("the idempotency ledger: {error}");
            let wanted = "a data folder that can be written to";
            problems.push(Problem::new(&route.at, found, wanted));
            None
        }
    }
}

/// For how long and where it is remembered what a route has done, and for whom; `None`: it is not.
pub fn words(settings: &Settings, route: &Route) -> Option<String> {
    let ttl = humantime::format_duration(route.settings.idempotency?);
    let file = local::path(&settings.stores.data);
    Some(format!(
        "what is done is remembered for {ttl} in {}, which every process on this machine shares that \
         has this data folder, and no other machine",
        file.display()
    ))
}
