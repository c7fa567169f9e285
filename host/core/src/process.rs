//! The names by which people and other processes refer to this process.

use std::sync::LazyLock;

/// The number of digits that tell the starts of the program apart.
const START_DIGITS: usize = 12;

/// Returns its id and machine: `7@host`.
pub fn label() -> String {
    let host = host_name().unwrap_or_else(|| "this-host".to_owned());
    format!("{}@{host}", std::process::id())
}

/// Returns its label with a part that no other start of the program has: `7@host/5f0c9e3ab214`. In
/// containers, processes often have the same label.
pub fn unique_name() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let start = uuid::Uuid::new_v4().simple().to_string();
        format!("{}/{}", label(), &start[..START_DIGITS])
    });
    &NAME
}

/// Returns the label in the unique name of a process.
pub fn label_in(name: &str) -> &str {
    name.split_once('/').map_or(name, |(label, _)| label)
}

/// Returns the name of its machine or container, if there is one.
pub fn host_name() -> Option<String> {
    let file = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let host = file.trim();
    (!host.is_empty()).then(|| host.to_owned())
}
