//! Opens the store of idempotency records for the routes that need it, and describes where it is.

use super::Backends;
use crate::backends;
use crate::config::problem::Problem;
use crate::config::{Route, Settings};
use dispatcher_core::backend::Backend;
use dispatcher_core::idempotency::Records;
use std::path::PathBuf;
use std::sync::Arc;

/// The store, if any route wants one; in the data folder.
pub async fn open(
    settings: &Settings,
    opened: &Backends,
    problems: &mut Vec<Problem>,
) -> Option<Arc<dyn Records>> {
    let mut routes = settings.routes.iter();
    let route = routes.find(|route| route.settings.idempotency.is_some())?;
    let Some((backend, _)) = keeper(settings) else {
        let found = "idempotency in a binary without a backend that stores records";
        problems.push(Problem::new(&route.at, found, "a binary with all features"));
        return None;
    };
    let records = match opened.client(backend).await {
        Ok(client) => client.records().map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match records {
        Ok(records) => Some(records),
        Err(error) => {
            let found = format!("the idempotency records: {error}");
            let wanted = "a data folder that can be written to";
            problems.push(Problem::new(&route.at, found, wanted));
            None
        }
    }
}

/// The backend that keeps records, and the file in which it does.
fn keeper(settings: &Settings) -> Option<(&'static dyn Backend, PathBuf)> {
    let data = &settings.stores.data;
    let mut all = backends::all().iter();
    all.find_map(|backend| Some((*backend, backend.records_file(data)?)))
}

/// For how long and where it is remembered what a route has done, and for whom; `None`: it is not.
pub fn describe(settings: &Settings, route: &Route) -> Option<String> {
    let ttl = humantime::format_duration(route.settings.idempotency?);
    let (_, file) = keeper(settings)?;
    Some(format!(
        "done messages are remembered for {ttl} in {}, shared by all processes on this machine with this data folder, and by no other machine",
        file.display()
    ))
}
