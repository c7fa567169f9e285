//! Many embedded queues, and a configuration that runs them all.

use super::program::plugin;
use dispatcher_local::queue::LocalStore;
use serde_json::json;
use std::path::Path;

/// Makes queues `queue-0` and so on in the data folder. Returns the configuration file, in which one
/// route receives from all of them.
pub(crate) fn many(folder: &Path, count: usize) -> String {
    let names: Vec<String> = (0..count).map(|at| format!("queue-{at}")).collect();
    let store = LocalStore::open(folder).expect("it opens");
    for name in &names {
        drop(store.queue(name, None).expect("it opens"));
    }
    let queues: Vec<String> = names.iter().map(|name| format!("local:{name}")).collect();
    let (queues, component) = (json!(queues), json!(plugin("verdicts")));
    let text =
        format!("[[route]]\nqueues = {queues}\nplugin = 'p'\n[plugin.p]\nfile = {component}\n");
    let file = folder.join("queues.toml");
    std::fs::write(&file, text).expect("the folder is ours");
    file.display().to_string()
}
