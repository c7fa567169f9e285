//! The names by which people and other processes refer to this process.

/// Returns its id and machine: `7@host`.
pub fn label() -> String {
    let host = host_name().unwrap_or_else(|| "this-host".to_owned());
    format!("{}@{host}", std::process::id())
}

/// Returns the name of its machine or container, if there is one.
pub fn host_name() -> Option<String> {
    let file = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let host = file.trim();
    (!host.is_empty()).then(|| host.to_owned())
}
