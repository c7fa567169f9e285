//! Opens the store of idempotency records for the routes that need it, and describes its location.

use super::Backends;
use dispatcher_config::backends;
use dispatcher_config::problem::Problem;
use dispatcher_config::{Route, Settings};
use dispatcher_core::backend::Backend;
use dispatcher_core::idempotency::Records;
use std::path::PathBuf;
use std::sync::Arc;

/// Opens the store in the data folder, if any route needs it.
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

/// Returns the backend that stores records, and its file.
fn keeper(settings: &Settings) -> Option<(&'static dyn Backend, PathBuf)> {
    let data = &settings.stores.data;
    let mut all = backends::all().iter();
    all.find_map(|backend| Some((*backend, backend.records_file(data)?)))
}

/// Describes how long and where done messages of a route are remembered, and which processes share
/// the records. Returns `None` if they are not remembered.
pub fn describe(settings: &Settings, route: &Route) -> Option<String> {
    let ttl = humantime::format_duration(route.settings.idempotency?);
    let (_, file) = keeper(settings)?;
    Some(format!(
        "done messages are remembered for {ttl} in {}, shared by all processes on this machine with this data folder, and by no other machine",
        file.display()
    ))
}
